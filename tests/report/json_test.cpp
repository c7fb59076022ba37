#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "report/render.h"
#include "tests/report/sample_result.h"

namespace dspark {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) keys.push_back(item.key());
  return keys;
}

TEST(JsonFormat, HasOneRowPerLine) {
  EXPECT_EQ(render(anchors_result(), OutputFormat::json), R"out({
  "format": "dspark-replay-result",
  "format_version": 1,
  "tool": {"version": "0.1.0", "backend": "cpu", "device": "Test CPU"},
  "settings": {"seed": 7, "repeats": 4, "products": "exact", "confidence": 0.95, "reference": 1, "cost": {"linear": {"draft": 0.5, "verify_base": 1, "verify_token": 0.45, "accept": 0.02}, "unit": "", "overhead": 0, "buckets": [], "width": "ragged"}, "calibration": null},
  "traces": [
    {"file": "code.h5", "kind": "anchors", "vocab_size": 8192, "block_size": 2, "anchors": 768, "sequences": 3, "temperature": 1, "domain": "code", "rounds": null, "reproduced": null, "diverged": null, "censored": null, "invalid_rows": 0, "impossible_tokens": 0, "near_ties": 5}
  ],
  "positions": [
    {"trace": "code.h5", "verification": "probabilistic", "sampling": {"temperature": 1, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "position": 1, "survival": 0.43, "survival_trajectory": 0.42, "survival_visited": 0.41, "conditional": 0.43, "predicted_conditional": 0.458, "conditional_ece": 0.041, "predicted": 0.4581, "predicted_se": null, "top1_agreement": null, "effective_samples": null, "survival_se": null, "interval": {"confidence": 0.95, "survival": [0.4, 0.46], "survival_trajectory": null, "survival_visited": null, "conditional": null, "predicted_conditional": null, "conditional_ece": [0.02, 0.06], "predicted": null, "top1_agreement": null}},
    {"trace": "code.h5", "verification": "probabilistic", "sampling": {"temperature": 1, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "position": 2, "survival": 0.1716, "survival_trajectory": 0.42, "survival_visited": 0.41, "conditional": 0.4119, "predicted_conditional": 0.458, "conditional_ece": 0.041, "predicted": null, "predicted_se": null, "top1_agreement": null, "effective_samples": null, "survival_se": null, "interval": {"confidence": 0.95, "survival": null, "survival_trajectory": null, "survival_visited": null, "conditional": null, "predicted_conditional": null, "conditional_ece": null, "predicted": null, "top1_agreement": null}}
  ],
  "results": [
    {"trace": "code.h5", "verification": "probabilistic", "sampling": {"temperature": 1, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "policy": "none", "parameters": {}, "concurrency": 1, "lossless": true, "tau": 1, "tau_interior": 1, "tau_lo": null, "tau_hi": null, "censored_rounds": null, "rounds": 768, "tokens": 768, "accepted_per_round": 0, "verified_per_round": 0, "verified_per_round_se": null, "verified_per_round_on_trajectory": null, "acceptance_rate": null, "cost_per_round": 1.45, "cost_per_step": null, "tokens_per_cost": 0.6896551724137931, "tokens_per_cost_per_user": null, "speedup": 1, "budget": null, "padded_tokens": null, "pareto": false, "walked": false, "off_policy": false, "effective_samples": null, "tau_se": null, "censored_share": null, "early_stop_difference": null, "bound": false, "interval": {"confidence": 0.95, "tau": [1, 1], "tau_interior": null, "rounds": null, "accepted_per_round": null, "verified_per_round": null, "acceptance_rate": null, "cost_per_round": null, "cost_per_step": null, "tokens_per_cost": [0.6896551724137931, 0.6896551724137931], "tokens_per_cost_per_user": null, "speedup": null}, "reference": true, "versus_reference": null, "ledger": null},
    {"trace": "code.h5", "verification": "probabilistic", "sampling": {"temperature": 1, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "policy": "threshold", "parameters": {"rule": "cumulative", "threshold": 0.3, "min_length": 1}, "concurrency": 1, "lossless": true, "tau": 1.483, "tau_interior": 1.48, "tau_lo": null, "tau_hi": null, "censored_rounds": null, "rounds": 517.9, "tokens": 768, "accepted_per_round": 0.483, "verified_per_round": 1.204, "verified_per_round_se": 0.002, "verified_per_round_on_trajectory": 1.192, "acceptance_rate": 0.4012, "cost_per_round": 2.516, "cost_per_step": null, "tokens_per_cost": 0.589, "tokens_per_cost_per_user": null, "speedup": 0.855, "budget": null, "padded_tokens": null, "pareto": false, "walked": false, "off_policy": false, "effective_samples": null, "tau_se": null, "censored_share": null, "early_stop_difference": null, "bound": false, "interval": {"confidence": 0.95, "tau": [1.4, 1.55], "tau_interior": null, "rounds": null, "accepted_per_round": null, "verified_per_round": [1.1, 1.3], "acceptance_rate": null, "cost_per_round": null, "cost_per_step": null, "tokens_per_cost": [0.5711, 0.6062], "tokens_per_cost_per_user": null, "speedup": [0.828, 0.879]}, "reference": false, "versus_reference": {"difference": -0.1007, "interval": [-0.1186, -0.0835], "verdict": "loss"}, "ledger": {"rounds": 500, "proposed": 1000, "verified": 600, "accepted": 240, "wasted": 360, "draft_cost": 250, "verify_cost": 740, "accept_cost": 10, "overhead_cost": 0, "rounds_without_acceptance": 300, "rounds_trimmed": 5, "break_even_tau": 1.735, "scheduled_histogram": [0.1, 0.6, 0.3], "accepted_histogram": [0.6, 0.32, 0.08]}},
    {"trace": "code.h5", "verification": "probabilistic", "sampling": {"temperature": 1, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "policy": "fixed", "parameters": {"length": 2}, "concurrency": 1, "lossless": false, "tau": null, "tau_interior": null, "tau_lo": null, "tau_hi": null, "censored_rounds": null, "rounds": null, "tokens": null, "accepted_per_round": null, "verified_per_round": null, "verified_per_round_se": null, "verified_per_round_on_trajectory": null, "acceptance_rate": null, "cost_per_round": null, "cost_per_step": null, "tokens_per_cost": null, "tokens_per_cost_per_user": null, "speedup": null, "budget": null, "padded_tokens": null, "pareto": false, "walked": false, "off_policy": false, "effective_samples": null, "tau_se": null, "censored_share": null, "early_stop_difference": null, "bound": false, "interval": {"confidence": 0.95, "tau": null, "tau_interior": null, "rounds": null, "accepted_per_round": null, "verified_per_round": null, "acceptance_rate": null, "cost_per_round": null, "cost_per_step": null, "tokens_per_cost": null, "tokens_per_cost_per_user": null, "speedup": null}, "reference": false, "versus_reference": {"difference": -0.01, "interval": [-0.03, 0.01], "verdict": "within noise"}, "ledger": null},
    {"trace": "code.h5", "verification": "probabilistic", "sampling": {"temperature": 1, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "policy": "oracle", "parameters": {"bound": "shortest"}, "concurrency": 1, "lossless": true, "tau": 1.483, "tau_interior": 1.48, "tau_lo": null, "tau_hi": null, "censored_rounds": null, "rounds": 517.9, "tokens": 768, "accepted_per_round": 0.483, "verified_per_round": 1.204, "verified_per_round_se": null, "verified_per_round_on_trajectory": 1.192, "acceptance_rate": 0.4012, "cost_per_round": 2.516, "cost_per_step": null, "tokens_per_cost": 0.589, "tokens_per_cost_per_user": null, "speedup": 0.855, "budget": null, "padded_tokens": null, "pareto": false, "walked": false, "off_policy": false, "effective_samples": null, "tau_se": null, "censored_share": null, "early_stop_difference": null, "bound": true, "interval": {"confidence": 0.95, "tau": [1.4, 1.55], "tau_interior": null, "rounds": null, "accepted_per_round": null, "verified_per_round": [1.1, 1.3], "acceptance_rate": null, "cost_per_round": null, "cost_per_step": null, "tokens_per_cost": [0.5711, 0.6062], "tokens_per_cost_per_user": null, "speedup": [0.828, 0.879]}, "reference": false, "versus_reference": {"difference": -0.1007, "interval": [-0.1186, -0.0835], "verdict": "loss"}, "ledger": null}
  ],
  "best": [],
  "calibration_worth": [],
  "pairs": [
    {"domain": "code", "policy": "fixed", "parameters": {"length": 2}, "concurrency": 1, "greedy": {"trace": "code_t0.h5", "sampling": {"temperature": 0, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "off_policy": false, "tau": 2.25, "tokens_per_cost": 0.75}, "probabilistic": {"trace": "code.h5", "sampling": {"temperature": 1, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "off_policy": false, "tau": 1.5, "tokens_per_cost": 0.5}, "difference": {"confidence": 0.95, "tau": 0.75, "tau_interval": [0.5, 1], "tokens_per_cost": 0.25, "tokens_per_cost_interval": null}}
  ],
  "strata": [
    {"trace": "code.h5", "verification": "probabilistic", "sampling": {"temperature": 1, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "by": "trace", "label": "code", "anchors": 765, "survival": 0.43, "tau_open_loop": 1.6, "predicted_conditional": 0.458, "worst": false, "interval": {"confidence": 0.95, "survival": null, "tau_open_loop": [1.5, 1.7], "predicted_conditional": null}},
    {"trace": "code.h5", "verification": "probabilistic", "sampling": {"temperature": 1, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "by": "depth", "label": "positions 0-63", "anchors": 192, "survival": 0.43, "tau_open_loop": 1.75, "predicted_conditional": 0.458, "worst": false, "interval": {"confidence": 0.95, "survival": null, "tau_open_loop": [1.5, 1.7], "predicted_conditional": null}},
    {"trace": "code.h5", "verification": "probabilistic", "sampling": {"temperature": 1, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "by": "depth", "label": "positions 64-127", "anchors": 192, "survival": 0.43, "tau_open_loop": 1.25, "predicted_conditional": null, "worst": true, "interval": {"confidence": 0.95, "survival": null, "tau_open_loop": null, "predicted_conditional": null}}
  ],
  "strata_means": [
    {"trace": null, "verification": "probabilistic", "sampling": {"temperature": 1, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "by": "trace", "macro": 1.6, "micro": 1.6, "interval": {"confidence": 0.95, "macro": null, "micro": null}},
    {"trace": "code.h5", "verification": "probabilistic", "sampling": {"temperature": 1, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "by": "depth", "macro": 1.5, "micro": 1.5, "interval": {"confidence": 0.95, "macro": [1.4, 1.6], "micro": null}}
  ],
  "notes": ["code.h5: a \"note\""],
  "run": {"seconds": 0.25}
}
)out");
}

TEST(JsonFormat, HasTheDocumentedFieldsInOrder) {
  const Json json = Json::parse(render(anchors_result(), OutputFormat::json));
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys_of(json),
            (Keys{"format", "format_version", "tool", "settings", "traces", "positions", "results",
                  "best", "calibration_worth", "pairs", "strata", "strata_means", "notes", "run"}));
  EXPECT_EQ(json["format"], "dspark-replay-result");
  EXPECT_EQ(json["format_version"], 1);
  // The documented fields, with later ones between them, in the documented order.
  const auto expect_in_order = [](const Json& object, const Keys& documented) {
    const Keys keys = keys_of(object);
    std::size_t at = 0;
    for (const std::string& key : keys) {
      if (at < documented.size() && key == documented[at]) ++at;
    }
    EXPECT_EQ(at, documented.size()) << object;
  };
  expect_in_order(json["traces"][0],
                  {"file", "kind", "vocab_size", "block_size", "anchors", "sequences"});
  expect_in_order(json["positions"][0], {"trace", "verification", "position", "survival",
                                         "survival_trajectory", "survival_visited", "conditional",
                                         "predicted_conditional", "conditional_ece", "predicted"});
  expect_in_order(json["results"][1], {"trace",
                                       "verification",
                                       "policy",
                                       "parameters",
                                       "concurrency",
                                       "lossless",
                                       "tau",
                                       "tau_interior",
                                       "rounds",
                                       "tokens",
                                       "accepted_per_round",
                                       "verified_per_round",
                                       "verified_per_round_se",
                                       "verified_per_round_on_trajectory",
                                       "acceptance_rate",
                                       "cost_per_round",
                                       "tokens_per_cost",
                                       "speedup",
                                       "bound",
                                       "interval",
                                       "reference",
                                       "versus_reference",
                                       "ledger"});
  EXPECT_EQ(keys_of(json["results"][1]["parameters"]), (Keys{"rule", "threshold", "min_length"}));
}

TEST(JsonFormat, HasTheSameFieldsInEveryRow) {
  const Json json = Json::parse(render(anchors_result(), OutputFormat::json));
  for (const char* list : {"positions", "results"}) {
    for (const Json& row : json[list]) EXPECT_EQ(keys_of(row), keys_of(json[list][0]));
  }
}

TEST(JsonFormat, ReadsBackToTheSameNumbers) {
  ReplayResult result = anchors_result();
  result.results[0].tau = 1.0 / 3;
  result.results[0].rounds = 1e-300;
  result.results[0].tokens = 123456789012345680.0;
  result.seed = std::numeric_limits<std::uint64_t>::max();
  const Json json = Json::parse(render(result, OutputFormat::json));
  EXPECT_EQ(json["results"][0]["tau"].get<double>(), 1.0 / 3);
  EXPECT_EQ(json["results"][0]["rounds"].get<double>(), 1e-300);
  EXPECT_EQ(json["results"][0]["tokens"].get<double>(), 123456789012345680.0);
  EXPECT_EQ(json["settings"]["seed"].get<std::uint64_t>(), result.seed);
  EXPECT_EQ(json["run"]["seconds"].get<double>(), 0.25);
}

TEST(JsonFormat, WritesNullForWhatDoesNotExist) {
  ReplayResult result = anchors_result();
  result.results[0].tau = std::numeric_limits<double>::quiet_NaN();
  result.results[0].speedup = -std::numeric_limits<double>::infinity();
  const Json json = Json::parse(render(result, OutputFormat::json));
  EXPECT_TRUE(json["results"][0]["tau"].is_null());
  EXPECT_TRUE(json["results"][0]["speedup"].is_null());
  EXPECT_TRUE(json["results"][0]["acceptance_rate"].is_null());
  EXPECT_TRUE(json["results"][2]["tau"].is_null());
  EXPECT_TRUE(json["positions"][1]["predicted"].is_null());
}

TEST(JsonFormat, WritesIntervalsAsPairsAndLedgersAsObjects) {
  const Json json = Json::parse(render(anchors_result(), OutputFormat::json));
  const Json& row = json["results"][1];
  EXPECT_EQ(row["interval"]["confidence"], 0.95);
  EXPECT_EQ(row["interval"]["tokens_per_cost"], Json::parse("[0.5711, 0.6062]"));
  EXPECT_TRUE(row["interval"]["cost_per_round"].is_null());
  EXPECT_EQ(row["versus_reference"]["verdict"], "loss");
  EXPECT_EQ(row["ledger"]["scheduled_histogram"].size(), 3u);
  EXPECT_TRUE(json["results"][0]["reference"]);
  EXPECT_TRUE(json["results"][0]["versus_reference"].is_null());
  EXPECT_TRUE(json["results"][0]["ledger"].is_null());
  EXPECT_TRUE(json["results"][3]["bound"]);
  EXPECT_TRUE(json["strata_means"][0]["trace"].is_null());
  EXPECT_EQ(json["notes"][0], "code.h5: a \"note\"");
  ReplayResult result = anchors_result();
  result.results[0].intervals.tau = Range{1, std::numeric_limits<double>::infinity()};
  EXPECT_TRUE(
      Json::parse(render(result, OutputFormat::json))["results"][0]["interval"]["tau"].is_null());
}

TEST(JsonFormat, EscapesTextsFromFiles) {
  const Json json = Json::parse(render(rounds_result(), OutputFormat::json));
  EXPECT_EQ(json["traces"][0]["file"], "a|b,\"c\"\\n\\x1b[2J\\xff.h5");
}

TEST(JsonFormat, OfAnEmptyResultParses) {
  const Json json = Json::parse(render(ReplayResult{}, OutputFormat::json));
  EXPECT_TRUE(json["traces"].is_array());
  EXPECT_TRUE(json["results"].empty());
}

TEST(JsonFormat, DependsOnTheClockInRunAlone) {
  ReplayResult result = anchors_result();
  Json a = Json::parse(render(result, OutputFormat::json));
  result.seconds = 99;
  Json b = Json::parse(render(result, OutputFormat::json));
  EXPECT_NE(a, b);
  a.erase("run");
  b.erase("run");
  EXPECT_EQ(a.dump(), b.dump());
}

TEST(JsonLines, HasOneTypedObjectPerLine) {
  std::istringstream text(render(anchors_result(), OutputFormat::jsonl));
  std::vector<std::string> types;
  for (std::string line; std::getline(text, line);) {
    types.push_back(Json::parse(line)["type"]);
  }
  EXPECT_EQ(types,
            (std::vector<std::string>{"header", "trace", "position", "position", "result", "result",
                                      "result", "result", "pair", "stratum", "stratum", "stratum",
                                      "strata_mean", "strata_mean", "note", "run"}));
}

TEST(JsonLines, HasExactlyThisText) {
  EXPECT_EQ(
      render(rounds_result(), OutputFormat::jsonl),
      R"out({"type": "header", "format": "dspark-replay-result", "format_version": 1, "tool": {"version": "0.1.0", "backend": "cuda", "device": "GPU"}, "settings": {"seed": 0, "repeats": 0, "products": "tensor", "confidence": 0.95, "reference": 1, "cost": {"linear": {"draft": 0.5, "verify_base": 1, "verify_token": 0.45, "accept": 0.02}, "unit": "", "overhead": 0, "buckets": [], "width": "ragged"}, "calibration": null}}
{"type": "trace", "file": "a|b,\"c\"\\n\\x1b[2J\\xff.h5", "kind": "rounds", "vocab_size": 100, "block_size": 1, "anchors": null, "sequences": null, "temperature": 0, "domain": "", "rounds": 28, "reproduced": 26, "diverged": 1, "censored": 1, "invalid_rows": 2, "impossible_tokens": 3, "near_ties": 0}
{"type": "result", "trace": "a|b,\"c\"\\n\\x1b[2J\\xff.h5", "verification": "greedy", "sampling": {"temperature": 0, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "policy": "fixed", "parameters": {"length": 1}, "concurrency": 1, "lossless": true, "tau": 1.5, "tau_interior": null, "tau_lo": 1.25, "tau_hi": 1.75, "censored_rounds": 1, "rounds": null, "tokens": null, "accepted_per_round": null, "verified_per_round": null, "verified_per_round_se": null, "verified_per_round_on_trajectory": null, "acceptance_rate": null, "cost_per_round": 1234.5, "cost_per_step": null, "tokens_per_cost": 0.00125, "tokens_per_cost_per_user": null, "speedup": null, "budget": null, "padded_tokens": null, "pareto": false, "walked": false, "off_policy": false, "effective_samples": null, "tau_se": null, "censored_share": null, "early_stop_difference": null, "bound": false, "interval": {"confidence": 0.95, "tau": null, "tau_interior": null, "rounds": null, "accepted_per_round": null, "verified_per_round": null, "acceptance_rate": null, "cost_per_round": null, "cost_per_step": null, "tokens_per_cost": null, "tokens_per_cost_per_user": null, "speedup": null}, "reference": false, "versus_reference": null, "ledger": null}
{"type": "result", "trace": "a|b,\"c\"\\n\\x1b[2J\\xff.h5", "verification": "greedy", "sampling": {"temperature": 0.7, "top_k": 0, "top_p": 1, "top_p_rule": "water_filling", "drafts": "sampled"}, "policy": "fixed", "parameters": {"length": 1}, "concurrency": 1, "lossless": true, "tau": 1.5, "tau_interior": null, "tau_lo": 1.25, "tau_hi": 1.75, "censored_rounds": 1, "rounds": null, "tokens": null, "accepted_per_round": null, "verified_per_round": null, "verified_per_round_se": null, "verified_per_round_on_trajectory": null, "acceptance_rate": null, "cost_per_round": 99, "cost_per_step": null, "tokens_per_cost": 0.001, "tokens_per_cost_per_user": null, "speedup": null, "budget": null, "padded_tokens": null, "pareto": false, "walked": false, "off_policy": false, "effective_samples": null, "tau_se": null, "censored_share": null, "early_stop_difference": null, "bound": false, "interval": {"confidence": 0.95, "tau": null, "tau_interior": null, "rounds": null, "accepted_per_round": null, "verified_per_round": null, "acceptance_rate": null, "cost_per_round": null, "cost_per_step": null, "tokens_per_cost": null, "tokens_per_cost_per_user": null, "speedup": null}, "reference": false, "versus_reference": null, "ledger": null}
{"type": "run", "seconds": 0}
)out");
}

TEST(JsonLines, HoldsTheObjectsOfTheDocument) {
  const Json document = Json::parse(render(anchors_result(), OutputFormat::json));
  std::istringstream text(render(anchors_result(), OutputFormat::jsonl));
  std::vector<Json> results;
  for (std::string line; std::getline(text, line);) {
    Json object = Json::parse(line);
    if (object["type"] != "result") continue;
    object.erase("type");
    results.push_back(object);
  }
  ASSERT_EQ(results.size(), document["results"].size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].dump(), document["results"][i].dump());
  }
}

}  // namespace
}  // namespace dspark
