#include "calibration/fit.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/calibration/sample_builder.h"

namespace dspark {
namespace {

std::vector<double> temperatures_of(const std::vector<FittedTemperature>& fitted) {
  std::vector<double> out;
  for (const FittedTemperature& at : fitted) out.push_back(at.temperature);
  return out;
}

TEST(TemperatureGrid, OfSglangHas41ValuesFromATenthToTenWithOneInTheMiddle) {
  const std::vector<double> grid = grid_temperatures(sglang_fit());
  ASSERT_EQ(grid.size(), 41u);
  EXPECT_EQ(grid.front(), 0.1);
  EXPECT_EQ(grid[20], 1.0);
  EXPECT_EQ(grid.back(), 10.0);
  for (std::size_t i = 1; i < grid.size(); ++i) {
    EXPECT_NEAR(grid[i] / grid[i - 1], std::pow(10, 0.05), 1e-12);
  }
  EXPECT_EQ(sglang_fit().bins, 15);
}

TEST(TemperatureGrid, OfDeepspecHas256ValuesFromATwentiethToTwenty) {
  const std::vector<double> grid = grid_temperatures(deepspec_fit());
  ASSERT_EQ(grid.size(), 256u);
  EXPECT_EQ(grid.front(), 0.05);
  EXPECT_EQ(grid.back(), 20.0);
  EXPECT_EQ(deepspec_fit().bins, 20);
  EXPECT_TRUE(deepspec_fit().prefers_one);
}

TEST(Fit, FindsTheTemperaturesThatTheLabelsWereDrawnWith) {
  const std::vector<double> truth = {2.0, 0.5, 1.0};
  CalibrationSamples samples(LabelKind::conditional, kPlenty);
  add_random_input(samples, 2, 2000, truth, 1);
  const auto fitted = fit_temperatures(samples, deepspec_fit(), 1);
  ASSERT_EQ(fitted.size(), truth.size());
  for (std::size_t k = 0; k < truth.size(); ++k) {
    EXPECT_NEAR(fitted[k].temperature / truth[k], 1, 0.03) << k;
    EXPECT_FALSE(fitted[k].at_edge);
    EXPECT_EQ(fitted[k].blocks, 4000);
  }
}

TEST(Fit, GivesTwiceTheTemperatureForTwiceTheLogits) {
  for (const LabelKind labels : {LabelKind::conditional, LabelKind::cumulative}) {
    for (const FitRule& rule : {sglang_fit(), deepspec_fit()}) {
      CalibrationSamples once(labels, kPlenty), twice(labels, kPlenty);
      add_random_input(once, 1, 1000, {1.3, 0.8}, 2);
      add_random_input(twice, 1, 1000, {1.3, 0.8}, 2, 2.0);
      const auto before = fit_temperatures(once, rule, 1);
      const auto after = fit_temperatures(twice, rule, 1);
      EXPECT_NEAR(after[0].temperature / before[0].temperature, 2, 0.05 * 2);
    }
  }
}

// The error of the cumulative product, written out for one choice of temperatures.
double cumulative_error(const CalibrationSamples& samples, const std::vector<double>& temperatures,
                        int bins) {
  std::vector<double> gap(static_cast<std::size_t>(bins), 0.0);
  double count = 0;
  for (const SampleBlock& block : samples.blocks()) {
    const auto slots = samples.slots_of(block);
    double product = 1;
    for (std::size_t k = 0; k < temperatures.size(); ++k) {
      product /= 1 + std::exp(-slots[k].logit / temperatures[k]);
    }
    const auto bin = static_cast<std::size_t>(std::min(bins - 1.0, std::floor(product * bins)));
    gap[bin] += product - slots[temperatures.size() - 1].label;
    count += 1;
  }
  double sum = 0;
  for (const double value : gap) sum += std::abs(value);
  return sum / count;
}

TEST(Fit, MinimisesTheErrorOfTheProductWithEarlierPositionsFixed) {
  CalibrationSamples samples(LabelKind::cumulative, kPlenty);
  add_random_input(samples, 1, 700, {1.6, 0.7, 1.2}, 3);
  const FitRule rule = sglang_fit();
  std::vector<double> expected;
  for (std::size_t k = 0; k < 3; ++k) {
    double best = 0, least = std::numeric_limits<double>::infinity();
    for (const double candidate : grid_temperatures(rule)) {
      std::vector<double> tried = expected;
      tried.push_back(candidate);
      const double error = cumulative_error(samples, tried, rule.bins);
      if (error < least) {
        least = error;
        best = candidate;
      }
    }
    expected.push_back(best);
  }
  EXPECT_EQ(temperatures_of(fit_temperatures(samples, rule, 1)), expected);
}

TEST(Fit, KeepsTheSmallestTemperatureOfATieAndDeepspecKeepsOne) {
  CalibrationSamples samples(LabelKind::conditional, kPlenty);
  samples.add_input("t", "d");
  // sigmoid(0 / T) is the same for every T.
  samples.add_block(std::vector<SampleSlot>{{.logit = 0, .label = 1, .weight = 1}});
  EXPECT_EQ(fit_temperatures(samples, sglang_fit(), 1)[0].temperature, 0.1);
  EXPECT_TRUE(fit_temperatures(samples, sglang_fit(), 1)[0].at_edge);
  EXPECT_EQ(fit_temperatures(samples, deepspec_fit(), 1)[0].temperature, 1.0);
  EXPECT_FALSE(fit_temperatures(samples, deepspec_fit(), 1)[0].at_edge);
}

TEST(Fit, GivesOneWhereAPositionHasNoData) {
  CalibrationSamples samples(LabelKind::cumulative, kPlenty);
  add_random_input(samples, 1, 100, {3.0}, 4);
  samples.raise_block_size(3);
  const auto fitted = fit_temperatures(samples, sglang_fit(), 1);
  ASSERT_EQ(fitted.size(), 3u);
  EXPECT_GT(fitted[0].temperature, 1.5);
  for (const std::size_t k : {1u, 2u}) {
    EXPECT_EQ(fitted[k].temperature, 1.0);
    EXPECT_EQ(fitted[k].blocks, 0);
    EXPECT_FALSE(fitted[k].at_edge);
  }
}

TEST(Fit, MasksWhatShorterBlocksDoNotHave) {
  CalibrationSamples ragged(LabelKind::cumulative, kPlenty), whole(LabelKind::cumulative, kPlenty);
  add_random_input(whole, 1, 300, {1.5, 0.7}, 5);
  add_random_input(ragged, 1, 300, {1.5, 0.7}, 5);
  for (int i = 0; i < 50; ++i) {  // perfect at every temperature, and without a second slot
    ragged.add_block(std::vector<SampleSlot>{{.logit = 0, .label = 0.5, .weight = 1}});
  }
  EXPECT_EQ(temperatures_of(fit_temperatures(ragged, sglang_fit(), 1)),
            temperatures_of(fit_temperatures(whole, sglang_fit(), 1)));
}

TEST(Fit, LeavesOutWhatIsHeldOut) {
  CalibrationSamples samples(LabelKind::conditional, kPlenty);
  add_random_input(samples, 1, 500, {2.0}, 6, 1, "a");
  add_random_input(samples, 1, 500, {0.5}, 7, 1, "b");
  samples.set_held_out(1);
  const auto fitted = fit_temperatures(samples, deepspec_fit(), 1);
  EXPECT_EQ(fitted[0].blocks, 500);
  EXPECT_NEAR(fitted[0].temperature, 2.0, 0.1);
}

TEST(Fit, DoesNotDependOnThreads) {
  CalibrationSamples samples(LabelKind::cumulative, kPlenty);
  add_random_input(samples, 1, 400, {1.5, 0.7, 2.2, 1.0}, 8);
  EXPECT_EQ(temperatures_of(fit_temperatures(samples, deepspec_fit(), 1)),
            temperatures_of(fit_temperatures(samples, deepspec_fit(), 3)));
}

TEST(Fit, TakesLogitsOfAnySize) {
  CalibrationSamples samples(LabelKind::cumulative, kPlenty);
  samples.add_input("t", "d");
  samples.add_block(std::vector<SampleSlot>{{.logit = 1e308, .label = 1, .weight = 1},
                                            {.logit = -1e308, .label = 0, .weight = 1}});
  for (const FittedTemperature& at : fit_temperatures(samples, sglang_fit(), 1)) {
    EXPECT_TRUE(std::isfinite(at.temperature));
  }
}

}  // namespace
}  // namespace dspark
