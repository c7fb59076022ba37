#include "replay/intervals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cost/cost.h"
#include "replay/open_loop.h"
#include "replay/rounds.h"
#include "tests/replay/random_table.h"

namespace dspark {
namespace {

const LinearCost kCost;

struct Evaluated {
  PolicyResult row;
  std::vector<float> efficiency;
};

Evaluated evaluate(const OutcomeTable& table, const Policy& policy, const Resampling& resampling) {
  Evaluated out;
  const CellMap map = map_cells(resampling);
  RoundFlow flow(map);
  LoopScratch loop_scratch;
  const ClosedLoop loop = closed_loop(table, policy, kCost, flow, loop_scratch);
  out.row.tau = loop.tau;
  out.row.accepted_per_round = loop.tau - 1;
  out.row.rounds = loop.rounds;
  out.row.verified_per_round = loop.verified;
  out.row.verified_per_round_se = loop.verified_se;
  const bool drafts = speculates(policy);
  out.row.cost_per_round = drafts ? round_cost(kCost, *loop.verified) : step_cost(kCost);
  out.row.tokens_per_cost = loop.tau / *out.row.cost_per_round;
  out.row.speedup = *out.row.tokens_per_cost * step_cost(kCost);
  if (*loop.verified > 0) out.row.acceptance_rate = (loop.tau - 1) / *loop.verified;
  RowSums sums;
  IntervalScratch scratch;
  sum_cells(flow, sums);
  out.efficiency.resize(resampling.draws());
  std::vector<double> by_length;
  for (std::int32_t l = 0; l <= table.block_size; ++l) {
    by_length.push_back(drafts ? round_cost(kCost, l) : step_cost(kCost));
  }
  row_intervals(resampling, sums, scratch, out.row);
  price_intervals(resampling, sums, flow, by_length, 1, scratch, out.row, out.efficiency.data());
  return out;
}

double width(const std::optional<Range>& range) { return range.value().hi - range.value().lo; }

TEST(Quantiles, AreThoseOfTheTables) {
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-12);
  EXPECT_NEAR(student_quantile(0.975, 1), 12.706204736, 1e-6);
  EXPECT_NEAR(student_quantile(0.975, 2), 4.302652730, 1e-7);
  EXPECT_NEAR(student_quantile(0.95, 7), 1.894578605, 1e-7);
  EXPECT_NEAR(student_quantile(0.975, 23), 2.068657610, 1e-7);
  EXPECT_NEAR(student_quantile(0.995, 255), 2.595, 1e-3);
}

TEST(PercentileRange, InterpolatesBetweenOrderStatistics) {
  std::vector<double> values = {4, 0, 1, 3, 2};
  const std::optional<Range> half = percentile_range(values, 0.5);
  EXPECT_DOUBLE_EQ(half->lo, 1);
  EXPECT_DOUBLE_EQ(half->hi, 3);
  const std::optional<Range> most = percentile_range(values, 0.9);
  EXPECT_NEAR(most->lo, 0.2, 1e-12);
  EXPECT_NEAR(most->hi, 3.8, 1e-12);
  std::vector<double> one = {1};
  EXPECT_FALSE(percentile_range(one, 0.9).has_value());
}

TEST(Resampling, TakesWholeSequencesWhereThereAreEnough) {
  const Resampling resampling({0, 5, 5, 9, 10, 20, 21, 22, 23, 24}, 3, 0, 0, 0.95);
  EXPECT_EQ(resampling.blocks_per_draw(), 8) << "empty sequences do not count";
  EXPECT_EQ(resampling.cell_starts(), (std::vector<std::int64_t>{0, 5, 9, 10, 20, 21, 22, 23, 24}));
}

TEST(Resampling, TakesBlocksOfPositionsWhereThereAreFew) {
  const Resampling resampling({0, 256, 512, 768}, 4, 0, 0, 0.95);
  EXPECT_EQ(resampling.blocks_per_draw(), 24);
  // A mark at one position is in 32 of the 768 blocks: once per draw, on average.
  std::vector<double> cells(768, 0.0), scratch, sums;
  cells[255] = 1;
  resampling.draw_sums(cells.data(), 1, scratch, sums);
  ASSERT_EQ(sums.size(), static_cast<std::size_t>(kBootstrapDraws));
  EXPECT_NEAR(std::accumulate(sums.begin(), sums.end(), 0.0) / kBootstrapDraws, 1.0, 0.2);
  // Every block has 32 positions, those that are wrapped too.
  std::fill(cells.begin(), cells.end(), 1.0);
  resampling.draw_sums(cells.data(), 1, scratch, sums);
  for (const double sum : sums) EXPECT_DOUBLE_EQ(sum, 768);
}

TEST(Resampling, StaysSmallForLongTexts) {
  const Resampling one({0, 10'000'000}, 32, 0, 0, 0.95);
  EXPECT_LE(one.cells(), static_cast<std::size_t>(kMaxCells));
  EXPECT_LE(one.blocks_per_draw(), kMaxBlocksPerDraw);
  std::vector<std::int64_t> offsets(100'001);
  std::iota(offsets.begin(), offsets.end(), std::int64_t{0});
  const Resampling many(offsets, 32, 0, 0, 0.95);
  EXPECT_EQ(many.blocks_per_draw(), kMaxBlocksPerDraw);
  EXPECT_EQ(many.cell_starts().back(), 100'000);
}

TEST(Resampling, OfASingleBlockIsImpossible) {
  const Resampling resampling({0, 1}, 32, 4, 0, 0.95);
  EXPECT_FALSE(resampling.possible());
  const OutcomeTable table = random_table({1}, 2, 0, 1);
  EXPECT_FALSE(evaluate(table, FixedLength{2}, resampling).row.intervals.tau.has_value());
}

TEST(Resampling, SumsTheSameColumnsHoweverManyThereAre) {
  const Resampling resampling({0, 50, 90}, 4, 0, 3, 0.95);
  std::vector<double> three, five, scratch, a, b;
  for (int n = 0; n < 90; ++n) {
    for (const double value : {1.0, n * 0.5, n * n * 0.25}) {
      three.push_back(value);
      five.push_back(value);
    }
    five.insert(five.end(), {7.0, 8.0});
  }
  resampling.draw_sums(three.data(), 3, scratch, a);
  resampling.draw_sums(five.data(), 5, scratch, b);
  for (std::size_t draw = 0; draw < resampling.draws(); ++draw) {
    for (std::size_t c = 0; c < 3; ++c) EXPECT_EQ(a[draw * 3 + c], b[draw * 5 + c]);
  }
}

TEST(RowIntervals, OfADegenerateTableArePoints) {
  // Every round accepts everything but at the end of the text: only the last cells differ.
  const OutcomeTable table = uniform_table(300, 2, 0.0, 0.5f);
  const Resampling resampling = anchor_resampling(table, 0, 0.95);
  for (const Policy& policy : {Policy(NoSpeculation{}), Policy(FixedLength{0})}) {
    const PolicyResult row = evaluate(table, policy, resampling).row;
    EXPECT_EQ(row.intervals.tau->lo, 1);
    EXPECT_EQ(row.intervals.tau->hi, 1);
    EXPECT_EQ(row.intervals.tokens_per_cost->lo, *row.tokens_per_cost);
    EXPECT_EQ(row.intervals.tokens_per_cost->hi, *row.tokens_per_cost);
    EXPECT_FALSE(row.intervals.acceptance_rate.has_value()) << "nothing was verified";
  }
}

TEST(RowIntervals, HoldTheirEstimatesAndAgreeWithEachOther) {
  const OutcomeTable table = random_table({90, 40, 120}, 4, 3, 5);
  const Resampling resampling = anchor_resampling(table, 0, 0.95);
  for (const Policy& policy :
       {Policy(FixedLength{2}), Policy(Threshold{.threshold = 0.4}), Policy(Sps{}),
        Policy(Oracle{OracleBound::shortest}), Policy(OracleConfidence{})}) {
    const PolicyResult row = evaluate(table, policy, resampling).row;
    const auto holds = [](const std::optional<Range>& range, double value) {
      return range && range->lo <= value && value <= range->hi;
    };
    EXPECT_TRUE(holds(row.intervals.tau, *row.tau));
    EXPECT_TRUE(holds(row.intervals.verified_per_round, *row.verified_per_round));
    EXPECT_TRUE(holds(row.intervals.acceptance_rate, *row.acceptance_rate));
    EXPECT_TRUE(holds(row.intervals.cost_per_round, *row.cost_per_round));
    EXPECT_TRUE(holds(row.intervals.tokens_per_cost, *row.tokens_per_cost));
    EXPECT_DOUBLE_EQ(row.intervals.accepted_per_round->lo, row.intervals.tau->lo - 1);
    EXPECT_DOUBLE_EQ(row.intervals.speedup->hi,
                     row.intervals.tokens_per_cost->hi * step_cost(kCost));
    EXPECT_GT(width(row.intervals.tau), 0);
  }
}

TEST(RowIntervals, NarrowWithMoreSequencesAndWithLessConfidence) {
  const OutcomeTable few = random_table(std::vector<std::int64_t>(10, 40), 4, 0, 1);
  const OutcomeTable many = random_table(std::vector<std::int64_t>(160, 40), 4, 0, 1);
  const auto tau_width = [](const OutcomeTable& table, double confidence) {
    return width(
        evaluate(table, FixedLength{4}, anchor_resampling(table, 0, confidence)).row.intervals.tau);
  };
  EXPECT_LT(tau_width(many, 0.95), 0.5 * tau_width(few, 0.95));
  EXPECT_LT(tau_width(many, 0.8), tau_width(many, 0.95));
}

TEST(RowIntervals, AreThoseOfTheCentralLimit) {
  // 200 sequences: the widths must be those of the delta method for a ratio of means.
  const OutcomeTable table = random_table(std::vector<std::int64_t>(200, 30), 3, 0, 2);
  const PolicyResult row = evaluate(table, FixedLength{3}, anchor_resampling(table, 0, 0.95)).row;
  const std::vector<double> v = round_starts(table, FixedLength{3}, kCost);
  const double mean = *row.rounds / 200;
  double squares = 0;
  for (std::size_t s = 0; s < 200; ++s) {
    const double rounds =
        std::accumulate(v.begin() + static_cast<std::ptrdiff_t>(30 * s),
                        v.begin() + static_cast<std::ptrdiff_t>(30 * s + 30), 0.0);
    squares += (rounds - mean) * (rounds - mean);
  }
  const double error = *row.tau * std::sqrt(squares / 199 / 200) / mean;
  EXPECT_NEAR(width(row.intervals.tau), 2 * 1.972 * error, 0.15 * 2 * 1.972 * error);
}

TEST(RepeatNoise, HasTheStandardErrorOverTheRepeats) {
  const OutcomeTable table = random_table({200}, 5, 24, 7);
  RoundFlow flow;
  LoopScratch scratch;
  const ClosedLoop loop = closed_loop(table, Threshold{.threshold = 0.3}, kCost, flow, scratch);
  ASSERT_EQ(flow.verified_by_repeat().size(), 24u);
  std::vector<double> noise;
  anchor_resampling(table, 0, 0.95).repeat_noise(flow.verified_by_repeat(), noise);
  double squares = 0;
  for (const double value : noise) squares += value * value;
  const double error = std::sqrt(squares / static_cast<double>(noise.size()));
  EXPECT_GT(*loop.verified_se, 0);
  EXPECT_NEAR(error, *loop.verified_se, 0.15 * *loop.verified_se);
}

TEST(CompareRows, ARowEqualsItself) {
  const OutcomeTable table = random_table({100, 100}, 4, 2, 3);
  const Resampling resampling = anchor_resampling(table, 0, 0.95);
  const Evaluated a = evaluate(table, Threshold{.threshold = 0.5}, resampling);
  IntervalScratch scratch;
  const auto same =
      compare_rows(resampling, a.row, a.efficiency.data(), a.row, a.efficiency.data(), 1, scratch);
  EXPECT_EQ(same->difference, 0);
  EXPECT_EQ(same->interval.lo, 0);
  EXPECT_EQ(same->interval.hi, 0);
  EXPECT_EQ(same->verdict, "within noise");
}

TEST(CompareRows, PairsTheDraws) {
  const OutcomeTable table = random_table({150, 150}, 4, 2, 4);
  const Resampling resampling = anchor_resampling(table, 0, 0.95);
  const Evaluated none = evaluate(table, NoSpeculation{}, resampling);
  const Evaluated three = evaluate(table, FixedLength{3}, resampling);
  const Evaluated four = evaluate(table, FixedLength{4}, resampling);
  IntervalScratch scratch;
  const auto compare = [&](const Evaluated& a, const Evaluated& b) {
    return *compare_rows(resampling, a.row, a.efficiency.data(), b.row, b.efficiency.data(), 1,
                         scratch);
  };
  const PairedComparison close = compare(four, three);
  EXPECT_LT(close.interval.hi - close.interval.lo, width(three.row.intervals.tokens_per_cost))
      << "what both share cancels";
  EXPECT_EQ(compare(four, none).verdict, "loss");
  EXPECT_EQ(compare(none, four).verdict, "win");
  EXPECT_DOUBLE_EQ(compare(none, four).difference, -compare(four, none).difference);
}

TEST(OpenLoopIntervals, HoldTheirEstimatesAndLeaveThemAsTheyAre) {
  const OutcomeTable table = random_table({80, 90, 70}, 3, 4, 6);
  const Resampling resampling = anchor_resampling(table, 0, 0.95);
  const std::vector<PositionResult> plain = open_loop(table);
  const std::vector<PositionResult> sure = open_loop(table, &resampling);
  for (std::size_t k = 0; k < sure.size(); ++k) {
    EXPECT_NEAR(*sure[k].survival, *plain[k].survival, 1e-12);
    EXPECT_NEAR(*sure[k].conditional_ece, *plain[k].conditional_ece, 1e-12);
    EXPECT_NEAR(*sure[k].predicted_se, *plain[k].predicted_se, 1e-12);
    EXPECT_FALSE(plain[k].intervals.survival.has_value());
    const auto expect_held = [](const std::optional<Range>& range, double value) {
      ASSERT_TRUE(range.has_value());
      EXPECT_LE(range->lo, value);
      EXPECT_GE(range->hi, value);
      EXPECT_GE(range->lo, 0);
      EXPECT_LE(range->hi, 1);
    };
    expect_held(sure[k].intervals.survival, *sure[k].survival);
    expect_held(sure[k].intervals.survival_trajectory, *sure[k].survival_trajectory);
    expect_held(sure[k].intervals.survival_visited, *sure[k].survival_visited);
    expect_held(sure[k].intervals.conditional, *sure[k].conditional);
    expect_held(sure[k].intervals.predicted_conditional, *sure[k].predicted_conditional);
    expect_held(sure[k].intervals.predicted, *sure[k].predicted);
    ASSERT_TRUE(sure[k].intervals.conditional_ece.has_value());
  }
}

TEST(RoundOrder, PutsTheRoundsOfARequestTogether) {
  RoundTable table;
  table.rounds.resize(5);
  table.request = {7, 2, 7, 2, 9};
  const RoundOrder order = order_rounds(table);
  EXPECT_EQ(order.rounds, (std::vector<std::size_t>{1, 3, 0, 2, 4}));
  EXPECT_EQ(order.offsets, (std::vector<std::int64_t>{0, 2, 4, 5}));
}

}  // namespace
}  // namespace dspark
