// What run does where nothing is wrong.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/cli/tiny_trace.h"
#include "tests/cli/tool.h"

namespace dspark::test {
namespace {

class Run : public testing::Test {
 protected:
  Run() {
    write_tiny_trace(sampled_);
    write_tiny_trace(greedy_, {.temperature = 0});
  }

  nlohmann::json result_of(std::vector<std::string> arguments, const std::string& policy = {}) {
    arguments.insert(arguments.begin(), "run");
    arguments.insert(arguments.end(), {"--backend", "cpu", "--format", "json"});
    if (!policy.empty()) {
      write_file(policy_, policy);
      arguments.insert(arguments.end(), {"-p", policy_});
    }
    const Outcome outcome = run_tool(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    notes_ = lines_of(outcome.err);
    return nlohmann::json::parse(outcome.out);
  }

  TemporaryFolder folder_;
  std::string sampled_ = folder_.file("sampled.h5");
  std::string greedy_ = folder_.file("greedy.h5");
  std::string policy_ = folder_.file("p.yaml");
  std::vector<std::string> notes_;
};

std::vector<std::string> policies_in(const nlohmann::json& result) {
  std::vector<std::string> names;
  for (const auto& row : result["results"]) names.push_back(row["policy"]);
  return names;
}

TEST_F(Run, TheResultSaysWhatRanOnWhat) {
  const nlohmann::json result = result_of({sampled_});
  EXPECT_EQ(result["format"], "dspark-replay-result");
  EXPECT_EQ(result["format_version"], 1);
  EXPECT_EQ(result["tool"]["backend"], "cpu");
  ASSERT_EQ(result["traces"].size(), 1U);
  const auto& trace = result["traces"][0];
  EXPECT_EQ(trace["file"], sampled_);
  EXPECT_EQ(trace["kind"], "anchors");
  EXPECT_EQ(trace["vocab_size"], 40);
  EXPECT_EQ(trace["block_size"], 3);
  EXPECT_EQ(trace["anchors"], 11);
  EXPECT_EQ(trace["sequences"], 2);
  EXPECT_EQ(trace["domain"], "made up");
  EXPECT_GE(result["run"]["seconds"].get<double>(), 0);
}

TEST_F(Run, TensorProductsAreExactOnTheCpuAndItSaysSo) {
  const std::string trace = bundled("prose_t07.h5");
  nlohmann::json exact = result_of({trace});
  EXPECT_EQ(exact["settings"]["products"], "exact");
  for (const std::string& note : notes_) EXPECT_THAT(note, Not(testing::HasSubstr("products")));
  nlohmann::json tensor = result_of({trace, "--products", "tensor"});
  EXPECT_THAT(notes_, testing::Contains(testing::HasSubstr("its products are exact")));
  exact.erase("run");
  tensor.erase("run");
  EXPECT_EQ(tensor, exact);
}

TEST_F(Run, TheDefaultSweepHasEveryFixedLengthThresholdsSpsAndBounds) {
  const nlohmann::json result = result_of({sampled_});
  const std::vector<std::string> policies = policies_in(result);
  EXPECT_EQ(std::count(policies.begin(), policies.end(), "none"), 1);
  EXPECT_EQ(std::count(policies.begin(), policies.end(), "fixed"), 4);
  EXPECT_EQ(std::count(policies.begin(), policies.end(), "threshold"), 19);
  EXPECT_EQ(std::count(policies.begin(), policies.end(), "sps"), 3);
  EXPECT_EQ(std::count(policies.begin(), policies.end(), "oracle"), 2);
  EXPECT_EQ(std::count(policies.begin(), policies.end(), "oracle_confidence"), 1);
  EXPECT_EQ(notes_.size(), result["notes"].size()) << "nothing is left out";
}

TEST_F(Run, RowsAreRankedByTokensPerCostWithTheBoundsBehindThem) {
  const nlohmann::json result = result_of({sampled_});
  double last = HUGE_VAL;
  bool bound = false;
  for (const auto& row : result["results"]) {
    if (row["bound"] && !bound) last = HUGE_VAL;
    EXPECT_LE(bound, row["bound"].get<bool>());
    bound = row["bound"];
    const double value = row["tokens_per_cost"];
    EXPECT_LE(value, last);
    last = value;
  }
}

TEST_F(Run, BaselinesAreThereWhateverThePolicyFileAsksFor) {
  const nlohmann::json result =
      result_of({sampled_}, "version: 1\npolicies:\n  - {policy: sps, survival_floor: 0.2}\n");
  EXPECT_THAT(policies_in(result),
              testing::UnorderedElementsAre("none", "fixed", "fixed", "fixed", "fixed", "sps"));
}

TEST_F(Run, VerificationComesFromTheRecording) {
  EXPECT_EQ(result_of({sampled_})["results"][0]["verification"], "probabilistic");
  EXPECT_EQ(result_of({greedy_})["results"][0]["verification"], "greedy");
}

TEST_F(Run, EachVerificationIsAnsweredByTheTracesThatCan) {
  const nlohmann::json result =
      result_of({sampled_, greedy_}, "version: 1\nverification: [greedy, probabilistic]\n");
  EXPECT_EQ(result["traces"].size(), 2U);
  for (const auto& row : result["results"]) {
    EXPECT_EQ(row["verification"], row["trace"] == greedy_ ? "greedy" : "probabilistic");
  }
  EXPECT_THAT(notes_, testing::Contains(testing::HasSubstr("sampled.h5: recorded at")));
  EXPECT_THAT(notes_, testing::Contains(testing::HasSubstr("greedy.h5: recorded at")));
}

TEST_F(Run, ATraceThatAnswersNoVerificationIsLeftOut) {
  const nlohmann::json result =
      result_of({sampled_, greedy_}, "version: 1\nverification: greedy\n");
  ASSERT_EQ(result["traces"].size(), 1U);
  EXPECT_EQ(result["traces"][0]["file"], greedy_);
  EXPECT_THAT(notes_, testing::Contains(testing::HasSubstr("sampled.h5: recorded at")));
}

TEST_F(Run, TheRecordedSettingMayBeNamed) {
  write_tiny_trace(sampled_, {.temperature = 0.7, .f32_attributes = true});
  const nlohmann::json result =
      result_of({sampled_}, "version: 1\nsampling: {temperature: 0.7, top_k: 40, top_p: 1.0}\n");
  EXPECT_FALSE(result["results"].empty());
}

TEST_F(Run, TheTopPRuleMayBeSwept) {
  const nlohmann::json result = result_of(
      {sampled_}, "version: 1\nsampling: {top_p_rule: [water_filling, include_crossing]}\n");
  EXPECT_EQ(result["traces"].size(), 1U);
  std::size_t crossing = 0;
  for (const auto& row : result["results"]) {
    crossing += row["sampling"]["top_p_rule"] == "include_crossing" ? 1 : 0;
  }
  EXPECT_EQ(2 * crossing, result["results"].size());
}

TEST_F(Run, ASettingThatWasNotRecordedIsEstimatedAndNotRankedOnFewSamples) {
  const nlohmann::json result =
      result_of({sampled_}, "version: 1\nsampling: {temperature: [1, 0.7]}\n");
  EXPECT_EQ(result["traces"].size(), 1U);
  std::size_t estimates = 0;
  std::size_t bounds = 0;
  for (const auto& row : result["results"]) {
    if (row["bound"].get<bool>()) {
      ++bounds;
      EXPECT_EQ(row["sampling"]["temperature"], 1) << "the oracles need a closed loop";
      continue;
    }
    EXPECT_EQ(row["off_policy"].get<bool>(), row["sampling"]["temperature"] != 1);
    EXPECT_TRUE(row["lossless"].get<bool>());
    EXPECT_GE(row["tau"].get<double>(), 1);
    EXPECT_FALSE(row["verified_per_round"].is_null());
    const bool recorded = row["sampling"]["temperature"] == 1;
    EXPECT_EQ(row["tokens_per_cost"].is_null(), !recorded) << row;
    EXPECT_EQ(row["speedup"].is_null(), !recorded) << row;
    EXPECT_EQ(row["rounds"].is_null(), !recorded) << row;
    EXPECT_EQ(row["interval"]["tau"].is_array(), recorded) << "too few effective samples" << row;
    EXPECT_EQ(row["interval"]["tokens_per_cost"].is_array(), recorded) << row;
    EXPECT_GT(row["ledger"]["rounds"].get<double>(), 0) << row;
    estimates += recorded ? 0 : 1;
  }
  EXPECT_EQ(bounds, 3U);
  EXPECT_EQ(2 * estimates, result["results"].size() - bounds);
  EXPECT_THAT(notes_, testing::ElementsAre(
                          testing::HasSubstr("probabilistic verification at temperature 0.7"),
                          testing::HasSubstr("below 200 even the intervals are rough"),
                          testing::HasSubstr("the oracles, and policies that look at several"),
                          testing::HasSubstr("below 200 even the intervals are rough"),
                          testing::HasSubstr("rest on fewer than 100 effective samples")));
}

TEST_F(Run, GreedyVerificationOfASampledTraceHasABracket) {
  const nlohmann::json result =
      result_of({sampled_}, "version: 1\nverification: [greedy, probabilistic]\n");
  std::size_t greedy = 0, bounds = 0;
  for (const auto& row : result["results"]) {
    EXPECT_EQ(row["tau_lo"].is_null(), row["verification"] == "probabilistic");
    if (row["bound"].get<bool>()) {
      ++bounds;
      EXPECT_EQ(row["verification"], "probabilistic") << "the oracles need a closed loop";
    }
    if (row["verification"] == "probabilistic") continue;
    EXPECT_LE(row["tau_lo"].get<double>(), row["tau_hi"].get<double>());
    EXPECT_FALSE(row["censored_rounds"].is_null());
    ++greedy;
  }
  EXPECT_EQ(2 * greedy, result["results"].size() - bounds);
  // Each policy stands beside itself; the bounds do not.
  EXPECT_EQ(result["pairs"].size(), greedy);
  for (const auto& pair : result["pairs"]) {
    EXPECT_TRUE(pair["greedy"]["off_policy"].get<bool>());
    EXPECT_FALSE(pair["probabilistic"]["off_policy"].get<bool>());
    EXPECT_EQ(pair["greedy"]["trace"], pair["probabilistic"]["trace"]);
    EXPECT_DOUBLE_EQ(
        pair["difference"]["tau"].get<double>(),
        pair["greedy"]["tau"].get<double>() - pair["probabilistic"]["tau"].get<double>());
  }
}

TEST_F(Run, GreedyDraftsWithSampledVerificationNeedNoWorlds) {
  const nlohmann::json result = result_of({sampled_}, "version: 1\nsampling: {drafts: greedy}\n");
  EXPECT_THAT(notes_,
              testing::ElementsAre(testing::HasSubstr("below 200 even the intervals are rough"),
                                   testing::HasSubstr("no schedule can win")));
  for (const auto& row : result["results"]) {
    EXPECT_EQ(row["sampling"]["drafts"], "greedy");
    if (row["bound"].get<bool>()) continue;
    EXPECT_EQ(row["verification"], "probabilistic");
    EXPECT_TRUE(row["verified_per_round_se"].is_null()) << "exact";
    EXPECT_EQ(row["verified_per_round"], row["verified_per_round_on_trajectory"]);
    EXPECT_FALSE(row["tokens_per_cost"].is_null());
  }
}

TEST_F(Run, WithoutConfidencesTheDefaultSweepSaysWhatItLeavesOut) {
  write_tiny_trace(sampled_, {.with_confidence_head = false});
  EXPECT_THAT(policies_in(result_of({sampled_})),
              testing::UnorderedElementsAre("none", "fixed", "fixed", "fixed", "fixed", "oracle",
                                            "oracle", "oracle_confidence"));
  EXPECT_THAT(notes_, testing::Contains(testing::HasSubstr("no confidence head")));
  write_tiny_trace(sampled_, {.with_draft_hidden = false});
  static_cast<void>(result_of({sampled_}));
  EXPECT_THAT(notes_, testing::Contains(testing::HasSubstr("no draft_hidden")));
}

TEST_F(Run, RowsAreComparedWithTheBestOneOrTheOneNamed) {
  for (const std::size_t rank : {1U, 3U}) {
    const nlohmann::json result = result_of({sampled_, "--reference", std::to_string(rank)});
    EXPECT_EQ(result["settings"]["reference"], rank);
    for (std::size_t i = 0; i < result["results"].size(); ++i) {
      const auto& row = result["results"][i];
      EXPECT_EQ(row["reference"], i + 1 == rank) << i;
      EXPECT_EQ(row["versus_reference"].is_null(), i + 1 == rank) << i;
    }
  }
  expect_error(run_tool({"run", sampled_, "--backend", "cpu", "--reference", "28"}), 2,
               {"--reference", "no rank 28", "from 1 to 27"});
}

TEST_F(Run, TheConfidenceIsThatOfTheIntervals) {
  const auto width = [&](const char* confidence) {
    const nlohmann::json result = result_of({bundled("code_t0.h5"), "--confidence", confidence});
    for (const auto& row : result["results"]) {
      if (row["policy"] != "fixed" || row["parameters"]["length"] != 3) continue;
      EXPECT_EQ(row["interval"]["confidence"], std::stod(confidence));
      return row["interval"]["tau"][1].get<double>() - row["interval"]["tau"][0].get<double>();
    }
    return 0.0;
  };
  const double wide = width("0.95");
  EXPECT_GT(wide, 0);
  EXPECT_LT(width("0.8"), wide);
}

TEST_F(Run, FewRoundsAreNotedOnStandardErrorAndInTheResult) {
  const nlohmann::json result = result_of({sampled_});
  EXPECT_THAT(notes_, testing::Contains(testing::HasSubstr("some rows rest on as few as")));
  ASSERT_FALSE(result["notes"].empty());
  EXPECT_THAT(notes_, testing::Contains(testing::HasSubstr(result["notes"][0])));
}

TEST_F(Run, SaysWhereNoScheduleCanWin) {
  // Drafts that cost as much as ten steps.
  const nlohmann::json result = result_of(
      {sampled_},
      "version: 1\ncost: {linear: {draft: 10, verify_base: 1, verify_token: 0, accept: 0}}\n"
      "policies: [{policy: oracle, bound: shortest}]\n");
  EXPECT_THAT(notes_, testing::Contains(testing::HasSubstr("no schedule can win")));
  EXPECT_EQ(result["results"].back()["policy"], "oracle");
  EXPECT_LT(result["results"].back()["speedup"], 1);
}

TEST_F(Run, OracleConfidenceNeedsATraceOfAnchors) {
  write_file(policy_, "version: 1\npolicies: [{policy: oracle_confidence}]\n");
  expect_error(run_tool({"run", bundled("rounds_code_t1.h5"), "--backend", "cpu", "-p", policy_}),
               3, {"p.yaml:2:12", "oracle_confidence", "trace of rounds"});
  EXPECT_THAT(policies_in(result_of({bundled("rounds_code_t1.h5")})),
              testing::AllOf(testing::Contains("oracle"),
                             testing::Not(testing::Contains("oracle_confidence"))));
}

TEST_F(Run, TheBundledRoundsAreReproduced) {
  const nlohmann::json result = result_of({bundled("rounds_code_t1.h5"), "--strict"});
  const auto& trace = result["traces"][0];
  EXPECT_EQ(trace["kind"], "rounds");
  EXPECT_GT(trace["rounds"], 0);
  EXPECT_EQ(trace["reproduced"], trace["rounds"]);
  EXPECT_EQ(trace["diverged"], 0);
}

TEST_F(Run, APolicyFileMayComeFromStandardInput) {
  const std::string text = "version: 1\npolicies: [{policy: fixed, length: 2}]\n";
  const std::vector<std::string> common = {"run", sampled_, "--backend", "cpu", "--format", "csv"};
  write_file(policy_, text);
  std::vector<std::string> from_file = common;
  from_file.insert(from_file.end(), {"-p", policy_});
  std::vector<std::string> from_input = common;
  from_input.insert(from_input.end(), {"-p", "-"});
  const Outcome file = run_tool(from_file);
  const Outcome input = run_tool(Invocation{.arguments = from_input, .input = text});
  EXPECT_EQ(input.exit_code, 0) << input.err;
  EXPECT_EQ(input.out, file.out);
}

TEST_F(Run, ThePrintedPolicyFileReadsBackAsItself) {
  for (const std::string text :
       {"version: 1\n", "version: 1\nsampling: {drafts: [greedy, sampled]}\n",
        "version: 1\nverification: probabilistic\nsampling: {temperature: 1, top_p_rule: "
        "include_crossing}\ncost: {linear: {draft: 1, verify_base: 2, verify_token: 0.25, accept: "
        "0}}\npolicies:\n  - {policy: threshold, threshold: {from: 0.1, to: 0.5, step: 0.1}}\n  - "
        "{policy: sps, survival_floor: [0, 0.5], max_length: 2}\n"}) {
    const Outcome first =
        run_tool(Invocation{.arguments = {"run", "--print-policy", "-p", "-"}, .input = text});
    ASSERT_EQ(first.exit_code, 0) << first.err;
    const Outcome second =
        run_tool(Invocation{.arguments = {"run", "--print-policy", "-p", "-"}, .input = first.out});
    EXPECT_EQ(second.exit_code, 0) << second.err;
    EXPECT_EQ(second.out, first.out);
  }
}

TEST_F(Run, PrintPolicyNeedsNoTraceAndReadsNone) {
  EXPECT_EQ(run_tool({"run", "--print-policy"}).exit_code, 0);
  EXPECT_EQ(run_tool({"run", "none.h5", "--print-policy"}).exit_code, 0);
  expect_error(run_tool({"run", "--print-policy", "-p", folder_.file("none.yaml")}), 3,
               {"none.yaml"});
}

TEST_F(Run, QuietSilencesNotes) {
  write_tiny_trace(sampled_, {.with_confidence_head = false});
  const Outcome outcome = run_tool({"run", sampled_, "--backend", "cpu", "--quiet"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
}

}  // namespace
}  // namespace dspark::test
