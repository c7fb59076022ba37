// Bit-exact conversions of the 16-bit float formats; the same integer arithmetic on host and
// device.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/host_device.h"

namespace dspark {

/// IEEE 754 binary16 as it is stored; a plain value type, so that views of it need no CUDA header.
struct Float16 {
  std::uint16_t bits;
};

/// bfloat16 as it is stored (the upper half of a binary32).
struct BFloat16 {
  std::uint16_t bits;
};

DSPARK_HD float float_from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

DSPARK_HD std::uint32_t bits_from_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// Exact; NaN stays NaN, subnormals stay exact.
DSPARK_HD float to_float(Float16 half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = half.bits & 0x7FFFu;
  // Exponent and mantissa in place, then rescaled by 2^112, the difference of the two biases.
  float value = float_from_bits(magnitude << 13) * 5.192296858534828e+33f;
  if (magnitude >= 0x7C00u) value = float_from_bits(0x7F800000u | ((magnitude & 0x3FFu) << 13));
  return float_from_bits(bits_from_float(value) | sign);
}

/// Exact.
DSPARK_HD float to_float(BFloat16 value) {
  return float_from_bits(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Identity, so that code templated on the stored type reads one way.
DSPARK_HD float to_float(float value) { return value; }

/// Round to nearest even; overflow gives infinity, NaN stays a (quiet) NaN.
DSPARK_HD Float16 to_float16(float value) {
  const std::uint32_t bits = bits_from_float(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t half;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u;  // NaN
  } else if (magnitude >= 0x477FF000u) {
    half = 0x7C00u;  // rounds to 65536 or more: infinity
  } else if (magnitude < 0x38800000u) {
    // Subnormal in binary16: adding 0.5 lets the float adder round to a multiple of 2^-24.
    half = bits_from_float(float_from_bits(magnitude) + 0.5f) - 0x3F000000u;
  } else {
    const std::uint32_t rebased = magnitude - 0x38000000u;  // bias 127 to bias 15
    half = (rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13;
  }
  return Float16{static_cast<std::uint16_t>(sign | half)};
}

/// Round to nearest even; NaN stays a (quiet) NaN.
DSPARK_HD BFloat16 to_bfloat16(float value) {
  const std::uint32_t bits = bits_from_float(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return BFloat16{static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  }
  return BFloat16{static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace dspark
