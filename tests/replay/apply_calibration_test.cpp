#include "replay/apply_calibration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/error.h"
#include "tests/replay/random_table.h"

namespace dspark {
namespace {

double expected(float confidence, double temperature) {
  const auto c = static_cast<double>(confidence);
  return 1 / (1 + std::exp(-std::log(c / (1 - c)) / temperature));
}

TEST(ApplyCalibration, DividesTheLogitOfSlotKByTemperatureK) {
  const OutcomeTable before = random_table({9}, 4, 2, 1);
  OutcomeTable after = before;
  const std::vector<double> temperatures = {0.5, 2.0, 1.5, 0.9};
  apply_calibration(after, temperatures);
  for (std::size_t i = 0; i < before.confidence.size(); ++i) {
    EXPECT_NEAR(after.confidence[i], expected(before.confidence[i], temperatures[i % 4]), 1e-7);
  }
  std::size_t i = 0;
  for (std::int64_t anchor = 0; anchor < before.anchors(); ++anchor) {
    for (std::int32_t repeat = 0; repeat < 2; ++repeat) {
      for (std::int32_t r = 1; r <= 4; ++r) {
        for (std::int32_t k = r + 1; k <= 4; ++k, ++i) {
          const double temperature = temperatures[static_cast<std::size_t>(k) - 1];
          EXPECT_NEAR(after.world_confidence[i], expected(before.world_confidence[i], temperature),
                      1e-7)
              << "anchor " << anchor << " repeat " << repeat << " world " << r << " slot " << k;
        }
      }
    }
  }
  EXPECT_EQ(i, before.world_confidence.size());
  EXPECT_EQ(after.alpha, before.alpha);
  EXPECT_EQ(after.beta, before.beta);
}

TEST(ApplyCalibration, LeavesTheBitsAloneAtTemperatureOne) {
  const OutcomeTable before = random_table({20, 11}, 3, 3, 2);
  OutcomeTable after = before;
  apply_calibration(after, {1, 1, 1});
  EXPECT_EQ(after.confidence, before.confidence);
  EXPECT_EQ(after.world_confidence, before.world_confidence);
  apply_calibration(after, {1, 2, 1});
  for (std::size_t i = 0; i < before.confidence.size(); ++i) {
    if (i % 3 == 1) {
      EXPECT_NE(after.confidence[i], before.confidence[i]);
    } else {
      EXPECT_EQ(after.confidence[i], before.confidence[i]);
    }
  }
}

TEST(ApplyCalibration, HasAnAnswerForCertaintyAndKeepsWhatIsMissing) {
  OutcomeTable table = uniform_table(1, 1, 0.5, 0);
  const auto calibrated = [&](float confidence, double temperature) {
    table.confidence = {confidence};
    apply_calibration(table, {temperature});
    return table.confidence[0];
  };
  // The logits of half a step inside: log(2^25 - 1) and about -150 log 2.
  EXPECT_NEAR(calibrated(1.0f, 2), 1 / (1 + std::exp(-std::log(0x1p25 - 1) / 2)), 1e-7);
  EXPECT_NEAR(calibrated(0.0f, 50), 1 / (1 + std::exp(150 * std::log(2) / 50)), 1e-7);
  EXPECT_EQ(calibrated(0.0f, 0.01), 0.0f);
  EXPECT_EQ(calibrated(1.0f, 0.01), 1.0f);
  EXPECT_TRUE(std::isnan(calibrated(std::nanf(""), 2)));
}

TEST(ApplyCalibration, LeavesATableWithoutConfidencesAsItIs) {
  OutcomeTable table = random_table({5}, 2, 0, 1);
  table.has_confidence = false;
  table.confidence.clear();
  EXPECT_NO_THROW(apply_calibration(table, {2, 2}));
}

TEST(ApplyCalibration, ServesRoundsAlike) {
  RoundTable table;
  table.block_size = 2;
  table.confidence = {0.25f, 0.25f, 0.75f, std::nanf("")};
  apply_calibration(table, {1, 2});
  EXPECT_EQ(table.confidence[0], 0.25f);
  EXPECT_NEAR(table.confidence[1], expected(0.25f, 2), 1e-7);
  EXPECT_EQ(table.confidence[2], 0.75f);
  EXPECT_TRUE(std::isnan(table.confidence[3]));
  EXPECT_THROW(apply_calibration(table, {1}), Error);
}

TEST(ApplyCalibration, RefusesTemperaturesThatAreNotThoseOfTheBlock) {
  OutcomeTable table = random_table({5}, 2, 1, 1);
  const OutcomeTable before = table;
  for (const std::vector<double>& bad :
       std::vector<std::vector<double>>{{},
                                        {1},
                                        {1, 1, 1},
                                        {1, 0},
                                        {-1, 1},
                                        {1, std::nan("")},
                                        {1, std::numeric_limits<double>::infinity()}}) {
    try {
      apply_calibration(table, bad);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::policy);
    }
  }
  EXPECT_EQ(table.confidence, before.confidence);
}

}  // namespace
}  // namespace dspark
