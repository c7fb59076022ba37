// Markov-corrected draft logits straight from hidden states.
#pragma once

#include <cuda_runtime_api.h>

#include "core/row_ops.h"

namespace dspark::kernels {

/// See DraftRowsArgs. `head` and `w2` are read once for all rows. Enqueued; no rows does nothing.
void draft_rows(const DraftRowsArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
