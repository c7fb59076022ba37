#include "calibration/reliability.h"

#include <gtest/gtest.h>

#include "calibration/logit.h"

namespace dspark {
namespace {

Claim claim(float probability, double label, double weight = 1, std::int32_t input = 0) {
  return {.prefix = 1,
          .logit = logit_of(probability),
          .label = label,
          .weight = weight,
          .input = input};
}

Reliability of(const std::vector<Claim>& claims, int bins = 10) {
  return reliability_of(claims, 1.0, bins, {true, true});
}

TEST(Logit, IsTheInverseOfTheSigmoid) {
  for (const float c : {1e-30f, 0.001f, 0.25f, 0.5f, 0.9f, 0.99999994f}) {
    EXPECT_FLOAT_EQ(static_cast<float>(tempered(logit_of(c), 1)), c);
  }
  EXPECT_TRUE(std::isnan(logit_of(std::nanf(""))));
}

TEST(Logit, OfZeroAndOneIsTakenHalfAStepInside) {
  EXPECT_NEAR(logit_of(1.0f), std::log(0x1p25 - 1), 1e-9);
  EXPECT_NEAR(logit_of(0.0f), -150 * std::log(2), 1e-9);
  EXPECT_EQ(static_cast<float>(tempered(logit_of(1.0f), 1)), 1.0f);
  EXPECT_GT(logit_of(1.0f), logit_of(0.99999994f));
  EXPECT_LT(logit_of(0.0f), logit_of(1e-45f));
}

TEST(Bins, HaveOneInTheLastAndEdgesInTheUpper) {
  EXPECT_EQ(bin_of(1.0, 15), 14);
  EXPECT_EQ(bin_of(0.0, 15), 0);
  EXPECT_EQ(bin_of(0.5, 20), 10);
  EXPECT_EQ(bin_of(0.4999999, 20), 9);
}

TEST(Reliability, OfAHandfulIsWhatAPencilSays) {
  // Bin 2 of 10: predicted 0.25, observed 0 and 1. Bin 7: predicted 0.75 twice, observed 1.
  const Reliability at = of({claim(0.25f, 0), claim(0.25f, 1), claim(0.75f, 1), claim(0.75f, 1)});
  EXPECT_EQ(at.blocks, 4);
  EXPECT_DOUBLE_EQ(at.weight, 4);
  EXPECT_NEAR(*at.predicted, 0.5, 1e-7);
  EXPECT_NEAR(*at.observed, 0.75, 1e-12);
  EXPECT_NEAR(*at.bias, -0.25, 1e-7);
  EXPECT_NEAR(*at.ece, (0.5 + 0.5) / 4, 1e-7);
  EXPECT_NEAR(*at.brier, (0.0625 + 0.5625 + 2 * 0.0625) / 4, 1e-7);
  // Three accepted, one rejected at 0.25: one tie, two above.
  EXPECT_NEAR(*at.auc, 2.5 / 3, 1e-12);
}

TEST(Reliability, WeighsItsClaims) {
  const Reliability twice = of({claim(0.25f, 0, 2), claim(0.75f, 1, 2), claim(0.65f, 0, 1)});
  const Reliability repeated =
      of({claim(0.25f, 0), claim(0.25f, 0), claim(0.75f, 1), claim(0.75f, 1), claim(0.65f, 0)});
  EXPECT_DOUBLE_EQ(*twice.ece, *repeated.ece);
  EXPECT_DOUBLE_EQ(*twice.brier, *repeated.brier);
  EXPECT_DOUBLE_EQ(*twice.auc, *repeated.auc);
  EXPECT_DOUBLE_EQ(*twice.bias, *repeated.bias);
}

TEST(Reliability, OfALabelBetweenZeroAndOneIsThatOfItsOutcomes) {
  const Reliability integrated = of({claim(0.3f, 0.25, 4), claim(0.6f, 0.5, 2)});
  const Reliability drawn =
      of({claim(0.3f, 1, 1), claim(0.3f, 0, 3), claim(0.6f, 1), claim(0.6f, 0)});
  EXPECT_DOUBLE_EQ(*integrated.ece, *drawn.ece);
  EXPECT_DOUBLE_EQ(*integrated.brier, *drawn.brier);
  EXPECT_DOUBLE_EQ(*integrated.auc, *drawn.auc);
}

TEST(Reliability, PutsACertainClaimIntoTheLastBin) {
  const Reliability at = of({claim(1.0f, 1)}, 4);
  EXPECT_DOUBLE_EQ(at.bins[3].weight, 1);
  EXPECT_NEAR(*at.ece, 0, 1e-7);
}

TEST(Reliability, GivesAnEmptyBinNoWeightAndNoMeans) {
  const Reliability at = of({claim(0.9f, 1), claim(0.95f, 0)}, 5);
  ASSERT_EQ(at.bins.size(), 5u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(at.bins[i].weight, 0);
    EXPECT_FALSE(at.bins[i].predicted.has_value());
    EXPECT_FALSE(at.bins[i].observed.has_value());
  }
  EXPECT_NEAR(*at.bins[4].predicted, 0.925, 1e-6);
  EXPECT_NEAR(*at.ece, std::abs(0.9 + 0.95 - 1) / 2, 1e-6);
}

TEST(Reliability, HasNoAreaUnderTheCurveForASingleClass) {
  EXPECT_FALSE(of({claim(0.2f, 1), claim(0.7f, 1)}).auc.has_value());
  EXPECT_FALSE(of({claim(0.2f, 0), claim(0.7f, 0)}).auc.has_value());
  EXPECT_TRUE(of({claim(0.2f, 0), claim(0.7f, 1)}).auc.has_value());
  EXPECT_TRUE(of({claim(0.2f, 1), claim(0.7f, 1)}).ece.has_value());
}

TEST(Reliability, OfNothingIsNothing) {
  const Reliability at = of({});
  EXPECT_EQ(at.blocks, 0);
  EXPECT_EQ(at.weight, 0);
  for (const auto& number : {at.predicted, at.observed, at.bias, at.ece, at.brier, at.auc}) {
    EXPECT_FALSE(number.has_value());
  }
}

TEST(Reliability, LooksAtTheInputsItIsAskedFor) {
  const std::vector<Claim> claims = {claim(0.2f, 1, 1, 0), claim(0.7f, 0, 1, 1)};
  const Reliability second = reliability_of(claims, 1.0, 10, {false, true});
  EXPECT_EQ(second.blocks, 1);
  EXPECT_NEAR(*second.predicted, 0.7, 1e-6);
}

TEST(Reliability, AppliesTheTemperatureToTheLogitAndNotToThePrefix) {
  Claim at = claim(0.8f, 1);
  at.prefix = 0.5;
  const Reliability cooled = reliability_of({at}, 2.0, 10, {true});
  EXPECT_NEAR(*cooled.predicted, 0.5 / (1 + std::exp(-std::log(4.0) / 2)), 1e-6);
}

}  // namespace
}  // namespace dspark
