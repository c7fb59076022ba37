// Markov-corrected logits on tensor cores.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/row_ops.h"

namespace dspark::kernels {

/// Which backbone row and which previous token belong to output row m: arrays (MarkovRowsArgs), or
/// where `previous` is null a step of a block (BuildMarkovLogitsArgs).
struct MarkovIndex {
  const std::int32_t* previous = nullptr;        ///< [M]; negative: not written
  const std::int32_t* backbone_row = nullptr;    ///< [M]
  const std::int32_t* first_previous = nullptr;  ///< [M], for step 0
  const std::int32_t* draft = nullptr;           ///< [M, block_size]
  std::int32_t block_size = 0;
  std::int32_t step = 0;
  std::int64_t logits_stride = 0;
  std::int64_t logits_offset = 0;
};

struct MarkovTensorArgs {
  Rows backbone;
  MarkovIndex index;
  Matrix w1;
  Matrix w2;
  Rows out;                         ///< with a step's index a bad row becomes NaN
  std::uint32_t* status = nullptr;  ///< optional
  /// w2 may be read before the kernel enqueued just before has ended (programmatic dependent
  /// launch): that kernel does not write it.
  bool early = false;
  /// Up to 64 rows: every block walks its part of the vocabulary backwards. Of two calls in turn,
  /// the second begins with what the first has left in the cache.
  bool reverse = false;
};

/// True if these weights can be multiplied on tensor cores here: both f16 or both bf16, a rank that
/// is a multiple of 8 and at most 512, rows at multiples of 16 bytes.
[[nodiscard]] bool markov_tensor_applies(const Matrix& w1, const Matrix& w2);

/// out[m, v] = backbone row + Σ_r w1[previous, r] · w2[v, r] (Products::tensor). w2 is read once.
/// Enqueued; one launch.
void markov_tensor(const MarkovTensorArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
