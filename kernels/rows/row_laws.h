// Sampling laws of logit rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "core/dspark_ops.h"
#include "core/row_ops.h"

namespace dspark::kernels {

/// Bytes of `workspace` that row_laws needs for `rows` rows under `rule`: 0 without top-k and
/// top-p.
[[nodiscard]] std::size_t row_laws_workspace(std::int64_t rows, const SamplingRule& rule);

/// See RowLawsArgs. Enqueued; no rows does nothing. One pass over the logits when greedy, two
/// without filters, three with (and more for the rare row with over 2048 tokens in the 1/64 nat
/// around the boundary).
void row_laws(const RowLawsArgs& args, const Scratch& workspace, cudaStream_t stream);

}  // namespace dspark::kernels
