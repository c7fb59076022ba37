// Bit-exact conversions of the 8-bit float format E4M3 (one sign bit, four of exponent with bias 7,
// three of mantissa; no infinities, NaN is all ones below the sign, the largest number is 448); the
// same arithmetic on host and device.
#pragma once

#include <cstdint>

#include "core/half.h"
#include "core/host_device.h"

namespace dspark {

/// E4M3 as it is stored.
struct Float8 {
  std::uint8_t bits;
};

inline constexpr float kFloat8Max = 448.0f;
inline constexpr std::uint8_t kFloat8NaN = 0x7F;

/// Exact; NaN stays NaN.
DSPARK_HD float to_float(Float8 value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x80u) << 24;
  const std::uint32_t magnitude = value.bits & 0x7Fu;
  // Exponent and mantissa in place, then rescaled by 2^120, the difference of the two biases.
  float number = float_from_bits(magnitude << 20) * 1.329227995784916e+36f;
  if (magnitude == kFloat8NaN) number = float_from_bits(0x7FC00000u);
  return float_from_bits(bits_from_float(number) | sign);
}

/// Round to nearest even, saturating: what lies beyond 448, infinity included, becomes 448. NaN
/// becomes kFloat8NaN whatever its sign, which not every conversion to float keeps.
DSPARK_HD Float8 to_float8(float value) {
  const std::uint32_t bits = bits_from_float(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return Float8{kFloat8NaN};
  std::uint32_t code;
  if (magnitude >= 0x43E00000u) {
    code = 0x7Eu;  // 448
  } else if (magnitude < 0x3C800000u) {
    // Subnormal in E4M3: adding 2^14 lets the float adder round to a multiple of 2^-9.
    code = bits_from_float(float_from_bits(magnitude) + 16384.0f) - 0x46800000u;
  } else {
    const std::uint32_t rebased = magnitude - 0x3C000000u;  // bias 127 to bias 7
    code = (rebased + 0x7FFFFu + ((rebased >> 20) & 1u)) >> 20;
  }
  return Float8{static_cast<std::uint8_t>(sign | code)};
}

/// The scale that a row of weights whose largest magnitude is `largest` (finite) is stored with:
/// largest / 448 rounded to f16, so that the row reaches the largest code; at least the smallest
/// positive f16 and at most the largest finite one, and 1 for a row of zeros.
DSPARK_HD Float16 float8_scale(float largest) {
  if (!(largest > 0.0f)) return Float16{0x3C00u};
  const Float16 scale = to_float16(largest / kFloat8Max);
  if (scale.bits == 0) return Float16{0x0001u};
  if (scale.bits >= 0x7C00u) return Float16{0x7BFFu};
  return scale;
}

/// Largest magnitude whose float8_scale is not cut off: 448 · 65504.
inline constexpr float kFloat8LargestWeight = 29345792.0f;

/// A weight in units of its row's stored scale.
DSPARK_HD Float8 quantize_float8(float weight, float scale) { return to_float8(weight / scale); }

}  // namespace dspark
