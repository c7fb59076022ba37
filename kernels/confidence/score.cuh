// One confidence, by one warp: lane j of the warp is lane j of the contract's 32 chains
// (ConfidenceRowsArgs).
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "core/dspark_ops.h"
#include "core/exp.h"
#include "core/row_ops.h"
#include "core/views.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/common/visit.cuh"

namespace dspark::kernels {

__device__ inline float nan_score() { return __uint_as_float(0x7FC00000u); }

template <class Element>
__device__ float continue_chain(const Element* values, const float* weights, std::int64_t count,
                                int lane, float sum) {
#pragma unroll 8
  for (std::int64_t j = lane; j < count; j += kWarp)
    sum = fused(to_float(values[j]), weights[j], sum);
  return sum;
}

__device__ inline float continue_chain(const Matrix& matrix, std::int64_t row, const float* weights,
                                       int lane, float sum) {
  const std::int64_t offset = row * matrix.stride;
  switch (matrix.type) {
    case DType::f16:
      return continue_chain(static_cast<const Float16*>(matrix.data) + offset, weights, matrix.cols,
                            lane, sum);
    case DType::bf16:
      return continue_chain(static_cast<const BFloat16*>(matrix.data) + offset, weights,
                            matrix.cols, lane, sum);
    default:
      return continue_chain(static_cast<const float*>(matrix.data) + offset, weights, matrix.cols,
                            lane, sum);
  }
}

/// The score, in lane 0. `previous` is used where the weight has a Markov part.
__device__ inline float warp_score(const Matrix& hidden, std::int64_t hidden_row, const Matrix& w1,
                                   std::int64_t previous, const Array<const float>& weight,
                                   float bias, int lane) {
  float sum = continue_chain(hidden, hidden_row, weight.data, lane, 0.0f);
  if (weight.size > hidden.cols) {
    sum = continue_chain(w1, previous, weight.data + hidden.cols, lane, sum);
  }
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    sum += __shfl_down_sync(kAllLanes, sum, distance);
  }
  return sigmoid(sum + bias);
}

/// The scores of batch entry b, by all warps of the block.
__device__ inline void block_scores(const ConfidenceScoresArgs& args, std::int64_t b) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const std::int64_t stride = args.hidden_stride > 0 ? args.hidden_stride : args.block_size;
  const bool markov = args.weight.size > args.hidden.cols;
  for (std::int32_t slot = static_cast<std::int32_t>(threadIdx.x) / kWarp; slot < args.block_size;
       slot += warps) {
    const std::int64_t cell = b * args.block_size + slot;
    const std::int64_t row = b * stride + slot + args.hidden_offset;
    std::int32_t previous = 0;
    std::uint32_t problems = kOpOk;
    if (markov) {
      previous = slot == 0 ? args.first_previous[b] : args.draft[cell - 1];
      if (previous < 0 || previous >= args.w1.rows) problems |= kOpBadToken;
    }
    if (row < 0 || row >= args.hidden.rows) problems |= kOpBadRow;
    float score = nan_score();
    if (problems == kOpOk) {
      score = warp_score(args.hidden, row, args.w1, previous, args.weight, args.bias, lane);
    }
    if (lane == 0) {
      report(args.status, problems);
      args.scores[cell] = score;
    }
  }
}

/// Most threads of a block that scores slots; more slots take several turns.
inline constexpr int kScoreThreads = 512;

/// Threads of a block that scores `block_size` slots.
inline int score_threads(std::int32_t block_size) {
  constexpr std::int32_t most = kScoreThreads / kWarp;
  return kWarp * (block_size < 1 ? 1 : block_size > most ? most : block_size);
}

}  // namespace dspark::kernels
