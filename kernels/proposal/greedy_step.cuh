// A greedy step as the epilogue of its product: the exact one (kernels/common/gemm.cuh) and the one
// on tensor cores (greedy_tensor.cu).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/greedy_proposal.h"
#include "core/law.h"
#include "kernels/common/gemm.cuh"
#include "kernels/common/visit.cuh"
#include "kernels/rows/top_two.cuh"

namespace dspark::kernels {

/// What is known of a row while its blocks run; zeros: nothing yet.
struct GreedyRow {
  std::uint64_t key;     // of the best logit
  std::uint32_t second;  // order code of the second best
  std::uint32_t unused;
};
static_assert(sizeof(GreedyRow) == 16, "markov_greedy_step_scratch counts on it");

/// The order code under which a NaN enters the maximum: above +inf, so that it shows at the end.
inline constexpr std::uint32_t kNaNCode = 0xFFFFFFFFu;

/// Where a step reads and writes; the epilogue of its product (kernels/common/gemm.cuh).
struct GreedyStep {
  std::int32_t batch;
  std::int32_t block_size;
  std::int32_t step;
  bool head;
  bool chained;      // the next step follows: its previous tokens are written
  std::int64_t ids;  // previous tokens lie below
  Rows backbone;     // row b is b · backbone_stride + backbone_first
  std::int64_t backbone_stride;
  std::int64_t backbone_first;
  const std::uint16_t* scale;  // of the rows of w2, f16; null: none
  const std::int32_t* first_previous;
  Rows stacked;  // null data: not wanted
  std::int64_t stacked_first;
  GreedyRow* rows;
  std::int32_t* previous;  // -1: none
  std::uint32_t* arrived;
  std::uint64_t* slots;  // this and the next three are optional
  std::int32_t* tokens;
  float* margin;
  std::uint32_t* status;

  /// `count` rows from `first` on.
  GreedyStep rows_from(std::int32_t first, std::int32_t count) const {
    const std::int64_t cells = static_cast<std::int64_t>(first) * block_size;
    GreedyStep out = *this;
    out.batch = count;
    out.backbone_first += first * backbone_stride;
    out.stacked_first += cells + first;
    out.rows += first;
    out.previous += first;
    if (slots != nullptr) out.slots += cells;
    if (tokens != nullptr) out.tokens += cells;
    if (margin != nullptr) out.margin += cells;
    return out;
  }

  struct Part {
    std::uint32_t code;    // order code of the best logit, or kNaNCode
    std::uint32_t rank;    // the lower half of its token_key; both 0: empty
    std::uint32_t second;  // order code of the second best
  };

  __device__ static std::uint64_t key_of(const Part& part) {
    return (static_cast<std::uint64_t>(part.code) << 32) | part.rank;
  }
  __device__ static Part merge(const Part& a, const Part& b) {
    const bool first = key_of(a) > key_of(b);
    const std::uint32_t loser = first ? b.code : a.code;
    return {first ? a.code : b.code, first ? a.rank : b.rank, max(loser, max(a.second, b.second))};
  }

  /// Adds a logit's code; a thread's tokens ascend. Code 0 changes nothing.
  __device__ static void take(Part& part, std::int64_t n, std::uint32_t code) {
    if (code > part.code) {
      part = {code, 0xFFFFFFFFu - static_cast<std::uint32_t>(n), part.code};
    } else {
      part.second = max(part.second, code);
    }
  }
  __device__ static std::uint32_t code_of(float logit) {
    const std::uint32_t code = order_code(logit);
    return code != 0 ? code : kNaNCode;
  }
  __device__ void stack(std::int64_t m, std::int64_t n, float logit) const {
    const std::int64_t row = m * (static_cast<std::int64_t>(block_size) + 1) + stacked_first;
    stacked.data[row * stacked.stride + n] =
        previous[m] >= 0 ? logit : __uint_as_float(0x7FC00000u);
  }
  /// Adds the logit of token n in row m.
  __device__ void add_logit(Part& part, std::int64_t m, std::int64_t n, float logit) const {
    if (stacked.data != nullptr) stack(m, n, logit);
    take(part, n, code_of(logit));
  }

  __device__ void report(std::int64_t) const {}
  __device__ void add(Part& part, std::int64_t m, std::int64_t n, float value) const {
    if (scale != nullptr) value *= widen_f16(scale[n]);
    const std::int64_t row = m * backbone_stride + backbone_first;
    add_logit(part, m, n, backbone.data[row * backbone.stride + n] + value);
  }
  /// Without branches but two: this is unrolled for every output of a tile.
  __device__ void add4(Part& part, std::int64_t m, std::int64_t n, const float (&values)[4],
                       int valid) const {
    const float* base =
        backbone.data + (m * backbone_stride + backbone_first) * backbone.stride + n;
    float logits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) logits[i] = values[i];
    if (scale != nullptr) {
#pragma unroll
      for (int i = 0; i < 4; ++i) logits[i] *= widen_f16(scale[n + min(i, valid - 1)]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) logits[i] = base[min(i, valid - 1)] + logits[i];
    if (stacked.data != nullptr) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i < valid) stack(m, n + i, logits[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) take(part, n + i, i < valid ? code_of(logits[i]) : 0);
  }
  /// Whichever block loses the comparison of keys hands on the loser, as in add_top_two.
  __device__ void commit(std::int64_t m, const Part& part) const {
    const std::uint64_t key = key_of(part);
    const std::uint64_t before = atomic_max(&rows[m].key, key);
    const std::uint32_t loser = static_cast<std::uint32_t>(min(before, key) >> 32);
    atomicMax(&rows[m].second, max(loser, part.second));
  }
  /// The last block writes the results, and leaves the memory as the next step needs it.
  __device__ void finish() const {
    if (!last_block_to_arrive(arrived, gridDim.x)) return;
    for (std::int32_t b = static_cast<std::int32_t>(threadIdx.x); b < batch;
         b += static_cast<std::int32_t>(blockDim.x)) {
      const std::uint64_t key = read_shared_state(rows[b].key);
      const std::uint32_t second = read_shared_state(rows[b].second);
      const std::uint32_t code = static_cast<std::uint32_t>(key >> 32);
      const bool usable = previous[b] >= 0;
      const bool valid = usable && code > kMinusInfinityCode && code < kPlusInfinityCode;
      if (usable && !valid) kernels::report(status, kOpInvalidRow);
      const std::int64_t cell = static_cast<std::int64_t>(b) * block_size + step;
      const std::int32_t token = valid ? token_of_key(key) : -1;
      if (slots != nullptr) slots[cell] = valid ? key : 0;
      if (tokens != nullptr) tokens[cell] = token;
      if (margin != nullptr) {
        const float next = float_from_order_code(second != 0 ? second : kMinusInfinityCode);
        margin[cell] = valid ? float_from_order_code(code) - next : 0.0f;
      }
      rows[b] = {0, 0, 0};
      if (chained) set_previous(b, token);
    }
    if (threadIdx.x == 0) *arrived = 0;
  }

  /// The token before the row of b; without a head any row has one.
  __device__ void set_previous(std::int32_t b, std::int32_t token) const {
    const bool good = !head || (token >= 0 && token < ids);
    if (!good) kernels::report(status, kOpBadToken);
    previous[b] = !head ? 0 : good ? token : -1;
  }
};

}  // namespace dspark::kernels
