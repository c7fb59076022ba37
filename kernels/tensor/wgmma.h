// Tensor-core products with warpgroup instructions (wgmma), for compute capability 9.0 alone.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/tensor/tensor_product.h"

namespace dspark::kernels {

/// Whether the program was built with code for compute capability 9.0.
extern const bool kWgmmaBuilt;

/// See TensorProduct; there are rows and columns.
void wgmma_product(const TensorProduct& args, cudaStream_t stream);

}  // namespace dspark::kernels
