// Markov-corrected draft logits straight from hidden states.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "core/dspark_ops.h"
#include "core/row_ops.h"

namespace dspark::kernels {

/// Bytes of temporary memory that a call needs on the current device.
std::size_t draft_rows_workspace(const DraftRowsArgs& args);

/// See DraftRowsArgs. Enqueued; no rows does nothing.
void draft_rows(const DraftRowsArgs& args, const Scratch& workspace, cudaStream_t stream);

}  // namespace dspark::kernels
