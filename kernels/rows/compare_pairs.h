// Target rows beside draft rows.
#pragma once

#include <cuda_runtime_api.h>

#include "core/row_ops.h"

namespace dspark::kernels {

/// See ComparePairsArgs. Enqueued; no pairs does nothing.
void compare_pairs(const ComparePairsArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
