// The first pass over a row: its largest two logits, and whether it is valid. Used by the laws and
// by greedy acceptance.
//
// While the pass runs, a RowLaw that was set to zero bytes is its memory: boundary_key holds the
// largest token_key, second_logit the order code of the second largest logit, status the flags,
// reserved the blocks that are done.
#pragma once

#include <cub/block/block_reduce.cuh>

#include <cstdint>

#include "core/law.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/visit.cuh"

namespace dspark::kernels {

struct TopTwo {
  std::uint64_t key;     // 0: nothing above -inf seen
  std::uint32_t second;  // order code
  std::uint32_t flags;   // kRowNaN, kRowPlusInfinity, kSawFinite
};

inline constexpr std::uint32_t kSawFinite = 8;
inline constexpr std::uint32_t kPlusInfinityCode = 0xFF800000u;
inline constexpr std::uint32_t kMinusInfinityCode = 0x007FFFFFu;

struct MergeTopTwo {
  __device__ TopTwo operator()(const TopTwo& a, const TopTwo& b) const {
    const std::uint32_t loser = static_cast<std::uint32_t>(min(a.key, b.key) >> 32);
    return {max(a.key, b.key), max(loser, max(a.second, b.second)), a.flags | b.flags};
  }
};

/// The block's result, in thread 0. About nine instructions per element, of the 28 that a
/// multiprocessor of compute capability 9.0 has time for at the speed of its memory: what makes a
/// row invalid (NaN, +inf) is only told apart, by a second look, where it was seen.
template <int kBlockThreads = kThreads, int kUnroll = 4>
__device__ TopTwo top_two_of_range(const float* row, std::int32_t begin, std::int32_t end) {
  using Reduce = cub::BlockReduce<TopTwo, kBlockThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const float infinity = __uint_as_float(0x7F800000u);
  float best = -infinity;
  float second = -infinity;
  std::int32_t best_id = 0;
  bool nan = false;
  visit_row<kUnroll>(row, begin, end, [&](std::int32_t id, float value) {
    nan = nan || value != value;
    second = fmaxf(second, fminf(best, value));
    best_id = value > best ? id : best_id;
    best = fmaxf(best, value);
  });
  TopTwo mine = {0, order_code(second), 0};
  if (best > -infinity) {
    mine.key = token_key(best, best_id);
    mine.flags = kSawFinite;
  }
  if (nan || best == infinity) {
    mine.flags = 0;
    visit_row<1>(row, begin, end, [&](std::int32_t, float value) {
      if (value != value) mine.flags |= kRowNaN;
      if (value == infinity) mine.flags |= kRowPlusInfinity;
      if (fabsf(value) < infinity) mine.flags |= kSawFinite;
    });
  }
  return Reduce(storage).Reduce(mine, MergeTopTwo{});
}

/// Adds a block's result to the row's. Whichever block loses the comparison of keys hands on the
/// loser, so that the second largest arrives too, in any order of blocks.
__device__ inline void add_top_two(RowLaw& law, const TopTwo& found) {
  const std::uint64_t before = atomic_max(&law.boundary_key, found.key);
  const std::uint32_t loser = static_cast<std::uint32_t>(min(before, found.key) >> 32);
  atomicMax(reinterpret_cast<unsigned int*>(&law.second_logit), max(loser, found.second));
  atomicOr(&law.status, found.flags);
}

/// The law of a row whose result is known: complete if greedy or invalid, else with boundary and
/// sums still 0.
__device__ inline RowLaw law_of_top_two(const TopTwo& found, const SamplingRule& rule) {
  const std::uint64_t key = found.key;
  const std::uint32_t second = found.second;
  const std::uint32_t flags = found.flags;
  RowLaw law;
  law.inverse_temperature = rule.inverse_temperature;
  law.status = (flags & (kRowNaN | kRowPlusInfinity)) | ((flags & kSawFinite) ? 0u : kRowNoFinite);
  if (law.status != kRowValid) return law;
  law.argmax = token_of_key(key);
  law.max_logit = float_from_order_code(static_cast<std::uint32_t>(key >> 32));
  law.second_logit = float_from_order_code(second != 0 ? second : kMinusInfinityCode);
  if (rule.greedy) {
    law.boundary_key = key;
    law.boundary_mass = kUnitMass;
    law.total = kUnitMass;
    law.scale = law_scale(kUnitMass);
  }
  return law;
}

/// The same when all blocks have added theirs.
__device__ inline RowLaw law_of_top_two(const RowLaw& shared, const SamplingRule& rule) {
  return law_of_top_two(
      TopTwo{read_shared_state(shared.boundary_key),
             read_shared_state(reinterpret_cast<const std::uint32_t&>(shared.second_logit)),
             read_shared_state(shared.status)},
      rule);
}

}  // namespace dspark::kernels
