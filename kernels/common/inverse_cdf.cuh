// Inverse CDF over a vocabulary in ascending id order, in two steps: blocks sum slices of kSlice
// weights; one block then finds the slice that holds the target, and the token in it. Weights are
// integers, so nothing depends on the split.
//
// A Weights object is built per row and has
//   visit(begin, end, f)   f(weight) for every id in [begin, end), over all threads of the block
//   at(id)                 the weight of one token
#pragma once

#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include <cstdint>

#include "core/dspark_ops.h"
#include "core/law.h"
#include "core/random.h"
#include "core/row_ops.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/visit.cuh"

namespace dspark::kernels {

/// Masses of a row under its law.
struct LawWeights {
  const float* row;
  RowLaw law;

  template <class Visit>
  __device__ void visit(std::int32_t begin, std::int32_t end, Visit&& visit) const {
    visit_row(row, begin, end,
              [&](std::int32_t id, float logit) { visit(law_mass(law, logit, id)); });
  }
  __device__ std::uint64_t at(std::int32_t id) const { return law_mass(law, row[id], id); }
};

/// (q - p)⁺ in units of 2^-61 for a draft row q and a target row p.
struct ExcessWeights {
  const float* target;
  const float* draft;
  RowLaw target_law;
  RowLaw draft_law;

  __device__ std::uint64_t weigh(std::int32_t id, float target_logit, float draft_logit) const {
    const std::uint64_t p = law_probability(target_law, target_logit, id);
    const std::uint64_t q = law_probability(draft_law, draft_logit, id);
    return q > p ? q - p : 0;
  }
  template <class Visit>
  __device__ void visit(std::int32_t begin, std::int32_t end, Visit&& visit) const {
    visit_rows(target, draft, begin, end,
               [&](std::int32_t id, float target_logit, float draft_logit) {
                 visit(weigh(id, target_logit, draft_logit));
               });
  }
  __device__ std::uint64_t at(std::int32_t id) const { return weigh(id, target[id], draft[id]); }
};

/// Reports a stored probability that is NaN.
__device__ inline void report_nan(float p, std::uint32_t* status) {
  if (p != p) report(status, kOpInvalidRow);
}

/// Stored probabilities; visit() reports NaNs.
struct ProbabilityWeights {
  const float* row;
  std::uint32_t* status;

  template <class Visit>
  __device__ void visit(std::int32_t begin, std::int32_t end, Visit&& visit) const {
    visit_row(row, begin, end, [&](std::int32_t, float p) {
      report_nan(p, status);
      visit(probability_weight(p));
    });
  }
  __device__ std::uint64_t at(std::int32_t id) const { return probability_weight(row[id]); }
};

/// (p - q)⁺ of stored probabilities; visit() reports NaNs.
struct ResidualWeights {
  const float* target;
  const float* draft;
  std::uint32_t* status;

  __device__ static std::uint64_t weigh(float p, float q) {
    const std::uint64_t target = probability_weight(p);
    const std::uint64_t draft = probability_weight(q);
    return target > draft ? target - draft : 0;
  }
  template <class Visit>
  __device__ void visit(std::int32_t begin, std::int32_t end, Visit&& visit) const {
    visit_rows(target, draft, begin, end, [&](std::int32_t, float p, float q) {
      report_nan(p, status);
      report_nan(q, status);
      visit(weigh(p, q));
    });
  }
  __device__ std::uint64_t at(std::int32_t id) const { return weigh(target[id], draft[id]); }
};

/// Sum of the block's slice, in thread 0.
template <class Weights>
__device__ std::uint64_t sum_slice(const Weights& weights, std::int32_t slice, std::int32_t vocab) {
  using Reduce = cub::BlockReduce<std::uint64_t, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const std::int32_t begin = slice * kSlice;
  const std::int32_t end = min(vocab, begin + kSlice);
  std::uint64_t sum = 0;
  weights.visit(begin, end, [&](std::uint64_t weight) { sum += weight; });
  sum = Reduce(storage).Sum(sum);
  __syncthreads();
  return sum;
}

/// Where a target falls: the token, and the running weights before and after it.
struct CdfHit {
  std::int32_t token;  // -1: all weights are 0
  std::uint64_t lower;
  std::uint64_t upper;
};

using ScanThreads = cub::BlockScan<std::uint64_t, kThreads>;

/// Shared memory of the searches.
struct CdfStorage {
  typename ScanThreads::TempStorage scan;
  std::int32_t slice;
  std::int32_t token;
  std::uint64_t lower;
  std::uint64_t upper;
};

/// The sum of all slices, in every thread of the block.
__device__ inline std::uint64_t sum_of_slices(const std::uint64_t* sums, std::int32_t slices,
                                              CdfStorage& storage) {
  std::uint64_t mine = 0;
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < slices; i += kThreads) {
    mine += sums[i];
  }
  std::uint64_t before;
  std::uint64_t total;
  ScanThreads(storage.scan).ExclusiveSum(mine, before, total);
  __syncthreads();
  return total;
}

/// The token of slice `slice` at which the running weight, `before` at its start, first exceeds
/// `target`; the slice has one.
template <class Weights>
__device__ CdfHit find_in_slice(const Weights& weights, std::int32_t vocab, std::int32_t slice,
                                std::uint64_t before, std::uint64_t target, CdfStorage& storage) {
  constexpr int kEach = kSlice / kThreads;
  const std::int32_t first = slice * kSlice + static_cast<std::int32_t>(threadIdx.x) * kEach;
  std::uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i < vocab) sum += weights.at(first + i);
  }
  std::uint64_t lower;
  ScanThreads(storage.scan).ExclusiveSum(sum, lower);
  lower += before;
  if (lower <= target && target < lower + sum) {
    for (int i = 0; i < kEach; ++i) {
      const std::uint64_t weight = first + i < vocab ? weights.at(first + i) : 0;
      if (target < lower + weight) {
        storage.token = first + i;
        storage.lower = lower;
        storage.upper = lower + weight;
        break;
      }
      lower += weight;
    }
  }
  __syncthreads();
  const CdfHit hit = {storage.token, storage.lower, storage.upper};
  __syncthreads();
  return hit;
}

/// The first token whose running weight exceeds `target`; where the whole sum does not, the last
/// token of positive weight. All threads of the block get the result.
template <class Weights>
__device__ CdfHit find_token(const Weights& weights, std::int32_t vocab, const std::uint64_t* sums,
                             std::uint64_t target, CdfStorage& storage) {
  const std::int32_t slices = slice_count(vocab);
  for (;;) {
    if (threadIdx.x == 0) storage.slice = -1;
    __syncthreads();
    std::uint64_t total = 0;
    for (std::int32_t base = 0; base < slices; base += kThreads) {
      const std::int32_t slice = base + static_cast<std::int32_t>(threadIdx.x);
      const std::uint64_t own = slice < slices ? sums[slice] : 0;
      std::uint64_t before;
      std::uint64_t sum;
      ScanThreads(storage.scan).ExclusiveSum(own, before, sum);
      before += total;
      if (before <= target && target < before + own) {
        storage.slice = slice;
        storage.lower = before;
      }
      total += sum;
      __syncthreads();
    }
    const std::int32_t slice = storage.slice;
    const std::uint64_t before = storage.lower;
    __syncthreads();
    if (slice >= 0) return find_in_slice(weights, vocab, slice, before, target, storage);
    if (total == 0) return {-1, 0, 0};
    // The last token of positive weight is where the running weight first exceeds total - 1.
    target = total - 1;
  }
}

/// A uniform in units of 2^-64 on the unit interval.
__device__ inline double fraction(std::uint64_t uniform) {
  return static_cast<double>(uniform) * 0x1p-64;
}

/// Distance of a uniform to the nearer boundary of the token it hit, with boundaries as fractions
/// of `whole`.
__device__ inline double cdf_distance(std::uint64_t uniform, const CdfHit& hit,
                                      std::uint64_t whole) {
  const double u = fraction(uniform);
  const double denominator = static_cast<double>(whole);
  const double below = u - static_cast<double>(hit.lower) / denominator;
  const double above = static_cast<double>(hit.upper) / denominator - u;
  return below < above ? below : above;
}

}  // namespace dspark::kernels
