#include "kernels/confidence/confidence.h"

#include "kernels/confidence/score.cuh"

namespace dspark::kernels {
namespace {

__global__ void __launch_bounds__(kScoreThreads, kScoreBlocksPerProcessor)
    rows_kernel(ConfidenceRowsArgs args, ScorePlan plan) {
  extern __shared__ __align__(16) unsigned char memory[];
  bool weights_there = false;
  bool used = false;
  for (std::int64_t i = blockIdx.x; i < args.out.size; i += gridDim.x) {
    const std::int32_t* previous = args.previous.data + i;
    float score = nan_score();
    if (*previous >= 0) {
      if (used) __syncthreads();
      used = true;
      score = block_score(args, plan, memory, weights_there, args.hidden_row.data[i], previous);
    }
    if (threadIdx.x == 0) args.out.data[i] = score;
  }
}

/// A block per slot.
__global__ void __launch_bounds__(kScoreThreads, kScoreBlocksPerProcessor)
    scores_kernel(ConfidenceScoresArgs args, ScorePlan plan) {
  extern __shared__ __align__(16) unsigned char memory[];
  const std::int64_t b = blockIdx.x / args.block_size;
  const auto slot = static_cast<std::int32_t>(blockIdx.x % args.block_size);
  bool weights_there = false;
  const float score = slot_score(args, plan, memory, weights_there, b, slot);
  if (threadIdx.x == 0) args.scores[blockIdx.x] = score;
}

}  // namespace

void confidence_rows(const ConfidenceRowsArgs& args, cudaStream_t stream) {
  if (args.out.size <= 0) return;
  static const cudaError_t allowed = allow_score_shared(rows_kernel);
  DSPARK_CUDA_CHECK(allowed);
  const ScorePlan plan = score_plan(args);
  const std::int64_t blocks =
      std::min(args.out.size, kScoreBlocksPerProcessor * device_traits().multiprocessors);
  DSPARK_LAUNCH(rows_kernel, grid_of(blocks), kScoreThreads, static_cast<std::size_t>(plan.bytes()),
                stream, args, plan);
}

void confidence_scores(const ConfidenceScoresArgs& args, cudaStream_t stream) {
  if (args.batch <= 0 || args.block_size <= 0) return;
  static const cudaError_t allowed = allow_score_shared(scores_kernel);
  DSPARK_CUDA_CHECK(allowed);
  const ScorePlan plan = score_plan(args);
  DSPARK_LAUNCH(scores_kernel, grid_of(std::int64_t{args.batch} * args.block_size), kScoreThreads,
                static_cast<std::size_t>(plan.bytes()), stream, args, plan);
}

}  // namespace dspark::kernels
