#include "policy/lengths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace dspark {
namespace {

const float kNaN = std::numeric_limits<float>::quiet_NaN();

float logistic(double z) { return static_cast<float>(1 / (1 + std::exp(-z))); }

// Calls body for every block of up to `most` slots with confidences from `values`.
void for_each_block(std::int32_t most, const std::vector<float>& values,
                    const std::function<void(const std::vector<float>&)>& body) {
  for (std::int32_t slots = 0; slots <= most; ++slots) {
    std::vector<std::size_t> digits(static_cast<std::size_t>(slots), 0);
    while (true) {
      std::vector<float> block;
      for (const std::size_t digit : digits) block.push_back(values[digit]);
      body(block);
      std::size_t i = 0;
      while (i < digits.size() && ++digits[i] == values.size()) digits[i++] = 0;
      if (i == digits.size()) break;
    }
  }
}

std::int32_t slots_of(const std::vector<float>& block) {
  return static_cast<std::int32_t>(block.size());
}

TEST(LengthLimits, KeepTheLowerBelowTheUpperAndBothInTheBlock) {
  for (std::int32_t slots = 0; slots <= 5; ++slots) {
    for (std::int32_t least = -1; least <= 7; ++least) {
      for (std::int32_t most = -1; most <= 7; ++most) {
        const LengthLimits limits = length_limits(slots, least, most);
        const std::int32_t upper = most <= 0 ? slots : std::min(most, slots);
        EXPECT_EQ(limits.upper, upper);
        EXPECT_EQ(limits.lower, std::clamp(least, 0, upper));
      }
    }
  }
}

TEST(FixedLength, IsCutToTheBlock) {
  EXPECT_EQ(fixed_length(7, 3), 3);
  EXPECT_EQ(fixed_length(7, 0), 0);
  EXPECT_EQ(fixed_length(2, 3), 2);
  EXPECT_EQ(fixed_length(7, -1), 0);
}

TEST(CumulativeThreshold, HasTheGoldenLengthOfEdgeLlm) {
  const std::array<float, 3> c = {logistic(2), logistic(1), logistic(-2)};
  EXPECT_EQ(cumulative_threshold_length(c.data(), 3, 0.5, 1, 3), 2);
  EXPECT_EQ(cumulative_threshold_length(c.data(), 3, 0.7, 1, 3), 1);
  EXPECT_EQ(cumulative_threshold_length(c.data(), 3, 0.05, 1, 3), 3);
  EXPECT_EQ(cumulative_threshold_length(c.data(), 3, 0.05, 1, 2), 2);
  EXPECT_EQ(cumulative_threshold_length(c.data(), 3, 0.9, 1, 0), 1);
  EXPECT_EQ(cumulative_threshold_length(c.data(), 3, 0.9, 0, 0), 0);
}

TEST(CumulativeThreshold, AtOrBelowZeroGivesTheUpperLimit) {
  const std::array<float, 3> c = {0.0f, kNaN, 0.5f};
  EXPECT_EQ(cumulative_threshold_length(c.data(), 3, 0.0, 1, 0), 3);
  EXPECT_EQ(cumulative_threshold_length(c.data(), 3, -1.0, 1, 2), 2);
}

TEST(CumulativeThreshold, IsTheLongestPrefixInEverySmallCase) {
  for_each_block(4, {0.0f, 0.3f, 0.5f, 0.9f, 1.0f, kNaN}, [](const std::vector<float>& block) {
    for (const double threshold : {0.1, 0.25, 0.5, 0.81, 1.0}) {
      for (std::int32_t least = 0; least <= 5; ++least) {
        for (std::int32_t most = 0; most <= 5; ++most) {
          const LengthLimits limits = length_limits(slots_of(block), least, most);
          // All prefixes up to the length must reach the threshold; survival only falls.
          std::int32_t right = 0;
          for (std::int32_t length = 1; length <= limits.upper; ++length) {
            double survival = 1;
            for (std::int32_t k = 0; k < length; ++k)
              survival *= static_cast<double>(block[static_cast<std::size_t>(k)]);
            if (survival >= threshold) right = length;
          }
          right = std::max(right, limits.lower);
          ASSERT_EQ(
              cumulative_threshold_length(block.data(), slots_of(block), threshold, least, most),
              right);
        }
      }
    }
  });
}

TEST(PositionThreshold, StopsBeforeTheFirstConfidenceBelowInEverySmallCase) {
  for_each_block(4, {0.0f, 0.3f, 0.5f, 0.9f, 1.0f, kNaN}, [](const std::vector<float>& block) {
    for (const double threshold : {0.0, 0.3, 0.5, 0.95, 1.0}) {
      for (std::int32_t least = 0; least <= 5; ++least) {
        for (std::int32_t most = 0; most <= 5; ++most) {
          const LengthLimits limits = length_limits(slots_of(block), least, most);
          const auto low = std::find_if(block.begin(), block.end(), [&](float c) {
            return !(static_cast<double>(c) >= threshold);
          });
          const auto prefix = static_cast<std::int32_t>(low - block.begin());
          const std::int32_t right = std::clamp(prefix, limits.lower, limits.upper);
          ASSERT_EQ(
              position_threshold_length(block.data(), slots_of(block), threshold, least, most),
              right);
        }
      }
    }
  });
}

TEST(PositionThreshold, LooksAtEachConfidenceAlone) {
  const std::array<float, 4> c = {0.6f, 0.6f, 0.6f, 0.4f};
  EXPECT_EQ(position_threshold_length(c.data(), 4, 0.5, 0, 0), 3);
  EXPECT_EQ(cumulative_threshold_length(c.data(), 4, 0.5, 0, 0), 1);
}

TEST(Sps, HasTheGoldenLengthOfEdgeLlm) {
  const std::array<float, 4> c = {logistic(3), 0.5f, 0.5f, 0.5f};
  EXPECT_EQ(sps_length(c.data(), 4, 0.0, 1, 0, LinearCost{}), 2);
}

TEST(Sps, HasTheGoldenLengthsOfConstantConfidences) {
  const std::vector<std::pair<float, std::int32_t>> right = {
      {0.3f, 1}, {0.5f, 1},  {0.55f, 2}, {0.7f, 2},  {0.75f, 3},
      {0.8f, 3}, {0.85f, 4}, {0.9f, 6},  {0.95f, 7}, {1.0f, 7}};
  for (const auto& [confidence, length] : right) {
    std::array<float, 7> c;
    c.fill(confidence);
    EXPECT_EQ(sps_length(c.data(), 7, 0.0, 1, 0, LinearCost{}), length) << confidence;
  }
}

// Straight from the rule: scores of all lengths that may be looked at, the first of the largest.
std::int32_t sps_by_definition(const std::vector<float>& block, double floor, std::int32_t least,
                               std::int32_t most, const LinearCost& cost) {
  const LengthLimits limits = length_limits(slots_of(block), least, most);
  std::int32_t last = limits.upper;
  std::vector<double> survivals = {1};
  for (const float c : block) survivals.push_back(survivals.back() * static_cast<double>(c));
  for (std::int32_t length = limits.upper; floor > 0 && length >= limits.lower; --length) {
    if (survivals[static_cast<std::size_t>(length)] < floor) last = length;
  }
  std::int32_t best = limits.lower;
  double best_score = -1;
  for (std::int32_t length = limits.lower; length <= last; ++length) {
    double expected = 0;
    for (std::int32_t k = 0; k <= length; ++k) expected += survivals[static_cast<std::size_t>(k)];
    const double price =
        std::max(1e-6, cost.draft + cost.verify_base + cost.verify_token * (length + 1) +
                           cost.accept * length);
    if (expected / price > best_score) {
      best_score = expected / price;
      best = length;
    }
  }
  return best;
}

TEST(Sps, MaximisesExpectedTokensPerCostInEverySmallCase) {
  const LinearCost costs[] = {{}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 0}, {2, 0.1, 0.01, 0.5}};
  for_each_block(4, {0.0f, 0.25f, 0.5f, 0.9f, 1.0f}, [&](const std::vector<float>& block) {
    for (const LinearCost& cost : costs) {
      for (const double floor : {0.0, 0.1, 0.3, 1.0}) {
        for (std::int32_t least = 0; least <= 4; ++least) {
          for (const std::int32_t most : {0, 2, 5}) {
            ASSERT_EQ(sps_length(block.data(), slots_of(block), floor, least, most, cost),
                      sps_by_definition(block, floor, least, most, cost));
          }
        }
      }
    }
  });
}

TEST(Sps, KeepsTheShorterOfEqualLengths) {
  // Cost proportional to 1 + length and certain drafts: all lengths score the same.
  const std::array<float, 3> c = {1.0f, 1.0f, 1.0f};
  EXPECT_EQ(sps_length(c.data(), 3, 0.0, 0, 0, LinearCost{0, 0, 1, 0}), 0);
  EXPECT_EQ(sps_length(c.data(), 3, 0.0, 1, 0, LinearCost{0, 0, 1, 0}), 1);
}

TEST(Sps, ScoresTheFirstLengthBelowTheFloorAndNoneAfterIt) {
  const LinearCost only_base = {0, 1, 0, 0};  // every further draft pays
  const std::array<float, 4> c = {0.9f, 0.2f, 1.0f, 1.0f};
  EXPECT_EQ(sps_length(c.data(), 4, 0.5, 1, 0, only_base), 2);
  EXPECT_EQ(sps_length(c.data(), 4, 0.0, 1, 0, only_base), 4);
}

TEST(Sps, NeverPrefersWhatANaNTouches) {
  const std::array<float, 3> c = {0.9f, kNaN, 1.0f};
  EXPECT_EQ(sps_length(c.data(), 3, 0.0, 1, 0, LinearCost{0, 1, 0, 0}), 1);
  EXPECT_EQ(sps_length(c.data(), 3, 0.1, 1, 0, LinearCost{0, 1, 0, 0}), 1);
}

TEST(Sps, TakesAnyPrice) {
  const std::array<float, 3> c = {0.5f, 0.5f, 1.0f};  // expected 1, 1.5, 1.75, 2
  const auto length = [&c](const std::array<double, 4>& price, std::int32_t least = 0) {
    return sps_length(c.data(), 3, 0.0, least, 0,
                      [&price](std::int32_t l) { return price[static_cast<std::size_t>(l)]; });
  };
  EXPECT_EQ(length({1, 1.4, 1.8, 1.9}), 1);
  EXPECT_EQ(length({1, 1.6, 1.8, 1.9}), 3);  // looks past a riser
  EXPECT_EQ(length({1, 1.6, 1.8, 2.0}), 0);  // the first of equal ones
  EXPECT_EQ(length({1, 1.6, 1.8, 2.0}, 1), 3);
}

TEST(Sps, LeavesOutLengthsWithoutAPrice) {
  const std::array<float, 2> c = {1.0f, 1.0f};
  const double none = std::numeric_limits<double>::quiet_NaN();
  const auto length = [&c](const std::array<double, 3>& price, std::int32_t least) {
    return sps_length(c.data(), 2, 0.0, least, 0,
                      [&price](std::int32_t l) { return price[static_cast<std::size_t>(l)]; });
  };
  EXPECT_EQ(length({1, none, 1.5}, 0), 2);
  EXPECT_EQ(length({1, 0.1, none}, 0), 1);
  EXPECT_EQ(length({1, -1, 0}, 0), 0);
  EXPECT_EQ(length({none, none, none}, 1), 1);
}

TEST(Sps, TakesTheLinearCostAsAPriceOfAtLeastAMillionth) {
  for_each_block(4, {0.0f, 0.25f, 0.5f, 0.9f, 1.0f}, [](const std::vector<float>& block) {
    for (const LinearCost& cost : {LinearCost{}, LinearCost{0, 0, 0, 0}, LinearCost{2, 0, 1, 0}}) {
      const auto price = [&cost](std::int32_t l) { return std::max(1e-6, round_cost(cost, l)); };
      ASSERT_EQ(sps_length(block.data(), slots_of(block), 0.1, 0, 0, cost),
                sps_length(block.data(), slots_of(block), 0.1, 0, 0, price));
    }
  });
}

TEST(SoftmaxMin, StopsBeforeTheFirstDraftBelowTheMinimum) {
  const std::array<float, 4> top = {0.9f, 0.6f, 0.75f, kNaN};
  EXPECT_EQ(softmax_min_length(top.data(), 4, 0.75, 0), 1);
  EXPECT_EQ(softmax_min_length(top.data(), 4, 0.5, 0), 3) << "NaN stops";
  EXPECT_EQ(softmax_min_length(top.data(), 4, 0.5, 2), 2);
  EXPECT_EQ(softmax_min_length(top.data(), 4, 0.95, 0), 0);
}

// A causal rule decides on slot k from c_1..c_k alone (design: replay.md, Causality).
TEST(LengthRules, AdmitASlotWithoutLookingFurther) {
  const std::vector<float> values = {0.1f, 0.6f, 0.95f};
  for_each_block(4, values, [&](const std::vector<float>& block) {
    for (std::size_t k = 1; k < block.size(); ++k) {
      for (const float other : values) {
        std::vector<float> changed = block;
        std::fill(changed.begin() + static_cast<std::ptrdiff_t>(k), changed.end(), other);
        const auto admitted = [k](std::int32_t length) {
          return length >= static_cast<std::int32_t>(k);
        };
        const std::int32_t slots = slots_of(block);
        ASSERT_EQ(admitted(cumulative_threshold_length(block.data(), slots, 0.4, 1, 0)),
                  admitted(cumulative_threshold_length(changed.data(), slots, 0.4, 1, 0)));
        ASSERT_EQ(admitted(position_threshold_length(block.data(), slots, 0.4, 0, 0)),
                  admitted(position_threshold_length(changed.data(), slots, 0.4, 0, 0)));
        ASSERT_EQ(admitted(sps_length(block.data(), slots, 0.1, 1, 0, LinearCost{})),
                  admitted(sps_length(changed.data(), slots, 0.1, 1, 0, LinearCost{})));
      }
    }
  });
}

}  // namespace
}  // namespace dspark
