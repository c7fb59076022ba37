#include "replay/strata.h"

#include <gtest/gtest.h>

#include <map>

#include "replay/open_loop.h"
#include "tests/replay/random_table.h"

namespace dspark {
namespace {

std::map<std::string, Stratum> by_label(const std::vector<Stratum>& strata, const std::string& by) {
  std::map<std::string, Stratum> out;
  for (const Stratum& stratum : strata) {
    if (stratum.by == by) out[stratum.label] = stratum;
  }
  return out;
}

TEST(Strata, OfTheWholeTraceAreTheOpenLoop) {
  const OutcomeTable table = random_table({300, 40}, 3, 2, 1);
  const Stratum whole = make_strata(table).front();
  const std::vector<PositionResult> at = open_loop(table);
  EXPECT_EQ(whole.by, "trace");
  EXPECT_DOUBLE_EQ(whole.anchors, 300 - 2 + 40 - 2);
  EXPECT_NEAR(*whole.survival, *at[0].survival, 1e-12);
  EXPECT_NEAR(*whole.predicted_conditional, *at[0].predicted_conditional, 1e-12);
  EXPECT_NEAR(*whole.tau_open_loop, 1 + *at[0].survival + *at[1].survival + *at[2].survival, 1e-12);
}

TEST(Strata, CutTheDepthInPowersOfTwoFromTheSequencesStart) {
  const auto depths = by_label(make_strata(random_table({300, 70}, 1, 0, 2)), "depth");
  ASSERT_EQ(depths.size(), 4u);
  EXPECT_DOUBLE_EQ(depths.at("positions 0-63").anchors, 64 + 64);
  EXPECT_DOUBLE_EQ(depths.at("positions 64-127").anchors, 64 + 6);
  EXPECT_DOUBLE_EQ(depths.at("positions 128-255").anchors, 128);
  EXPECT_DOUBLE_EQ(depths.at("positions 256-511").anchors, 300 - 256);
}

TEST(Strata, BinTheConfidenceWithOneInTheLast) {
  OutcomeTable table = uniform_table(4, 1, 0.5, 0.2f);
  table.confidence = {0.1f, 0.25f, 1.0f, std::nanf("")};
  const auto bins = by_label(make_strata(table), "confidence");
  ASSERT_EQ(bins.size(), 3u);
  EXPECT_DOUBLE_EQ(bins.at("confidence 0-0.2").anchors, 1);
  EXPECT_DOUBLE_EQ(bins.at("confidence 0.2-0.4").anchors, 1);
  EXPECT_DOUBLE_EQ(bins.at("confidence 0.8-1").anchors, 1);
}

TEST(Strata, HaveIntervalsThatHoldThem) {
  const OutcomeTable table = random_table({150, 130, 140}, 3, 0, 4);
  const Resampling resampling = anchor_resampling(table, 0, 0.95);
  const auto holds = [](const std::optional<Range>& range, const std::optional<double>& value) {
    return range && value && range->lo < *value && *value < range->hi;
  };
  const std::vector<Stratum> plain = make_strata(table);
  const std::vector<Stratum> sure = make_strata(table, &resampling);
  ASSERT_EQ(sure.size(), plain.size());
  for (std::size_t i = 0; i < sure.size(); ++i) {
    SCOPED_TRACE(sure[i].label);
    EXPECT_EQ(sure[i].tau_open_loop, plain[i].tau_open_loop);
    EXPECT_FALSE(plain[i].intervals.survival.has_value());
    EXPECT_EQ(sure[i].token_draws.size(), resampling.draws());
    if (sure[i].anchors < kFewAnchors) {
      EXPECT_FALSE(sure[i].intervals.tau_open_loop.has_value());
      continue;
    }
    EXPECT_TRUE(holds(sure[i].intervals.survival, sure[i].survival));
    EXPECT_TRUE(holds(sure[i].intervals.tau_open_loop, sure[i].tau_open_loop));
    EXPECT_TRUE(holds(sure[i].intervals.predicted_conditional, sure[i].predicted_conditional));
  }
  // The blocks of all depths are those of the trace: so is their mean, and its interval.
  ReplayResult result;
  result.strata = sure;
  finish_strata(result);
  for (const StrataMean& mean : result.strata_means) {
    EXPECT_TRUE(holds(mean.micro_interval, mean.micro)) << mean.by;
    EXPECT_TRUE(holds(mean.macro_interval, mean.macro)) << mean.by;
    // However the blocks are cut into parts, their mean is the same, and its interval.
    EXPECT_NEAR(mean.micro_interval->lo, sure[0].intervals.tau_open_loop->lo, 1e-9) << mean.by;
    EXPECT_NEAR(mean.micro_interval->hi, sure[0].intervals.tau_open_loop->hi, 1e-9) << mean.by;
  }
  for (const Stratum& stratum : result.strata) EXPECT_TRUE(stratum.token_draws.empty());
}

Stratum stratum(const std::string& trace, const std::string& by, double anchors, double tau) {
  Stratum out;
  out.trace = trace;
  out.verification = "probabilistic";
  out.by = by;
  out.anchors = anchors;
  out.tau_open_loop = tau;
  return out;
}

TEST(Strata, OfSampledAndOfGreedyDraftsAreNotMixed) {
  ReplayResult result;
  result.strata = {stratum("a.h5", "depth", 100, 1.5), stratum("a.h5", "depth", 100, 1.7),
                   stratum("a.h5", "depth", 100, 2.5), stratum("a.h5", "trace", 200, 1.6),
                   stratum("a.h5", "trace", 100, 2.5)};
  result.strata[2].sampling.drafts = result.strata[4].sampling.drafts = "greedy";
  finish_strata(result);
  ASSERT_EQ(result.strata_means.size(), 4u);
  EXPECT_DOUBLE_EQ(result.strata_means[0].macro, 1.6);
  EXPECT_DOUBLE_EQ(result.strata_means[1].macro, 2.5);
  EXPECT_EQ(result.strata_means[1].sampling.drafts, "greedy");
  EXPECT_TRUE(result.strata[0].worst);
  EXPECT_FALSE(result.strata[4].worst) << "one trace is compared with none";
}

TEST(FinishStrata, MeansCountPartsOrBlocksAndTheWorstIsMarked) {
  ReplayResult result;
  result.strata = {stratum("a", "depth", 100, 2), stratum("a", "depth", 300, 3),
                   stratum("a", "depth", 5, 1), stratum("a", "trace", 405, 2.5),
                   stratum("b", "trace", 45, 1.5)};
  finish_strata(result);
  ASSERT_EQ(result.strata_means.size(), 2u);
  EXPECT_EQ(result.strata_means[0].trace, "a");
  EXPECT_DOUBLE_EQ(result.strata_means[0].macro, 2);
  EXPECT_DOUBLE_EQ(result.strata_means[0].micro, (100 * 2 + 300 * 3 + 5 * 1) / 405.0);
  EXPECT_EQ(result.strata_means[1].trace, "");
  EXPECT_DOUBLE_EQ(result.strata_means[1].macro, 2);
  EXPECT_DOUBLE_EQ(result.strata_means[1].micro, (405 * 2.5 + 45 * 1.5) / 450);
  EXPECT_TRUE(result.strata[0].worst);
  EXPECT_FALSE(result.strata[2].worst) << "five blocks are the worst by chance";
  EXPECT_TRUE(result.strata[4].worst);
}

TEST(FinishStrata, CallsNothingTheWorstOfOne) {
  ReplayResult result;
  result.strata = {stratum("a", "trace", 405, 2.5)};
  finish_strata(result);
  EXPECT_FALSE(result.strata[0].worst);
}

TEST(RankResults, PutsBoundsLastWhateverTheyGive) {
  std::vector<PolicyResult> rows(4);
  rows[0].bound = true;
  rows[0].tokens_per_cost = 9;
  rows[1].policy = "without";
  rows[2].tokens_per_cost = 1;
  rows[3].tokens_per_cost = 2;
  rank_results(rows);
  EXPECT_DOUBLE_EQ(*rows[0].tokens_per_cost, 2);
  EXPECT_EQ(rows[2].policy, "without");
  EXPECT_TRUE(rows[3].bound);
}

}  // namespace
}  // namespace dspark
