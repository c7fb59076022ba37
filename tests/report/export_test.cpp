// What a replay recommends, as files of the engines.
#include "report/export.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "calibration/calibration.h"
#include "cost/cost_model.h"
#include "report/export_engines.h"

namespace dspark {
namespace {

using Parameters = std::vector<std::pair<std::string, ParameterValue>>;
using Json = nlohmann::ordered_json;

constexpr std::int32_t kBlock = 7;

ParameterValue whole(std::int64_t value) { return value; }

PolicyResult row_of(std::string policy, Parameters parameters, std::int32_t requests,
                    double tokens_per_cost) {
  PolicyResult row;
  row.trace = "folder/code.h5";
  row.verification = "probabilistic";
  row.sampling = {
      .temperature = 1, .top_k = 0, .top_p = 1, .top_p_rule = "water_filling", .drafts = "sampled"};
  row.policy = std::move(policy);
  row.parameters = std::move(parameters);
  row.concurrency = requests;
  row.tokens_per_cost = tokens_per_cost;
  row.tokens_per_cost_per_user = tokens_per_cost / requests;
  return row;
}

PolicyResult fixed(std::int64_t length, std::int32_t requests, double tokens_per_cost) {
  return row_of("fixed", {{"length", whole(length)}}, requests, tokens_per_cost);
}

PolicyResult none(std::int32_t requests, double tokens_per_cost) {
  return row_of("none", {}, requests, tokens_per_cost);
}

PolicyResult cumulative(double threshold, std::int64_t least, std::int32_t requests,
                        double tokens_per_cost) {
  return row_of(
      "threshold",
      {{"rule", std::string("cumulative")}, {"threshold", threshold}, {"min_length", whole(least)}},
      requests, tokens_per_cost);
}

PolicyResult per_position(double threshold, std::int32_t requests, double tokens_per_cost) {
  return row_of(
      "threshold",
      {{"rule", std::string("per_position")}, {"threshold", threshold}, {"min_length", whole(0)}},
      requests, tokens_per_cost);
}

PolicyResult global(std::int64_t lag, double gain, std::int64_t least, std::int32_t requests,
                    double tokens_per_cost) {
  return row_of("global", {{"lag", whole(lag)}, {"min_gain", gain}, {"min_length", whole(least)}},
                requests, tokens_per_cost);
}

TraceSummary trace_of(const std::string& file) {
  TraceSummary trace;
  trace.file = file;
  trace.kind = "anchors";
  trace.vocab_size = 8192;
  trace.block_size = kBlock;
  trace.temperature = 1;
  return trace;
}

/// Rows of one trace, ranked, under the linear cost of Edge-LLM.
ReplayResult result_of(std::vector<PolicyResult> rows) {
  ReplayResult result;
  result.version = "0.1.0";
  result.repeats = 4;
  result.cost.linear = LinearCost{};
  result.traces.push_back(trace_of("folder/code.h5"));
  result.results = std::move(rows);
  rank_results(result.results);
  find_best_policies(result);
  return result;
}

/// The same under a table.
ReplayResult table_result(const CostModel& cost, std::vector<PolicyResult> rows) {
  ReplayResult result = result_of(std::move(rows));
  result.cost.linear.reset();
  result.cost.file = "folder/table.json";
  result.cost.format = cost_format_name(cost.table()->format);
  result.cost.unit = "ms";
  return result;
}

CostModel example(const std::string& name) {
  return CostModel(read_cost_table(std::string(DSPARK_SOURCE) + "/configs/cost/" + name + ".json"));
}

std::vector<std::string> names_of(const std::vector<ExportFile>& files) {
  std::vector<std::string> names;
  for (const ExportFile& file : files) names.push_back(file.name);
  return names;
}

const std::string& content_of(const std::vector<ExportFile>& files, const std::string& name) {
  for (const ExportFile& file : files) {
    if (file.name == name) return file.content;
  }
  throw std::runtime_error("no file " + name);
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The line of the table that is an engine's at some number of requests.
std::string readme_row(const std::vector<ExportFile>& files, const std::string& requests,
                       const std::string& engine) {
  const std::string& page = content_of(files, "README.md");
  const std::string start = "\n| " + requests + " | " + engine + " |";
  const std::size_t at = page.find(start);
  if (at == std::string::npos) return "";
  return page.substr(at + 1, page.find('\n', at + 1) - at - 1);
}

std::vector<ExportFile> linear_export(std::vector<PolicyResult> rows) {
  return export_settings(result_of(std::move(rows)), CostModel(), {});
}

// --- what is chosen ---

TEST(Export, TakesTheBestPolicyThatAnEngineCanRun) {
  const auto files = linear_export({none(1, 0.6), fixed(7, 1, 0.5), cumulative(0.3, 1, 1, 0.9),
                                    cumulative(0.2, 0, 1, 0.95), per_position(0.7, 1, 0.8)});
  EXPECT_EQ(names_of(files), (std::vector<std::string>{"README.md", "deepspec.sh", "edge_llm.sh",
                                                       "sglang.sh", "trtllm.json", "trtllm.py"}));
  EXPECT_TRUE(has_line(content_of(files, "edge_llm.sh"),
                       "EDGE_LLM_FLAGS_1='--dsparkScheduler threshold --dsparkConfidenceThreshold "
                       "0.3 --dsparkMinProposalLen 1 --dsparkMaxProposalLen 7'"));
  EXPECT_TRUE(
      has_line(content_of(files, "deepspec.sh"), "DEEPSPEC_FLAGS_1='--confidence-threshold 0.7'"));
  EXPECT_TRUE(contains(readme_row(files, "1", "any"), "threshold=0.2 min_length=0"));
  EXPECT_TRUE(contains(readme_row(files, "1", "TensorRT-Edge-LLM"), "threshold=0.3 min_length=1"));
}

TEST(Export, NamesTheBestPolicyOfTheResult) {
  const ReplayResult result =
      result_of({none(1, 0.5), fixed(7, 1, 0.6), fixed(2, 1, 0.7), none(8, 2), fixed(7, 8, 3),
                 fixed(2, 8, 2.5), none(64, 9), fixed(7, 64, 8), fixed(2, 64, 8.5)});
  const auto files = export_settings(result, CostModel(), {});
  ASSERT_EQ(result.best.size(), 3U);
  for (const BestPolicy& best : result.best) {
    const std::string row = readme_row(files, std::to_string(best.concurrency), "any");
    EXPECT_TRUE(contains(row, "| any | " + best.policy)) << row;
    for (const auto& [name, value] : best.parameters) {
      EXPECT_TRUE(contains(row, name + "=" + std::to_string(std::get<std::int64_t>(value)))) << row;
    }
  }
}

TEST(Export, TurnsSpeculationOffWhereNothingBeatsDecodingWithoutIt) {
  const auto files = linear_export({none(1, 0.7), fixed(7, 1, 0.5), cumulative(0.3, 1, 1, 0.6)});
  EXPECT_TRUE(has_line(content_of(files, "edge_llm.sh"), "EDGE_LLM_FLAGS_1=''"));
  EXPECT_TRUE(has_line(content_of(files, "sglang.sh"), "SGLANG_FLAGS_1=''"));
  const Json trtllm = Json::parse(content_of(files, "trtllm.json"));
  EXPECT_FALSE(trtllm.contains("draft_len_schedule"));
  EXPECT_TRUE(trtllm["by_requests"]["1"].is_null());
  EXPECT_TRUE(contains(content_of(files, "trtllm.py"), "SCHEDULE = None"));
  EXPECT_TRUE(contains(content_of(files, "README.md"),
                       "At 1 request no policy beats decoding without speculation"));
}

TEST(Export, LeavesOutBoundsOffPolicyRowsAndRowsWithoutTokensPerCost) {
  PolicyResult bound = cumulative(0.1, 1, 1, 5);
  bound.bound = true;
  PolicyResult off_policy = cumulative(0.15, 1, 1, 4);
  off_policy.off_policy = true;
  PolicyResult refused = cumulative(0.25, 1, 1, 3);
  refused.tokens_per_cost.reset();
  const auto files = linear_export(
      {bound, off_policy, refused, none(1, 0.5), fixed(7, 1, 0.4), cumulative(0.3, 1, 1, 0.6)});
  for (const ExportFile& file : files) {
    for (const char* number : {"=0.1 ", "=0.15", "=0.25", "Threshold 0.1 ", " 0.15", " 0.25"}) {
      EXPECT_FALSE(contains(file.content, number)) << file.name << number;
    }
  }
  EXPECT_TRUE(contains(content_of(files, "edge_llm.sh"), "Threshold 0.3 "));
}

TEST(Export, WritesNoSettingsOfATraceWithEstimatesAlone) {
  PolicyResult off_policy = fixed(7, 1, 4);
  off_policy.off_policy = true;
  const auto files = linear_export({off_policy});
  EXPECT_EQ(names_of(files), std::vector<std::string>{"README.md"});
  EXPECT_TRUE(contains(files.front().content, "Record a trace under this setting"));
}

TEST(Export, NumbersTheFilesOfSeveralSettings) {
  ReplayResult result = result_of({none(1, 0.5), fixed(7, 1, 0.6)});
  PolicyResult greedy = fixed(7, 1, 0.8);
  greedy.verification = "greedy";
  result.results.push_back(greedy);
  PolicyResult other = fixed(7, 1, 0.7);
  other.trace = "b.h5";
  result.results.push_back(other);
  result.traces.push_back(trace_of("b.h5"));
  const auto files = export_settings(result, CostModel(), {});
  for (const char* name : {"edge_llm_1.sh", "edge_llm_2.sh", "edge_llm_3.sh", "trtllm_3.py"}) {
    EXPECT_TRUE(contains(content_of(files, name), name[0] == 'e' ? "scheduler" : "Config")) << name;
  }
  EXPECT_TRUE(contains(content_of(files, "edge_llm_2.sh"), "code.h5, greedy verification"));
  EXPECT_TRUE(contains(content_of(files, "README.md"), "## Setting 3: b.h5, probabilistic"));
}

TEST(Export, GivesTheSameBytesAgainAndNoPathOrTime) {
  ReplayResult result = result_of({none(1, 0.5), fixed(7, 1, 0.6)});
  const auto files = export_settings(result, CostModel(), {});
  result.seconds = 12.5;
  result.cached = true;
  EXPECT_EQ(export_settings(result, CostModel(), {}), files);
  for (const ExportFile& file : files) EXPECT_FALSE(contains(file.content, "folder/")) << file.name;
}

TEST(Export, KeepsHostileNamesOnTheirLine) {
  ReplayResult result = result_of({none(1, 0.5), fixed(7, 1, 0.6)});
  const std::string name = "a'\n$(x)|\xff.h5";
  result.traces.front().file = name;
  for (PolicyResult& row : result.results) row.trace = name;
  const auto files = export_settings(result, CostModel(), {});
  EXPECT_TRUE(has_line(content_of(files, "edge_llm.sh"),
                       "# a'\\n$(x)|\\xff.h5, probabilistic verification, temperature 1"));
  EXPECT_TRUE(contains(content_of(files, "README.md"), "a'\\\\n$(x)\\|\\\\xff.h5"));
}

TEST(Export, TellsWhatWasAssumed) {
  CostModel cost = example("trtllm");
  cost.set_draft({{1, 0.5}, {8, 2.25}});
  cost.set_overhead(0.125);
  cost.set_buckets({8, 64});
  ReplayResult result = table_result(cost, {fixed(7, 1, 0.5), fixed(7, 8, 0.6)});
  result.calibration = "folder/sts.json";
  result.seed = 17;
  result.products = "tensor";
  result.confidence = 0.9;
  result.cost.width = "uniform";
  const std::vector<double> temperatures = {1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7};
  const auto files = export_settings(result, cost, temperatures);
  const std::string& page = content_of(files, "README.md");
  for (const char* line :
       {"- Trace code.h5: anchors, vocabulary 8192, block size 7, recorded at temperature 1",
        "- Cost of a step: the table table.json (trtllm), in ms; drafting 0.5 for 1 request, 2.25 "
        "for 8 requests; overhead 0.125; tokens rounded up to 8, 64",
        "- Width of a verify forward: uniform",
        "- Confidences calibrated by sts.json, temperatures 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7",
        "- dspark-replay 0.1.0, seed 17, 4 sampled worlds of each block, tensor products; "
        "intervals at 90 %"}) {
    EXPECT_TRUE(has_line(page, line)) << line << '\n' << page;
  }
  EXPECT_TRUE(has_line(content_of(linear_export({fixed(7, 1, 0.5)}), "README.md"),
                       "- Cost of a step: linear, in a unit of its own: draft 0.5, verify_base 1, "
                       "verify_token 0.45, accept 0.02"));
}

// --- gains ---

TEST(Export, TellsGainsWithTheirIntervals) {
  PolicyResult full = fixed(7, 1, 0.5);
  full.versus = PairedComparison{"loss", -0.1, {-0.15, -0.05}};
  PolicyResult best = cumulative(0.3, 1, 1, 0.6);
  best.is_reference = true;
  best.speedup = 1.2;
  best.intervals.speedup = Range{1.1, 1.3};
  best.intervals.tokens_per_cost = Range{0.55, 0.65};
  const auto files = linear_export({none(1, 0.5), full, best});
  EXPECT_EQ(readme_row(files, "1", "TensorRT-Edge-LLM"),
            "| 1 | TensorRT-Edge-LLM | threshold rule=cumulative threshold=0.3 min_length=1 | 0.6 "
            "| \\[0.55, 0.65\\] | +20.0 % \\[+10.0, +30.0\\] | +20.0 % \\[+10.0, +30.0\\] | "
            "--dsparkScheduler threshold --dsparkConfidenceThreshold 0.3 --dsparkMinProposalLen 1 "
            "--dsparkMaxProposalLen 7 | |");
  EXPECT_TRUE(contains(content_of(files, "edge_llm.sh"),
                       "0.6 tokens per cost, +20.0 % [+10.0, +30.0] over no speculation"));
}

TEST(Export, MarksRowsWithinNoiseOfNoSpeculation) {
  PolicyResult row = cumulative(0.3, 1, 1, 0.6);
  row.speedup = 1.02;
  row.intervals.speedup = Range{0.97, 1.07};
  row.lossless = false;
  const auto files = linear_export({none(1, 0.59), fixed(7, 1, 0.5), row});
  EXPECT_TRUE(contains(readme_row(files, "1", "TensorRT-Edge-LLM"),
                       "within noise of no speculation, not lossless"));
  EXPECT_TRUE(contains(content_of(files, "edge_llm.sh"), "within noise of no speculation"));
}

TEST(Export, MarksRowsWorseThanNoSpeculation) {
  PolicyResult full = fixed(7, 1, 0.5);
  full.speedup = 0.8;
  full.intervals.speedup = Range{0.75, 0.85};
  const auto files = linear_export({none(1, 0.625), full});  // DeepSpec has nothing else to run
  EXPECT_TRUE(contains(readme_row(files, "1", "DeepSpec"), "worse than no speculation"));
  EXPECT_FALSE(contains(readme_row(files, "1", "DeepSpec"), "noise"));
}

TEST(Export, HasNoIntervalWhereNoneOfTheTwoRowsIsTheReference) {
  const auto files = linear_export({none(1, 0.4), fixed(7, 1, 0.5), cumulative(0.3, 1, 1, 0.6)});
  EXPECT_TRUE(contains(readme_row(files, "1", "TensorRT-Edge-LLM"), "| - | - | +20.0 % |"));
}

// --- TensorRT-Edge-LLM ---

std::string edge_flags(const PolicyResult& row, const EngineContext& context) {
  const auto setting = engine_setting(Engine::edge_llm, row, context);
  return setting ? setting->text() : "none";
}

EngineContext edge_context() {
  EngineContext context;
  context.block_size = kBlock;
  context.linear = LinearCost{};
  context.cost.linear = LinearCost{};
  return context;
}

TEST(ExportToEdgeLlm, SaysEachPolicyInItsFlags) {
  const EngineContext context = edge_context();
  EXPECT_EQ(edge_flags(none(1, 1), context), "no speculation");
  EXPECT_EQ(edge_flags(fixed(7, 1, 1), context), "--dsparkScheduler off");
  EXPECT_EQ(edge_flags(fixed(3, 1, 1), context),
            "--dsparkScheduler threshold --dsparkConfidenceThreshold 0 --dsparkMinProposalLen 3 "
            "--dsparkMaxProposalLen 3");
  const PolicyResult sps = row_of(
      "sps", {{"survival_floor", 0.1}, {"min_length", whole(1)}, {"max_length", whole(5)}}, 1, 1);
  EXPECT_EQ(edge_flags(sps, context),
            "--dsparkScheduler sps --dsparkConfidenceThreshold 0.1 --dsparkMinProposalLen 1 "
            "--dsparkMaxProposalLen 5");
}

TEST(ExportToEdgeLlm, LeavesOutWhatItCannotDo) {
  const EngineContext context = edge_context();
  EXPECT_EQ(edge_flags(fixed(0, 1, 1), context), "none");
  EXPECT_EQ(edge_flags(cumulative(0.3, 0, 1, 1), context), "none");
  EXPECT_EQ(edge_flags(per_position(0.3, 1, 1), context), "none");
  EXPECT_EQ(edge_flags(global(2, 0, 0, 1, 1), context), "none");
  // Several requests are as wide as the longest, which a ragged width does not charge.
  EXPECT_EQ(edge_flags(cumulative(0.3, 1, 8, 1), context), "none");
  EngineContext uniform = context;
  uniform.cost.width = "uniform";
  EXPECT_NE(edge_flags(cumulative(0.3, 1, 8, 1), uniform), "none");
  // Its confidences are what its head says.
  EngineContext calibrated = context;
  calibrated.calibrated = true;
  EXPECT_EQ(edge_flags(cumulative(0.3, 1, 1, 1), calibrated), "none");
  EXPECT_NE(edge_flags(fixed(3, 1, 1), calibrated), "none");
  // The whole window is verified, whatever the length.
  EngineContext cap_accept = context;
  cap_accept.cost.width = "cap_accept";
  EXPECT_EQ(edge_flags(fixed(3, 1, 1), cap_accept), "none");
  EXPECT_EQ(edge_flags(fixed(7, 1, 1), cap_accept), "--dsparkScheduler off");
}

TEST(ExportToEdgeLlm, SpsNeedsTheCostsThatAreBuiltIn) {
  const PolicyResult sps = row_of("sps", {{"survival_floor", 0.0}, {"min_length", whole(1)}}, 1, 1);
  EngineContext other = edge_context();
  other.linear->verify_token = 0.4;
  EXPECT_EQ(edge_flags(sps, other), "none");
  EngineContext more = edge_context();
  more.linear.reset();  // an overhead, draft times or captured sizes besides
  EXPECT_EQ(edge_flags(sps, more), "none");
}

// --- TensorRT-LLM ---

TEST(ExportToTensorrtLlm, ScheduleHasTheBestLengthsAndKeyOne) {
  const auto files =
      linear_export({none(1, 0.5), fixed(7, 1, 0.9), fixed(3, 1, 0.8), none(8, 0.5),
                     fixed(7, 8, 0.8), fixed(3, 8, 0.7), none(32, 0.5), fixed(7, 32, 0.6),
                     fixed(3, 32, 0.7), none(64, 0.9), fixed(7, 64, 0.5), fixed(3, 64, 0.6)});
  const Json json = Json::parse(content_of(files, "trtllm.json"));
  EXPECT_EQ(json["draft_len_schedule"].dump(), R"({"1":7,"32":3,"64":0})");
  EXPECT_EQ(json["max_draft_len"], 7);
  EXPECT_EQ(
      json["by_requests"].dump(),
      R"({"1":{"max_draft_len":7},"8":{"max_draft_len":7},"32":{"max_draft_len":3},"64":null})");
  EXPECT_TRUE(
      has_line(content_of(files, "trtllm.py"),
               "SCHEDULE = dict(max_draft_len=7, draft_len_schedule={1: 7, 32: 3, 64: 0})"));
  EXPECT_TRUE(contains(readme_row(files, "64", "TensorRT-LLM, by schedule"), "length 0"));
}

TEST(ExportToTensorrtLlm, ScheduleIsNeverLongerThanAtItsFirstKey) {
  const auto files = linear_export({none(1, 0.5), fixed(3, 1, 0.9), fixed(7, 1, 0.8), none(8, 0.4),
                                    fixed(7, 8, 0.9), fixed(3, 8, 0.7), fixed(2, 8, 0.75)});
  EXPECT_EQ(Json::parse(content_of(files, "trtllm.json"))["draft_len_schedule"].dump(),
            R"({"1":3,"8":2})");
}

TEST(ExportToTensorrtLlm, ScheduleWithoutOneRequestSaysWhereKeyOneComesFrom) {
  const auto files = linear_export({none(8, 0.5), fixed(7, 8, 0.9)});
  EXPECT_EQ(Json::parse(content_of(files, "trtllm.json"))["draft_len_schedule"].dump(),
            R"({"1":7})");
  EXPECT_TRUE(contains(content_of(files, "README.md"), "Fewer than 8 requests were not replayed"));
}

TEST(ExportToTensorrtLlm, AFixedLengthOfNoDraftsIsNotTurningSpeculationOff) {
  const auto files = linear_export({none(1, 0.5), fixed(0, 1, 0.9), fixed(7, 1, 0.8)});
  EXPECT_EQ(Json::parse(content_of(files, "trtllm.json"))["draft_len_schedule"].dump(),
            R"({"1":7})");
}

TEST(ExportToTensorrtLlm, GateIsItsAcceptanceWindow) {
  EngineContext context = edge_context();
  const auto gate = [](double least) {
    return row_of("gate",
                  {{"window", whole(16)},
                   {"min_accepted", least},
                   {"wrap", std::string("fixed")},
                   {"length", whole(7)}},
                  1, 1);
  };
  const auto setting = engine_setting(Engine::tensorrt_llm, gate(0.5), context);
  ASSERT_TRUE(setting);
  EXPECT_EQ(
      setting->options.dump(),
      R"({"max_draft_len":7,"acceptance_rate_window_size":16,"acceptance_rate_threshold":0.5})");
  EXPECT_FALSE(engine_setting(Engine::tensorrt_llm, gate(1.5), context));  // its bound is 1
}

TEST(ExportToTensorrtLlm, ConfidenceSchedulingNamesItsTableAndMinimumGain) {
  const CostModel cost = example("trtllm");
  const auto files = export_settings(
      table_result(cost, {none(8, 0.5), fixed(7, 8, 0.6), global(2, 0.05, 1, 8, 0.9)}), cost, {});
  const Json options = Json::parse(content_of(files, "trtllm.json"))["by_requests"]["8"];
  EXPECT_EQ(options["confidence_cost_table_path"], "trtllm_cost.json");
  EXPECT_EQ(options["confidence_min_predicted_gain"], 0.05);
  EXPECT_FALSE(options.contains("confidence_calibration_path"));
  EXPECT_TRUE(contains(content_of(files, "trtllm.py"), "enable_confidence_scheduling=True"));
  const CostTable table = parse_cost_table(content_of(files, "trtllm_cost.json"), "t");
  EXPECT_EQ(table.format, CostFormat::trtllm);
  EXPECT_EQ(table.min_predicted_gain, 0.05);
  EXPECT_EQ(table.tokens, cost.table()->tokens);
}

TEST(ExportToTensorrtLlm, TheExactTableIsTheUsersOwn) {
  const CostModel cost = example("trtllm_exact");
  const auto files = export_settings(
      table_result(cost, {fixed(7, 16, 0.6), row_of("exact_table", {}, 16, 0.9)}), cost, {});
  EXPECT_EQ(Json::parse(content_of(
                files, "trtllm.json"))["by_requests"]["16"]["confidence_cost_table_path"],
            "PATH OF YOUR table.json");
}

// --- SGLang ---

TEST(ExportToSglang, RunsTheBudgetInCompactModeWithItsTable) {
  const CostModel cost = example("sglang_2d");
  const auto files =
      export_settings(table_result(cost, {none(8, 0.5), fixed(7, 8, 0.6), global(2, 0, 0, 8, 0.9),
                                          global(0, 0, 0, 8, 0.95), global(2, 0.1, 0, 8, 0.96)}),
                      cost, {});
  const std::string& text = content_of(files, "sglang.sh");
  EXPECT_TRUE(has_line(text,
                       "SGLANG_ENV_8='SGLANG_RAGGED_VERIFY_MODE=compact "
                       "SGLANG_DSPARK_CONFIDENCE_RELAY_LAG_STEPS=2'"));
  EXPECT_TRUE(has_line(text,
                       "SGLANG_FLAGS_8='--speculative-algorithm DSPARK "
                       "--speculative-dspark-block-size 7 "
                       "--speculative-dspark-sps-table-path sglang_cost.json'"));
  const CostTable table = parse_cost_table(content_of(files, "sglang_cost.json"), "t");
  EXPECT_EQ(table.format, CostFormat::sglang_2d);
  EXPECT_EQ(table.requests, cost.table()->requests);
  EXPECT_EQ(table.constant, cost.table()->constant);
  EXPECT_TRUE(contains(content_of(files, "README.md"), "the same times as charged"));
}

TEST(ExportToSglang, AlignsToGraphSizesWhereTheRowDid) {
  EngineContext context = edge_context();
  context.has_sglang_table = true;
  PolicyResult row = global(2, 0, 0, 8, 0.9);
  row.parameters.emplace_back("fill_buckets", std::string("true"));
  const auto setting = engine_setting(Engine::sglang, row, context);
  ASSERT_TRUE(setting);
  EXPECT_TRUE(setting->flags.ends_with("--speculative-dspark-align-verify-tokens-to-graph-tier"));
}

TEST(ExportToSglang, VerifiesTheWholeBlockWithoutATable) {
  const auto files = linear_export({none(8, 0.5), fixed(7, 8, 0.6), global(2, 0, 0, 8, 0.9)});
  EXPECT_TRUE(
      has_line(content_of(files, "sglang.sh"), "SGLANG_ENV_8='SGLANG_RAGGED_VERIFY_MODE=static'"));
  EXPECT_TRUE(contains(content_of(files, "README.md"),
                       "A linear cost is in a unit of its own and makes no table."));
}

// --- tables and calibrations ---

TEST(ExportTables, HoldWholeStepsAsCharged) {
  for (const char* name : {"sglang_1d", "sglang_2d", "trtllm", "vllm_ascend"}) {
    CostModel cost = example(name);
    cost.set_draft({{1, 0.5}, {64, 4.0}});
    cost.set_overhead(0.25);
    const auto files =
        export_settings(table_result(cost, {fixed(7, 1, 0.6), fixed(7, 64, 0.7)}), cost, {});
    for (const char* file : {"sglang_cost.json", "trtllm_cost.json"}) {
      const CostModel written(parse_cost_table(content_of(files, file), file));
      for (const std::int64_t requests : {1, 64}) {
        const std::int64_t tokens = 8 * requests;  // a probe of every example
        EXPECT_NEAR(written.verify(requests, tokens),
                    cost.verify(requests, tokens) + cost.draft(requests) + 0.25, 1e-9)
            << name << ' ' << file << ' ' << requests;
      }
    }
  }
}

TEST(ExportTables, ProfileByTokensIsOfFullBlocks) {
  CostModel cost = example("trtllm");
  cost.set_overhead(0.5);
  const auto files = export_settings(table_result(cost, {fixed(7, 8, 0.6)}), cost, {});
  const CostModel written(parse_cost_table(content_of(files, "vllm_ascend_profile.json"), "p"));
  EXPECT_NEAR(written.verify(8, 64), cost.verify(8, 64) + 0.5, 1e-9);
  EXPECT_TRUE(contains(content_of(files, "README.md"), "off what was charged"));
}

TEST(ExportTables, SayHowFarOffTheyAreAndWhatTheyLeaveOut) {
  const CostModel cost(parse_cost_table(
      R"({"verify": [{"requests": 1, "tokens": 1, "ms": 2}, {"requests": 1, "tokens": 8, "ms": 4},
                     {"requests": 8, "tokens": 8, "ms": 3}, {"requests": 8, "tokens": 64, "ms": 6}],
          "description": "example"})",
      "t.json"));
  const auto files =
      export_settings(table_result(cost, {fixed(7, 1, 0.6), fixed(7, 8, 0.6)}), cost, {});
  const std::string& page = content_of(files, "README.md");
  // The profile begins at a full block: a step of one token is charged for it.
  EXPECT_TRUE(contains(page,
                       "vllm_ascend_profile.json: vllm-ascend, at most +100.0 % off what was "
                       "charged: 4 ms in place of 2 ms at 1 request and 1 token"))
      << page;
  EXPECT_FALSE(contains(page, "description"));
}

TEST(ExportTables, ThatAFormatCannotHoldAreLeftOutWithWhatNeedsThem) {
  const CostModel cost(parse_cost_table(
      R"({"verify": [{"requests": 1, "tokens": 1, "ms": 0.1}, {"requests": 1, "tokens": 9, "ms": 100},
                     {"requests": 9, "tokens": 9, "ms": 0.1}, {"requests": 9, "tokens": 99, "ms": 9}]})",
      "folder/t.json"));
  const auto files = export_settings(
      table_result(
          cost, {none(8, 0.5), fixed(7, 8, 0.6), global(2, 0, 0, 8, 0.9), global(2, 0, 1, 8, 0.8)}),
      cost, {});
  EXPECT_EQ(names_of(files),
            (std::vector<std::string>{"README.md", "edge_llm.sh", "sglang.sh", "trtllm.json",
                                      "trtllm.py", "vllm_ascend_profile.json"}));
  const std::string& page = content_of(files, "README.md");
  EXPECT_TRUE(contains(page, "- sglang_cost.json: left out: sglang-2d cannot hold the table\n"));
  EXPECT_TRUE(contains(page, "- trtllm_cost.json: left out: trtllm cannot hold the table\n"));
  for (const ExportFile& file : files) {
    EXPECT_FALSE(contains(file.content, "folder/")) << file.name;
    const bool is_page = file.name == "README.md";
    EXPECT_TRUE(is_page || !contains(file.content, "_cost.json")) << file.name;
  }
  EXPECT_TRUE(contains(readme_row(files, "8", "SGLang"), "fixed length=7"));
  EXPECT_TRUE(contains(readme_row(files, "8", "TensorRT-LLM"), "fixed length=7"));
}

TEST(ExportTables, AreLeftOutWhereBlocksDiffer) {
  const CostModel cost = example("trtllm");
  ReplayResult result = table_result(cost, {fixed(7, 8, 0.6), global(2, 0, 1, 8, 0.9)});
  result.traces.push_back(trace_of("b.h5"));
  result.traces.back().block_size = 5;
  const auto files = export_settings(result, cost, {});
  EXPECT_EQ(names_of(files), (std::vector<std::string>{"README.md", "edge_llm.sh", "sglang.sh",
                                                       "trtllm.json", "trtllm.py"}));
  EXPECT_TRUE(contains(content_of(files, "README.md"), "Blocks of several sizes need tables"));
}

TEST(ExportCalibration, WritesTheTemperaturesOfEachEngineAndNamesThem) {
  const CostModel cost = example("vllm_ascend");
  const std::vector<double> temperatures = {1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 0.1};
  const auto files =
      export_settings(table_result(cost, {fixed(7, 1, 0.6), per_position(0.5, 1, 0.7),
                                          global(2, 0, 0, 1, 0.9), global(2, 0, 1, 1, 0.8)}),
                      cost, temperatures);
  const std::pair<const char*, CalibrationFormat> written[] = {
      {"sglang_calibration.json", CalibrationFormat::sglang},
      {"trtllm_calibration.json", CalibrationFormat::trtllm},
      {"deepspec_calibration.json", CalibrationFormat::deepspec}};
  for (const auto& [name, format] : written) {
    const Calibration read = parse_calibration(content_of(files, name), name);
    EXPECT_EQ(read.format, format);
    EXPECT_EQ(read.temperatures, temperatures);
  }
  EXPECT_TRUE(contains(content_of(files, "sglang.sh"),
                       "--speculative-dspark-confidence-sts-path sglang_calibration.json"));
  EXPECT_TRUE(contains(content_of(files, "trtllm.py"),
                       "confidence_calibration_path=\"trtllm_calibration.json\""));
  EXPECT_TRUE(has_line(content_of(files, "deepspec.sh"),
                       "DEEPSPEC_FLAGS_1='--confidence-threshold 0.5 "
                       "--confidence-calibration-path deepspec_calibration.json'"));
  EXPECT_EQ(Json::parse(content_of(files, "vllm_ascend_profile.json"))["confidence_temperatures"],
            Json(temperatures));
  // Neither calibrates.
  EXPECT_TRUE(contains(readme_row(files, "1", "vLLM"), "enable_adaptive_verification=false"));
  EXPECT_TRUE(contains(readme_row(files, "1", "TensorRT-Edge-LLM"), "fixed length=7"));
}

// --- what engines cannot run ---

/// Everything is there that an engine could need.
EngineContext full_context() {
  EngineContext context = edge_context();
  context.linear.reset();
  context.cost.linear.reset();
  context.has_sglang_table = true;
  context.has_tensorrt_table = true;
  return context;
}

PolicyResult with(PolicyResult row, const char* name, ParameterValue value) {
  row.parameters.emplace_back(name, std::move(value));
  return row;
}

TEST(ExportEngines, RunGlobalWithTheirOwnFloorLagAndGain) {
  const EngineContext context = full_context();
  const auto runs = [&](const PolicyResult& row) {
    std::string out;
    for (const Engine engine : engines()) {
      if (engine_setting(engine, row, context)) out += std::string(engine_name(engine)) + ' ';
    }
    return out;
  };
  EXPECT_EQ(runs(global(2, 0, 0, 8, 1)), "SGLang vLLM ");
  EXPECT_EQ(runs(global(1, 0, 0, 8, 1)), "vLLM ");
  EXPECT_EQ(runs(global(0, 0, 0, 8, 1)), "");
  EXPECT_EQ(runs(global(2, 0.04, 0, 8, 1)), "");
  EXPECT_EQ(runs(global(1, 0.04, 1, 8, 1)), "TensorRT-LLM ");
  EXPECT_EQ(runs(global(0, 0, 1, 8, 1)), "");
  EXPECT_EQ(runs(with(global(2, 0, 0, 8, 1), "tiers", std::string("1,3"))), "");
  EXPECT_EQ(runs(with(global(2, 0, 1, 8, 1), "tiers", std::string("1,3"))), "");
  EXPECT_EQ(runs(with(global(2, 0, 1, 8, 1), "fill_buckets", std::string("true"))), "");
}

TEST(ExportEngines, RunBatchRulesAtRaggedWidthsAlone) {
  for (const char* width : {"uniform", "cap_accept"}) {
    EngineContext context = full_context();
    context.cost.width = width;
    const PolicyResult budget = row_of(
        "count_budget", {{"threshold", 0.3}, {"refresh", whole(16)}, {"initial", whole(5)}}, 8, 1);
    EXPECT_FALSE(engine_setting(Engine::sglang, global(2, 0, 0, 8, 1), context)) << width;
    EXPECT_FALSE(engine_setting(Engine::vllm, global(2, 0, 0, 8, 1), context)) << width;
    EXPECT_FALSE(engine_setting(Engine::tensorrt_llm, global(2, 0, 1, 8, 1), context)) << width;
    EXPECT_FALSE(engine_setting(Engine::vllm_ascend, budget, context)) << width;
    // One request is as wide as itself, unless all drafts are verified.
    EXPECT_EQ(engine_setting(Engine::sglang, global(2, 0, 0, 1, 1), context).has_value(),
              context.cost.width == "uniform");
  }
}

TEST(ExportEngines, DeepspecFollowsOneRequestByEachConfidence) {
  const EngineContext context = full_context();
  EXPECT_TRUE(engine_setting(Engine::deepspec, per_position(0.5, 1, 1), context));
  EXPECT_FALSE(engine_setting(Engine::deepspec, per_position(0.5, 8, 1), context));
  EXPECT_FALSE(engine_setting(Engine::deepspec, cumulative(0.5, 0, 1, 1), context));
  EXPECT_FALSE(engine_setting(Engine::deepspec,
                              with(per_position(0.5, 1, 1), "max_length", whole(3)), context));
  EXPECT_FALSE(engine_setting(Engine::deepspec, fixed(3, 1, 1), context));
  EXPECT_FALSE(engine_setting(Engine::deepspec, none(1, 1), context));
  EXPECT_EQ(engine_setting(Engine::deepspec, fixed(7, 1, 1), context)->text(),
            "--confidence-threshold 0");
}

TEST(ExportEngines, RunNothingThatCannotBeExported) {
  const EngineContext context = full_context();
  for (const Engine engine : engines()) {
    PolicyResult row = fixed(7, 1, 1);
    EXPECT_TRUE(engine_setting(engine, row, context)) << engine_name(engine);
    row.off_policy = true;
    EXPECT_FALSE(engine_setting(engine, row, context)) << engine_name(engine);
    row.off_policy = false;
    row.bound = true;
    EXPECT_FALSE(engine_setting(engine, row, context)) << engine_name(engine);
    row.bound = false;
    row.tokens_per_cost.reset();
    EXPECT_FALSE(engine_setting(engine, row, context)) << engine_name(engine);
  }
}

// --- vLLM and vllm-ascend ---

TEST(ExportToVllm, AdaptiveVerificationNeedsMeasuredCosts) {
  EngineContext context = edge_context();
  EXPECT_FALSE(engine_setting(Engine::vllm, global(1, 0, 0, 8, 1), context));
  context.linear.reset();
  context.cost.linear.reset();
  const auto setting = engine_setting(Engine::vllm, global(1, 0, 0, 8, 1), context);
  ASSERT_TRUE(setting);
  EXPECT_EQ(setting->text(), "num_speculative_tokens=7, enable_adaptive_verification=true");
}

TEST(ExportToVllmAscend, CountBudgetHasItsNames) {
  const PolicyResult row = row_of(
      "count_budget", {{"threshold", 0.3}, {"refresh", whole(16)}, {"initial", whole(5)}}, 8, 1);
  const auto setting = engine_setting(Engine::vllm_ascend, row, edge_context());
  ASSERT_TRUE(setting);
  EXPECT_EQ(setting->text(),
            "num_speculative_tokens=7, policy=confidence_budget, budget_threshold=0.3, "
            "budget_update_interval=16, initial_verify_budget_per_req=5");
}

// --- names ---

TEST(ExportNames, AreKnownBeforeTheyAreWritten) {
  const CostModel cost = example("trtllm");
  ReplayResult result = table_result(cost, {fixed(7, 1, 0.6), global(2, 0, 1, 1, 0.9)});
  const std::vector<double> temperatures(kBlock, 1.5);
  for (const ExportFile& file : export_settings(result, cost, temperatures)) {
    EXPECT_TRUE(is_export_name(file.name)) << file.name;
  }
  result.results.back().verification = "greedy";
  for (const ExportFile& file : export_settings(result, cost, temperatures)) {
    EXPECT_TRUE(is_export_name(file.name)) << file.name;
  }
  for (const char* name : {"", "code.h5", "edge_llm", "edge_llm_.sh", "edge_llm_x.sh",
                           "edge_llm2.sh", "sglang.json", "README"}) {
    EXPECT_FALSE(is_export_name(name)) << name;
  }
}

}  // namespace
}  // namespace dspark
