#include "replay/rounds.h"

#include <gtest/gtest.h>

namespace dspark {
namespace {

RoundTable table_of(std::vector<RoundOutcome> rounds, std::vector<float> confidence) {
  RoundTable table;
  table.block_size = 3;
  table.has_confidence = true;
  table.rounds = std::move(rounds);
  table.confidence = std::move(confidence);
  return table;
}

TEST(RoundsEvaluation, AShorterLengthCutsWhatWasAccepted) {
  const RoundTable table = table_of({{.slots = 3, .accepted = 2}, {.slots = 3, .accepted = 0}},
                                    {0.9f, 0.9f, 0.1f, 0.9f, 0.1f, 0.1f});
  EXPECT_DOUBLE_EQ(*evaluate_rounds(table, FixedLength{3}, {}).tau, (3 + 1) / 2.0);
  EXPECT_DOUBLE_EQ(*evaluate_rounds(table, FixedLength{1}, {}).tau, (2 + 1) / 2.0);
  EXPECT_DOUBLE_EQ(*evaluate_rounds(table, NoSpeculation{}, {}).tau, 1);
  const PolicyResult threshold =
      evaluate_rounds(table, Threshold{ThresholdRule::per_position, 0.5, 0, 0}, {});
  EXPECT_DOUBLE_EQ(*threshold.verified_per_round, (2 + 1) / 2.0);
  EXPECT_DOUBLE_EQ(*threshold.tau, (3 + 1) / 2.0);
}

TEST(RoundsEvaluation, CensoredRoundsGiveABracketOnlyWhereALengthReachesPastThem) {
  const RoundTable table =
      table_of({{.slots = 3, .accepted = 1, .diverged_slot = 1, .censored = true},
                {.slots = 3, .accepted = 0}},
               std::vector<float>(6, 0.5f));
  const PolicyResult full = evaluate_rounds(table, FixedLength{3}, {});
  EXPECT_EQ(*full.censored_rounds, 1);
  EXPECT_DOUBLE_EQ(*full.tau_lo, (2 + 1) / 2.0);
  EXPECT_DOUBLE_EQ(*full.tau_hi, (4 + 1) / 2.0);
  EXPECT_DOUBLE_EQ(*full.tau, *full.tau_lo);
  const PolicyResult one = evaluate_rounds(table, FixedLength{1}, {});
  EXPECT_FALSE(one.censored_rounds.has_value());
  EXPECT_DOUBLE_EQ(*one.tau, (2 + 1) / 2.0);
}

TEST(RoundsEvaluation, RoundsWithoutAValidRowAreLeftOut) {
  const RoundTable table =
      table_of({{.slots = 0}, {.slots = 3, .accepted = 3}}, std::vector<float>(6, 0.5f));
  EXPECT_DOUBLE_EQ(*evaluate_rounds(table, FixedLength{3}, {}).tau, 4);
  EXPECT_DOUBLE_EQ(*evaluate_rounds(table, FixedLength{3}, {}).rounds, 1);
}

TEST(RoundPositions, ConditionalIsAmongRoundsThatReachTheSlot) {
  const RoundTable table = table_of(
      {{.slots = 3, .accepted = 2}, {.slots = 3, .accepted = 0}, {.slots = 3, .accepted = 1}},
      std::vector<float>(9, 0.5f));
  const std::vector<PositionResult> at = round_positions(table);
  EXPECT_DOUBLE_EQ(*at[0].survival, 2.0 / 3);
  EXPECT_DOUBLE_EQ(*at[1].survival, 1.0 / 3);
  EXPECT_DOUBLE_EQ(*at[1].conditional, 1.0 / 2);
  EXPECT_DOUBLE_EQ(*at[2].conditional, 0.0);
  EXPECT_DOUBLE_EQ(*at[1].predicted, 0.25);
  EXPECT_DOUBLE_EQ(*at[1].predicted_conditional, 0.5);
}

}  // namespace
}  // namespace dspark
