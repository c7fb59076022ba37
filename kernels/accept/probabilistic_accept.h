// Acceptance by rejection sampling.
#pragma once

#include <cuda_runtime_api.h>

#include "core/dspark_ops.h"

namespace dspark::kernels {

/// `dsparkProbabilisticAccept`, see ProbabilisticAcceptArgs. Enqueued; two launches. The tests
/// read one number per row; only the row of the residual or bonus token is scanned.
void probabilistic_accept(const ProbabilisticAcceptArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
