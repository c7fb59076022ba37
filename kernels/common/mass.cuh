// Sums of masses and weights over a warp, and masses as probabilities.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace dspark::kernels {

/// Sum over the warp, in every lane.
__device__ inline std::uint64_t sum_warp(std::uint64_t value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, step);
  return value;
}

/// Sum of the lanes up to and including the own.
__device__ inline std::uint64_t scan_warp(std::uint64_t value) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const std::uint64_t other = __shfl_up_sync(0xFFFFFFFFu, value, step);
    if (static_cast<int>(threadIdx.x) % 32 >= step) value += other;
  }
  return value;
}

/// Rarely needed, and long: not inlined.
__device__ __noinline__ static double divide(double a, double b) { return a / b; }

/// float(mass / total) of doubles: the product with the reciprocal decides unless it lies so near
/// the middle of two floats that its error might.
__device__ inline float mass_fraction(std::uint64_t mass, double total, double reciprocal) {
  if (mass == 0) return 0.0f;
  const double exact = static_cast<double>(mass);
  double quotient = exact * reciprocal;
  const std::uint32_t low = static_cast<std::uint32_t>(__double2loint(quotient)) & 0x1FFFFFFFu;
  if (low - 0x0FFFFFFCu <= 8u) quotient = divide(exact, total);
  return static_cast<float>(quotient);
}

}  // namespace dspark::kernels
