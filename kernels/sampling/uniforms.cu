#include "kernels/sampling/uniforms.h"

#include "core/random.h"
#include "kernels/common/launch.cuh"

namespace dspark::kernels {
namespace {

__global__ void __launch_bounds__(kThreads) uniforms_kernel(FillUniformsArgs args) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < args.uniforms.size) {
    args.uniforms.data[i] = edge_llm_uniform(args.seed, args.offset, static_cast<std::uint64_t>(i));
  }
}

}  // namespace

void fill_uniforms(const FillUniformsArgs& args, cudaStream_t stream) {
  if (args.uniforms.size <= 0) return;
  DSPARK_LAUNCH(uniforms_kernel, grid_for_items(args.uniforms.size), kThreads, 0, stream, args);
}

cudaError_t kernels_runnable() noexcept {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, uniforms_kernel);
  static_cast<void>(cudaGetLastError());
  return error;
}

}  // namespace dspark::kernels
