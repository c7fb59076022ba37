#include "core/law.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace dspark {
namespace {

const float kInfinity = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> interesting_floats() {
  return {-kInfinity,
          -std::numeric_limits<float>::max(),
          -2.0f,
          -1.0f,
          -std::numeric_limits<float>::min(),
          -std::numeric_limits<float>::denorm_min(),
          0.0f,
          std::numeric_limits<float>::denorm_min(),
          std::numeric_limits<float>::min(),
          1.0f,
          std::nextafter(1.0f, 2.0f),
          2.0f,
          std::numeric_limits<float>::max(),
          kInfinity};
}

TEST(OrderCode, OrdersLikeTheNumbers) {
  const std::vector<float> sorted = interesting_floats();
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (std::size_t j = 0; j < sorted.size(); ++j) {
      EXPECT_EQ(order_code(sorted[i]) < order_code(sorted[j]), sorted[i] < sorted[j])
          << sorted[i] << ' ' << sorted[j];
    }
  }
}

TEST(OrderCode, OrdersRandomBitPatterns) {
  std::mt19937 bits(1);
  for (int i = 0; i < 200000; ++i) {
    const float a = float_from_bits(static_cast<std::uint32_t>(bits()));
    const float b = float_from_bits(static_cast<std::uint32_t>(bits()));
    if (std::isnan(a) || std::isnan(b)) continue;
    ASSERT_EQ(order_code(a) < order_code(b), a < b) << a << ' ' << b;
    ASSERT_EQ(order_code(a) == order_code(b), a == b) << a << ' ' << b;
    ASSERT_EQ(float_from_order_code(order_code(a)), a);
  }
}

TEST(OrderCode, ZerosAreEqualAndNaNIsBelowEverything) {
  EXPECT_EQ(order_code(0.0f), order_code(-0.0f));
  for (const float nan : {kNaN, -kNaN, float_from_bits(0x7F800001), float_from_bits(0xFFFFFFFF)}) {
    EXPECT_EQ(order_code(nan), 0u);
  }
  EXPECT_GT(order_code(-kInfinity), 0u);
}

TEST(TokenKey, RanksByLogitThenByLowerId) {
  EXPECT_GT(token_key(1.0f, 9), token_key(0.5f, 0));
  EXPECT_GT(token_key(1.0f, 5), token_key(1.0f, 6));
  EXPECT_GT(token_key(-0.0f, 0), token_key(0.0f, 1));
  EXPECT_GT(token_key(-kInfinity, 0), token_key(kNaN, 0));
  EXPECT_GT(token_key(kNaN, std::numeric_limits<std::int32_t>::max()), 0u);
}

TEST(TokenKey, HasTheGoldenValues) {
  EXPECT_EQ(token_key(0.0f, 0), 0x80000000FFFFFFFFu);
  EXPECT_EQ(token_key(1.0f, 5), 0xBF800000FFFFFFFAu);
  EXPECT_EQ(token_key(-1.0f, 5), 0x407FFFFFFFFFFFFAu);
  EXPECT_EQ(token_key(-kInfinity, 151935), 0x007FFFFFFFFDAE80u);
}

TEST(TokenKey, GivesItsTokenBack) {
  for (const std::int32_t id : {0, 1, 151935, std::numeric_limits<std::int32_t>::max()}) {
    EXPECT_EQ(token_of_key(token_key(-3.5f, id)), id);
  }
}

TEST(UnfilteredMass, OfTheMaximumIsExactlyTheUnit) {
  for (const float max : {0.0f, -0.0f, 17.25f, -1e30f, 3e38f}) {
    for (const float inverse_temperature : {1.0f, 1.0f / 0.7f, 1000.0f, 1e-3f}) {
      EXPECT_EQ(unfiltered_mass(max, max, inverse_temperature), kUnitMass);
    }
  }
}

TEST(UnfilteredMass, AgreesWithDoubleArithmetic) {
  for (int i = 0; i <= 400000; ++i) {
    const float logit = -30.0f * static_cast<float>(i) / 400000.0f;
    const double right = std::exp(static_cast<double>(logit)) * static_cast<double>(kUnitMass);
    const auto mass = static_cast<double>(unfiltered_mass(logit, 0.0f, 1.0f));
    ASSERT_NEAR(mass, right, 0.5 + right * std::ldexp(1, -22)) << logit;
  }
}

TEST(UnfilteredMass, NeverGrowsAsTheLogitFalls) {
  std::uint64_t last = kUnitMass;
  for (int i = 0; i <= 400000; ++i) {
    const std::uint64_t mass = unfiltered_mass(-static_cast<float>(i) * 1e-4f, 0.0f, 1.0f);
    // Where e^x is nearly flat on the grid of floats its last bit may wobble, by no more than its
    // error.
    ASSERT_LE(static_cast<double>(mass), static_cast<double>(last) * (1 + 2.4e-7)) << i;
    last = mass;
  }
}

TEST(UnfilteredMass, IsZeroForWhatCannotBeDrawn) {
  EXPECT_EQ(unfiltered_mass(-kInfinity, 0.0f, 1.0f), 0u);
  EXPECT_EQ(unfiltered_mass(kNaN, 0.0f, 1.0f), 0u);
  EXPECT_EQ(unfiltered_mass(-29.0f, 0.0f, 1.0f), 0u);
  EXPECT_EQ(unfiltered_mass(-27.0f, 0.0f, 1.0f), 2u);   // e^-27 · 2^40 = 2.07
  EXPECT_EQ(unfiltered_mass(-3e38f, 3e38f, 1.0f), 0u);  // the difference overflows
}

TEST(LawScale, TurnsMassesIntoProbabilitiesFromBelow) {
  std::mt19937_64 random(2);
  const std::uint64_t least = kUnitMass;
  for (int i = 0; i < 200000; ++i) {
    const int shift = static_cast<int>(random() % 22);
    const std::uint64_t total = (least << shift) + random() % (least << shift);
    const std::uint64_t mass = i % 3 == 0 ? random() % 1000 : random() % (kUnitMass + 1);
    const std::uint64_t p = mass_to_probability(mass, law_scale(total));
    const uint128 scaled = static_cast<uint128>(mass) << kProbabilityBits;
    const auto exact = static_cast<std::uint64_t>(scaled / total);
    ASSERT_LE(p, exact);
    // Below the exact one by less than one unit for the last rounding and 2^-40 for that of the
    // scale.
    ASSERT_LE(exact - p, 1 + (exact >> 40)) << mass << ' ' << total;
  }
}

TEST(LawScale, HoldsAtItsLimits) {
  EXPECT_EQ(law_scale(kUnitMass), std::uint64_t{1} << 62);
  EXPECT_EQ(law_scale(std::uint64_t{1} << 62), kUnitMass);
  EXPECT_EQ(mass_to_probability(kUnitMass, law_scale(kUnitMass)), kUnitProbability);
  EXPECT_EQ(mass_to_probability(0, law_scale(kUnitMass)), 0u);
}

TEST(LawScale, ProbabilitiesOfARowSumToAtMostOne) {
  std::mt19937_64 random(3);
  for (int row = 0; row < 200; ++row) {
    std::vector<std::uint64_t> masses = {kUnitMass};
    std::uint64_t total = kUnitMass;
    for (int i = 0; i < 100; ++i) {
      masses.push_back(random() % (kUnitMass + 1));
      total += masses.back();
    }
    std::uint64_t sum = 0;
    for (const std::uint64_t mass : masses) sum += mass_to_probability(mass, law_scale(total));
    ASSERT_LE(sum, kUnitProbability);
    ASSERT_GE(sum, kUnitProbability - (kUnitProbability >> 39));
  }
}

TEST(LawMass, KeepsWhatRanksAboveTheBoundary) {
  RowLaw law;
  law.max_logit = 2.0f;
  law.boundary_key = token_key(1.0f, 4);
  law.boundary_mass = 123;
  EXPECT_EQ(law_mass(law, 2.0f, 7), kUnitMass);
  EXPECT_EQ(law_mass(law, 1.0f, 4), 123u);
  EXPECT_EQ(law_mass(law, 1.0f, 5), 0u);  // an equal logit, but a higher id
  EXPECT_EQ(law_mass(law, 1.0f, 3), unfiltered_mass(1.0f, 2.0f, 1.0f));
  EXPECT_EQ(law_mass(law, 0.5f, 0), 0u);
  law.boundary_key = 0;
  EXPECT_EQ(law_mass(law, 0.5f, 0), unfiltered_mass(0.5f, 2.0f, 1.0f));
}

// u ≤ p / q with u = uniform / 2^64, exactly.
bool exact_accept(std::uint64_t p, std::uint64_t q, std::uint64_t uniform) {
  return static_cast<uint128>(uniform) * q <= static_cast<uint128>(p) << 64;
}

TEST(Accepts, FollowsTheExactRatioToOneUnitOfTheProbability) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 300000; ++i) {
    const std::uint64_t q = random() % (kUnitProbability + 1);
    const std::uint64_t p = i % 2 == 0 ? random() % (kUnitProbability + 1) : random() % (q + 1);
    // Also right at the boundary, where rounding shows.
    const auto boundary =
        q == 0 ? 0 : static_cast<std::uint64_t>((static_cast<uint128>(p) << 64) / q);
    for (const std::uint64_t uniform :
         {std::uint64_t{random()}, boundary, boundary + 1, boundary + 9}) {
      if (p == 0) {
        ASSERT_FALSE(accepts(p, q, uniform));
        continue;
      }
      // Never stricter than the exact test, and never laxer than with one more unit (2^-61) of p.
      if (exact_accept(p, q, uniform)) {
        ASSERT_TRUE(accepts(p, q, uniform)) << p << ' ' << q;
      }
      if (!exact_accept(p + 1, q, uniform)) {
        ASSERT_FALSE(accepts(p, q, uniform)) << p << ' ' << q;
      }
    }
  }
}

TEST(Accepts, HasTheEdgesOfTheContract) {
  constexpr std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
  EXPECT_FALSE(accepts(0, kUnitProbability, 0));  // p = 0 never
  EXPECT_FALSE(accepts(0, 0, 0));
  EXPECT_TRUE(accepts(1, 0, last));  // q = 0 counts as ratio 1
  EXPECT_TRUE(accepts(kUnitProbability, kUnitProbability, last));
  EXPECT_TRUE(accepts(kUnitProbability / 2, kUnitProbability, std::uint64_t{1} << 63));
  EXPECT_FALSE(accepts(kUnitProbability / 2, kUnitProbability, (std::uint64_t{1} << 63) + 16));
}

TEST(CdfTarget, StaysBelowTheTotal) {
  constexpr std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t total : {kUnitMass, kUnitMass + 1, std::uint64_t{1} << 62}) {
    EXPECT_EQ(cdf_target(0, total), 0u);
    EXPECT_EQ(cdf_target(last, total), total - 1);
    EXPECT_EQ(cdf_target(std::uint64_t{1} << 63, total), total / 2);
  }
}

TEST(MakeSamplingRule, TurnsOffWhatDoesNothing) {
  const auto rule = [](double t, std::int64_t k, double p) {
    return make_sampling_rule(t, k, p, TopPRule::water_filling, 100);
  };
  EXPECT_FALSE(rule(1, 0, 1).greedy);
  EXPECT_EQ(rule(1, 0, 1).top_k, 0);
  EXPECT_EQ(rule(1, 100, 1).top_k, 0);
  EXPECT_EQ(rule(1, std::numeric_limits<std::int64_t>::max(), 1).top_k, 0);
  EXPECT_EQ(rule(1, -1, 1).top_k, 0);
  EXPECT_EQ(rule(1, 99, 1).top_k, 99);
  EXPECT_EQ(rule(1, 0, 1).top_p, 0u);
  EXPECT_EQ(rule(1, 0, 1 - 1e-7).top_p, 0u);
  EXPECT_EQ(rule(1, 0, 0.5).top_p, std::uint64_t{1} << 31);
  EXPECT_EQ(rule(1, 0, 1e-300).top_p, 1u);
}

TEST(MakeSamplingRule, IsGreedyBelowTheSmallestTemperature) {
  const auto rule = [](double t) {
    return make_sampling_rule(t, 0, 1, TopPRule::include_crossing, 100);
  };
  EXPECT_TRUE(rule(0).greedy);
  EXPECT_TRUE(rule(0.9e-3).greedy);
  EXPECT_TRUE(rule(std::nan("")).greedy);
  EXPECT_FALSE(rule(1e-3).greedy);
  EXPECT_EQ(rule(0).inverse_temperature, 1.0f);
  EXPECT_EQ(rule(0.5).inverse_temperature, 2.0f);
  EXPECT_EQ(rule(0.5).top_p_rule, TopPRule::include_crossing);
}

}  // namespace
}  // namespace dspark
