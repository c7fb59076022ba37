// The K best tokens of a row.
#pragma once

#include <cuda_runtime_api.h>

#include "core/sparse_proposal.h"

namespace dspark::kernels {

/// See SelectTopKArgs. Rows are read once from memory: each block finds the best K of its slice,
/// and the last block of a row merges them. Enqueued.
void select_top_k(const SelectTopKArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
