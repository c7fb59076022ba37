#include "cost/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/cost_model.h"
#include "support/error.h"
#include "tests/cost/examples.h"

namespace dspark::test {
namespace {

constexpr CostFormat kTargets[] = {CostFormat::sglang_1d, CostFormat::sglang_2d, CostFormat::trtllm,
                                   CostFormat::vllm_ascend, CostFormat::rows};
const char* const kExamples[] = {"sglang_1d",          "sglang_2d",   "trtllm",
                                 "trtllm_exact",       "vllm_ascend", "mlx",
                                 "h200_qwen3_8b_shape"};

TEST(ConvertCostTable, WritesFilesThatReadBackToTheSameTimes) {
  for (const char* name : kExamples) {
    for (const CostFormat to : kTargets) {
      SCOPED_TRACE(std::string(name) + " to " + std::string(cost_format_name(to)));
      const CostTable table = convert_cost_table(example(name), to, 8).table;
      const std::string text = write_cost_table(table);
      const CostTable again = parsed(text);
      EXPECT_EQ(again.format, to);
      EXPECT_EQ(write_cost_table(again), text);
      const CostModel first(table);
      const CostModel second(again);
      for (std::int64_t tokens = 1; tokens <= 1200; tokens += 7) {
        EXPECT_EQ(first.verify(1, tokens), second.verify(1, tokens));
        if (tokens >= 8) {
          EXPECT_EQ(first.verify(8, tokens), second.verify(8, tokens));
        }
      }
    }
  }
}

TEST(ConvertCostTable, ToItsOwnFormatChangesNothing) {
  const CostTable table = example("trtllm");
  const CostConversion conversion = convert_cost_table(table, CostFormat::trtllm, {});
  EXPECT_EQ(write_cost_table(conversion.table), write_cost_table(table));
  EXPECT_THAT(conversion.lost, testing::ElementsAre());
}

TEST(ConvertCostTable, KeepsTheTimesAtTheProbesOfAOneDimensionalTable) {
  for (const char* name : {"sglang_1d", "vllm_ascend"}) {
    for (const CostFormat to : kTargets) {
      const CostTable table = example(name);
      if (to == table.format) continue;
      const CostConversion conversion = convert_cost_table(table, to, {});
      EXPECT_EQ(conversion.at_probes.changed, 0) << name << " to " << cost_format_name(to);
      EXPECT_EQ(conversion.at_probes.compared, static_cast<std::int64_t>(table.tokens.size()));
    }
  }
}

TEST(ConvertCostTable, KeepsSumsOfParts) {
  for (const auto& [name, to] :
       {std::pair("sglang_2d", CostFormat::trtllm), std::pair("trtllm", CostFormat::sglang_2d)}) {
    const CostConversion conversion = convert_cost_table(example(name), to, {});
    for (const CostDifference& difference :
         {conversion.at_probes, conversion.between_probes, conversion.beyond_probes}) {
      EXPECT_GT(difference.compared, 0);
      EXPECT_EQ(difference.changed, 0) << name;
    }
  }
}

TEST(ConvertCostTable, SaysWhereTheLookupRulesDisagreeMost) {
  // Floor to next larger: 511 tokens cost the probe of 256 before and that of 512 after, and so
  // does every place between.
  const CostConversion conversion = convert_cost_table(
      parsed(R"({"sample_batch_tokens": [1, 4], "sample_steps_per_sec": [100, 50],
                                    "max_batch_tokens": 4})"),
      CostFormat::vllm_ascend, {});
  EXPECT_EQ(conversion.between_probes.compared, 2);  // 2 and 3
  EXPECT_EQ(conversion.between_probes.changed, 2);
  EXPECT_EQ(conversion.between_probes.tokens, 2);
  EXPECT_EQ(conversion.between_probes.before_ms, 10);
  EXPECT_EQ(conversion.between_probes.after_ms, 20);
  EXPECT_EQ(conversion.beyond_probes.changed, 0);
}

TEST(ConvertCostTable, NeedsTheTokensPerRequestWhereOnlyOneSideKnowsTheRequests) {
  EXPECT_TRUE(needs_tokens_per_request(example("trtllm"), CostFormat::sglang_1d));
  EXPECT_FALSE(needs_tokens_per_request(example("trtllm"), CostFormat::sglang_2d));
  EXPECT_FALSE(needs_tokens_per_request(example("vllm_ascend"), CostFormat::sglang_1d));
  try {
    (void)convert_cost_table(example("trtllm"), CostFormat::sglang_1d, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), testing::HasSubstr("--tokens-per-request N"));
  }
}

TEST(ConvertCostTable, ToOneDimensionTakesTheCellsOfFullBlocks) {
  const CostTable table =
      convert_cost_table(example("h200_qwen3_8b_shape"), CostFormat::vllm_ascend, 8).table;
  EXPECT_THAT(table.tokens.at, testing::IsSupersetOf({8, 32, 64, 128, 256, 512, 1024}));
  const CostModel model(table);
  EXPECT_EQ(model.verify(128, 1024), 45.0431);
  EXPECT_EQ(model.verify(4, 32), 5.7894);
}

TEST(ConvertCostTable, OfTheExactTableToOneDimensionTakesItsNativeCells) {
  const CostTable table =
      convert_cost_table(example("trtllm_exact"), CostFormat::vllm_ascend, 8).table;
  EXPECT_THAT(table.tokens.at, testing::ElementsAre(128, 256));
  EXPECT_THAT(table.tokens.value, testing::ElementsAre(8.06, 12.76));
  try {
    (void)convert_cost_table(example("trtllm_exact"), CostFormat::vllm_ascend, 5);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::policy);
  }
}

TEST(ConvertCostTable, MakesASumThatMeetsMeasuredRows) {
  const CostConversion conversion =
      convert_cost_table(example("h200_qwen3_8b_shape"), CostFormat::sglang_2d, {});
  EXPECT_EQ(conversion.at_probes.compared, 20);
  EXPECT_EQ(conversion.at_probes.changed, 0);
  EXPECT_EQ(conversion.between_probes.changed, 0);
  EXPECT_GT(conversion.beyond_probes.changed, 0);  // clamped there
  EXPECT_THAT(conversion.lost, testing::ElementsAre("the draft time", "'description'"));
}

TEST(ConvertCostTable, RefusesWhatIsNoSumOfParts) {
  // Slopes of 12 and 0.1 ms per token where the other request count starts.
  const CostTable table = parsed(
      R"({"verify": [{"requests": 1, "tokens": 1, "ms": 0.1}, {"requests": 1, "tokens": 9, "ms": 100},
                     {"requests": 9, "tokens": 9, "ms": 0.1}, {"requests": 9, "tokens": 99, "ms": 9}]})");
  try {
    (void)convert_cost_table(table, CostFormat::trtllm, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::policy);
    EXPECT_THAT(error.what(), testing::HasSubstr("times below 0"));
  }
}

TEST(ConvertCostTable, KeepsTheDraftTimeAndOverheadInRows) {
  const CostConversion conversion = convert_cost_table(example("mlx"), CostFormat::rows, {});
  EXPECT_EQ(conversion.table.draft.value.front(), 2.6);
  EXPECT_EQ(conversion.table.overhead, 0.4);
  EXPECT_EQ(conversion.at_probes.changed, 0);
  EXPECT_THAT(conversion.lost, testing::ElementsAre());
}

TEST(ConvertCostTable, StaysWithinItsBoundsOnLargeTables) {
  std::string list = "[1";
  std::string values = "[1";
  for (int i = 2; i <= 20'000; ++i) {
    list += "," + std::to_string(i);
    values += "," + std::to_string(i);
  }
  const CostTable table =
      parsed(R"({"token_counts": )" + list + R"(], "step_time_ms": )" + values +
             R"(], "batch_sizes": )" + list + R"(], "batch_overhead_ms": )" + values + "]}");
  EXPECT_LE(convert_cost_table(table, CostFormat::sglang_2d, {}).at_probes.compared, 1'000'000);
  EXPECT_THROW((void)convert_cost_table(table, CostFormat::rows, {}), Error);
}

TEST(ConvertCostTable, RefusesFormatsThatAreOnlyRead) {
  EXPECT_THROW((void)convert_cost_table(example("trtllm"), CostFormat::mlx, {}), Error);
  EXPECT_THROW((void)convert_cost_table(example("trtllm"), CostFormat::trtllm_exact, {}), Error);
}

}  // namespace
}  // namespace dspark::test
