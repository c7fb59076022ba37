// run under a load: several requests in flight, cost tables, calibrated confidences, exports.
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/tiny_trace.h"
#include "tests/cli/tool.h"

namespace dspark::test {
namespace {

constexpr const char* kRows = R"({"verify": [
  {"requests": 1, "tokens": 1, "ms": 4.0}, {"requests": 1, "tokens": 4, "ms": 5.0},
  {"requests": 4, "tokens": 4, "ms": 4.5}, {"requests": 4, "tokens": 16, "ms": 9.0}],
  "draft": [{"requests": 1, "ms": 0.5}, {"requests": 4, "ms": 0.8}]})";

class Load : public testing::Test {
 protected:
  Load() {
    write_tiny_trace(trace_);
    write_file(table_, kRows);
  }

  Outcome run(const std::string& policy, std::vector<std::string> arguments = {}) {
    write_file(policy_, "version: 1\n" + policy);
    arguments.insert(arguments.begin(), {"run", trace_, "-p", policy_, "--backend", "cpu"});
    return run_tool(arguments);
  }
  nlohmann::json result_of(const std::string& policy, std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.end(), {"--format", "json"});
    const Outcome outcome = run(policy, std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  }

  TemporaryFolder folder_;
  std::string trace_ = folder_.file("sampled.h5");
  std::string policy_ = folder_.file("p.yaml");
  std::string table_ = folder_.file("rows.json");
};

TEST_F(Load, EveryPolicyHasARowAtEveryConcurrency) {
  const nlohmann::json result = result_of(
      "cost: {table: rows.json, overhead: 0.1, buckets: [2, 4, 8, 16]}\n"
      "concurrency: [4, 1]\n"
      "policies:\n"
      "- {policy: threshold, threshold: 0.4}\n- {policy: sps}\n- {policy: softmax_min, minimum: "
      "0.2}\n"
      "- {policy: schedule, lengths: {1: 3, 2: 0}}\n- {policy: budget_fraction, fraction: 0.5}\n"
      "- {policy: count_budget}\n- {policy: algorithm1}\n- {policy: global, lag: [0, 1]}\n"
      "- {policy: global, fill_buckets: true}\n- {policy: capped_ewma}\n"
      "- {policy: gate, window: 2, min_accepted: 0.1, wrap: {policy: fixed, length: 1}}\n"
      "- {policy: oracle, bound: [no_waste, shortest]}\n- {policy: oracle_confidence}\n");
  const std::set<std::string> walked = {"budget_fraction", "count_budget", "algorithm1",
                                        "global",          "capped_ewma",  "gate"};
  std::map<int, int> rows;
  for (const auto& row : result["results"]) {
    const std::string policy = row["policy"];
    const int requests = row["concurrency"];
    ++rows[requests];
    EXPECT_EQ(row["walked"].get<bool>(), walked.contains(policy)) << row;
    EXPECT_GE(row["tau"].get<double>(), 1) << row;
    if (policy == "oracle" && row["parameters"]["bound"] == "shortest" && requests > 1) {
      EXPECT_TRUE(row["tokens_per_cost"].is_null()) << "a bound for one request alone";
      continue;
    }
    EXPECT_NEAR(row["cost_per_step"].get<double>(), requests * row["cost_per_round"].get<double>(),
                1e-9);
    EXPECT_NEAR(row["tokens_per_cost"].get<double>(),
                row["tau"].get<double>() / row["cost_per_round"].get<double>(), 1e-9);
    EXPECT_NEAR(row["tokens_per_cost_per_user"].get<double>() * requests,
                row["tokens_per_cost"].get<double>(), 1e-9);
    const auto& ledger = row["ledger"];
    EXPECT_NEAR(ledger["draft_cost"].get<double>() + ledger["verify_cost"].get<double>() +
                    ledger["accept_cost"].get<double>() + ledger["overhead_cost"].get<double>(),
                ledger["rounds"].get<double>() * row["cost_per_round"].get<double>(), 1e-6);
    if (policy == "none") {
      EXPECT_DOUBLE_EQ(row["speedup"].get<double>(), 1);
    }
  }
  // none and four lengths, and those of the file.
  EXPECT_EQ(rows, (std::map<int, int>{{1, 5 + 15}, {4, 5 + 15}}));
  ASSERT_EQ(result["best"].size(), 2U);
  EXPECT_EQ(result["best"][0]["concurrency"], 1);
  EXPECT_EQ(result["settings"]["cost"]["format"], "rows");
  EXPECT_EQ(result["settings"]["cost"]["unit"], "ms");
}

TEST_F(Load, RanksAreThoseOfOneConcurrency) {
  const nlohmann::json result = result_of("concurrency: [1, 8]\n");
  std::map<int, double> last;
  std::map<int, int> references;
  for (const auto& row : result["results"]) {
    const int requests = row["concurrency"];
    references[requests] += row["reference"].get<bool>() ? 1 : 0;
    if (row["bound"].get<bool>()) continue;
    const double value = row["tokens_per_cost"];
    if (last.contains(requests)) {
      EXPECT_LE(value, last[requests]);
    }
    last[requests] = value;
  }
  EXPECT_EQ(references, (std::map<int, int>{{1, 1}, {8, 1}}));
}

TEST_F(Load, ThreadsDoNotChangeAByte) {
  const std::string policy =
      "concurrency: [1, 3]\ncost: {table: rows.json}\npolicies:\n"
      "- {policy: global, lag: [0, 2]}\n- {policy: gate, window: 1, min_accepted: 0.5, wrap: "
      "{policy: algorithm1}}\n- {policy: threshold, threshold: [0.2, 0.6]}\n";
  const auto csv = [&](const char* threads) {
    return run(policy, {"--format", "csv", "--threads", threads}).out;
  };
  EXPECT_EQ(csv("1"), csv("2"));
  EXPECT_FALSE(csv("1").empty());
}

TEST_F(Load, AFlatTableIsRefusedByPoliciesThatOptimise) {
  const std::string flat = folder_.file("flat.json");
  write_file(flat, R"({"token_counts": [1, 64], "step_time_ms": [5, 5.01]})");
  for (const char* policy : {"algorithm1", "global", "sps", "capped_ewma"}) {
    const std::string text = std::string("policies: [{policy: ") + policy + "}]\n";
    expect_error(run(text, {"--cost", flat}), 3,
                 {policy_ + ":2:12", std::string("policy '") + policy + "'", flat, "is flat",
                  "--allow-flat-cost"});
    EXPECT_EQ(run(text, {"--cost", flat, "--allow-flat-cost"}).exit_code, 0);
  }
  EXPECT_EQ(run("policies: [{policy: threshold, threshold: 0.5}]\n", {"--cost", flat}).exit_code,
            0);
  // The default sweep goes on without.
  const Outcome outcome = run_tool({"run", trace_, "--cost", flat, "--backend", "cpu"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.err.find("flat, so sps is left out"), std::string::npos) << outcome.err;
}

TEST_F(Load, CostTablesAreCheckedBeforeTraces) {
  expect_error(run("cost: {table: none.json}\n"), 3, {"none.json", "cannot be opened"});
  write_file(table_, R"({"token_counts": [4, 1], "step_time_ms": [5, 6]})");
  trace_ = "missing.h5";
  expect_error(run("cost: {table: rows.json}\n"), 3, {"rows.json", "token_counts"});
  expect_error(run("policies: [{policy: exact_table}]\n"), 3, {"exact table"});
}

TEST_F(Load, CalibrationIsAppliedAndSaysWhatItIsWorth) {
  const std::string file = folder_.file("sts.json");
  const std::string policy = "policies: [{policy: threshold, threshold: 0.4, min_length: 0}]\n";
  write_file(file, R"({"temperatures": [1, 1, 1]})");
  const nlohmann::json plain = result_of(policy);
  const nlohmann::json same = result_of(policy, {"--calibration", file});
  EXPECT_EQ(plain["results"], same["results"]) << "temperatures of 1 change nothing";
  ASSERT_EQ(same["calibration_worth"].size(), 1U);
  const auto& worth = same["calibration_worth"][0];
  EXPECT_EQ(worth["before"], worth["after"]);
  EXPECT_FALSE(worth["oracle_confidence"].is_null());

  write_file(file, R"({"temperatures": [0.1, 0.1, 0.1]})");
  EXPECT_NE(plain["results"], result_of(policy, {"--calibration", file})["results"]);
  write_file(file, R"({"temperatures": [1, 1]})");
  expect_error(run(policy, {"--calibration", file}), 3, {file, "2 temperatures", "3 drafts"});
  write_file(file, R"({"temperatures": [1, 1, 0]})");
  expect_error(run(policy, {"--calibration", file}), 3, {file});
}

TEST_F(Load, AnExportHoldsTheSettingsOfTheEngines) {
  const std::string folder = folder_.file("settings");
  const Outcome outcome =
      run("cost: {table: rows.json}\nconcurrency: [1, 4]\n", {"--export", folder, "--quiet"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_FALSE(outcome.out.empty());
  EXPECT_NE(read_file(folder + "/README.md").find("4 |"), std::string::npos);
  EXPECT_NE(read_file(folder + "/edge_llm.sh").find("EDGE_LLM_FLAGS_4="), std::string::npos);
  const nlohmann::json schedule = nlohmann::json::parse(read_file(folder + "/trtllm.json"));
  EXPECT_TRUE(schedule["draft_len_schedule"].contains("1"));
  // What was written can be read again.
  EXPECT_EQ(run("", {"--cost", folder + "/sglang_cost.json"}).exit_code, 0);
  EXPECT_EQ(run("", {"--cost", folder + "/trtllm_cost.json"}).exit_code, 0);
  expect_error(run("", {"--export", policy_}), 2, {"--export", policy_});
}

TEST_F(Load, InputsAreNeverOverwritten) {
  const std::string policy = "cost: {table: rows.json}\n";
  expect_error(run(policy, {"-o", table_}), 2, {table_, "inputs are never overwritten"});
  const std::string settings = folder_.file("settings");
  ASSERT_EQ(run(policy, {"--export", settings}).exit_code, 0);
  write_file(policy_, "version: 1\ncost: {table: settings/sglang_cost.json}\n");
  expect_error(run_tool({"run", trace_, "-p", policy_, "--export", settings, "--backend", "cpu"}),
               2, {"sglang_cost.json", "inputs are never overwritten"});
  expect_error(run(policy, {"--export", settings, "-o", settings + "/x.json"}), 2,
               {"is in that folder"});
  EXPECT_EQ(read_file(table_), kRows);
}

TEST_F(Load, CostOnTheCommandLineReplacesThatOfThePolicyFile) {
  const nlohmann::json result =
      result_of("cost: {table: gone.json, overhead: 3, buckets: [4]}\n", {"--cost", table_});
  EXPECT_EQ(result["settings"]["cost"]["table"], table_);
  EXPECT_EQ(result["settings"]["cost"]["overhead"], 0);
  EXPECT_TRUE(result["settings"]["cost"]["buckets"].empty());
}

TEST_F(Load, StandardInputIsReadOnce) {
  expect_error(run_tool({"run", trace_, "-p", "-", "--cost", "-"}), 2,
               {"standard input can be read only once"});
  expect_error(run_tool({"run", trace_, "--export", "--quiet"}), 2, {"--export"});
  expect_error(run_tool({"run", trace_, "--export", "-"}), 2, {"--export"});
}

TEST_F(Load, ACalibrationNeedsConfidences) {
  write_tiny_trace(trace_, {.with_confidence_head = false});
  const std::string file = folder_.file("sts.json");
  write_file(file, R"({"temperatures": [1, 1, 1]})");
  expect_error(run_tool({"run", trace_, "--calibration", file, "--backend", "cpu", "--quiet"}), 3,
               {file, "nothing to calibrate"});
}

TEST_F(Load, AnExactTableIsOfOneBlockSize) {
  const std::string exact = std::string(DSPARK_SOURCE) + "/configs/cost/trtllm_exact.json";
  expect_error(run("policies: [{policy: exact_table}]\n", {"--cost", exact, "--quiet"}), 3,
               {"blocks of 7 drafts", "has 3"});
}

TEST_F(Load, RoundsAnswerPoliciesOfOneRequestAlone) {
  trace_ = bundled("rounds_code_t1.h5");
  expect_error(run("policies: [{policy: algorithm1}]\n"), 3,
               {policy_ + ":2:12", "'algorithm1'", "trace of rounds"});
  EXPECT_EQ(run("concurrency: [1, 8]\npolicies: [{policy: softmax_min, minimum: 0.3}]\n").exit_code,
            0);
}

}  // namespace
}  // namespace dspark::test
