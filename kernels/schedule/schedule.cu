#include "kernels/schedule/schedule.h"

#include "kernels/confidence/score.cuh"
#include "policy/lengths.h"

namespace dspark::kernels {
namespace {

__global__ void __launch_bounds__(kThreads) fill_kernel(FillProposalLengthsArgs args) {
  const std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (b < args.batch) args.lengths[b] = args.value;
}

__device__ std::int32_t length_of(const ThresholdLengthsArgs& args, const float* scores) {
  return cumulative_threshold_length(scores, args.scores.block_size, args.threshold,
                                     max(1, args.min_length), args.max_length);
}

__device__ std::int32_t length_of(const SpsLengthsArgs& args, const float* scores) {
  return sps_length(scores, args.scores.block_size, args.survival_floor, max(1, args.min_length),
                    args.max_length, args.cost);
}

/// A block per batch entry: its warps score the slots, one thread then applies the rule to the few
/// scores.
template <class Args>
__global__ void __launch_bounds__(kScoreThreads) lengths_kernel(Args args) {
  const std::int64_t b = blockIdx.x;
  block_scores(args.scores, b);
  __syncthreads();
  if (threadIdx.x == 0) {
    args.lengths[b] = length_of(args, args.scores.scores + b * args.scores.block_size);
  }
}

template <class Args>
void launch_lengths(const Args& args, cudaStream_t stream) {
  if (args.scores.batch <= 0) return;
  DSPARK_LAUNCH((lengths_kernel<Args>), grid_of(args.scores.batch),
                score_threads(args.scores.block_size), 0, stream, args);
}

}  // namespace

void fill_proposal_lengths(const FillProposalLengthsArgs& args, cudaStream_t stream) {
  if (args.batch <= 0) return;
  DSPARK_LAUNCH(fill_kernel, grid_for_items(args.batch), kThreads, 0, stream, args);
}

void threshold_lengths(const ThresholdLengthsArgs& args, cudaStream_t stream) {
  launch_lengths(args, stream);
}

void sps_lengths(const SpsLengthsArgs& args, cudaStream_t stream) { launch_lengths(args, stream); }

}  // namespace dspark::kernels
