#include "kernels/confidence/confidence.h"

#include "kernels/confidence/score.cuh"

namespace dspark::kernels {
namespace {

__global__ void __launch_bounds__(kThreads) rows_kernel(ConfidenceRowsArgs args) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (i >= args.out.size) return;
  const std::int32_t row = args.hidden_row.data[i];
  const std::int32_t previous = args.previous.data[i];
  float score = nan_score();
  if (previous >= 0) {
    std::uint32_t problems = kOpOk;
    if (row < 0 || row >= args.hidden.rows) problems |= kOpBadRow;
    if (args.weight.size > args.hidden.cols && previous >= args.w1.rows) problems |= kOpBadToken;
    if (problems == kOpOk) {
      score = warp_score(args.hidden, row, args.w1, previous, args.weight, args.bias, lane);
    } else if (lane == 0) {
      report(args.status, problems);
    }
  }
  if (lane == 0) args.out.data[i] = score;
}

__global__ void __launch_bounds__(kScoreThreads) scores_kernel(ConfidenceScoresArgs args) {
  block_scores(args, blockIdx.x);
}

}  // namespace

void confidence_rows(const ConfidenceRowsArgs& args, cudaStream_t stream) {
  if (args.out.size <= 0) return;
  DSPARK_LAUNCH(rows_kernel, grid_for_items(args.out.size * kWarp), kThreads, 0, stream, args);
}

void confidence_scores(const ConfidenceScoresArgs& args, cudaStream_t stream) {
  if (args.batch <= 0 || args.block_size <= 0) return;
  DSPARK_LAUNCH(scores_kernel, grid_of(args.batch), score_threads(args.block_size), 0, stream,
                args);
}

}  // namespace dspark::kernels
