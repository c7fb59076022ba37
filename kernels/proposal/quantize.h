// Markov heads in 8 bits.
#pragma once

#include <cuda_runtime_api.h>

#include "core/greedy_proposal.h"

namespace dspark::kernels {

/// `dsparkQuantizeMarkovW2Fp8`, see QuantizeMarkovW2Args. One warp per row. Enqueued.
void quantize_markov_w2(const QuantizeMarkovW2Args& args, cudaStream_t stream);

}  // namespace dspark::kernels
