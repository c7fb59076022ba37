// Uniform random numbers.
#pragma once

#include <cuda_runtime_api.h>

#include "core/dspark_ops.h"

namespace dspark::kernels {

/// `dsparkFillUniforms`, see FillUniformsArgs. Enqueued.
void fill_uniforms(const FillUniformsArgs& args, cudaStream_t stream);

/// What the runtime says of running this library's kernels on the current device: cudaSuccess, or
/// e.g. cudaErrorNoKernelImageForDevice where none was built for it. Does not throw.
[[nodiscard]] cudaError_t kernels_runnable() noexcept;

}  // namespace dspark::kernels
