// Rows that stay on chip: a cluster of blocks holds a row in shared memory, so that memory is read
// once whatever is done with the row: its law, its probabilities, a token drawn from them. While a
// row is worked on the next one is on its way. The bits are those of the streaming kernels
// (row_laws.cu): masses are integers, and a token's rank is its key.
//
// Blocks exchange what they found: the largest logits of their warps, then sums or candidates;
// every block draws the same conclusions by itself. Loops stay short, as instructions have to be
// fetched too: kernels that hold a row in registers, unrolled, ran at a third of the speed. Top-k
// needs no histogram: the k-th largest of the warps' (or threads') own maxima is a bound that at
// least k tokens reach, and few others do; those are gathered and sorted. Top-p alone has no such
// bound and streams.
//
// Needs thread block clusters (compute capability 9.0).
#pragma once

#include <cooperative_groups.h>
#include <cub/block/block_scan.cuh>

#include <cstdint>
#include <type_traits>

#include "core/dspark_ops.h"
#include "core/law.h"
#include "core/random.h"
#include "kernels/common/inverse_cdf.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/mass.cuh"
#include "kernels/common/visit.cuh"
#include "kernels/rows/boundary.cuh"
#include "kernels/rows/top_two.cuh"

namespace dspark::kernels {

inline constexpr int kClusterThreads = 1024;
inline constexpr int kClusterWarps = kClusterThreads / 32;
inline constexpr int kMostClusterBlocks = 8;
/// Largest top_k whose tokens are found by maxima: a block's threads have more.
inline constexpr std::int32_t kMostClusterTopK = 512;
/// Dynamic shared memory of a block: what the device gives, less the kernel's own.
inline constexpr std::size_t kMostClusterShared = 200 * 1024;
/// A block goes over its part of a row in stripes of a quad per thread. Stripes come and go in
/// parts: a part of the next row is on its way as soon as this row is done with it.
inline constexpr int kMostStripes = 14;
inline constexpr int kPartStripes = 4;
inline constexpr int kMostParts = (kMostStripes + kPartStripes - 1) / kPartStripes;
inline constexpr int kPartQuads = kPartStripes * kClusterThreads;

/// How rows are split over a cluster; no blocks: the rows do not fit, or the device has no
/// clusters.
struct ClusterShape {
  int blocks = 0;
  bool bulk = false;       // rows come by bulk copies: all start at multiples of 16 bytes
  std::int32_t chunk = 0;  // elements per block, a multiple of 8
  std::size_t shared = 0;  // dynamic shared memory, bytes
};

/// Where a filter's candidates are gathered: one use after the other.
union FilterMemory {
  std::uint32_t maxima[kMostClusterBlocks * kClusterThreads];  // order codes
  std::uint64_t keys[kCandidates];
  SharedBins bins;
};

/// Dynamic shared memory that a block of the kernel may have on this device.
[[nodiscard]] std::size_t most_cluster_shared();

/// The shape for these rows under `rule` (effective_rule).
[[nodiscard]] ClusterShape cluster_shape(const Rows& logits, const SamplingRule& rule);

/// What becomes of a row: its law alone.
struct LawSink {
  static constexpr bool kWrites = false;
  static constexpr bool kSamples = false;
  RowLaw* laws;

  /// The law is whole.
  __device__ void law(std::int64_t row, const RowLaw& law) const { laws[row] = law; }
};

/// Probabilities.
struct ProbabilitySink {
  static constexpr bool kWrites = true;
  static constexpr bool kSamples = false;
  Rows probabilities;
  std::uint32_t* status;

  /// The law lacks its scale, which probabilities do not need.
  __device__ void law(std::int64_t, const RowLaw& law) const {
    if (law.status != kRowValid) report(status, kOpInvalidRow);
  }
};

/// Probabilities, and the token of slot `step` of each row (SampleProbabilityRowsArgs).
struct SampleSink : ProbabilitySink {
  static constexpr bool kSamples = true;
  std::int32_t block_size;
  std::int32_t step;
  const float* uniforms;
  std::int32_t* tokens;
  float* distance;  // optional
  bool margins;     // `distance` is the top-2 margin of the row

  __device__ std::int64_t cell(std::int64_t row) const { return row * block_size + step; }
  __device__ void law(std::int64_t row, const RowLaw& law) const {
    ProbabilitySink::law(row, law);
    if (margins && distance != nullptr) {
      distance[cell(row)] = law.argmax < 0 ? 0.0f : law.max_logit - law.second_logit;
    }
  }
  __device__ void token(std::int64_t row, std::uint64_t uniform, const CdfHit& hit) const {
    tokens[cell(row)] = hit.token < 0 ? 0 : hit.token;
    if (!margins && distance != nullptr) {
      distance[cell(row)] = static_cast<float>(cdf_distance(uniform, hit, kUnitMass));
    }
  }
};

/// The largest two logits that some threads saw; `poisoned`: one was NaN or infinite.
struct Extremes {
  float best;
  float second;
  std::uint32_t poisoned;
};

__device__ inline Extremes merge(const Extremes& a, const Extremes& b) {
  return {fmaxf(a.best, b.best), fmaxf(fmaxf(a.second, b.second), fminf(a.best, b.best)),
          a.poisoned | b.poisoned};
}

__device__ inline Extremes merge_warp(Extremes mine) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    mine = merge(mine, Extremes{__shfl_xor_sync(0xFFFFFFFFu, mine.best, step),
                                __shfl_xor_sync(0xFFFFFFFFu, mine.second, step),
                                __shfl_xor_sync(0xFFFFFFFFu, mine.poisoned, step)});
  }
  return mine;
}

/// What blocks of a cluster tell each other, and a block's own notes. Where there are two places
/// rows take turns: a fast block may already write for the next row what a slow one still reads for
/// this.
struct ClusterMemory {
  Extremes extremes[2][kMostClusterBlocks * kClusterWarps];
  std::uint64_t sums[2][kMostClusterBlocks * kClusterWarps];
  std::uint32_t argmax[2][kMostClusterBlocks];  // lowest id that has the largest logit
  std::uint64_t weights[kMostClusterBlocks];
  std::uint32_t flags[kMostClusterBlocks];
  std::uint32_t gathered;
  // The block's own.
  Extremes row;
  std::uint64_t loaded[kMostParts];                         // mbarriers
  alignas(RowLaw) unsigned char law_bytes[sizeof(RowLaw)];  // shared memory is not initialised
  std::uint64_t stripe_sums[kMostStripes * kClusterWarps];
  std::uint32_t block_argmax;
  std::uint32_t block_flags;
  float threshold;
  Boundary boundary;
  std::uint64_t target;
  std::uint32_t digit;
  std::uint32_t rank;
  std::uint32_t histogram[256];
  union {
    typename cub::BlockScan<std::uint32_t, kClusterThreads>::TempStorage scan_counts;
    SolveStorage<kClusterThreads> solve;
  } temporary;

  __device__ RowLaw& law() { return *reinterpret_cast<RowLaw*>(law_bytes); }
};
static_assert(kMostClusterShared + sizeof(ClusterMemory) <= 227 * 1024);

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ inline std::uint32_t shared_address(const void* place) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(place));
}

__device__ inline void start_barrier(std::uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}

/// Starts a copy of `bytes` (a multiple of 16, both places aligned) that completes on `barrier`.
__device__ inline void start_copy(void* target, const void* source, std::uint32_t bytes,
                                  std::uint64_t* barrier) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
  if (bytes == 0) return;
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(target)),
      "l"(source), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

__device__ inline void wait_barrier(std::uint64_t* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// The k-th largest of `count` order codes in shared memory (k ≤ count), in every thread.
__device__ __noinline__ static std::uint32_t select_code(const std::uint32_t* codes, int count,
                                                         std::uint32_t k, ClusterMemory& memory) {
  using Scan = cub::BlockScan<std::uint32_t, kClusterThreads>;
  const int thread = static_cast<int>(threadIdx.x);
  std::uint32_t prefix = 0;
  std::uint32_t mask = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (thread < 256) memory.histogram[thread] = 0;
    __syncthreads();
    for (int i = thread; i < count; i += kClusterThreads) {
      if ((codes[i] & mask) == prefix) {
        atomicAdd(&memory.histogram[255 - ((codes[i] >> shift) & 255u)], 1u);
      }
    }
    __syncthreads();
    const std::uint32_t own = thread < 256 ? memory.histogram[thread] : 0;
    std::uint32_t before;
    Scan(memory.temporary.scan_counts).ExclusiveSum(own, before);
    if (before < k && k <= before + own) {
      memory.digit = 255u - static_cast<std::uint32_t>(thread);
      memory.rank = k - before;
    }
    __syncthreads();
    prefix |= memory.digit << shift;
    mask |= 255u << shift;
    k = memory.rank;
  }
  return prefix;
}

/// Sorts the first `count` keys descending; they are all different.
__device__ inline void sort_keys(std::uint64_t* keys, int count) {
  const int thread = static_cast<int>(threadIdx.x);
  if (count <= kClusterThreads) {
    // A key's place is the number of larger ones.
    const std::uint64_t mine = thread < count ? keys[thread] : 0;
    int place = 0;
    if (thread < count) {
      for (int i = 0; i < count; ++i) place += keys[i] > mine ? 1 : 0;
    }
    __syncthreads();
    if (thread < count) keys[place] = mine;
    __syncthreads();
    return;
  }
  int size = 2;
  while (size < count) size *= 2;
  for (int i = count + thread; i < size; i += kClusterThreads) keys[i] = 0;
  __syncthreads();
  sort_descending<kClusterThreads>(keys, size);
}

/// Completes `law` (in shared memory) of a row under top-k, and top-p within it: from the
/// candidates, which hold the top-k set, or where there are too many from the row in memory. Ends
/// with a barrier of the block.
__device__ __noinline__ static void solve_filter(const float* row, std::int32_t vocab,
                                                 const SamplingRule& rule, RowLaw& law,
                                                 FilterMemory& filter, ClusterMemory& memory) {
  const int thread = static_cast<int>(threadIdx.x);
  const int gathered = static_cast<int>(memory.gathered);
  const auto k = static_cast<std::uint64_t>(rule.top_k);
  if (gathered > kCandidates) {
    Boundary boundary = search_row(row, vocab, law, false, k, filter.bins, memory.temporary.solve);
    std::uint64_t target = 0;
    if (rule.top_p != 0) {
      target = top_p_target(boundary.mass_before + key_mass(boundary.key, law), rule.top_p);
      boundary = search_row(row, vocab, law, true, target, filter.bins, memory.temporary.solve);
    }
    if (thread == 0) finish_law(law, rule, boundary, target);
    __syncthreads();
    return;
  }
  sort_keys(filter.keys, gathered);
  // Only the top-k set counts from here on.
  std::uint64_t mass[kPerSolver<kClusterThreads>];
  std::uint64_t before[kPerSolver<kClusterThreads>];
  const int last = rule.top_k - 1;
#pragma unroll
  for (int i = 0; i < kPerSolver<kClusterThreads>; ++i) {
    const int at = thread * kPerSolver<kClusterThreads> + i;
    mass[i] = at <= last ? key_mass(filter.keys[at], law) : 0;
  }
  SolveScan<kClusterThreads>(memory.temporary.solve.scan).ExclusiveSum(mass, before);
#pragma unroll
  for (int i = 0; i < kPerSolver<kClusterThreads>; ++i) {
    if (thread * kPerSolver<kClusterThreads> + i == last) {
      memory.boundary = {filter.keys[last], before[i]};
      memory.target = rule.top_p == 0 ? 0 : top_p_target(before[i] + mass[i], rule.top_p);
    }
  }
  __syncthreads();
  if (rule.top_p != 0) {
    const std::uint64_t needed = memory.target;
#pragma unroll
    for (int i = 0; i < kPerSolver<kClusterThreads>; ++i) {
      if (before[i] < needed && needed <= before[i] + mass[i]) {
        memory.boundary = {filter.keys[thread * kPerSolver<kClusterThreads> + i], before[i]};
      }
    }
    __syncthreads();
  }
  if (thread == 0) finish_law(law, rule, memory.boundary, memory.target);
  __syncthreads();
}

#endif

/// A row's law but for its scale, by the sums of all blocks.
struct FoundRow {
  std::int64_t row = -1;
  RowLaw law;
};

/// A cluster walks rows: its number, then every so many. A block has `chunk` elements of each, and
/// a thread touches its own quads of them alone.
template <bool kFiltered, class Sink>
__global__ void __launch_bounds__(kClusterThreads, 1)
    row_cluster_kernel(Rows logits, SamplingRule rule, ClusterShape shape, Sink sink) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  namespace cg = cooperative_groups;
  extern __shared__ __align__(16) float dynamic[];
  __shared__ ClusterMemory memory;
  const cg::cluster_group cluster = cg::this_cluster();
  const int blocks = shape.blocks;
  const int rank = static_cast<int>(cluster.block_rank());
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const std::int64_t clusters = gridDim.x / static_cast<unsigned>(blocks);
  constexpr float kInfinity = __builtin_huge_valf();
  const std::int32_t chunk = shape.chunk;
  const std::int32_t begin = min(logits.vocab, rank * chunk);
  const std::int32_t count = min(logits.vocab, begin + chunk) - begin;
  const int whole_quads = count / 4;
  const int quads = (count + 3) / 4;
  const int parts = (quads + kPartQuads - 1) / kPartQuads;
  const bool masses = !kFiltered && !rule.greedy;
  const bool by_warps = rule.top_k <= blocks * kClusterWarps * 7 / 8;
  // Without filters and writes a row's sums may wait for the next row's exchange.
  constexpr bool kDeferred = !Sink::kWrites && !kFiltered;
  float4* const values = reinterpret_cast<float4*>(dynamic);
  FilterMemory& filter = *reinterpret_cast<FilterMemory*>(dynamic + chunk);

  if (thread == 0) {
    for (int part = 0; part < kMostParts; ++part) start_barrier(&memory.loaded[part]);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    memory.block_argmax = 0xFFFFFFFFu;
    memory.block_flags = 0;
    memory.gathered = 0;
  }
  wait_for_previous_kernel();
  let_next_kernel_start();
  const std::int64_t first_row = blockIdx.x / static_cast<unsigned>(blocks);
  const auto start_part = [&](std::int64_t row, int part) {
    if (!shape.bulk || row >= logits.rows) return;
    const int from = part * kPartQuads;
    const int to = min(whole_quads, from + kPartQuads);
    start_copy(values + from, logits.data + row * logits.stride + begin + 4 * from,
               static_cast<std::uint32_t>(max(0, to - from)) * 16u, &memory.loaded[part]);
  };
  if (thread == 0) {
    for (int part = 0; part < parts; ++part) start_part(first_row, part);
  }
  // Every block of the cluster runs from here on, so that its memory may be written.
  cluster.sync();

  const auto peer = [&](int r) {
    return cluster.map_shared_rank(&memory, static_cast<unsigned>(r));
  };
  // visit(component, its index in the quad)
  const auto each_of = [](float4& quad, auto&& visit) {
    visit(quad.x, 0);
    visit(quad.y, 1);
    visit(quad.z, 2);
    visit(quad.w, 3);
  };
  const auto finish = [&](FoundRow& found, int place) {
    if (found.row < 0) return;
    std::uint32_t argmax = 0xFFFFFFFFu;
    for (int r = 0; r < blocks; ++r) argmax = min(argmax, memory.argmax[place][r]);
    found.law.argmax = static_cast<std::int32_t>(argmax);
    if (masses) {
      std::uint64_t total = 0;
      for (int i = lane; i < blocks * kClusterWarps; i += 32) total += memory.sums[place][i];
      found.law.total = sum_warp(total);
    } else {
      found.law.boundary_key = token_key(found.law.max_logit, found.law.argmax);
      found.law.boundary_mass = kUnitMass;
      found.law.total = kUnitMass;
    }
  };
  const auto tell = [&](FoundRow& found) {
    if (found.row >= 0 && rank == 0 && thread == 0) {
      if constexpr (!Sink::kWrites) found.law.scale = law_scale(found.law.total);
      sink.law(found.row, found.law);
    }
    found.row = -1;
  };

  FoundRow waiting;  // of the turn before, where sums are deferred
  std::int64_t turn = 0;
  for (std::int64_t row = first_row; row < logits.rows; row += clusters, ++turn) {
    const int place = static_cast<int>(turn & 1);
    const float* const source = logits.data + row * logits.stride + begin;
    // Maxima come to the place of the last row's candidates, which all have read by now.
    if (kFiltered && !by_warps && turn > 0) cluster.sync();
    // The largest two logits of each warp, to every block. What is beyond the row's end is -inf.
    float best = -kInfinity;
    float second = -kInfinity;
    float poison = 0.0f;  // becomes NaN with NaN and infinities
    const auto take = [&](float v) {
      second = fmaxf(second, fminf(best, v));
      best = fmaxf(best, v);
      poison = fmaf(v, 0.0f, poison);
    };
    for (int part = 0; part < parts; ++part) {
      if (shape.bulk) {
        wait_barrier(&memory.loaded[part], static_cast<std::uint32_t>(turn) & 1u);
      }
      const int to = min(whole_quads, (part + 1) * kPartQuads);
#pragma unroll
      for (int i = 0; i < kPartStripes; ++i) {
        const int quad = part * kPartQuads + i * kClusterThreads + thread;
        if (quad >= to) break;
        float4 value;
        if (shape.bulk) {
          value = values[quad];
        } else {
          value = {source[4 * quad], source[4 * quad + 1], source[4 * quad + 2],
                   source[4 * quad + 3]};
          values[quad] = value;
        }
        take(value.x);
        take(value.y);
        take(value.z);
        take(value.w);
      }
    }
    if (quads > whole_quads && thread == whole_quads % kClusterThreads) {
      float4 value;
      each_of(value, [&](float& v, int c) {
        v = -kInfinity;
        if (4 * whole_quads + c < count) {
          v = source[4 * whole_quads + c];
          take(v);
        }
      });
      values[whole_quads] = value;
    }
    const Extremes mine = merge_warp({best, second, poison != poison ? 1u : 0u});
    if (lane < blocks) peer(lane)->extremes[place][rank * kClusterWarps + warp] = mine;
    if (kFiltered && !by_warps) {
      for (int r = 0; r < blocks; ++r) {
        cluster.map_shared_rank(&filter, static_cast<unsigned>(r))
            ->maxima[rank * kClusterThreads + thread] = order_code(best);
      }
    }
    cluster.sync();
    // One warp draws the conclusions, for all to read: instructions are what limits this kernel.
    if (warp == 0) {
      finish(waiting, place ^ 1);
      tell(waiting);
      Extremes all = {-kInfinity, -kInfinity, 0};
      for (int i = lane; i < blocks * kClusterWarps; i += 32) {
        all = merge(all, memory.extremes[place][i]);
      }
      all = merge_warp(all);
      if (lane == 0) memory.row = all;
    }
    __syncthreads();
    const Extremes extremes = memory.row;

    FoundRow found;
    found.law.inverse_temperature = rule.inverse_temperature;
    if (extremes.poisoned) {
      // Which of NaN, +inf and -inf it was; the last alone is a masked token.
      std::uint32_t flags = 0;
      for (int quad = thread; quad < quads; quad += kClusterThreads) {
        each_of(values[quad], [&](float v, int c) {
          if (4 * quad + c >= count) return;
          const std::uint32_t code = order_code(v);
          if (code == 0) flags |= kRowNaN;
          if (code == kPlusInfinityCode) flags |= kRowPlusInfinity;
          if (code > kMinusInfinityCode && code < kPlusInfinityCode) flags |= kSawFinite;
        });
      }
      flags = __reduce_or_sync(0xFFFFFFFFu, flags);
      if (lane == 0 && flags != 0) atomicOr(&memory.block_flags, flags);
      __syncthreads();
      if (thread < blocks) peer(thread)->flags[rank] = memory.block_flags;
      cluster.sync();
      if (thread == 0) memory.block_flags = 0;
      flags = 0;
      for (int r = 0; r < blocks; ++r) flags |= memory.flags[r];
      found.law.status =
          (flags & (kRowNaN | kRowPlusInfinity)) | ((flags & kSawFinite) ? 0u : kRowNoFinite);
      // The flags' one place is read before a later row's come.
      cluster.sync();
    }

    float* out = nullptr;
    bool out_aligned = false;
    if constexpr (Sink::kWrites) {
      out = sink.probabilities.data + row * sink.probabilities.stride + begin;
      out_aligned = (reinterpret_cast<std::uintptr_t>(out) & 15u) == 0;
    }
    const auto write = [&](int quad, float4& value) {
      if (quad < whole_quads && out_aligned) {
        __stcs(reinterpret_cast<float4*>(out) + quad, value);
        return;
      }
      each_of(value, [&](float v, int c) {
        if (4 * quad + c < count) out[4 * quad + c] = v;
      });
    };
    // The row is done with a part: what was written there comes before what the copy brings.
    const auto release = [&](int part) {
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncthreads();
      if (thread == 0) start_part(row + clusters, part);
    };
    const auto release_all = [&] {
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncthreads();
      if (thread == 0) {
        for (int part = 0; part < parts; ++part) start_part(row + clusters, part);
      }
    };
    // visit(quad) for the quads of this thread; with `last` parts are released as they are done.
    const auto each_part = [&](auto last, auto&& visit) {
      for (int part = 0; part < parts; ++part) {
        const int to = min(quads, (part + 1) * kPartQuads);
#pragma unroll 2
        for (int quad = part * kPartQuads + thread; quad < to; quad += kClusterThreads) {
          visit(quad);
        }
        if constexpr (decltype(last)::value) release(part);
      }
    };
    constexpr std::bool_constant<!Sink::kWrites> kLastLook;
    constexpr std::bool_constant<Sink::kWrites && !Sink::kSamples> kLastWrite;
    if (found.law.status != kRowValid) {
      if (rank == 0 && thread == 0) sink.law(row, found.law);
      if constexpr (Sink::kWrites) {
        float4 nothing = {0, 0, 0, 0};
        for (int quad = thread; quad < quads; quad += kClusterThreads) write(quad, nothing);
      }
      if constexpr (Sink::kSamples) {
        if (rank == 0 && thread == 0) {
          sink.token(row, uniform_from_float(sink.uniforms[sink.cell(row)]), {-1, 0, 0});
        }
      }
      release_all();
      continue;
    }
    // A zero is +0 (RowLawsArgs).
    const float max_logit = extremes.best + 0.0f;
    found.row = row;
    found.law.max_logit = max_logit;
    found.law.second_logit = extremes.second + 0.0f;

    // The lowest id with the largest logit; with filters the candidates, without the masses, which
    // take the logits' place where they are needed again.
    std::uint32_t argmax = 0xFFFFFFFFu;
    const auto look = [&](int quad, const float4& value) {
      if (value.x == max_logit || value.y == max_logit || value.z == max_logit ||
          value.w == max_logit) {
        const int at = value.x == max_logit   ? 0
                       : value.y == max_logit ? 1
                       : value.z == max_logit ? 2
                                              : 3;
        argmax = min(argmax, static_cast<std::uint32_t>(begin + 4 * quad + at));
      }
    };
    const bool looks = best == max_logit;
    if (masses) {
      std::uint64_t sum = 0;
      each_part(kLastLook, [&](int quad) {
        float4 value = values[quad];
        if (looks) look(quad, value);
        each_of(value, [&](float& v, int) {
          // No logit is above the largest, so this is unrounded_mass.
          v = mass_of_exponent(fmaxf((v - max_logit) * rule.inverse_temperature, -40.0f));
          sum += round_to_integer(v);
        });
        if constexpr (Sink::kWrites) values[quad] = value;
      });
      sum = sum_warp(sum);
      if (lane < blocks) peer(lane)->sums[place][rank * kClusterWarps + warp] = sum;
    } else if constexpr (kFiltered) {
      if (by_warps) {
        const int groups = blocks * kClusterWarps;
        if (thread < groups) {
          const float own = memory.extremes[place][thread].best;
          int larger = 0;
          for (int i = 0; i < groups; ++i) {
            const float other = memory.extremes[place][i].best;
            larger += other > own || (other == own && i < thread) ? 1 : 0;
          }
          if (larger == rule.top_k - 1) memory.threshold = own;
        }
      } else {
        const std::uint32_t code = select_code(filter.maxima, blocks * kClusterThreads,
                                               static_cast<std::uint32_t>(rule.top_k), memory);
        if (thread == 0) memory.threshold = float_from_order_code(code);
        // Candidates come to the place of the maxima.
        cluster.sync();
      }
      __syncthreads();
      const float threshold = memory.threshold;
      if (best >= threshold) {
        for (int quad = thread; quad < quads; quad += kClusterThreads) {
          const float4 value = values[quad];
          if (value.x < threshold && value.y < threshold && value.z < threshold &&
              value.w < threshold) {
            continue;
          }
          look(quad, value);
          const float four[4] = {value.x, value.y, value.z, value.w};
          for (int c = 0; c < 4; ++c) {
            if (!(four[c] >= threshold) || 4 * quad + c >= count) continue;
            const std::uint64_t key = token_key(four[c], begin + 4 * quad + c);
            for (int r = 0; r < blocks; ++r) {
              const std::uint32_t at = atomicAdd(&peer(r)->gathered, 1u);
              if (at < kCandidates) {
                cluster.map_shared_rank(&filter, static_cast<unsigned>(r))->keys[at] = key;
              }
            }
          }
        }
      }
    } else {
      each_part(kLastLook, [&](int quad) {
        if (looks) look(quad, values[quad]);
      });
    }
    argmax = __reduce_min_sync(0xFFFFFFFFu, argmax);
    if (lane == 0 && argmax != 0xFFFFFFFFu) atomicMin(&memory.block_argmax, argmax);
    if constexpr (kFiltered && !Sink::kWrites) {
      release_all();
    } else {
      __syncthreads();
    }
    if (thread < blocks) peer(thread)->argmax[place][rank] = memory.block_argmax;
    if constexpr (kDeferred) {
      waiting = found;
      __syncthreads();  // the block's argmax is read
      if (thread == 0) memory.block_argmax = 0xFFFFFFFFu;
      continue;
    }
    cluster.sync();
    if (thread == 0) memory.block_argmax = 0xFFFFFFFFu;
    if (warp == 0) {
      finish(found, place);
      if (lane == 0) memory.law() = found.law;
    }
    __syncthreads();
    if constexpr (kFiltered) {
      solve_filter(logits.data + row * logits.stride, logits.vocab, rule, memory.law(), filter,
                   memory);
      if (thread == 0) memory.gathered = 0;
    }
    found.law = memory.law();

    if constexpr (Sink::kWrites) {
      const RowLaw& law = found.law;
      const double denominator = static_cast<double>(law.total);
      const double reciprocal = 1.0 / denominator;
      if (masses) {
        each_part(kLastWrite, [&](int quad) {
          float4 value = values[quad];
          each_of(value, [&](float& v, int) {
            v = mass_fraction(round_to_integer(v), denominator, reciprocal);
          });
          write(quad, value);
          if constexpr (Sink::kSamples) values[quad] = value;
        });
      } else {
        const float lowest =
            float_from_order_code(static_cast<std::uint32_t>(law.boundary_key >> 32));
        each_part(kLastWrite, [&](int quad) {
          float4 value = values[quad];
          if (value.x >= lowest || value.y >= lowest || value.z >= lowest || value.w >= lowest) {
            float four[4] = {value.x, value.y, value.z, value.w};
#pragma unroll 1
            for (int c = 0; c < 4; ++c) {
              const bool kept = four[c] >= lowest && 4 * quad + c < count;
              four[c] = kept ? mass_fraction(law_mass(law, four[c], begin + 4 * quad + c),
                                             denominator, reciprocal)
                             : 0.0f;
            }
            value = {four[0], four[1], four[2], four[3]};
          } else {
            value = {0, 0, 0, 0};
          }
          write(quad, value);
          if constexpr (Sink::kSamples) values[quad] = value;
        });
      }
      if constexpr (Sink::kSamples) {
        // Inverse CDF: weights by stripe of the block, and warp of the stripe.
        const int stripes = (quads + kClusterThreads - 1) / kClusterThreads;
        const auto weight_of = [&](int quad) {
          std::uint64_t weight = 0;
          if (quad < quads) {
            each_of(values[quad], [&](float p, int) { weight += probability_weight(p); });
          }
          return weight;
        };
        for (int i = 0; i < stripes; ++i) {
          const std::uint64_t weight = sum_warp(weight_of(i * kClusterThreads + thread));
          if (lane == 0) memory.stripe_sums[i * kClusterWarps + warp] = weight;
        }
        __syncthreads();
        std::uint64_t own = 0;
        for (int i = lane; i < stripes * kClusterWarps; i += 32) own += memory.stripe_sums[i];
        own = sum_warp(own);
        if (thread < blocks) peer(thread)->weights[rank] = own;
        cluster.sync();
        const std::uint64_t uniform = uniform_from_float(sink.uniforms[sink.cell(row)]);
        std::uint64_t before = 0;
        std::uint64_t total = 0;
        for (int r = 0; r < blocks; ++r) {
          if (r < rank) before += memory.weights[r];
          total += memory.weights[r];
        }
        if (total == 0) {
          if (rank == 0 && thread == 0) sink.token(row, uniform, {-1, 0, 0});
        } else if (warp == 0) {
          // Beyond the row's sum the last token of positive weight is taken.
          const std::uint64_t target = min(cdf_target(uniform, kUnitMass), total - 1);
          if (target >= before && target < before + own) {
            // The part of a stripe that holds it, 32 at a time; then its lane.
            std::uint64_t lower = before;
            int part = 0;
            for (;; part += 32) {
              const int at = part + lane;
              const std::uint64_t here = at < stripes * kClusterWarps ? memory.stripe_sums[at] : 0;
              const std::uint64_t through = scan_warp(here);
              const unsigned beyond = __ballot_sync(0xFFFFFFFFu, target < lower + through);
              if (beyond == 0) {
                lower += __shfl_sync(0xFFFFFFFFu, through, 31);
                continue;
              }
              const int hit = __ffs(static_cast<int>(beyond)) - 1;
              lower += __shfl_sync(0xFFFFFFFFu, through - here, hit);
              part += hit;
              break;
            }
            const int quad = part * 32 + lane;
            const std::uint64_t here = weight_of(quad);
            lower += scan_warp(here) - here;
            if (lower <= target && target < lower + here) {
              each_of(values[quad], [&](float p, int c) {
                const std::uint64_t weight = probability_weight(p);
                if (lower <= target && target < lower + weight) {
                  sink.token(row, uniform, {begin + 4 * quad + c, lower, lower + weight});
                }
                lower += weight;
              });
            }
          }
        }
      }
      if constexpr (Sink::kSamples) release_all();
    }
    tell(found);
  }
  // Elsewhere the last exchange of a row is the last that touches another block's memory.
  if constexpr (kDeferred) {
    cluster.sync();
    if (warp == 0) {
      finish(waiting, static_cast<int>(turn & 1) ^ 1);
      tell(waiting);
    }
  }
#endif
}

/// Clusters of this shape that run at once; asks the device once per kernel and shape of use.
int resident_clusters(const void* kernel, const ClusterShape& shape);

template <bool kFiltered, class Sink>
void launch_row_clusters_of(const Rows& logits, const SamplingRule& rule, const ClusterShape& shape,
                            const Sink& sink, cudaStream_t stream, bool early) {
  const auto kernel = row_cluster_kernel<kFiltered, Sink>;
  // Beyond 48 KiB a kernel has to ask; asking for the most once is enough.
  static const cudaError_t asked = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most_cluster_shared()));
  DSPARK_CUDA_CHECK(asked);
  const std::int64_t resident = resident_clusters(reinterpret_cast<const void*>(kernel), shape);
  const std::int64_t clusters = logits.rows < resident ? logits.rows : resident;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = static_cast<unsigned>(shape.blocks);
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid_of(clusters * shape.blocks);
  config.blockDim = dim3(kClusterThreads);
  config.dynamicSmemBytes = shape.shared;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = early ? 2 : 1;
  DSPARK_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, logits, rule, shape, sink));
}

/// Launches clusters that walk the rows; the shape has blocks. `early`: the kernel may be started
/// before the one enqueued just before it has ended (it waits by itself).
template <class Sink>
void launch_row_clusters(const Rows& logits, const SamplingRule& rule, const ClusterShape& shape,
                         const Sink& sink, cudaStream_t stream, bool early = false) {
  if (rule.top_k != 0) {
    launch_row_clusters_of<true>(logits, rule, shape, sink, stream, early);
  } else {
    launch_row_clusters_of<false>(logits, rule, shape, sink, stream, early);
  }
}

}  // namespace dspark::kernels
