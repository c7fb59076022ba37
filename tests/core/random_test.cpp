#include "core/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>

namespace dspark {
namespace {

std::uint64_t golden_integer(std::uint64_t seed, std::uint64_t offset, std::uint64_t counter) {
  return static_cast<std::uint64_t>(std::ldexp(edge_llm_uniform(seed, offset, counter), 24));
}

TEST(EdgeLlmUniform, HasTheGoldenValues) {
  struct Case {
    std::uint64_t seed, offset;
    std::array<std::uint64_t, 6> right;
  };
  const Case cases[] = {
      {1234, 56, {11749375, 7314495, 4684000, 14521996, 9879181, 4573257}},
      {1234, 57, {15321162, 16034821, 524258, 7943184, 12052006, 7085945}},
      {0x44535041524B2026, 0, {4828136, 2095774, 4873011, 8829000, 9221580, 8861049}},
  };
  for (const Case& c : cases) {
    for (std::size_t i = 0; i < c.right.size(); ++i) {
      EXPECT_EQ(golden_integer(c.seed, c.offset, i), c.right[i]) << c.seed << ' ' << i;
    }
  }
  EXPECT_NEAR(edge_llm_uniform(1234, 56, 0), 0.700317323, 1e-8);
}

TEST(EdgeLlmUniform, StaysBelowOne) {
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const float u = edge_llm_uniform(7, 0, i);
    ASSERT_GE(u, 0.0f);
    ASSERT_LE(u, 0.99999994f);
  }
}

// Known answers published with Random123.
TEST(Philox, HasTheKnownAnswers) {
  using Philox = r123::Philox4x32;
  const Philox::ctr_type zero = Philox{}({{0, 0, 0, 0}}, {{0, 0}});
  EXPECT_EQ(zero, (Philox::ctr_type{{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
  constexpr std::uint32_t ones = 0xffffffff;
  const Philox::ctr_type full = Philox{}({{ones, ones, ones, ones}}, {{ones, ones}});
  EXPECT_EQ(full, (Philox::ctr_type{{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
}

TEST(RandomUniform, IsPhiloxOfTheDocumentedCounter) {
  const RandomKey key = {.seed = 0x1122334455667788,
                         .sequence = 3,
                         .position = 17,
                         .slot = 5,
                         .branch = 2,
                         .repeat = 9,
                         .purpose = RandomPurpose::residual};
  const auto out =
      r123::Philox4x32{}({{17, 3, 5u | (2u << 8) | (9u << 16), 3}}, {{0x55667788, 0x11223344}});
  EXPECT_EQ(random_uniform(key), (std::uint64_t{out[1]} << 32) | out[0]);
}

TEST(RandomUniform, DistinctKeysGiveDistinctNumbers) {
  std::set<std::uint64_t> seen;
  std::size_t drawn = 0;
  const auto draw = [&](const RandomKey& key) {
    seen.insert(random_uniform(key));
    ++drawn;
  };
  const RandomPurpose purposes[] = {RandomPurpose::draft,    RandomPurpose::accept,
                                    RandomPurpose::residual, RandomPurpose::bonus,
                                    RandomPurpose::rejected, RandomPurpose::synth};
  for (std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32}) {
    for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
      for (std::uint32_t position = 0; position < 8; ++position) {
        for (std::uint32_t slot = 0; slot < 4; ++slot) {
          for (std::uint32_t branch = 0; branch < 3; ++branch) {
            for (std::uint32_t repeat = 0; repeat < 3; ++repeat) {
              for (const RandomPurpose purpose : purposes) {
                draw({seed, sequence, position, slot, branch, repeat, purpose});
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), drawn);
}

TEST(RandomUniform, LooksUniform) {
  double sum = 0;
  double squares = 0;
  constexpr int n = 100000;
  for (std::uint32_t i = 0; i < n; ++i) {
    const double u = std::ldexp(static_cast<double>(random_uniform({.position = i})), -64);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(squares / n, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / n));
}

TEST(UniformFromFloat, IsExactOnTheGridOfFloatUniforms) {
  for (std::uint64_t k = 0; k < (1u << 24); k += 4093) {
    const float u = std::ldexp(static_cast<float>(k), -24);
    ASSERT_EQ(uniform_from_float(u), k << 40) << k;
  }
  EXPECT_EQ(uniform_from_float(0.99999994f), 0xFFFFFF0000000000u);
  EXPECT_EQ(uniform_from_float(std::ldexp(1.5f, -40)), std::uint64_t{3} << 23);
}

TEST(UniformFromFloat, ClampsWhatIsNoUniform) {
  EXPECT_EQ(uniform_from_float(1.0f), 0xFFFFFF0000000000u);
  EXPECT_EQ(uniform_from_float(std::numeric_limits<float>::infinity()), 0xFFFFFF0000000000u);
  EXPECT_EQ(uniform_from_float(-0.5f), 0u);
  EXPECT_EQ(uniform_from_float(std::numeric_limits<float>::quiet_NaN()), 0u);
}

}  // namespace
}  // namespace dspark
