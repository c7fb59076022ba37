#include "cost/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "cost/cost.h"
#include "support/error.h"
#include "tests/cost/examples.h"

namespace dspark::test {
namespace {

// --- linear ---

TEST(LinearModel, OfOneRequestIsTheRoundCostToTheLastBit) {
  for (const LinearCost& cost :
       {LinearCost{}, LinearCost{0.1, 0.7, 0.3, 0.9}, LinearCost{1e-3, 1e9, 1.0 / 3, 7e-5}}) {
    const CostModel model(cost);
    for (std::int64_t drafts = 0; drafts <= 64; ++drafts) {
      EXPECT_EQ(model.speculative_step(1, drafts), round_cost(cost, static_cast<double>(drafts)));
    }
    EXPECT_EQ(model.plain_step(1), step_cost(cost));
  }
}

TEST(LinearModel, ChargesTheFixedTermsOncePerStep) {
  const CostModel model(LinearCost{.draft = 8, .verify_base = 4, .verify_token = 2, .accept = 1});
  EXPECT_EQ(model.speculative_step(3, 5), 8 + 4 + 2 * (3 + 5) + 5);
  EXPECT_EQ(model.plain_step(3), 4 + 2 * 3);
  EXPECT_EQ(model.draft(3), 8);
  EXPECT_EQ(model.verify(3, 8), 4 + 2 * 8);
  EXPECT_EQ(model.accept(5), 5);
  EXPECT_EQ(model.overhead(), 0);
  EXPECT_EQ(model.unit(), "");
  EXPECT_EQ(model.table(), nullptr);
}

TEST(LinearModel, IsEdgeLlmsByDefault) {
  ASSERT_TRUE(CostModel().linear().has_value());
  EXPECT_EQ(CostModel().speculative_step(1, 7), round_cost(LinearCost{}, 7));
}

TEST(LinearModel, GivesItsConstantsOnlyWhereTheyAreAllOfIt) {
  CostModel model;
  model.set_draft(0.25);
  ASSERT_TRUE(model.linear().has_value());
  EXPECT_EQ(model.linear()->draft, 0.25);
  CostModel listed;
  listed.set_draft({{1, 0.5}, {4, 1.0}});
  EXPECT_FALSE(listed.linear().has_value());
  CostModel delayed;
  delayed.set_overhead(0.1);
  EXPECT_FALSE(delayed.linear().has_value());
  CostModel padded;
  padded.set_buckets({8});
  EXPECT_FALSE(padded.linear().has_value());
}

TEST(LinearModel, IsFlatWhereNeitherTokensNorDraftsCost) {
  EXPECT_FALSE(CostModel().is_flat());
  EXPECT_FALSE(CostModel(LinearCost{1, 1, 0, 0.1}).is_flat());
  EXPECT_TRUE(CostModel(LinearCost{1, 1, 0, 0}).is_flat());
}

// --- what the policy file adds ---

TEST(CostModelTerms, AreChargedOncePerSpeculativeStepAndNeverWithoutSpeculation) {
  CostModel model(example("sglang_1d"));
  const double before = model.speculative_step(4, 12);
  EXPECT_FALSE(model.has_draft());
  model.set_draft(1.5);
  model.set_overhead(0.25);
  EXPECT_TRUE(model.has_draft());
  EXPECT_DOUBLE_EQ(model.speculative_step(4, 12), before + 1.75);
  EXPECT_EQ(model.plain_step(16), 1000 / 150.0);
}

TEST(CostModelTerms, DraftTimesAreLinearBetweenTheRequestCounts) {
  CostModel model;
  model.set_draft({{2, 1.0}, {4, 3.0}, {8, 5.0}});
  EXPECT_EQ(model.draft(1), 1.0);
  EXPECT_EQ(model.draft(2), 1.0);
  EXPECT_EQ(model.draft(3), 2.0);
  EXPECT_EQ(model.draft(6), 4.0);
  EXPECT_EQ(model.draft(16), 9.0);  // the last slope goes on
}

TEST(CostModelTerms, BucketsRoundTheTokensUpAndNothingAboveTheLast) {
  CostModel model(LinearCost{.draft = 0, .verify_base = 0, .verify_token = 1, .accept = 0});
  model.set_buckets({4, 16});
  EXPECT_EQ(model.verify(1, 1), 4);
  EXPECT_EQ(model.verify(1, 4), 4);
  EXPECT_EQ(model.verify(1, 5), 16);
  EXPECT_EQ(model.verify(1, 17), 17);
  EXPECT_EQ(model.plain_step(3), 4);
  EXPECT_EQ(model.speculative_step(3, 2), 16);
}

TEST(CostModelTerms, RefuseWhatIsNoCost) {
  CostModel model;
  EXPECT_THROW(model.set_draft(-1), Error);
  EXPECT_THROW(model.set_overhead(std::nan("")), Error);
  EXPECT_THROW(model.set_draft(std::vector<std::pair<std::int64_t, double>>{}), Error);
  EXPECT_THROW(model.set_draft({{4, 1.0}, {4, 2.0}}), Error);
  EXPECT_THROW(model.set_buckets({8, 4}), Error);
  EXPECT_THROW(model.set_buckets({0}), Error);
}

// --- each engine's lookup ---

TEST(Lookup, Sglang1dTakesTheLargestProbeAtOrBelow) {
  const CostModel model(example("sglang_1d"));
  EXPECT_EQ(model.verify(1, 16), 1000 / 150.0);
  EXPECT_EQ(model.verify(1, 31), 1000 / 150.0);
  EXPECT_EQ(model.verify(7, 31), 1000 / 150.0);
  EXPECT_EQ(model.verify(1, 1), 1000 / 152.5);
  EXPECT_EQ(model.verify(1, 9999), 1000 / 39.5);
  EXPECT_EQ(model.unit(), "ms");
}

TEST(Lookup, Sglang2dAddsThePartsInSecondsAndClampsThem) {
  const CostModel model(example("sglang_2d"));
  EXPECT_DOUBLE_EQ(model.verify(8, 64), 6.1 + 0.4 + 0.6);
  EXPECT_DOUBLE_EQ(model.verify(12, 96), 6.1 + 0.75 + 1.25);
  EXPECT_DOUBLE_EQ(model.verify(1, 1), 6.1);
  EXPECT_DOUBLE_EQ(model.verify(500, 5000), 6.1 + 5.7 + 12.1);
}

TEST(Lookup, TrtllmAddsThePartsInMsAndClampsThem) {
  const CostModel model(example("trtllm"));
  EXPECT_DOUBLE_EQ(model.verify(8, 64), 0.35 + 0.12 + 6.5);
  EXPECT_DOUBLE_EQ(model.verify(20, 192), 0.35 + 0.31 + 10.4);
  EXPECT_DOUBLE_EQ(model.verify(64, 9999), 0.35 + 1.1 + 23.2);
}

TEST(Lookup, TrtllmWithoutBatchSizesKnowsTheTokensAlone) {
  const CostModel model(parsed(R"({"token_counts": [1, 3], "step_time_ms": [2, 4]})"));
  EXPECT_EQ(model.verify(1, 2), 3);
  EXPECT_EQ(model.verify(2, 2), 3);
}

TEST(Lookup, TheExactTableHasItsCellsAndNothingBetween) {
  const CostModel model(example("trtllm_exact"));
  EXPECT_EQ(model.verify(16, 64), 7.6);
  EXPECT_EQ(model.verify(32, 192), 11.7);
  EXPECT_EQ(model.verify(16, 128), 8.06);  // the full block: the native path
  EXPECT_EQ(model.verify(32, 256), 12.76);
  EXPECT_TRUE(std::isnan(model.verify(16, 65)));
  EXPECT_TRUE(std::isnan(model.verify(8, 32)));
  EXPECT_TRUE(std::isnan(model.plain_step(16)));
}

TEST(Lookup, VllmAscendTakesTheNextLargerProbeElseTheLargest) {
  const CostModel model(example("vllm_ascend"));
  EXPECT_EQ(model.verify(1, 1), 6.4);
  EXPECT_EQ(model.verify(1, 16), 6.6);
  EXPECT_EQ(model.verify(1, 17), 7.1);
  EXPECT_EQ(model.verify(1, 9999), 14.9);
  const CostModel rates(parsed(R"({"sps": {"9": 200, "16": 100, "100": 10}})"));
  EXPECT_EQ(rates.verify(1, 9), 5);
  EXPECT_EQ(rates.verify(1, 10), 10);
  EXPECT_EQ(rates.verify(1, 17), 100);
}

TEST(Lookup, MlxIsLinearInTheWidthAndTheLastSlopeGoesOn) {
  const CostModel model(example("mlx"));
  EXPECT_EQ(model.verify(1, 4), 16.4);
  EXPECT_DOUBLE_EQ(model.verify(1, 5), (16.4 + 18.9) / 2);
  EXPECT_DOUBLE_EQ(model.verify(1, 10), 21.7 + (21.7 - 18.9));
  EXPECT_EQ(model.verify(2, 8), 19.8);
  EXPECT_DOUBLE_EQ(model.verify(3, 12), (19.8 + 30.2) / 2);  // 4 tokens of each
  EXPECT_EQ(model.draft(1), 2.6);
  EXPECT_EQ(model.overhead(), 0.4);
  EXPECT_DOUBLE_EQ(model.speculative_step(1, 7), 2.6 + 21.7 + 0.4);
}

TEST(Lookup, MlxOfOneRequestKnowsTheTokensAloneAndClampsBelow) {
  const CostModel model(parsed(R"({"x": {"verify": {"2": 4, "4": 8}}})"));
  EXPECT_EQ(model.verify(1, 1), 4);
  EXPECT_EQ(model.verify(3, 3), 6);
  EXPECT_EQ(model.verify(2, 5), 10);
}

// --- measured rows ---

TEST(MeasuredRows, AreMetExactly) {
  const CostTable table = example("h200_qwen3_8b_shape");
  const CostModel model(table);
  for (const CostRow& row : table.rows) {
    for (std::size_t i = 0; i < row.curve.size(); ++i) {
      EXPECT_EQ(model.verify(row.requests, row.curve.at[i]), row.curve.value[i]);
    }
  }
  EXPECT_EQ(model.draft(64), 3.6292);
  EXPECT_DOUBLE_EQ(model.draft(256), 7.1027 + 2 * (7.1027 - 3.6292));
}

TEST(MeasuredRows, AreLinearInTheTokensAndAtEqualTokensPerRequestBetweenTheCounts) {
  const CostModel model(parsed(
      R"({"verify": [{"requests": 2, "tokens": 4, "ms": 10}, {"requests": 2, "tokens": 8, "ms": 14},
                     {"requests": 6, "tokens": 12, "ms": 20}, {"requests": 6, "tokens": 24, "ms": 44}]})"));
  EXPECT_DOUBLE_EQ(model.verify(2, 6), 12);
  EXPECT_DOUBLE_EQ(model.verify(6, 18), 32);
  EXPECT_DOUBLE_EQ(model.verify(4, 8), 15);    // 2 of each: 10 and 20
  EXPECT_DOUBLE_EQ(model.verify(4, 16), 29);   // 4 of each: 14 and 44
  EXPECT_DOUBLE_EQ(model.verify(2, 10), 16);   // the row's last slope
  EXPECT_DOUBLE_EQ(model.verify(10, 20), 30);  // the slope of the requests
  EXPECT_DOUBLE_EQ(model.verify(6, 6), 10);    // the first slope, not below the least time
}

TEST(MeasuredRows, DoNotFallWithTheTokensWhereTheMeasurementsDoNot) {
  const CostModel model(example("h200_qwen3_8b_shape"));
  for (const std::int64_t requests : {1, 2, 3, 4, 5, 8, 13, 16, 48, 100, 128, 200, 256}) {
    double last = 0;
    for (std::int64_t tokens = requests; tokens <= 8 * requests; ++tokens) {
      const double ms = model.verify(requests, tokens);
      EXPECT_GE(ms, last) << requests << " requests, " << tokens << " tokens";
      EXPECT_GE(ms, 4.9902);
      last = ms;
    }
  }
}

// What a scheduler lives on: at high concurrency a token that is left out saves time.
TEST(MeasuredRows, MakeATokenDearerTheMoreRequestsThereAre) {
  const CostModel model(example("h200_qwen3_8b_shape"));
  const auto share = [&](std::int64_t requests) {
    return 1 - model.verify(requests, 4 * requests) / model.verify(requests, 8 * requests);
  };
  EXPECT_LT(share(1), 0.05);
  EXPECT_GT(share(32), share(1));
  EXPECT_GT(share(128), 0.2);
  EXPECT_GT(share(256), 0.2);
}

TEST(MeasuredRows, OfOneRequestCountKnowTheTokensAlone) {
  const CostModel model(parsed(
      R"({"verify": [{"requests": 1, "tokens": 2, "ms": 4}, {"requests": 1, "tokens": 4, "ms": 8}]})"));
  EXPECT_EQ(model.verify(3, 3), 6);
  EXPECT_EQ(model.verify(2, 6), 12);
  EXPECT_EQ(model.verify(1, 1), 4);  // never below the least time
}

TEST(MeasuredRows, WithOneMeasurementAtEachCountAreACurveOverTheTokens) {
  const CostModel model(parsed(
      R"({"verify": [{"requests": 1, "tokens": 8, "ms": 5}, {"requests": 2, "tokens": 16, "ms": 9},
                     {"requests": 4, "tokens": 32, "ms": 17}]})"));
  EXPECT_EQ(model.verify(4, 12), 7);
  EXPECT_EQ(model.verify(2, 16), 9);
  EXPECT_EQ(model.verify(8, 64), 33);
}

TEST(MeasuredRows, DoNotDependOnTheirOrder) {
  const CostTable forth = parsed(
      R"({"verify": [{"requests": 1, "tokens": 2, "ms": 4}, {"requests": 3, "tokens": 4, "ms": 8}]})");
  const CostTable back = parsed(
      R"({"verify": [{"requests": 3, "tokens": 4, "ms": 8}, {"requests": 1, "tokens": 2, "ms": 4}]})");
  EXPECT_EQ(forth.rows, back.rows);
}

// --- flat ---

TEST(IsFlat, MeansThatTheTokensDoNotMatterAtAnyRequestCount) {
  EXPECT_TRUE(CostModel(parsed(R"({"sample_batch_tokens": [1], "sample_steps_per_sec": [1.0],
                                   "max_batch_tokens": 64})"))
                  .is_flat());
  EXPECT_TRUE(CostModel(parsed(R"({"latency_ms": {"1": 100, "64": 101.9}})")).is_flat());
  EXPECT_FALSE(CostModel(parsed(R"({"latency_ms": {"1": 100, "64": 102.1}})")).is_flat());
  EXPECT_TRUE(CostModel(parsed(R"({"token_counts": [1, 64], "step_time_ms": [0.1, 0.2],
                                   "fixed_overhead_ms": 100})"))
                  .is_flat());
  // The requests matter, the tokens do not.
  EXPECT_TRUE(CostModel(parsed(R"({"token_counts": [1, 64], "step_time_ms": [1, 1],
                                   "batch_sizes": [1, 8], "batch_overhead_ms": [0, 50]})"))
                  .is_flat());
  for (const char* name : {"sglang_1d", "sglang_2d", "trtllm", "trtllm_exact", "vllm_ascend", "mlx",
                           "h200_qwen3_8b_shape"}) {
    EXPECT_FALSE(CostModel(example(name)).is_flat()) << name;
  }
}

TEST(CostModels, AreValues) {
  CostModel original(example("trtllm"));
  CostModel copy = original;
  copy.set_draft(2);
  EXPECT_EQ(original.draft(1), 0);
  EXPECT_EQ(copy.draft(1), 2);
  original = CostModel();
  EXPECT_EQ(copy.verify(8, 64), CostModel(example("trtllm")).verify(8, 64));
}

}  // namespace
}  // namespace dspark::test
