#include "kernels/accept/verify_tokens.h"

#include "kernels/common/launch.cuh"

namespace dspark::kernels {
namespace {

__global__ void __launch_bounds__(kThreads) verify_tokens_kernel(BuildVerifyTokensArgs args) {
  const std::int64_t width = static_cast<std::int64_t>(args.length) + 1;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= args.batch * width) return;
  const std::int64_t b = i / width;
  const std::int64_t column = i % width;
  args.verify[i] = column == 0 ? args.last[b] : args.draft[b * args.draft_stride + column - 1];
}

}  // namespace

void build_verify_tokens(const BuildVerifyTokensArgs& args, cudaStream_t stream) {
  if (args.batch <= 0) return;
  DSPARK_LAUNCH(verify_tokens_kernel,
                grid_for_items(args.batch * (static_cast<std::int64_t>(args.length) + 1)), kThreads,
                0, stream, args);
}

}  // namespace dspark::kernels
