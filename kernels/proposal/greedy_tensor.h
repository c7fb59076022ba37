// Greedy steps on tensor cores.
#pragma once

#include <cuda_runtime_api.h>

#include "core/dspark_ops.h"
#include "core/views.h"

namespace dspark::kernels {

struct GreedyStep;

/// True if the head can be multiplied on tensor cores here: what markov_tensor takes; or E4M3 codes
/// (a rank that is a multiple of 16 and at most 512) with w1 in f16, rows of both at multiples of
/// 16 bytes.
[[nodiscard]] bool greedy_tensor_applies(const Matrix& w1, const Matrix& w2);

/// Enqueues a step whose rows are empty and whose previous tokens are known: one launch for every
/// 64 rows (8 where blocks have less than 227 KiB of shared memory), which reads w2 once.
/// `reverse`: the vocabulary is walked backwards. It may start before the kernel enqueued just
/// before has ended, which must not write w1, w2, its scale or the backbone.
void greedy_tensor_step(const GreedyStep& step, const Matrix& w1, const Matrix& w2, bool reverse,
                        cudaStream_t stream);

/// True if greedy_resident can make the whole proposal: a Hopper device, up to 8 rows, a rank of at
/// most 256, and no more tokens than its blocks have room for.
[[nodiscard]] bool greedy_resident_applies(const GreedyStep& step, const Matrix& w1,
                                           const Matrix& w2);

/// Enqueues a whole proposal as one launch of a grid that stays on the device: w2 is on its way all
/// the time, across the steps. `step` is the first one's, with tokens; `memory`: a word, then from
/// byte 256 on a GreedyRow for each of block_size times batch slots.
void greedy_resident(const GreedyStep& step, const Matrix& w1, const Matrix& w2,
                     const Scratch& memory, cudaStream_t stream);

}  // namespace dspark::kernels
