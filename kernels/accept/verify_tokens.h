// The tokens that go to verification.
#pragma once

#include <cuda_runtime_api.h>

#include "core/dspark_ops.h"

namespace dspark::kernels {

/// `dsparkBuildVerifyTokens`, see BuildVerifyTokensArgs. Enqueued.
void build_verify_tokens(const BuildVerifyTokensArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
