// What the reader of cost tables accepts, and that everything else is one line with exit code 3.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cost/cost_table.h"
#include "support/error.h"
#include "support/sha256.h"
#include "tests/cost/examples.h"

namespace dspark::test {
namespace {

using nlohmann::json;

TEST(ReadCostTable, RecognisesEachFormatByItsKeys) {
  EXPECT_EQ(example("sglang_1d").format, CostFormat::sglang_1d);
  EXPECT_EQ(example("sglang_2d").format, CostFormat::sglang_2d);
  EXPECT_EQ(example("trtllm").format, CostFormat::trtllm);
  EXPECT_EQ(example("trtllm_exact").format, CostFormat::trtllm_exact);
  EXPECT_EQ(example("vllm_ascend").format, CostFormat::vllm_ascend);
  EXPECT_EQ(example("mlx").format, CostFormat::mlx);
  EXPECT_EQ(example("h200_qwen3_8b_shape").format, CostFormat::rows);
}

TEST(ReadCostTable, KeepsTheNumbersInTheUnitOfTheFile) {
  const CostTable rates = example("sglang_1d");
  EXPECT_TRUE(rates.rates);
  EXPECT_EQ(rates.tokens.at.back(), 512);
  EXPECT_EQ(rates.tokens.value.back(), 39.5);
  EXPECT_EQ(rates.max_batch_tokens, 512);
  const CostTable sum = example("sglang_2d");
  EXPECT_EQ(sum.constant, 0.0061);
  EXPECT_EQ(sum.requests.value[1], 0.0004);
  EXPECT_EQ(example("trtllm").min_predicted_gain, 0.01);
  EXPECT_EQ(example("trtllm_exact").max_draft_len, 7);
  EXPECT_EQ(example("trtllm_exact").drain_guard, (CostDrainGuard{1.0, 2.4, 0.1, 16}));
  EXPECT_FALSE(example("trtllm").drain_guard.has_value());
}

TEST(ReadCostTable, TakesTheGraphModeAndWorkloadThatTheProfileNames) {
  EXPECT_EQ(example("vllm_ascend").tokens.value.front(), 6.4);
  EXPECT_EQ(parsed(R"({"curves": {"decode_only": {"8": 1.5}}})").tokens.value.front(), 1.5);
  EXPECT_EQ(parsed(R"({"curves": {"decode_only": {"FULL": {"8": 1.5}}}})").tokens.value.front(),
            1.5);
  EXPECT_EQ(parsed(R"({"curves": {"decode_only": {"8": 1.5}, "mixed": {"8": 2.5}},
                       "workload": "mixed"})")
                .tokens.value.front(),
            2.5);
}

TEST(ReadCostTable, SortsTheKeysOfMapsByNumber) {
  EXPECT_THAT(parsed(R"({"latency_ms": {"128": 3, "16": 2, "8": 1}})").tokens.at,
              testing::ElementsAre(8, 16, 128));
}

TEST(ReadCostTable, TakesTheEntryThatIsAskedForOfAnMlxFile) {
  const std::string two = R"({"M1|a": {"verify": {"1": 1}}, "M2|b": {"verify": {"1": 2}}})";
  EXPECT_EQ(parse_cost_table(two, "t.json", "M2").rows.front().curve.value.front(), 2);
  EXPECT_EQ(parse_cost_table(two, "t.json", "M1|a").rows.front().curve.value.front(), 1);
  EXPECT_THROW((void)parse_cost_table(two, "t.json", "M"), Error);
  EXPECT_THROW((void)parse_cost_table(two, "t.json"), Error);
  // The whole name wins over names that contain it.
  const std::string nested = R"({"M": {"verify": {"1": 1}}, "M2": {"verify": {"1": 2}}})";
  EXPECT_EQ(parse_cost_table(nested, "t.json", "M").rows.front().curve.value.front(), 1);
}

std::string text_of(const std::string& name) {
  std::ifstream file(std::string(DSPARK_SOURCE) + "/configs/cost/" + name + ".json");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// What is wrong with `text`; every error must be one of the policy's, one line, with the file.
std::string error_of(const std::string& text, const std::string& entry = {}) {
  try {
    (void)parse_cost_table(text, "t.json", entry);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::policy);
    const std::string what = error.what();
    EXPECT_THAT(what, testing::StartsWith("t.json"));
    EXPECT_EQ(what.find('\n'), std::string::npos);
    return what;
  }
  return "no error";
}

struct BadTable {
  std::string name;
  std::string text;
  std::string message;  ///< a part of it that names the key
};

void PrintTo(const BadTable& table, std::ostream* out) { *out << table.name; }

class BadTableTest : public testing::TestWithParam<BadTable> {};

TEST_P(BadTableTest, IsRefusedWithTheKey) {
  EXPECT_THAT(error_of(GetParam().text), testing::HasSubstr(GetParam().message));
}

std::string sglang_1d(const std::string& tokens, const std::string& rates,
                      const std::string& most = "99") {
  return R"({"sample_batch_tokens": )" + tokens + R"(, "sample_steps_per_sec": )" + rates +
         R"(, "max_batch_tokens": )" + most + "}";
}
std::string sglang_2d(const std::string& bias, const std::string& alpha, const std::string& theta) {
  return R"({"bias_seconds": )" + bias + R"(, "bs_probes": [1, 2], "alpha_seconds": )" + alpha +
         R"(, "m_probes": [1, 2], "theta_seconds": )" + theta + "}";
}
std::string rows(const std::string& row) { return R"({"verify": [)" + row + "]}"; }

INSTANTIATE_TEST_SUITE_P(
    Formats, BadTableTest,
    testing::Values(
        BadTable{"NoObject", "[1]", "t.json: this is not an object"},
        BadTable{"NoKnownKey", R"({"a": 1})", "no cost table that is known has these keys"},
        BadTable{"TwoFormats", R"({"bias_seconds": 1, "sample_batch_tokens": [1]})",
                 "'sample_batch_tokens' belongs to sglang-1d and 'bias_seconds' to sglang-2d"},
        BadTable{"Nan", sglang_1d("[1, 2]", "[NaN, 1]"), "sample_steps_per_sec[0]: NaN"},
        BadTable{"KeyTwice", R"({"sps": {"1": 2, "1": 3}})", "sps.1: this key is given twice"},
        // SGLang 1-D
        BadTable{"NotIncreasing", sglang_1d("[1, 4, 4]", "[3, 2, 1]"),
                 "sample_batch_tokens[2]: 4 does not increase from 4"},
        BadTable{"ZeroRate", sglang_1d("[1, 2]", "[3, 0]"),
                 "sample_steps_per_sec[1]: 0 is not above 0"},
        BadTable{"NegativeRate", sglang_1d("[1, 2]", "[-3, 1]"), "sample_steps_per_sec[0]: -3"},
        BadTable{"TinyRate", sglang_1d("[1, 2]", "[3, 1e-300]"),
                 "sample_steps_per_sec[1]: 1e-300 is out"},
        BadTable{"WrongLength", sglang_1d("[1, 2]", "[3]"),
                 "sample_steps_per_sec: 1 value for 2 probes in 'sample_batch_tokens'"},
        BadTable{"NoProbes", sglang_1d("[]", "[]"), "sample_batch_tokens: there are no probes"},
        BadTable{"TokensAsText", sglang_1d("[\"1\"]", "[3]"),
                 "sample_batch_tokens[0]: this is not a whole"},
        BadTable{"TokensAsFloat", sglang_1d("[1.5]", "[3]"),
                 "sample_batch_tokens[0]: this is not a whole"},
        BadTable{"TokensAsBoolean", sglang_1d("[true]", "[3]"),
                 "sample_batch_tokens[0]: this is not a whole"},
        BadTable{"RateAsBoolean", sglang_1d("[1]", "[true]"),
                 "sample_steps_per_sec[0]: this is not a number"},
        BadTable{"RateAsNull", sglang_1d("[1]", "[null]"),
                 "sample_steps_per_sec[0]: this is not a number"},
        BadTable{"ZeroTokens", sglang_1d("[0]", "[3]"),
                 "sample_batch_tokens[0]: 0 is out of range"},
        BadTable{"HugeTokens", sglang_1d("[1, 18446744073709551615]", "[3, 1]"),
                 "sample_batch_tokens[1]: 18446744073709551615 is out of range"},
        BadTable{"SmallMaximum", sglang_1d("[1, 9]", "[3, 1]", "8"),
                 "max_batch_tokens: 8 is out of range"},
        BadTable{"NoMaximum", R"({"sample_batch_tokens": [1], "sample_steps_per_sec": [1]})",
                 "'max_batch_tokens' is missing"},
        BadTable{"ListIsNone", sglang_1d("4", "[1]"), "sample_batch_tokens: this is not a list"},
        // SGLang 2-D
        BadTable{"ZeroBias", sglang_2d("0", "[0, 1]", "[0, 1]"), "bias_seconds: 0 is not above 0"},
        BadTable{"SumBelowZero", sglang_2d("1", "[-0.5, 1]", "[-0.6, 1]"),
                 "theta_seconds: the least sum"},
        BadTable{"AlphaTooShort", sglang_2d("1", "[0]", "[0, 1]"),
                 "alpha_seconds: 1 value for 2 probes"},
        BadTable{"ThetaMissing",
                 R"({"bias_seconds": 1, "bs_probes": [1], "alpha_seconds": [0], "m_probes": [1]})",
                 "'theta_seconds' is missing"},
        // TensorRT-LLM
        BadTable{"ZeroTime", R"({"token_counts": [1, 2], "step_time_ms": [0, 1]})",
                 "step_time_ms[0]: 0"},
        BadTable{"HugeTime", R"({"token_counts": [1], "step_time_ms": [1e300]})",
                 "step_time_ms[0]: 1e+300 is out"},
        BadTable{"NegativeOverhead",
                 R"({"token_counts": [1], "step_time_ms": [1], "fixed_overhead_ms": -1})",
                 "fixed_overhead_ms: -1 is below 0"},
        BadTable{"HalfOfTheBatches",
                 R"({"token_counts": [1], "step_time_ms": [1], "batch_sizes": [1]})",
                 "'batch_overhead_ms' is missing"},
        BadTable{
            "BatchesNotIncreasing",
            R"({"token_counts": [1], "step_time_ms": [1], "batch_sizes": [2, 1], "batch_overhead_ms": [0, 1]})",
            "batch_sizes[1]: 1 does not increase from 2"},
        BadTable{"NegativeGain",
                 R"({"token_counts": [1], "step_time_ms": [1], "minimum_predicted_gain": -0.1})",
                 "minimum_predicted_gain: -0.1"},
        // vllm-ascend
        BadTable{"TwoForms", R"({"latency_ms": {"1": 1}, "sps": {"1": 1}})",
                 "sps: 'latency_ms' is given besides"},
        BadTable{"NoForm", R"({"hardware_profile": {"a": 1}})",
                 "hardware_profile: there is no latency_ms"},
        BadTable{"EmptyMap", R"({"latency_ms": {}})", "latency_ms: this is empty"},
        BadTable{"KeyIsNoNumber", R"({"latency_ms": {"8a": 1}})",
                 "latency_ms: the key '8a' is not a count"},
        BadTable{"KeyHasAZero", R"({"latency_ms": {"08": 1}})",
                 "latency_ms: the key '08' is not a count"},
        BadTable{"KeyIsZero", R"({"latency_ms": {"0": 1}})",
                 "latency_ms: the key '0' is not a count"},
        BadTable{"LatencyIsZero", R"({"latency_ms": {"8": 0}})", "latency_ms.8: 0 is not above 0"},
        BadTable{"UnknownMode",
                 R"({"curves": {"decode_only": {"FULL": {"8": 1}}}, "graph_mode": "EAGER"})",
                 "curves.decode_only: 'EAGER' is missing"},
        BadTable{"ModeNotChosen", R"({"curves": {"decode_only": {"A": {"8": 1}, "B": {"8": 1}}}})",
                 "curves.decode_only: 2 graph modes"},
        BadTable{"WorkloadNotThere", R"({"curves": {"mixed": {"8": 1}}})",
                 "curves: 'decode_only' is missing"},
        BadTable{"ZeroTemperature",
                 R"({"latency_ms": {"8": 1}, "confidence_temperatures": [1, 0]})",
                 "confidence_temperatures[1]: 0 is not above 0"},
        // mlx
        BadTable{"MlxVersion", R"({"schema": 3, "a": {"verify": {"1": 1}}})",
                 "schema: version 3 is not known"},
        BadTable{"MlxSeveral", R"({"a": {"verify": {"1": 1}}, "b": {"verify": {"1": 1}}})",
                 "2 entries: 'a', 'b'"},
        BadTable{"MlxGridDiffers", R"({"a": {"verify": {"1": 1}, "verify_grid": {"1": {"1": 2}}}})",
                 "a.verify_grid.1: this differs from 'verify'"},
        BadTable{"MlxZeroTime", R"({"a": {"verify": {"1": 1, "2": 0}}})",
                 "a.verify.2: 0 is not above 0"},
        BadTable{"MlxDrafter", R"({"a": {"verify": {"1": 1}, "drafter": "x"}})",
                 "a.drafter: this is not a number"},
        BadTable{"MlxHugeWidth",
                 R"({"a": {"verify": {"1": 1}, "verify_grid": {"1000000000": {"2": 1}}}})",
                 "a.verify_grid.1000000000: 1000000000 requests of 2 tokens"},
        // rows
        BadTable{"RowsEmpty", R"({"verify": []})", "verify: there are no rows"},
        BadTable{"RowsNoList", R"({"verify": 1})", "verify: this is not a list"},
        BadTable{"RowWithoutTime", rows(R"({"requests": 1, "tokens": 1})"),
                 "verify[0]: 'ms' is missing"},
        BadTable{"RowUnknownKey", rows(R"({"requests": 1, "tokens": 1, "ms": 1, "us": 1})"),
                 "verify[0].us: unknown key"},
        BadTable{
            "RowTwice",
            rows(R"({"requests": 1, "tokens": 1, "ms": 1}, {"requests": 1, "tokens": 1, "ms": 2})"),
            "verify[1]: 1 request and 1 token are given twice"},
        BadTable{"RowFewerTokensThanRequests", rows(R"({"requests": 4, "tokens": 3, "ms": 1})"),
                 "verify[0].tokens: 3 tokens of 4 requests"},
        BadTable{"RowTokensPerRequest",
                 rows(R"({"requests": 4, "tokens": 8, "tokens_per_request": 3, "ms": 1})"),
                 "verify[0].tokens_per_request: 3 times 4 requests is not 8"},
        BadTable{"DraftTwice",
                 R"({"verify": [{"requests": 1, "tokens": 1, "ms": 1}],
                     "draft": [{"requests": 1, "ms": 1}, {"requests": 1, "ms": 1}]})",
                 "draft[1]: 1 request is given twice"},
        BadTable{"DraftEmpty",
                 R"({"verify": [{"requests": 1, "tokens": 1, "ms": 1}], "draft": []})",
                 "draft: there are no rows"}),
    [](const auto& test) { return test.param.name; });

TEST(ReadCostTable, RefusesMoreProbesThanItsBound) {
  std::string tokens = "[1";
  std::string rates = "[1";
  for (std::size_t i = 2; i <= kMaxCostProbes + 1; ++i) {
    tokens += "," + std::to_string(i);
    rates += ",1";
  }
  EXPECT_THAT(error_of(sglang_1d(tokens + "]", rates + "]", "1000000")),
              testing::HasSubstr("sample_batch_tokens: 100001 entries are too many"));
}

TEST(ReadCostTable, TakesAnEntryOfMlxFilesAlone) {
  EXPECT_THAT(error_of(text_of("trtllm"), "x"), testing::HasSubstr("has no entries"));
  EXPECT_THAT(error_of(R"({"a": {"verify": {"1": 1}}})", "b"),
              testing::HasSubstr("'b' is part of the names of 0 entries"));
}

TEST(ReadCostTable, SaysWhatIsWrongWithTheFileItself) {
  const auto error = [](const std::string& path) {
    try {
      (void)read_cost_table(path);
    } catch (const Error& failure) {
      EXPECT_EQ(failure.code(), ExitCode::policy);
      return std::string(failure.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error("/nonexistent.json"),
              testing::HasSubstr(
                  "cannot be opened: No such file or directory; give a readable cost table"));
  EXPECT_THAT(error("/"), testing::HasSubstr("is a directory"));
}

// --- the exact table: one change makes it wrong ---

struct Change {
  std::string name;
  std::function<void(json&)> apply;
  std::string message;
  bool rehash = false;  ///< state the hash of the changed fingerprint
};

void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

class ExactTableTest : public testing::TestWithParam<Change> {};

TEST_P(ExactTableTest, IsRefusedWithTheKey) {
  json table = json::parse(text_of("trtllm_exact"));
  GetParam().apply(table);
  if (GetParam().rehash) {
    table["engine_fingerprint_sha256"] =
        sha256_hex(table["engine_fingerprint"].dump(-1, ' ', true));
  }
  EXPECT_THAT(error_of(table.dump()), testing::HasSubstr(GetParam().message));
}

json& print_of(json& table) { return table["engine_fingerprint"]; }

// Outside the macro, which has a `t` of its own.
std::vector<Change> changes() {
  return {
      Change{"Version", [](json& t) { t["schema_version"] = 3; }, "schema_version: version 3"},
      Change{"NoVersion", [](json& t) { t.erase("schema_version"); },
             "'schema_version' is missing"},
      Change{"UnknownKey", [](json& t) { t["x"] = 1; }, "x: unknown key"},
      Change{"NullGain", [](json& t) { t["minimum_predicted_gain"] = nullptr; },
             "minimum_predicted_gain: this is not a number"},
      Change{"FingerprintOfAnotherGpu", [](json& t) { print_of(t)["gpu"] = "another"; },
             "engine_fingerprint_sha256: this is not the hash of engine_fingerprint"},
      Change{"HashIsNone", [](json& t) { t["engine_fingerprint_sha256"] = "00"; },
             "engine_fingerprint_sha256: this is not a SHA-256"},
      Change{"FingerprintUnknownKey", [](json& t) { print_of(t)["x"] = 1; },
             "engine_fingerprint.x: unknown key", true},
      Change{"FingerprintGpuIsNoText", [](json& t) { print_of(t)["gpu"] = 1; },
             "engine_fingerprint.gpu: this is not a text", true},
      Change{"FingerprintDigest", [](json& t) { print_of(t)["gpu_snapshot_sha256"] = "xyz"; },
             "engine_fingerprint.gpu_snapshot_sha256: this is not a SHA-256", true},
      Change{"GlobalBatches",
             [](json& t) {
               print_of(t)["global_graph_batch_sizes"] = {16, 32};
             },
             "engine_fingerprint.global_graph_batch_sizes: these are not the rank-local", true},
      Change{"LongBlock", [](json& t) { print_of(t)["max_draft_len"] = 65; },
             "engine_fingerprint.max_draft_len: 65 is out of range", true},
      Change{"OtherBatches",
             [](json& t) {
               print_of(t)["rank_local_graph_batch_sizes"] = {16, 64};
               print_of(t)["global_graph_batch_sizes"] = {32, 128};
             },
             "cost_tables: the batches are not the rank_local_graph_batch_sizes", true},
      Change{"NoNativeCell", [](json& t) { t["cost_tables"]["16"]["token_counts"][0] = 16; },
             "cost_tables.16.token_counts: the first entry is not 0"},
      Change{"FewerTokensThanTheBatch",
             [](json& t) { t["cost_tables"]["16"]["token_counts"][1] = 15; },
             "cost_tables.16.token_counts[1]: 15 tokens"},
      Change{"MoreTokensThanTheBlock",
             [](json& t) { t["cost_tables"]["16"]["token_counts"][3] = 129; },
             "cost_tables.16.token_counts[3]: 129 tokens"},
      Change{"TooManyCells",
             [](json& t) {
               t["cost_tables"]["16"] = {{"token_counts", {0, 32, 48, 64, 80, 96}},
                                         {"step_time_ms", {8, 3, 4, 5, 6, 7}}};
             },
             "cost_tables.16.token_counts: 5 counts below the full block"},
      Change{"CellTime", [](json& t) { t["cost_tables"]["16"]["step_time_ms"][1] = 7.3; },
             "measurements[1].step_time_ms: the cell has 7.3 ms"},
      Change{"CellZero", [](json& t) { t["cost_tables"]["16"]["step_time_ms"][1] = 0; },
             "cost_tables.16.step_time_ms[1]: 0 is not above 0"},
      Change{"MeasurementMissing", [](json& t) { t["measurements"].erase(0); },
             "measurements: the cell (16, 0) is missing"},
      Change{"MeasurementTwice", [](json& t) { t["measurements"].push_back(t["measurements"][0]); },
             "measurements[8]: (16, 0) is no cell"},
      Change{"MeasurementDigest", [](json& t) { t["measurements"][0]["source_result_sha256"] = 1; },
             "measurements[0].source_result_sha256: this is not a text"},
      Change{"GuardTail", [](json& t) { t["iteration_drain_guard"]["tail_graph_batch_size"] = 8; },
             "iteration_drain_guard.tail_graph_batch_size: 8 is no graph batch"},
      Change{"GuardMultiplier", [](json& t) { t["iteration_drain_guard"]["loss_multiplier"] = 0; },
             "iteration_drain_guard.loss_multiplier: 0 is not above 0"},
      Change{"BatchKey", [](json& t) { t["cost_tables"]["016"] = t["cost_tables"]["16"]; },
             "cost_tables: the key '016' is not a count"}};
}

INSTANTIATE_TEST_SUITE_P(Changes, ExactTableTest, testing::ValuesIn(changes()),
                         [](const auto& test) { return test.param.name; });

TEST(ReadCostTable, TakesTheFullBlockAsTheNativePathWhereACellStatesItToo) {
  json table = json::parse(text_of("trtllm_exact"));
  table["cost_tables"]["16"]["token_counts"].push_back(128);
  table["cost_tables"]["16"]["step_time_ms"].push_back(9.5);
  json measurement = table["measurements"][0];
  measurement["rank_local_verifier_budget"] = 128;
  measurement["step_time_ms"] = 9.5;
  table["measurements"].push_back(measurement);
  EXPECT_EQ(parsed(table.dump()).rows.front().curve.size(), 5U);
}

TEST(ReadCostTable, ChecksTheHashOfNamesThatAreNotAscii) {
  json table = json::parse(text_of("trtllm_exact"));
  table["engine_fingerprint"]["gpu"] = "Größe\x7f";
  // Of the canonical text with the letters as \u00f6, \u00df and \u007f.
  table["engine_fingerprint_sha256"] = sha256_hex(table["engine_fingerprint"].dump(-1, ' ', true));
  EXPECT_THAT(table["engine_fingerprint"].dump(-1, ' ', true),
              testing::HasSubstr("Gr\\u00f6\\u00dfe\\u007f"));
  EXPECT_EQ(error_of(table.dump()), "no error");
}

}  // namespace
}  // namespace dspark::test
