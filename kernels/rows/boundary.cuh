// What finds the boundary token of a filter: bins of counts and masses, the search through them,
// and the law that follows from a boundary.
#pragma once

#include <cub/block/block_scan.cuh>

#include <cstdint>

#include "core/law.h"
#include "kernels/common/sort.cuh"
#include "kernels/common/visit.cuh"

namespace dspark::kernels {

inline constexpr int kBins = 2048;
inline constexpr int kCandidates = 2048;
/// Bins, or candidates, of each of the threads of a block.
template <int kBlock>
constexpr int kPerSolver = kBins / kBlock;

__device__ inline std::uint64_t key_mass(std::uint64_t key, const RowLaw& law) {
  return unfiltered_mass(float_from_order_code(static_cast<std::uint32_t>(key >> 32)),
                         law.max_logit, law.inverse_temperature);
}

/// Counts and masses of a block's tokens by bin, in shared memory. Masses are two words with a
/// carry: 64-bit additions are not native there.
struct SharedBins {
  std::uint32_t count[kBins];
  std::uint32_t low[kBins];
  std::uint32_t high[kBins];

  __device__ void clear() {
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins;
         bin += static_cast<int>(blockDim.x)) {
      count[bin] = 0;
      low[bin] = 0;
      high[bin] = 0;
    }
  }
  __device__ void add(std::uint32_t bin, std::uint64_t mass) {
    atomicAdd(&count[bin], 1u);
    if (mass == 0) return;
    const std::uint32_t part = static_cast<std::uint32_t>(mass);
    const std::uint32_t before = atomicAdd(&low[bin], part);
    const std::uint32_t carried =
        static_cast<std::uint32_t>(mass >> 32) + (before + part < before ? 1u : 0u);
    if (carried != 0) atomicAdd(&high[bin], carried);
  }
  __device__ std::uint64_t mass(int bin) const {
    return (static_cast<std::uint64_t>(high[bin]) << 32) | low[bin];
  }
};

/// Count and mass of the bins up to and including one, and of that one.
struct BinPrefix {
  std::uint32_t bin;
  std::uint32_t count_before;
  std::uint32_t count;
  std::uint64_t mass_before;
};

template <int kBlock>
using SolveScan = cub::BlockScan<std::uint64_t, kBlock>;

/// Temporary memory of the searches over bins.
template <int kBlock>
struct SolveStorage {
  typename SolveScan<kBlock>::TempStorage scan;
  BinPrefix found;
  std::uint64_t total;
};

/// A block's bins, kPerSolver per thread in ascending order, with their prefix sums.
template <int kBlock>
struct BlockBins {
  std::uint64_t count[kPerSolver<kBlock>];
  std::uint64_t mass[kPerSolver<kBlock>];
  std::uint64_t count_before[kPerSolver<kBlock>];
  std::uint64_t mass_before[kPerSolver<kBlock>];
  std::uint64_t total_mass;

  __device__ void scan(SolveStorage<kBlock>& storage) {
    std::uint64_t total_count;
    SolveScan<kBlock>(storage.scan).ExclusiveSum(count, count_before, total_count);
    __syncthreads();
    SolveScan<kBlock>(storage.scan).ExclusiveSum(mass, mass_before, total_mass);
    __syncthreads();
  }

  /// The bin in which the running count reaches `rank` (by_mass false), or the running mass (true).
  /// One exists.
  __device__ BinPrefix find(SolveStorage<kBlock>& storage, bool by_mass,
                            std::uint64_t needed) const {
#pragma unroll
    for (int i = 0; i < kPerSolver<kBlock>; ++i) {
      const std::uint64_t before = by_mass ? mass_before[i] : count_before[i];
      const std::uint64_t own = by_mass ? mass[i] : count[i];
      if (before < needed && needed <= before + own) {
        storage.found = {static_cast<std::uint32_t>(threadIdx.x * kPerSolver<kBlock> + i),
                         static_cast<std::uint32_t>(count_before[i]),
                         static_cast<std::uint32_t>(count[i]), mass_before[i]};
      }
    }
    __syncthreads();
    const BinPrefix found = storage.found;
    __syncthreads();
    return found;
  }
};

/// A boundary token: its key, and the mass of the tokens ranked above it.
struct Boundary {
  std::uint64_t key;
  std::uint64_t mass_before;
};

/// The kept mass and boundary, once it is known.
__device__ inline void finish_law(RowLaw& law, const SamplingRule& rule, const Boundary& boundary,
                                  std::uint64_t target) {
  const std::uint64_t own = key_mass(boundary.key, law);
  law.boundary_key = boundary.key;
  if (token_of_key(boundary.key) == law.argmax) {
    law.boundary_mass = kUnitMass;
    law.total = kUnitMass;
  } else if (target != 0 && rule.top_p_rule == TopPRule::water_filling) {
    law.boundary_mass = target - boundary.mass_before;
    law.total = target;
  } else {
    law.boundary_mass = own;
    law.total = boundary.mass_before + own;
  }
  law.scale = law_scale(law.total);
}

/// The boundary by rank or by mass over a whole row, by one block: the range of keys that holds it
/// is cut into bins again and again. For rows with very many (nearly) equal logits at the boundary.
template <int kBlock>
__device__ Boundary search_row(const float* row, std::int32_t vocab, const RowLaw& law,
                               bool by_mass, std::uint64_t needed, SharedBins& bins,
                               SolveStorage<kBlock>& storage) {
  std::uint64_t low = 0;
  std::uint64_t high = token_key(law.max_logit, law.argmax);
  std::uint64_t mass_before = 0;
  while (low < high) {
    const int width = 64 - __clzll(static_cast<long long>(high - low));
    const int shift = width > 11 ? width - 11 : 0;
    bins.clear();
    __syncthreads();
    visit_row(row, 0, vocab, [&](std::int32_t id, float value) {
      const std::uint64_t key = token_key(value, id);
      if (key >= low && key <= high) {
        // Bins in descending order of keys.
        const std::uint32_t bin = kBins - 1 - static_cast<std::uint32_t>((key - low) >> shift);
        bins.add(bin, unfiltered_mass(value, law.max_logit, law.inverse_temperature));
      }
    });
    __syncthreads();
    BlockBins<kBlock> mine;
#pragma unroll
    for (int i = 0; i < kPerSolver<kBlock>; ++i) {
      const int bin = static_cast<int>(threadIdx.x) * kPerSolver<kBlock> + i;
      mine.count[i] = bins.count[bin];
      mine.mass[i] = bins.mass(bin);
    }
    mine.scan(storage);
    const BinPrefix found = mine.find(storage, by_mass, needed);
    needed -= by_mass ? found.mass_before : found.count_before;
    mass_before += found.mass_before;
    low += static_cast<std::uint64_t>(kBins - 1 - found.bin) << shift;
    const std::uint64_t top = low + ((std::uint64_t{1} << shift) - 1);
    if (top < high) high = top;
  }
  return {low, mass_before};
}

}  // namespace dspark::kernels
