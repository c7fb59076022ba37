// Tokens drawn from stored probabilities.
#pragma once

#include <cuda_runtime_api.h>

#include "core/dspark_ops.h"

namespace dspark::kernels {

/// `dsparkSampleProbabilityRows`, see SampleProbabilityRowsArgs. Enqueued; two launches.
void sample_probability_rows(const SampleProbabilityRowsArgs& args, cudaStream_t stream);

/// Its second half, for callers whose scratch already starts with the slice sums
/// (logits_to_probabilities).
void pick_probability_rows(const SampleProbabilityRowsArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
