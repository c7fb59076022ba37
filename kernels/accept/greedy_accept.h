// Acceptance by argmax.
#pragma once

#include <cuda_runtime_api.h>

#include "core/dspark_ops.h"

namespace dspark::kernels {

/// `dsparkGreedyAccept`, see GreedyAcceptArgs. Enqueued; one pass over the rows that count, one
/// launch.
void greedy_accept(const GreedyAcceptArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
