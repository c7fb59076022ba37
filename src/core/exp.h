// e^x in one polynomial, built from operations that IEEE 754 defines exactly, so that the CPU and
// the GPU get the same bits. Needs contraction off (-ffp-contract=off, --fmad=false): the fused
// operations are written out.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/half.h"
#include "core/host_device.h"

namespace dspark {

/// One fused multiply-add, rounded once, on host and device.
DSPARK_HD float fused(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return fmaf(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

/// e^x as significand · 2^exponent with significand in [0.70, 1.42]; e^0 is exactly 1 · 2^0.
struct ScaledExp {
  float significand;
  std::int32_t exponent;
};

/// `x` in [-87, 87]; the caller clamps. Relative error below 1.2e-7.
/// Cody-Waite reduction x = n ln 2 + r, then e^r = 1 + r + r² p(r) with a degree-4 minimax p fitted
/// for this project.
DSPARK_HD ScaledExp scaled_exp(float x) {
  const float shifted = fused(x, 1.44269504f, 12582912.0f);  // 1.5 · 2^23: rounds to an integer
  const float n = shifted - 12582912.0f;
  float r = fused(n, -0.693359375f, x);  // upper bits of ln 2: exact product
  r = fused(n, 2.12194440e-4f, r);       // ln 2 - 0.693359375, negated
  float p = 0x1.6a2352p-10f;
  p = fused(p, r, 0x1.123a6cp-7f);
  p = fused(p, r, 0x1.5558f4p-5f);
  p = fused(p, r, 0x1.555490p-3f);
  p = fused(p, r, 0x1.fffffcp-2f);
  const float tail = fused(p, r * r, r);
  // The sum's lowest bits are the integer itself: no conversion.
  return {1.0f + tail, static_cast<std::int32_t>(bits_from_float(shifted) - 0x4B400000u)};
}

/// e^x for `x` clamped to [-87, 87]; NaN gives e^-87.
DSPARK_HD float exp_float(float x) {
  x = x > -87.0f ? x : -87.0f;
  x = x < 87.0f ? x : 87.0f;
  const ScaledExp e = scaled_exp(x);
  return e.significand * float_from_bits(static_cast<std::uint32_t>(e.exponent + 127) << 23);
}

/// 1 / (1 + e^-z), in [0, 1]; NaN stays NaN.
DSPARK_HD float sigmoid(float z) {
  if (z != z) return z;
  return 1.0f / (1.0f + exp_float(-z));
}

}  // namespace dspark
