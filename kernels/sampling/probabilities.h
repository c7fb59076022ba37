// Logits to probabilities.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/dspark_ops.h"

namespace dspark::kernels {

/// `dsparkLogitsToProbabilities`, see LogitsToProbabilitiesArgs. `workspace`:
/// row_laws_workspace(rows, rule) bytes. Enqueued. `slice_sums` (optional, [rows, slice_count(V)])
/// receives the sums of the written probabilities' weights per slice, which are what
/// pick_probability_rows needs.
void logits_to_probabilities(const LogitsToProbabilitiesArgs& args, const Scratch& workspace,
                             std::uint64_t* slice_sums, cudaStream_t stream);

}  // namespace dspark::kernels
