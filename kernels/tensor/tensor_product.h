// Products of 16-bit matrices on tensor cores, accumulated in f32 (Products::tensor,
// core/row_ops.h).
//
// Why an output's bits depend on its rows alone: every output is summed over ascending k in steps
// of 16 by one instruction shape, whatever the number of rows; k is never split, and what a tile
// holds beyond the matrices is zero.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>

#include "core/row_ops.h"

namespace dspark::kernels {

/// out[m, n] = Σ_k a[m, k] · b[n, k], or with a second pair of matrices the sum of both products in
/// one accumulator, the first pair's first. The operands suit tensor cores (tensor_operands) and
/// all have one type.
struct TensorProduct {
  Matrix a;   ///< [M, K]
  Matrix b;   ///< [N, K]
  Matrix a2;  ///< [M, R]; null data: no second pair
  Matrix b2;  ///< [N, R]
  Rows out;   ///< f32 [M, N]
  /// [M], 0: the row is not written. Null: all are.
  const std::uint8_t* wanted = nullptr;
};

/// Implementations; their last bits may differ.
enum class TensorKernel : std::uint8_t {
  wgmma,  ///< compute capability 9.0: warpgroup products, operands through the copy engine
  mma,    ///< compute capability 8.0 and above: warp products
};

/// The best of them for the current device; none where it is too old.
std::optional<TensorKernel> tensor_kernel();

/// Enqueued; no rows or no columns does nothing. `kernel` must run on the current device.
void tensor_product(const TensorProduct& args, TensorKernel kernel, cudaStream_t stream);

}  // namespace dspark::kernels
