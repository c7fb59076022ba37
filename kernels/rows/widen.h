// Stored numbers to f32.
#pragma once

#include <cuda_runtime_api.h>

#include "core/row_ops.h"

namespace dspark::kernels {

/// See WidenArgs. Enqueued; no rows does nothing.
void widen(const WidenArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
