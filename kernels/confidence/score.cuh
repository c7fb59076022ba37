// One confidence, by one block. The contract's 32 chains (ConfidenceRowsArgs) are the lanes of warp
// 0, and what they need is brought into shared memory first, by all threads: then all loads are in
// flight at once, and the walk of a chain meets no latency but that of its own additions. The last
// warp brings the Markov row, which is known only once the token before the slot has been read; the
// others do not wait for it before the walk starts.
#pragma once

#include <cuda_fp16.h>
#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/dspark_ops.h"
#include "core/exp.h"
#include "core/row_ops.h"
#include "core/views.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/common/visit.cuh"

namespace dspark::kernels {

inline constexpr int kScoreThreads = 128;
/// Blocks that registers leave room for on a multiprocessor, without spills.
inline constexpr int kScoreBlocksPerProcessor = 6;
/// Threads that bring the hidden row and its weights.
inline constexpr int kHiddenThreads = kScoreThreads - kWarp;
/// Shared memory for what is brought; longer rows come in several parts.
inline constexpr std::size_t kScoreShared = 64 * 1024;
inline constexpr std::int64_t kMostMarkovPart = 1024;

/// Elements that are in shared memory at a time.
struct ScorePlan {
  std::int64_t hidden = 0;  // of a hidden row and its weights
  std::int64_t markov = 0;  // of a Markov row and its weights
  std::int32_t element = 0;
  std::int32_t markov_element = 0;  // bytes of an element

  /// Bytes of a place for `bytes` that lie to multiples of 16 bytes as they do in global memory.
  [[nodiscard]] static constexpr __host__ __device__ std::int64_t place(std::int64_t bytes) {
    return (bytes + 15) / 16 * 16 + 16;
  }
  // The places follow each other.
  [[nodiscard]] __host__ __device__ std::int64_t hidden_weights() const {
    return place(hidden * element);
  }
  [[nodiscard]] __host__ __device__ std::int64_t markov_row() const {
    return hidden_weights() + place(hidden * 4);
  }
  [[nodiscard]] __host__ __device__ std::int64_t markov_weights() const {
    return markov_row() + place(markov * markov_element);
  }
  [[nodiscard]] __host__ __device__ std::int64_t bytes() const {
    return markov_weights() + place(markov * 4);
  }
};

template <class Args>
ScorePlan score_plan(const Args& args) {
  ScorePlan plan;
  plan.element = static_cast<std::int32_t>(size_of(args.hidden.type));
  plan.markov_element = static_cast<std::int32_t>(size_of(args.w1.type));
  plan.markov = std::min(args.weight.size - args.hidden.cols, kMostMarkovPart);
  const std::int64_t rest =
      static_cast<std::int64_t>(kScoreShared) - plan.bytes() - 4 * 16;  // places are rounded up
  // Parts of whole turns of the 32 chains, so that each part starts at lane 0.
  const std::int64_t most = rest / (plan.element + 4) / kWarp * kWarp;
  plan.hidden = std::min(args.hidden.cols, most);
  return plan;
}

/// Allows a kernel the shared memory of a plan; once is enough.
template <class Kernel>
cudaError_t allow_score_shared(Kernel kernel, std::size_t beside = 0) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(kScoreShared + beside));
}

__device__ inline float nan_score() { return __uint_as_float(0x7FC00000u); }

// Loads from shared memory, with addresses of that space: each stays where it is written, ahead of
// its use.
__device__ inline float load_shared(std::uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address));
  return value;
}
__device__ inline std::uint32_t load_shared_half(std::uint32_t address) {
  std::uint32_t bits;
  asm volatile("ld.shared.u16 %0, [%1];" : "=r"(bits) : "r"(address));
  return bits;
}

/// An element's bits at a place in shared memory, and the number they are.
template <class Element>
__device__ std::uint32_t load_bits(std::uint32_t address) {
  if constexpr (sizeof(Element) == 2) return load_shared_half(address);
  return __float_as_uint(load_shared(address));
}
template <class Element>
__device__ float number_of(std::uint32_t bits) {
  if constexpr (std::is_same_v<Element, Float16>) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  } else {
    return __uint_as_float(sizeof(Element) == 2 ? bits << 16 : bits);
  }
}

/// Where `source` is once it has been brought to `place`.
__device__ inline const void* brought(const unsigned char* place, const void* source) {
  return place + (reinterpret_cast<std::uintptr_t>(source) & 15u);
}

/// Brings `bytes` (even) from global memory to a place in shared memory, by `threads` threads:
/// quads without registers in between, the edges in pairs of bytes. There after
/// wait_for_what_is_brought() and a barrier.
__device__ inline void bring(unsigned char* place, const void* source, std::int64_t bytes,
                             int thread, int threads) {
  const int skew = static_cast<int>(reinterpret_cast<std::uintptr_t>(source) & 15u);
  const auto* from = static_cast<const unsigned char*>(source);
  unsigned char* to = place + skew;
  const int count = static_cast<int>(bytes);
  const int head = min(count, (16 - skew) & 15);
  const int quads = (count - head) / 16;
#pragma unroll 4
  for (int i = thread; i < quads; i += threads) {
    __pipeline_memcpy_async(to + head + 16 * i, from + head + 16 * i, 16);
  }
  const int edges = (count - 16 * quads) / 2;
  if (thread < edges) {
    const int at = 2 * thread < head ? 2 * thread : 2 * thread + 16 * quads;
    *reinterpret_cast<std::uint16_t*>(to + at) = *reinterpret_cast<const std::uint16_t*>(from + at);
  }
}

__device__ inline void wait_for_what_is_brought() {
  __pipeline_commit();
  __pipeline_wait_prior(0);
}

/// A barrier of some of the block's warps.
__device__ inline void meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
inline constexpr int kHiddenBarrier = 1;  // those who bring the hidden row
inline constexpr int kMarkovBarrier = 2;  // the first and the last warp

/// Elements of a chain that are on their way from shared memory.
template <class Element>
struct ChainBatch {
  static constexpr int kSize = 8;
  static constexpr std::uint32_t kStep = kWarp * sizeof(Element);
  static constexpr std::uint32_t kWeightStep = kWarp * sizeof(float);
  std::uint32_t value[kSize];
  float weight[kSize];

  __device__ void load(std::uint32_t values, std::uint32_t weights) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      value[i] = load_bits<Element>(values + i * kStep);
      weight[i] = load_shared(weights + i * kWeightStep);
    }
  }
  __device__ float add(float sum) const {
#pragma unroll
    for (int i = 0; i < kSize; ++i) sum = fused(number_of<Element>(value[i]), weight[i], sum);
    return sum;
  }
};

/// Continues the chain of each lane of a warp over `count` values and weights in shared memory. The
/// next batch is loaded while one is added. A call, so that there is one copy: a cold instruction
/// costs more than a turn of the loop.
template <class Element>
__device__ __noinline__ float walk_chain(std::uint32_t values, std::uint32_t weights, int count,
                                         float sum) {
  using Batch = ChainBatch<Element>;
  constexpr int kTurn = Batch::kSize * kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int whole = count / kTurn;  // the same for all lanes
  values += lane * sizeof(Element);
  weights += lane * sizeof(float);
  // Past the end the last batch is loaded once more, so that loads need no branch.
  const auto load = [&](Batch& batch, int number) {
    const std::uint32_t at = min(number, whole - 1) * kTurn;
    batch.load(values + at * sizeof(Element), weights + at * sizeof(float));
  };
  if (whole > 0) {
    Batch even;
    Batch odd;
    load(even, 0);
    int batch = 0;
#pragma unroll 1
    for (; batch + 1 < whole; batch += 2) {
      load(odd, batch + 1);
      sum = even.add(sum);
      load(even, batch + 2);
      sum = odd.add(sum);
    }
    if (batch < whole) sum = even.add(sum);
  }
  const int done = whole * kTurn;
  Batch rest;
#pragma unroll
  for (int i = 0; i < Batch::kSize; ++i) {
    const int at = done + i * kWarp;
    if (at + lane < count) {
      rest.value[i] = load_bits<Element>(values + at * sizeof(Element));
      rest.weight[i] = load_shared(weights + at * sizeof(float));
    }
  }
#pragma unroll
  for (int i = 0; i < Batch::kSize; ++i) {
    if (done + i * kWarp + lane < count) {
      sum = fused(number_of<Element>(rest.value[i]), rest.weight[i], sum);
    }
  }
  return sum;
}

__device__ inline float walk_chain(DType type, const void* values, const void* weights,
                                   std::int64_t count, float sum) {
  const auto v = static_cast<std::uint32_t>(__cvta_generic_to_shared(values));
  const auto w = static_cast<std::uint32_t>(__cvta_generic_to_shared(weights));
  const int n = static_cast<int>(count);
  switch (type) {
    case DType::f16:
      return walk_chain<Float16>(v, w, n, sum);
    case DType::bf16:
      return walk_chain<BFloat16>(v, w, n, sum);
    default:
      return walk_chain<float>(v, w, n, sum);
  }
}

__device__ inline const void* element_at(const Matrix& matrix, std::int64_t row, std::int64_t col) {
  return static_cast<const unsigned char*>(matrix.data) +
         (row * matrix.stride + col) * static_cast<std::int64_t>(size_of(matrix.type));
}

/// The score of hidden row `row` and the token at `previous` (read where the weight has a Markov
/// part), by the whole block; thread 0 returns it, NaN where an id is bad, which is reported.
/// `there`: whether a call before left the thread's share of the weights in `memory`; false at
/// first. Between two calls the block has to synchronise.
template <class Args>
__device__ float block_score(const Args& args, const ScorePlan& plan, unsigned char* memory,
                             bool& there, std::int64_t row, const std::int32_t* previous) {
  __shared__ std::int32_t markov_token;  // -1: not in the vocabulary
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp;
  const std::int64_t hidden = args.hidden.cols;
  const std::int64_t rank = args.weight.size - hidden;
  const bool row_fits = row >= 0 && row < args.hidden.rows;
  unsigned char* const hidden_weights = memory + plan.hidden_weights();
  unsigned char* const markov_row = memory + plan.markov_row();
  unsigned char* const markov_weights = memory + plan.markov_weights();

  if (thread >= kHiddenThreads) {
    if (rank <= 0) return 0;
    const std::int32_t token = *previous;
    const bool fits = token >= 0 && token < args.w1.rows;
    if (lane == 0) markov_token = fits ? token : -1;
    std::int64_t begin = 0;
    do {
      if (begin > 0) meet(kMarkovBarrier, 2 * kWarp);  // the part before has been walked
      if (fits && row_fits) {
        const std::int64_t part = min(plan.markov, rank - begin);
        bring(markov_row, element_at(args.w1, token, begin), part * plan.markov_element, lane,
              kWarp);
        if (!there || plan.markov < rank) {
          bring(markov_weights, args.weight.data + hidden + begin, part * 4, lane, kWarp);
        }
        there = true;
        wait_for_what_is_brought();
      }
      meet(kMarkovBarrier, 2 * kWarp);
      begin += plan.markov;
    } while (begin < rank && fits && row_fits);
    return 0;
  }

  float sum = 0;
  for (std::int64_t begin = 0; begin < hidden && row_fits; begin += plan.hidden) {
    if (begin > 0) meet(kHiddenBarrier, kHiddenThreads);  // the part before has been walked
    const std::int64_t part = min(plan.hidden, hidden - begin);
    const void* source = element_at(args.hidden, row, begin);
    const float* weights = args.weight.data + begin;
    bring(memory, source, part * plan.element, thread, kHiddenThreads);
    if (!there || plan.hidden < hidden) {
      bring(hidden_weights, weights, part * 4, thread, kHiddenThreads);
    }
    there = true;
    wait_for_what_is_brought();
    meet(kHiddenBarrier, kHiddenThreads);
    if (thread < kWarp) {
      sum = walk_chain(args.hidden.type, brought(memory, source), brought(hidden_weights, weights),
                       part, sum);
    }
  }
  if (thread >= kWarp) return 0;

  std::uint32_t problems = row_fits ? kOpOk : kOpBadRow;
  if (rank > 0) {
    std::int64_t begin = 0;
    do {
      if (begin > 0) meet(kMarkovBarrier, 2 * kWarp);
      meet(kMarkovBarrier, 2 * kWarp);
      if (markov_token < 0) problems |= kOpBadToken;
      if (problems == kOpOk) {
        const void* source = element_at(args.w1, markov_token, begin);
        const float* weights = args.weight.data + hidden + begin;
        sum = walk_chain(args.w1.type, brought(markov_row, source),
                         brought(markov_weights, weights), min(plan.markov, rank - begin), sum);
      }
      begin += plan.markov;
    } while (begin < rank && problems == kOpOk);
  }
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    sum += __shfl_down_sync(kAllLanes, sum, distance);
  }
  if (lane == 0) report(args.status, problems);
  return problems == kOpOk ? sigmoid(sum + args.bias) : nan_score();
}

/// The score of slot `slot` of batch entry `b`, see block_score.
__device__ inline float slot_score(const ConfidenceScoresArgs& args, const ScorePlan& plan,
                                   unsigned char* memory, bool& there, std::int64_t b,
                                   std::int32_t slot) {
  const std::int64_t stride = args.hidden_stride > 0 ? args.hidden_stride : args.block_size;
  const std::int64_t row = b * stride + slot + args.hidden_offset;
  const std::int32_t* previous =
      slot == 0 ? args.first_previous + b : args.draft + b * args.block_size + slot - 1;
  return block_score(args, plan, memory, there, row, previous);
}

}  // namespace dspark::kernels
