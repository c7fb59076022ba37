// dspark-replay cost, as a user runs it.
#include <nlohmann/json.hpp>

#include "tests/cli/tool.h"

namespace dspark::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string table_file(const std::string& name) {
  return std::string(DSPARK_SOURCE) + "/configs/cost/" + name + ".json";
}

const std::vector<std::string> kExamples = {"sglang_1d",          "sglang_2d",   "trtllm",
                                            "trtllm_exact",       "vllm_ascend", "mlx",
                                            "h200_qwen3_8b_shape"};

TEST(Cost, PrintsATableWithItsLookupRuleUnitAndWarnings) {
  const Outcome outcome = run_tool({"cost", table_file("sglang_1d")});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("sglang_1d.json (sglang-1d)\n"), HasSubstr("steps/s"),
                                 HasSubstr("the largest probe at or below"),
                                 HasSubstr("verify      16      150   6.6667\n"),
                                 HasSubstr("  warning: draft: no draft time")));
}

TEST(Cost, ReadsEveryFormatInOneCall) {
  std::vector<std::string> arguments = {"cost", "--format", "json"};
  for (const std::string& name : kExamples) arguments.push_back(table_file(name));
  const Outcome outcome = run_tool(arguments);
  EXPECT_EQ(outcome.exit_code, 0);
  const auto result = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(result["format"], "dspark-cost");
  EXPECT_EQ(result["format_version"], 1);
  ASSERT_EQ(result["tables"].size(), kExamples.size());
  for (const auto& table : result["tables"]) {
    EXPECT_FALSE(table["probes"].empty());
    EXPECT_EQ(table["flat"], false);
  }
  const auto& rates = result["tables"][0];
  EXPECT_EQ(rates["unit"], "steps/s");
  EXPECT_EQ(rates["probes"][1], (nlohmann::json{{"part", "verify"},
                                                {"requests", nullptr},
                                                {"tokens", 16},
                                                {"value", 150.0},
                                                {"ms", 1000 / 150.0}}));
  EXPECT_EQ(result["tables"][2]["minimum_predicted_gain"], 0.01);
  EXPECT_EQ(result["tables"][3]["drain_guard"]["tail_graph_batch_size"], 16);
  EXPECT_EQ(result["tables"][4]["drain_guard"], nullptr);
}

TEST(Cost, HasOneLinePerTableInJsonLinesAndOnePerProbeInCsv) {
  const std::vector<std::string> files = {table_file("trtllm"), table_file("vllm_ascend")};
  const Outcome lines = run_tool({"cost", "--format", "jsonl", files[0], files[1]});
  ASSERT_EQ(lines_of(lines.out).size(), 3U);
  EXPECT_EQ(nlohmann::json::parse(lines_of(lines.out)[0])["type"], "header");
  EXPECT_EQ(nlohmann::json::parse(lines_of(lines.out)[2])["table"], "vllm-ascend");
  const std::vector<std::string> csv =
      lines_of(run_tool({"cost", "--format", "csv", files[0], files[1]}).out);
  ASSERT_EQ(csv.size(), 1U + 13U + 6U);
  EXPECT_EQ(csv[0], "file,table,part,requests,tokens,value,unit,ms");
  EXPECT_THAT(csv[3], testing::EndsWith(",trtllm,requests,8,,0.12,ms,0.12"));
  EXPECT_THAT(csv[14], testing::EndsWith(",vllm-ascend,verify,,8,6.4,ms,6.4"));
  EXPECT_THAT(run_tool({"cost", "--format", "md", files[0]}).out,
              AllOf(testing::StartsWith("## "), HasSubstr("| part | requests | tokens | ms |")));
}

TEST(Cost, ReadsStandardInput) {
  const Outcome outcome = run_tool(
      Invocation{.arguments = {"cost", "-"}, .input = R"({"latency_ms": {"8": 1, "9": 2}})"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, testing::StartsWith("<stdin> (vllm-ascend)\n"));
}

TEST(Cost, SaysThatAFlatTableIsRefusedByPoliciesThatOptimise) {
  const Outcome outcome = run_tool(
      Invocation{.arguments = {"cost", "-"}, .input = R"({"latency_ms": {"8": 10, "9": 10.1}})"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("  refuse: latency_ms: flat"));
}

TEST(Cost, WarnsOfStepsBeyondTheTable) {
  const std::string file = table_file("h200_qwen3_8b_shape");
  const Outcome beyond = run_tool({"cost", file, "--requests", "256", "--tokens-per-request", "8"});
  EXPECT_THAT(beyond.out, AllOf(HasSubstr("warning: verify, requests 1: narrower than asked for: "
                                          "steps above 128 requests"),
                                HasSubstr("steps above 1024 tokens")));
  const Outcome within = run_tool({"cost", file, "--requests", "128", "--tokens-per-request", "8"});
  EXPECT_THAT(within.out, testing::Not(HasSubstr("narrower")));
}

TEST(Cost, ConvertsEveryExampleToEveryFormatAndBackToTheSameBytes) {
  const TemporaryFolder folder;
  const std::string first = folder.file("first.json");
  const std::string second = folder.file("second.json");
  for (const std::string& name : kExamples) {
    for (const std::string to : {"sglang-1d", "sglang-2d", "trtllm", "vllm-ascend", "rows"}) {
      SCOPED_TRACE(name + " to " + to);
      const Outcome outcome = run_tool(
          {"cost", table_file(name), "--to", to, "--tokens-per-request", "8", "-q", "-o", first});
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      EXPECT_EQ(outcome.err, "");
      ASSERT_EQ(run_tool({"cost", first, "--to", to, "-q", "-o", second}).exit_code, 0);
      EXPECT_EQ(read_file(first), read_file(second));
    }
  }
}

TEST(Cost, TellsWhatAConversionChanges) {
  const Outcome outcome = run_tool({"cost", table_file("sglang_1d"), "--to", "vllm-ascend"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("\"sps\""));
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("at the probes nothing changes (7 places)"),
                    HasSubstr("between the probes 18 of 18 places change, most at 1 request, 257 "
                              "tokens: 14.23 to 25.32 ms (+77.8 %)")));
  const Outcome lossy = run_tool({"cost", table_file("mlx"), "--to", "sglang-2d"});
  EXPECT_THAT(lossy.err,
              HasSubstr("left out, as sglang-2d has no place for it: the draft time, the "
                        "overhead"));
}

TEST(Cost, RefusesBrokenTablesWithTheFileAndTheKey) {
  const TemporaryFolder folder;
  const std::string bad = folder.file("bad.json");
  write_file(bad, R"({"token_counts": [1, 2], "step_time_ms": [1, NaN]})");
  expect_error(run_tool({"cost", bad}), 3, {"bad.json:1:", "step_time_ms[1]: NaN is not a number"});
  write_file(bad, R"({"token_counts": [2, 1], "step_time_ms": [1, 2]})");
  expect_error(run_tool({"cost", table_file("trtllm"), bad}), 3,
               {"bad.json: token_counts[1]: 1 does not increase from 2"});
  expect_error(run_tool({"cost", folder.file("none.json")}), 3, {"none.json: cannot be opened"});
  expect_error(run_tool({"cost", folder.path().string()}), 3, {"is a directory"});
}

TEST(Cost, LeavesTheOldFileWhereAConversionFails) {
  const TemporaryFolder folder;
  const std::string out = folder.file("out.json");
  write_file(out, "old");
  expect_error(run_tool({"cost", table_file("trtllm"), "--to", "sglang-1d", "-o", out}), 2,
               {"--tokens-per-request N"});
  EXPECT_EQ(read_file(out), "old");
}

TEST(Cost, RefusesFlagsThatMakeNoSense) {
  const std::string file = table_file("trtllm");
  expect_error(run_tool({"cost"}), 2, {"no cost table given", "cost FILE"});
  expect_error(run_tool({"cost", ""}), 2, {"TABLE: the path is empty"});
  expect_error(run_tool({"cost", file, file}), 2, {"the same file", "give each table once"});
  expect_error(run_tool({"cost", file, "--to", "vllm"}), 2, {"--to: 'vllm'", "vllm-ascend"});
  expect_error(run_tool({"cost", file, "--to", "mlx"}), 3, {file, "made of no other"});
  expect_error(run_tool({"cost", file, table_file("mlx"), "--to", "rows"}), 2, {"--to: one file"});
  expect_error(run_tool({"cost", file, "--to", "rows", "--format", "csv"}), 2, {"--format"});
  expect_error(run_tool({"cost", file, "--tokens-per-request", "0"}), 2,
               {"--tokens-per-request: '0'"});
  expect_error(run_tool({"cost", file, "--requests", "x"}), 2, {"--requests: 'x'"});
  expect_error(run_tool({"cost", file, "--entry", ""}), 2, {"--entry: the name is empty"});
  expect_error(run_tool({"cost", file, "--heads", "h.h5"}), 2,
               {"--heads: a cost table has no heads"});
  const TemporaryFolder folder;
  const std::string copy = folder.file("t.json");
  write_file(copy, read_file(file));
  expect_error(run_tool({"cost", copy, "--to", "rows", "-o", copy}), 2, {"input"});
  EXPECT_EQ(read_file(copy), read_file(file));
}

TEST(Cost, EscapesHostileNames) {
  const TemporaryFolder folder;
  const std::string file = folder.file("a\n\x1b[2J.json");
  write_file(file, R"({"curves": {"a\n|b": {"X\u001b": {"8": 1, "9": 2}}}, "workload": "a\n|b"})");
  for (const char* format : {"table", "md", "csv", "json", "jsonl"}) {
    const Outcome outcome = run_tool({"cost", file, "--format", format});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << format;
  }
}

TEST(Cost, HelpOffersOnlyWhatItTakes) {
  const Outcome help = run_tool({"cost", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("--to FORMAT"), HasSubstr("Exit codes:")));
  for (const char* flag : {"--backend", "--threads", "--seed", "--memory-budget", "--heads"}) {
    EXPECT_THAT(help.out, testing::Not(HasSubstr(flag)));
  }
}

}  // namespace
}  // namespace dspark::test
