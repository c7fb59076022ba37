#include "replay/open_loop.h"

#include <gtest/gtest.h>

namespace dspark {
namespace {

OutcomeTable table_of(std::vector<std::uint8_t> slots, std::vector<double> beta,
                      std::vector<double> alpha, std::vector<float> confidence) {
  OutcomeTable table;
  table.block_size = 2;
  table.has_confidence = true;
  table.sequence_offsets = {0, static_cast<std::int64_t>(slots.size())};
  table.slots = std::move(slots);
  table.beta = std::move(beta);
  table.alpha = std::move(alpha);
  table.confidence = std::move(confidence);
  table.agreement.assign(table.beta.size(), 1);
  return table;
}

TEST(OpenLoop, CountsEveryAnchorWithAFullBlockOnce) {
  // Three positions, P = 2: anchors 0 and 1 are full (left 3 and 2), anchor 2 is not.
  const OutcomeTable table =
      table_of({2, 2, 1}, {0.5, 1, 1, 0.5, 1, 1}, {0.4, 0.8, 0.6, 0.2, 0.9, 0},
               {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f});
  const std::vector<PositionResult> at = open_loop(table);
  EXPECT_DOUBLE_EQ(*at[0].survival, (0.4 + 0.6) / 2);
  EXPECT_DOUBLE_EQ(*at[0].survival_trajectory, (0.5 + 1) / 2);
  EXPECT_DOUBLE_EQ(*at[1].survival, (0.5 * 0.8 + 1 * 0.2) / 2);
  EXPECT_DOUBLE_EQ(*at[1].survival_trajectory, (0.5 * 1 + 1 * 0.5) / 2);
  EXPECT_DOUBLE_EQ(*at[1].conditional, (0.5 * 0.8 + 1 * 0.2) / (0.5 + 1));
  EXPECT_FALSE(at[0].predicted.has_value()) << "no worlds were sampled";
}

TEST(OpenLoop, ACutBlockDoesNotCountBehindItsCut) {
  const OutcomeTable table = table_of({1, 2, 1}, {0.5, 0, 1, 0.5, 1, 0}, {0.4, 0, 0.6, 0.2, 0.9, 0},
                                      {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f});
  EXPECT_DOUBLE_EQ(*open_loop(table)[1].survival, 0.2);
}

TEST(OpenLoop, NumbersThatDoNotExistAreEmpty) {
  OutcomeTable table = table_of({1}, {1, 0}, {1, 0}, {0.5f, 0.5f});
  for (const PositionResult& at : open_loop(table)) {
    EXPECT_FALSE(at.survival.has_value());
    EXPECT_FALSE(at.conditional.has_value());
    EXPECT_FALSE(at.conditional_ece.has_value());
  }
}

TEST(CalibrationError, BinsAreWeightedAndOneBelongsToTheLast) {
  CalibrationError error;
  EXPECT_FALSE(error.value().has_value());
  error.add(1.0, 1.0, 2.0);    // last bin: gap 0
  error.add(0.96, 0.5, 1.0);   // last bin: +0.46
  error.add(0.02, 0.52, 1.0);  // first bin: -0.5
  EXPECT_NEAR(*error.value(), (0.46 + 0.5) / 4, 1e-12);
  EXPECT_NEAR(*error.mean_confidence(), (2 + 0.96 + 0.02) / 4, 1e-12);
}

TEST(CalibrationError, GapsOfOneBinCancel) {
  CalibrationError error;
  error.add(0.51, 0.0, 1.0);
  error.add(0.51, 1.0, 1.0);
  EXPECT_NEAR(*error.value(), 0.01, 1e-12);
}

}  // namespace
}  // namespace dspark
