#include "core/exp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace dspark {
namespace {

constexpr double kBound = 1.2e-7;  // relative, as exp.h promises

TEST(Exp, IsWithinItsBoundOverTheWholeRange) {
  double worst = 0;
  constexpr int steps = 2'000'000;
  for (int i = -steps; i <= steps; ++i) {
    const float x = 87.0f * static_cast<float>(i) / steps;
    const double right = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(exp_float(x)) / right - 1));
  }
  EXPECT_LT(worst, kBound);
}

TEST(Exp, IsWithinItsBoundForEveryFloatJustBelowZero) {
  double worst = 0;
  for (std::uint32_t bits = bits_from_float(1e-8f); bits < bits_from_float(1.0f); bits += 97) {
    const float x = -float_from_bits(bits);
    const double right = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(exp_float(x)) / right - 1));
  }
  EXPECT_LT(worst, kBound);
}

TEST(Exp, OfZeroIsExactlyOne) {
  EXPECT_EQ(exp_float(0.0f), 1.0f);
  EXPECT_EQ(exp_float(-0.0f), 1.0f);
  EXPECT_EQ(scaled_exp(0.0f).significand, 1.0f);
  EXPECT_EQ(scaled_exp(0.0f).exponent, 0);
}

TEST(Exp, SignificandStaysInItsRange) {
  for (int i = -87000; i <= 87000; ++i) {
    const float significand = scaled_exp(static_cast<float>(i) / 1000.0f).significand;
    ASSERT_GE(significand, 0.70f) << i;
    ASSERT_LE(significand, 1.42f) << i;
  }
}

TEST(Exp, ClampsItsArgument) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_float(-infinity), exp_float(-87.0f));
  EXPECT_EQ(exp_float(infinity), exp_float(87.0f));
  EXPECT_EQ(exp_float(std::numeric_limits<float>::quiet_NaN()), exp_float(-87.0f));
}

TEST(Sigmoid, IsAccurateAndBounded) {
  for (int i = -30000; i <= 30000; ++i) {
    const float z = static_cast<float>(i) / 1000.0f;
    const double right = 1 / (1 + std::exp(-static_cast<double>(z)));
    ASSERT_NEAR(sigmoid(z), right, 3e-7 * right) << z;
  }
  EXPECT_EQ(sigmoid(0.0f), 0.5f);
  EXPECT_EQ(sigmoid(1000.0f), 1.0f);
  EXPECT_GE(sigmoid(-1000.0f), 0.0f);
  EXPECT_LT(sigmoid(-1000.0f), 1e-37f);
  EXPECT_TRUE(std::isnan(sigmoid(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Sigmoid, HasTheGoldenValuesOfTheConfidenceTests) {
  EXPECT_NEAR(sigmoid(2), 0.880797, 1e-6);
  EXPECT_NEAR(sigmoid(1), 0.731059, 1e-6);
  EXPECT_NEAR(sigmoid(-2), 0.119203, 1e-6);
  EXPECT_NEAR(sigmoid(3), 0.952574, 1e-6);
}

}  // namespace
}  // namespace dspark
