#include "core/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace dspark {
namespace {

// E4M3 from its definition.
double value_of(std::uint8_t bits) {
  const int exponent = (bits >> 3) & 0xF;
  const int mantissa = bits & 0x7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

bool is_nan(std::uint8_t bits) { return (bits & 0x7F) == 0x7F; }

TEST(Float8, AllPatternsConvertExactlyAndSurviveARoundTrip) {
  for (int i = 0; i < 256; ++i) {
    const auto bits = static_cast<std::uint8_t>(i);
    const float value = to_float(Float8{bits});
    ASSERT_EQ(std::signbit(value), (bits & 0x80) != 0) << i;
    if (is_nan(bits)) {
      ASSERT_TRUE(std::isnan(value)) << i;
      ASSERT_EQ(to_float8(value).bits, kFloat8NaN) << i;
    } else {
      ASSERT_EQ(static_cast<double>(value), value_of(bits)) << i;
      ASSERT_EQ(to_float8(value).bits, bits) << i;
    }
  }
  EXPECT_EQ(to_float(Float8{0x7E}), kFloat8Max);
  EXPECT_EQ(to_float(Float8{0x01}), 0x1p-9f);
}

TEST(Float8, RoundsToNearestEven) {
  // Between each pair of neighbours: the midpoint goes to the even one, anything off it to the
  // nearer one.
  for (int i = 0; i < 0x7E; ++i) {
    const auto low = static_cast<std::uint8_t>(i);
    const auto high = static_cast<std::uint8_t>(i + 1);
    const auto middle = static_cast<float>((value_of(low) + value_of(high)) / 2);  // exact
    ASSERT_EQ(to_float8(middle).bits, (low & 1) == 0 ? low : high) << i;
    ASSERT_EQ(to_float8(std::nextafter(middle, 0.0f)).bits, low) << i;
    ASSERT_EQ(to_float8(std::nextafter(middle, 1e9f)).bits, high) << i;
    ASSERT_EQ(to_float8(-middle).bits, 0x80 | ((low & 1) == 0 ? low : high)) << i;
  }
}

TEST(Float8, EveryHalfGoesToTheNearestCode) {
  for (std::uint32_t i = 0; i < 0x7C00; ++i) {
    const float value = to_float(Float16{static_cast<std::uint16_t>(i)});
    const std::uint8_t got = to_float8(value).bits;
    ASSERT_LT(got, 0x7F) << i;
    const double error = std::fabs(value_of(got) - value);
    for (int other = 0; other < 0x7F; ++other) {
      ASSERT_LE(error, std::fabs(value_of(static_cast<std::uint8_t>(other)) - value)) << i;
    }
  }
}

TEST(Float8, SaturatesAndKeepsNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float large : {448.0f, 463.9f, 464.0f, 465.0f, 1e30f, infinity}) {
    EXPECT_EQ(to_float8(large).bits, 0x7E) << large;
    EXPECT_EQ(to_float8(-large).bits, 0xFE) << large;
  }
  EXPECT_EQ(to_float8(-std::nanf("")).bits, kFloat8NaN);
  EXPECT_EQ(to_float8(0.0f).bits, 0x00);
  EXPECT_EQ(to_float8(-0.0f).bits, 0x80);
  EXPECT_EQ(to_float8(std::numeric_limits<float>::denorm_min()).bits, 0x00);
}

TEST(Float8, ScalesAreStoredHalvesThatAreNeverZero) {
  EXPECT_EQ(to_float(float8_scale(448.0f)), 1.0f);
  EXPECT_EQ(to_float(float8_scale(224.0f)), 0.5f);
  EXPECT_EQ(to_float(float8_scale(0.0f)), 1.0f);
  EXPECT_EQ(float8_scale(1.0f).bits, to_float16(1.0f / 448.0f).bits);
  // Half of the smallest f16 rounds to 0 (to even); it is kept at the smallest.
  EXPECT_EQ(float8_scale(448.0f * 0x1p-25f).bits, 0x0001);
  EXPECT_EQ(float8_scale(1e-30f).bits, 0x0001);
  EXPECT_EQ(float8_scale(448.0f * 0x1.8p-24f).bits, 0x0002);
  EXPECT_EQ(to_float(float8_scale(kFloat8LargestWeight)), 65504.0f);
  EXPECT_EQ(to_float(float8_scale(1e38f)), 65504.0f);
}

TEST(Float8, WeightsAreMeasuredInTheStoredScale) {
  // 1 / 448 rounds down in f16 (to 1170 · 2^-19), so that 1 is 448.1 of it: 448.
  const float scale = to_float(float8_scale(1.0f));
  EXPECT_NE(scale, 1.0f / 448.0f);
  EXPECT_EQ(quantize_float8(1.0f, scale).bits, 0x7E);
  EXPECT_EQ(quantize_float8(-1.0f, scale).bits, 0xFE);
  // 3 units of scale, not of 1/448.
  EXPECT_EQ(to_float(quantize_float8(3.0f * scale, scale)), 3.0f);
  EXPECT_EQ(quantize_float8(0.0f, scale).bits, 0x00);
}

}  // namespace
}  // namespace dspark
