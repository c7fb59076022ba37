#include "core/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace dspark {
namespace {

// binary16 from its definition.
double half_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F;
  const int mantissa = bits & 0x3FF;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

bool is_half_nan(std::uint16_t bits) { return (bits & 0x7FFF) > 0x7C00; }

TEST(Float16, AllPatternsConvertExactly) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = to_float(Float16{bits});
    if (is_half_nan(bits)) {
      ASSERT_TRUE(std::isnan(value)) << i;
    } else if ((bits & 0x7FFF) == 0x7C00) {
      ASSERT_TRUE(std::isinf(value)) << i;
    } else {
      ASSERT_EQ(static_cast<double>(value), half_value(bits)) << i;
    }
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << i;
  }
}

TEST(Float16, AllPatternsSurviveARoundTrip) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const std::uint16_t back = to_float16(to_float(Float16{bits})).bits;
    if (is_half_nan(bits)) {
      ASSERT_TRUE(is_half_nan(back)) << i;
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

TEST(Float16, RoundsToNearestEven) {
  // Between each pair of neighbours: the midpoint goes to the even one, anything off it to the
  // nearer one.
  for (std::uint16_t low = 0; low < 0x7BFF; ++low) {
    const std::uint16_t high = low + 1;
    const auto middle = static_cast<float>((half_value(low) + half_value(high)) / 2);  // exact
    ASSERT_EQ(to_float16(middle).bits, (low & 1) == 0 ? low : high) << low;
    ASSERT_EQ(to_float16(std::nextafter(middle, 0.0f)).bits, low) << low;
    ASSERT_EQ(to_float16(std::nextafter(middle, 1e9f)).bits, high) << low;
    ASSERT_EQ(to_float16(-middle).bits, 0x8000 | ((low & 1) == 0 ? low : high)) << low;
  }
}

TEST(Float16, OverflowsToInfinityFromTheMidpointOn) {
  EXPECT_EQ(to_float16(65519.996f).bits, 0x7BFF);
  EXPECT_EQ(to_float16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(to_float16(std::numeric_limits<float>::max()).bits, 0x7C00);
  EXPECT_EQ(to_float16(-std::numeric_limits<float>::infinity()).bits, 0xFC00);
}

TEST(BFloat16, AllPatternsSurviveARoundTrip) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = to_float(BFloat16{bits});
    ASSERT_EQ(bits_from_float(value), i << 16);
    const std::uint16_t back = to_bfloat16(value).bits;
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(to_float(BFloat16{back}))) << i;
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

TEST(BFloat16, RoundsToNearestEven) {
  for (std::uint32_t low = 0; low < 0x7F80; ++low) {  // the last neighbour is infinity
    const std::uint32_t even = low + (low & 1);
    ASSERT_EQ(to_bfloat16(float_from_bits((low << 16) + 0x8000)).bits, even);
    ASSERT_EQ(to_bfloat16(float_from_bits((low << 16) + 0x7FFF)).bits, low);
    ASSERT_EQ(to_bfloat16(float_from_bits((low << 16) + 0x8001)).bits, low + 1);
  }
}

TEST(BFloat16, NaNWithALowPayloadStaysNaN) {
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(float_from_bits(0x7F800001)))));
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(float_from_bits(0xFFFFFFFF)))));
}

}  // namespace
}  // namespace dspark
