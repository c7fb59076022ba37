#include "cost/cost.h"

#include <gtest/gtest.h>

namespace dspark {
namespace {

TEST(RoundCost, AddsTheTermsOfTheLinearModel) {
  const LinearCost cost = {.draft = 8, .verify_base = 4, .verify_token = 2, .accept = 1};
  EXPECT_EQ(round_cost(cost, 0), 8 + 4 + 2);
  EXPECT_EQ(round_cost(cost, 3), 8 + 4 + 2 * 4 + 3);
  EXPECT_EQ(round_cost(cost, 0.5), 8 + 4 + 2 * 1.5 + 0.5);
}

TEST(RoundCost, HasEdgeLlmsConstantsByDefault) {
  for (int length = 0; length <= 7; ++length) {
    EXPECT_DOUBLE_EQ(round_cost(LinearCost{}, length), 1.95 + 0.47 * length);
  }
}

TEST(RoundCost, OfAMeanIsTheMeanCost) {
  const LinearCost cost;
  EXPECT_DOUBLE_EQ(round_cost(cost, 2.5), (round_cost(cost, 1) + round_cost(cost, 4)) / 2);
}

TEST(StepCost, ChargesNoDraft) {
  EXPECT_EQ(step_cost({.draft = 8, .verify_base = 4, .verify_token = 2, .accept = 1}), 6);
  EXPECT_DOUBLE_EQ(step_cost(LinearCost{}), 1.45);
}

}  // namespace
}  // namespace dspark
