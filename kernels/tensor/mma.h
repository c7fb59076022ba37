// Tensor-core products with warp instructions (mma.sync), for every device from compute capability
// 8.0 on.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/tensor/tensor_product.h"

namespace dspark::kernels {

/// See TensorProduct; there are rows and columns.
void mma_product(const TensorProduct& args, cudaStream_t stream);

}  // namespace dspark::kernels
