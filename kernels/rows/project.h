// Hidden states times a vocabulary matrix.
#pragma once

#include <cuda_runtime_api.h>

#include "core/row_ops.h"

namespace dspark::kernels {

/// See ProjectArgs. Enqueued; no rows or no columns does nothing.
void project(const ProjectArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
