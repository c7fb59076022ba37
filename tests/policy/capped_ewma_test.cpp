#include "policy/capped_ewma.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace dspark {
namespace {

const CappedEwmaOptions kDefaults;

TEST(CappedEwma, StartsAtTheBestCapOfThePrior) {
  // 1, 1.65, 2.0725, 2.347 tokens in 1, 1.2, 1.3, 1.5.
  const std::vector<double> price = {1.0, 1.2, 1.3, 1.5};
  const CappedEwma state = start_capped_ewma(kDefaults, price);
  EXPECT_EQ(state, (CappedEwma{.acceptance = 0.65, .cap = 2}));
  EXPECT_EQ(capped_length(state, kDefaults, price), 2);
  EXPECT_NEAR(capped_rate(0.65, price, 3), 2.347125 / 1.5, 1e-12);
}

TEST(CappedEwma, LearnsFromAcceptedDraftsAndTheFirstRejected) {
  const std::vector<double> price = {1, 1, 1};
  CappedEwma state{.acceptance = 0.65, .cap = 2};
  update_capped_ewma(state, kDefaults, price, 2, 1);
  EXPECT_NEAR(state.acceptance, 0.657 * 0.98, 1e-15);
  state.acceptance = 0.5;
  update_capped_ewma(state, kDefaults, price, 2, 2);
  EXPECT_NEAR(state.acceptance, 1 - 0.5 * 0.98 * 0.98, 1e-15);
  state.acceptance = 0.5;
  update_capped_ewma(state, kDefaults, price, 2, 0);
  EXPECT_NEAR(state.acceptance, 0.49, 1e-15) << "what was behind the rejected says nothing";
  update_capped_ewma(state, kDefaults, price, 0, 0);
  EXPECT_NEAR(state.acceptance, 0.49, 1e-15);
}

TEST(CappedEwma, ChangesEveryFourthRoundAndOnlyBeyondTheHysteresis) {
  CappedEwmaOptions options;
  options.alpha = 0;
  options.prior = 0.5;  // 1, 1.5, 1.75 tokens
  CappedEwma state = start_capped_ewma(options, std::vector<double>{1, 1, 1.75});
  EXPECT_EQ(state.cap, 1);
  const std::vector<double> little = {1, 1, 1.75 / (1.5 * 1.02)};
  const std::vector<double> enough = {1, 1, 1.75 / (1.5 * 1.04)};
  for (int i = 0; i < 8; ++i) update_capped_ewma(state, options, little, 1, 1);
  EXPECT_EQ(state.cap, 1);
  for (int i = 0; i < 3; ++i) update_capped_ewma(state, options, enough, 1, 1);
  EXPECT_EQ(state.cap, 1);
  update_capped_ewma(state, options, enough, 1, 1);
  EXPECT_EQ(state.cap, 2);
}

TEST(CappedEwma, ParksWhereSpeculationLosesAndProbesEveryEighthRound) {
  const std::vector<double> price = {1, 9, 9};
  CappedEwma state = start_capped_ewma(kDefaults, price);
  for (int round = 1; round <= 24; ++round) {
    const std::int32_t length = capped_length(state, kDefaults, price);
    EXPECT_EQ(length, round % 8 == 0 ? 2 : 0) << round;
    update_capped_ewma(state, kDefaults, price, length, length);
  }
  EXPECT_NEAR(state.acceptance, 1 - 0.35 * std::pow(0.98, 6), 1e-12) << "three probes of two";
}

TEST(CappedEwma, LeavesThePark) {
  const std::vector<double> price = {1, 1.7, 1.8};  // pays from p of about 0.53 on
  CappedEwmaOptions options;
  options.prior = 0.3;
  options.alpha = 0.2;
  CappedEwma state = start_capped_ewma(options, price);
  EXPECT_EQ(state.cap, 0);
  int rounds = 0;
  while (state.cap == 0 && rounds < 100) {
    const std::int32_t length = capped_length(state, options, price);
    update_capped_ewma(state, options, price, length, length);
    ++rounds;
  }
  EXPECT_EQ(state.cap, 2);
  EXPECT_EQ(rounds, 8);
  EXPECT_EQ(state.parked, 0);
}

TEST(CappedEwma, LeavesOutCapsWithoutAPrice) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(best_cap(0.9, std::vector<double>{1, none, 1.5, 0}, 0), 2);
  EXPECT_EQ(best_cap(0.9, std::vector<double>{none, none}, 1), 1);
  EXPECT_EQ(best_cap(0.0, std::vector<double>{1, 1}, 0), 0) << "the smallest of equal ones";
}

TEST(CappedEwma, WithoutDraftsNeverSpeculates) {
  const std::vector<double> price = {1};
  CappedEwma state = start_capped_ewma(kDefaults, price);
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(capped_length(state, kDefaults, price), 0);
    update_capped_ewma(state, kDefaults, price, 0, 0);
  }
}

}  // namespace
}  // namespace dspark
