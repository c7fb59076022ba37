// Markov-corrected draft logits of many rows.
#pragma once

#include <cuda_runtime_api.h>

#include "core/row_ops.h"

namespace dspark::kernels {

/// See MarkovRowsArgs. `w2` is read once for all rows. Enqueued; no rows does nothing.
void markov_rows(const MarkovRowsArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
