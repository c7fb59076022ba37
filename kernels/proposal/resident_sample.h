// A whole sampled proposal in one launch.
#pragma once

#include <cuda_runtime_api.h>

#include "core/dspark_ops.h"

namespace dspark::kernels {

/// True if resident_sample can make this proposal: a Hopper device, tensor products that apply
/// (markov_tensor_applies) with a rank of at most 256, up to 8 rows, a law without filters that is
/// not greedy (`rule`: effective_rule), and no more tokens than its blocks have room for.
[[nodiscard]] bool resident_sample_applies(const VanillaMarkovSampleArgs& args,
                                           const SamplingRule& rule);

/// See VanillaMarkovSampleArgs; the same bits as its steps one by one. One launch of a grid that
/// stays on the device, and a small memset: w2 is on its way all the time, across the steps, and
/// logits never leave the chip. Enqueued.
void resident_sample(const VanillaMarkovSampleArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
