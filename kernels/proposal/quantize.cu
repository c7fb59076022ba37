#include "kernels/proposal/quantize.h"

#include "core/fp8.h"
#include "kernels/common/gemm.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/common/visit.cuh"

namespace dspark::kernels {
namespace {

/// Weights are read and codes written four at a time by neighbouring lanes. A row is read twice,
/// the second time from the cache.
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(QuantizeMarkovW2Args args, bool w2_aligned, bool codes_aligned) {
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (row >= args.w2.rows) return;  // the whole warp
  const auto quad_at = [&](std::int64_t column) {
    return widen_quad(
        load_quad(args.w2.data, args.w2.type, row * args.w2.stride + column, 4, w2_aligned),
        args.w2.type);
  };

  // Magnitudes are ordered as their bits.
  std::uint32_t largest = 0;
  bool bad = false;
  for (std::int64_t column = lane * 4; column < args.w2.cols; column += kWarp * 4) {
    const float4 quad = quad_at(column);
    for (const float weight : {quad.x, quad.y, quad.z, quad.w}) {
      const std::uint32_t magnitude = bits_from_float(weight) & 0x7FFFFFFFu;
      if (magnitude < 0x7F800000u) largest = max(largest, magnitude);
      bad = bad || !(float_from_bits(magnitude) <= kFloat8LargestWeight);
    }
  }
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, mask));
  }
  if (bad) report(args.status, kOpInvalidRow);

  const Float16 stored = float8_scale(float_from_bits(largest));
  if (lane == 0) args.scale[row] = stored;
  const float scale = to_float(stored);
  for (std::int64_t column = lane * 4; column < args.w2.cols; column += kWarp * 4) {
    const float4 quad = quad_at(column);
    const std::uint32_t codes[4] = {
        quantize_float8(quad.x, scale).bits, quantize_float8(quad.y, scale).bits,
        quantize_float8(quad.z, scale).bits, quantize_float8(quad.w, scale).bits};
    Float8* place = args.codes + row * args.w2.cols + column;
    if (codes_aligned) {
      *reinterpret_cast<std::uint32_t*>(place) =
          codes[0] | (codes[1] << 8) | (codes[2] << 16) | (codes[3] << 24);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) place[i] = Float8{static_cast<std::uint8_t>(codes[i])};
    }
  }
}

}  // namespace

void quantize_markov_w2(const QuantizeMarkovW2Args& args, cudaStream_t stream) {
  if (args.w2.rows <= 0) return;
  const bool w2_aligned = rows_aligned(gemm_operand(args.w2), 4 * size_of(args.w2.type));
  const bool codes_aligned = reinterpret_cast<std::uintptr_t>(args.codes) % 4 == 0;
  DSPARK_LAUNCH(quantize_kernel, grid_for_items(args.w2.rows * kWarp), kThreads, 0, stream, args,
                w2_aligned, codes_aligned);
}

}  // namespace dspark::kernels
