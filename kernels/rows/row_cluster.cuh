// Rows that stay on chip: a cluster of blocks holds a row in shared memory, so that memory is read
// once whatever is done with the row: its law, its probabilities, a token drawn from them. The bits
// are those of the streaming kernels (row_laws.cu): masses are integers, and a token's rank is its
// key.
//
// Top-k needs no histogram: the k-th largest of the threads' own maxima is a bound that at least k
// tokens reach, and few others do; those are gathered and sorted. Top-p alone has no such bound and
// streams.
//
// Needs thread block clusters (compute capability 9.0).
#pragma once

#include <cooperative_groups.h>
#include <cub/block/block_scan.cuh>

#include <algorithm>
#include <cstdint>

#include "core/dspark_ops.h"
#include "core/law.h"
#include "core/random.h"
#include "kernels/common/inverse_cdf.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/visit.cuh"
#include "kernels/rows/boundary.cuh"
#include "kernels/rows/top_two.cuh"

namespace dspark::kernels {

inline constexpr int kClusterThreads = kSolveThreads;
inline constexpr int kClusterWarps = kClusterThreads / 32;
inline constexpr int kMostClusterBlocks = 8;
/// Largest top_k whose tokens are found by threads' maxima: a block has that many.
inline constexpr std::int32_t kMostClusterTopK = kClusterThreads;
/// Dynamic shared memory of a block: what the device gives, less the kernel's own.
inline constexpr std::size_t kMostClusterShared = 220 * 1024;

/// How rows are split over a cluster; no blocks: the rows do not fit, or the device has no
/// clusters.
struct ClusterShape {
  int blocks = 0;
  std::int32_t chunk = 0;  // elements per block, a multiple of 8
  std::size_t shared = 0;  // dynamic shared memory, bytes
};

/// Where a filter's candidates are gathered: rank 0's memory, one use after the other.
union FilterMemory {
  std::uint32_t maxima[kMostClusterBlocks * kClusterThreads];  // order codes
  std::uint64_t keys[kCandidates];
  SharedBins bins;
};

/// The shape for `rows` rows of `vocab` under `rule` (effective_rule).
[[nodiscard]] ClusterShape cluster_shape(std::int64_t rows, std::int32_t vocab,
                                         const SamplingRule& rule);

/// What becomes of a row: its law alone.
struct LawSink {
  static constexpr bool kWrites = false;
  static constexpr bool kSamples = false;
  RowLaw* laws;

  __device__ void law(std::int64_t row, const RowLaw& law) const { laws[row] = law; }
};

/// Law and probabilities.
struct ProbabilitySink {
  static constexpr bool kWrites = true;
  static constexpr bool kSamples = false;
  RowLaw* laws;
  Rows probabilities;
  std::uint32_t* status;

  __device__ void law(std::int64_t row, const RowLaw& law) const {
    if (law.status != kRowValid) report(status, kOpInvalidRow);
    laws[row] = law;
  }
};

/// Law, probabilities, and the token of slot `step` of each row (SampleProbabilityRowsArgs).
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

/// What blocks of a cluster tell each other once the largest logit is known.
struct ClusterSums {
  std::uint64_t mass;
  std::uint32_t argmax;  // lowest id that has the largest logit
  std::uint32_t flags;
};

struct ClusterMemory {
  // One place for each exchange: a fast block may be one exchange ahead.
  Extremes extremes[kMostClusterBlocks];
  std::uint32_t flags[kMostClusterBlocks];
  ClusterSums sums[kMostClusterBlocks];
  std::uint64_t weights[kMostClusterBlocks];
  alignas(RowLaw) unsigned char law_bytes[sizeof(RowLaw)];  // shared memory is not initialised
  float threshold;
  std::uint32_t gathered;
  // The block's own.
  Extremes warp_extremes[kClusterWarps];
  std::uint64_t warp_sums[kClusterWarps];
  std::uint32_t argmax;
  std::uint32_t block_flags;
  std::uint64_t before;
  std::uint64_t total_before;
  Boundary boundary;
  std::uint64_t target;
  std::uint32_t digit;
  std::uint32_t rank;
  std::uint32_t histogram[256];
  union {
    typename cub::BlockScan<std::uint32_t, kClusterThreads>::TempStorage scan_counts;
    SolveStorage solve;
  } temporary;

  __device__ RowLaw& law() { return *reinterpret_cast<RowLaw*>(law_bytes); }
};

/// float(mass / total) of doubles: the product with the reciprocal decides unless it lies so near
/// the middle of two floats that its error might.
__device__ inline float mass_fraction(std::uint64_t mass, double total, double reciprocal) {
  if (mass == 0) return 0.0f;
  const double exact = static_cast<double>(mass);
  double quotient = exact * reciprocal;
  const std::uint32_t low = static_cast<std::uint32_t>(__double2loint(quotient)) & 0x1FFFFFFFu;
  if (low - 0x0FFFFFFCu <= 8u) quotient = exact / total;
  return static_cast<float>(quotient);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/// A block's part of a row: in shared memory, split over the warps in contiguous segments.
struct ClusterSlice {
  float* values;         // shared memory, padded to whole quads with -inf
  std::int32_t begin;    // first id
  std::int32_t count;    // ids
  std::int32_t segment;  // quads of a warp

  /// visit(quad) for the quads of this thread; `from` is the first.
  template <class Visit>
  __device__ void visit(Visit&& visit) const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int quads = (count + 3) / 4;
    const int first = warp * segment;
    const int last = min(quads, first + segment);
#pragma unroll 4
    for (int quad = first + lane; quad < last; quad += 32) visit(quad);
  }
  __device__ float4& at(int quad) const { return reinterpret_cast<float4*>(values)[quad]; }
};

/// Sum over the block, in every thread.
__device__ inline std::uint64_t block_sum(std::uint64_t value, std::uint64_t* warp_sums) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, step);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  std::uint64_t sum = 0;
#pragma unroll
  for (int warp = 0; warp < kClusterWarps; ++warp) sum += warp_sums[warp];
  return sum;
}

/// The k-th largest of `count` order codes in shared memory (k ≤ count), in every thread.
__device__ inline std::uint32_t select_code(const std::uint32_t* codes, int count, std::uint32_t k,
                                            ClusterMemory& memory) {
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

/// The law of a row under top-k, and top-p within it, by one block: from the candidates, which hold
/// the top-k set, or where there are too many from the row in memory.
__device__ inline void solve_filter(const float* row, std::int32_t vocab, const SamplingRule& rule,
                                    RowLaw& law, FilterMemory& filter, ClusterMemory& memory) {
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
    return;
  }
  int size = 2;
  while (size < gathered) size *= 2;
  for (int i = gathered + thread; i < size; i += kClusterThreads) filter.keys[i] = 0;
  __syncthreads();
  sort_descending(filter.keys, size);
  // Only the top-k set counts from here on.
  std::uint64_t mass[kPerSolver];
  std::uint64_t before[kPerSolver];
  const int last = rule.top_k - 1;
#pragma unroll
  for (int i = 0; i < kPerSolver; ++i) {
    const int at = thread * kPerSolver + i;
    mass[i] = at <= last ? key_mass(filter.keys[at], law) : 0;
  }
  SolveScan(memory.temporary.solve.scan).ExclusiveSum(mass, before);
#pragma unroll
  for (int i = 0; i < kPerSolver; ++i) {
    if (thread * kPerSolver + i == last) {
      memory.boundary = {filter.keys[last], before[i]};
      memory.target = rule.top_p == 0 ? 0 : top_p_target(before[i] + mass[i], rule.top_p);
    }
  }
  __syncthreads();
  if (rule.top_p != 0) {
    const std::uint64_t needed = memory.target;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPerSolver; ++i) {
      if (before[i] < needed && needed <= before[i] + mass[i]) {
        memory.boundary = {filter.keys[thread * kPerSolver + i], before[i]};
      }
    }
    __syncthreads();
  }
  if (thread == 0) finish_law(law, rule, memory.boundary, memory.target);
}

/// A token by inverse CDF over the probabilities in the cluster's shared memory; the block that
/// holds it writes it. `own`: the block's sum of weights; warp_sums are the segments'.
template <class Sink>
__device__ void draw_token(const Sink& sink, std::int64_t row, const ClusterSlice& slice, int rank,
                           int blocks, ClusterMemory& memory) {
  const int thread = static_cast<int>(threadIdx.x);
  const std::uint64_t uniform = uniform_from_float(sink.uniforms[sink.cell(row)]);
  std::uint64_t before = 0;
  std::uint64_t total = 0;
  for (int r = 0; r < blocks; ++r) {
    if (r < rank) before += memory.weights[r];
    total += memory.weights[r];
  }
  if (total == 0) {
    if (rank == 0 && thread == 0) sink.token(row, uniform, {-1, 0, 0});
    return;
  }
  // Beyond the row's sum the last token of positive weight is taken.
  const std::uint64_t target = min(cdf_target(uniform, kUnitMass), total - 1);
  if (target < before || target >= before + memory.weights[rank]) return;
  int warp = 0;
  while (target >= before + memory.warp_sums[warp]) before += memory.warp_sums[warp++];
  const std::int32_t first = warp * slice.segment * 4;
  const std::int32_t last = min(slice.count, first + slice.segment * 4);
  const std::int32_t each = (last - first + kClusterThreads - 1) / kClusterThreads;
  const std::int32_t mine = first + thread * each;
  const std::int32_t end = min(last, mine + each);
  std::uint64_t sum = 0;
  for (std::int32_t i = mine; i < end; ++i) sum += probability_weight(slice.values[i]);
  std::uint64_t lower;
  SolveScan(memory.temporary.solve.scan).ExclusiveSum(sum, lower);
  lower += before;
  if (target < lower || target >= lower + sum) return;
  for (std::int32_t i = mine; i < end; ++i) {
    const std::uint64_t weight = probability_weight(slice.values[i]);
    if (target < lower + weight) {
      sink.token(row, uniform, {slice.begin + i, lower, lower + weight});
      return;
    }
    lower += weight;
  }
}

#endif

/// A cluster per row.
template <class Sink>
__global__ void __launch_bounds__(kClusterThreads, 2)
    row_cluster_kernel(Rows logits, SamplingRule rule, std::int32_t chunk, Sink sink) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  namespace cg = cooperative_groups;
  extern __shared__ __align__(16) float dynamic[];
  __shared__ ClusterMemory memory;
  const cg::cluster_group cluster = cg::this_cluster();
  const int blocks = static_cast<int>(cluster.num_blocks());
  const int rank = static_cast<int>(cluster.block_rank());
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const std::int64_t row = blockIdx.x / blocks;
  const float* const whole_row = logits.data + row * logits.stride;
  constexpr float kInfinity = __builtin_huge_valf();

  ClusterSlice slice;
  slice.values = dynamic;
  slice.begin = min(logits.vocab, rank * chunk);
  slice.count = min(logits.vocab, slice.begin + chunk) - slice.begin;
  slice.segment = ((chunk / 4 + kClusterWarps - 1) / kClusterWarps + 1) / 2 * 2;
  FilterMemory& filter = *reinterpret_cast<FilterMemory*>(dynamic + chunk);

  wait_for_previous_kernel();
  let_next_kernel_start();

  // The row, once from memory; the largest two logits.
  float best = -kInfinity;
  float second = -kInfinity;
  float poison = 0.0f;
  const auto take = [&](float value) {
    second = fmaxf(second, fminf(best, value));
    best = fmaxf(best, value);
    poison = fmaf(value, 0.0f, poison);  // NaN from NaN and infinities
  };
  {
    const float* source = whole_row + slice.begin;
    const bool aligned = (reinterpret_cast<std::uintptr_t>(source) & 15u) == 0;
    const int whole_quads = slice.count / 4;
    const int first = thread / 32 * slice.segment;
    const int last = min(whole_quads, first + slice.segment);
    constexpr int kBatch = 5;
    for (int base = first + lane; base < last; base += 32 * kBatch) {
      float4 batch[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int quad = base + 32 * i;
        if (quad >= last) continue;
        if (aligned) {
          batch[i] = __ldcs(reinterpret_cast<const float4*>(source) + quad);
        } else {
          batch[i] = {source[4 * quad], source[4 * quad + 1], source[4 * quad + 2],
                      source[4 * quad + 3]};
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int quad = base + 32 * i;
        if (quad >= last) continue;
        slice.at(quad) = batch[i];
        take(batch[i].x);
        take(batch[i].y);
        take(batch[i].z);
        take(batch[i].w);
      }
    }
    const int rest = slice.count - 4 * whole_quads;
    if (thread < 4 && rest > 0) {
      float value = -kInfinity;
      if (thread < rest) {
        value = source[4 * whole_quads + thread];
        take(value);
      }
      slice.values[4 * whole_quads + thread] = value;
    }
  }
  if (thread == 0) {
    memory.argmax = 0xFFFFFFFFu;
    memory.block_flags = 0;
    memory.gathered = 0;
  }
  if (rule.top_k != 0) {
    // Rank 0's memory may be written once its block runs.
    cluster.sync();
    FilterMemory* first = cluster.map_shared_rank(&filter, 0);
    first->maxima[rank * kClusterThreads + thread] = order_code(best);
  }

  Extremes mine = {best, second, poison != poison ? 1u : 0u};
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    mine = merge(mine, Extremes{__shfl_xor_sync(0xFFFFFFFFu, mine.best, step),
                                __shfl_xor_sync(0xFFFFFFFFu, mine.second, step),
                                __shfl_xor_sync(0xFFFFFFFFu, mine.poisoned, step)});
  }
  if (lane == 0) memory.warp_extremes[thread / 32] = mine;
  // All blocks of the cluster run, and the warps' extremes are there.
  cluster.sync();
  if (thread < blocks) {
    Extremes block = memory.warp_extremes[0];
#pragma unroll
    for (int warp = 1; warp < kClusterWarps; ++warp) {
      block = merge(block, memory.warp_extremes[warp]);
    }
    cluster.map_shared_rank(&memory, static_cast<unsigned>(thread))->extremes[rank] = block;
  }
  cluster.sync();
  Extremes extremes = memory.extremes[0];
  for (int r = 1; r < blocks; ++r) extremes = merge(extremes, memory.extremes[r]);

  RowLaw law;
  law.inverse_temperature = rule.inverse_temperature;
  if (extremes.poisoned) {
    // Which of NaN, +inf and -inf it was; the last alone is a masked token.
    std::uint32_t flags = 0;
    slice.visit([&](int quad) {
      const float4 values = slice.at(quad);
      const float each[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::uint32_t code = order_code(each[i]);
        if (code == 0) flags |= kRowNaN;
        if (code == kPlusInfinityCode) flags |= kRowPlusInfinity;
        if (code > kMinusInfinityCode && code < kPlusInfinityCode) flags |= kSawFinite;
      }
    });
    flags = __reduce_or_sync(0xFFFFFFFFu, flags);
    if (lane == 0 && flags != 0) atomicOr(&memory.block_flags, flags);
    __syncthreads();
    if (thread < blocks) {
      cluster.map_shared_rank(&memory, static_cast<unsigned>(thread))->flags[rank] =
          memory.block_flags;
    }
    cluster.sync();
    flags = 0;
    for (int r = 0; r < blocks; ++r) flags |= memory.flags[r];
    law.status =
        (flags & (kRowNaN | kRowPlusInfinity)) | ((flags & kSawFinite) ? 0u : kRowNoFinite);
  }
  const bool valid = law.status == kRowValid;
  float* out = nullptr;
  bool out_aligned = false;
  if constexpr (Sink::kWrites) {
    out = sink.probabilities.data + row * sink.probabilities.stride + slice.begin;
    out_aligned = (reinterpret_cast<std::uintptr_t>(out) & 15u) == 0;
  }
  const auto write = [&](int quad, const float4& values) {
    if (out_aligned && 4 * quad + 4 <= slice.count) {
      __stcs(reinterpret_cast<float4*>(out) + quad, values);
      return;
    }
    const float each[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (4 * quad + i < slice.count) out[4 * quad + i] = each[i];
    }
  };
  if (!valid) {
    if (rank == 0 && thread == 0) sink.law(row, law);
    if constexpr (Sink::kWrites) {
      slice.visit([&](int quad) { write(quad, float4{0, 0, 0, 0}); });
    }
    if constexpr (Sink::kSamples) {
      if (rank == 0 && thread == 0) {
        sink.token(row, uniform_from_float(sink.uniforms[sink.cell(row)]), {-1, 0, 0});
      }
    }
    return;  // nobody reads this block's memory from here on
  }
  // A zero is +0 (RowLawsArgs).
  const float max_logit = extremes.best + 0.0f;
  law.max_logit = max_logit;
  law.second_logit = extremes.second + 0.0f;

  // The lowest id with the largest logit; without filters also the masses, which then take the
  // logits' place.
  const bool filtered = rule.top_k != 0;
  const bool masses = !filtered && !rule.greedy;
  std::uint32_t argmax = 0xFFFFFFFFu;
  std::uint64_t sum = 0;
  const auto look = [&](int quad, const float4& values) {
    if (values.x == max_logit || values.y == max_logit || values.z == max_logit ||
        values.w == max_logit) {
      const int at = values.x == max_logit   ? 0
                     : values.y == max_logit ? 1
                     : values.z == max_logit ? 2
                                             : 3;
      argmax = min(argmax, static_cast<std::uint32_t>(slice.begin + 4 * quad + at));
    }
  };
  if (masses) {
    slice.visit([&](int quad) {
      const float4 values = slice.at(quad);
      look(quad, values);
      const float4 scaled = {unrounded_mass(values.x, max_logit, rule.inverse_temperature),
                             unrounded_mass(values.y, max_logit, rule.inverse_temperature),
                             unrounded_mass(values.z, max_logit, rule.inverse_temperature),
                             unrounded_mass(values.w, max_logit, rule.inverse_temperature)};
      sum += round_to_integer(scaled.x);
      sum += round_to_integer(scaled.y);
      sum += round_to_integer(scaled.z);
      sum += round_to_integer(scaled.w);
      if constexpr (Sink::kWrites) slice.at(quad) = scaled;
    });
  } else if (filtered) {
    if (rank == 0) {
      const std::uint32_t code = select_code(filter.maxima, blocks * kClusterThreads,
                                             static_cast<std::uint32_t>(rule.top_k), memory);
      if (thread < blocks) {
        cluster.map_shared_rank(&memory, static_cast<unsigned>(thread))->threshold =
            float_from_order_code(code);
      }
    }
    cluster.sync();
    const float threshold = memory.threshold;
    FilterMemory* first = cluster.map_shared_rank(&filter, 0);
    std::uint32_t* gathered = &cluster.map_shared_rank(&memory, 0)->gathered;
    slice.visit([&](int quad) {
      const float4 values = slice.at(quad);
      if (values.x >= threshold || values.y >= threshold || values.z >= threshold ||
          values.w >= threshold) {
        look(quad, values);
        const float each[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (each[i] >= threshold && 4 * quad + i < slice.count) {
            const std::uint32_t place = atomicAdd(gathered, 1u);
            if (place < kCandidates) {
              first->keys[place] = token_key(each[i], slice.begin + 4 * quad + i);
            }
          }
        }
      }
    });
  } else {
    slice.visit([&](int quad) { look(quad, slice.at(quad)); });
  }
  argmax = __reduce_min_sync(0xFFFFFFFFu, argmax);
  if (lane == 0 && argmax != 0xFFFFFFFFu) atomicMin(&memory.argmax, argmax);
  sum = block_sum(sum, memory.warp_sums);
  if (thread < blocks) {
    cluster.map_shared_rank(&memory, static_cast<unsigned>(thread))->sums[rank] = {
        sum, memory.argmax, 0};
  }
  cluster.sync();
  std::uint64_t total = 0;
  argmax = 0xFFFFFFFFu;
  for (int r = 0; r < blocks; ++r) {
    total += memory.sums[r].mass;
    argmax = min(argmax, memory.sums[r].argmax);
  }
  law.argmax = static_cast<std::int32_t>(argmax);

  if (masses) {
    law.total = total;
  } else if (filtered) {
    if (rank == 0) {
      if (thread == 0) memory.law() = law;
      __syncthreads();
      solve_filter(whole_row, logits.vocab, rule, memory.law(), filter, memory);
      __syncthreads();
      if (thread > 0 && thread < blocks) {
        cluster.map_shared_rank(&memory, static_cast<unsigned>(thread))->law() = memory.law();
      }
    }
    cluster.sync();
    law = memory.law();
  } else {
    law.boundary_key = token_key(max_logit, law.argmax);
    law.boundary_mass = kUnitMass;
    law.total = kUnitMass;
  }
  if constexpr (!Sink::kWrites) {
    if (rank == 0 && thread == 0) {
      law.scale = law_scale(law.total);
      sink.law(row, law);
    }
    return;
  } else {
    const double denominator = static_cast<double>(law.total);
    const double reciprocal = 1.0 / denominator;
    std::uint64_t weights = 0;
    const auto keep = [&](int quad, const float4& p) {
      write(quad, p);
      if constexpr (Sink::kSamples) {
        slice.at(quad) = p;
        weights += probability_weight(p.x);
        weights += probability_weight(p.y);
        weights += probability_weight(p.z);
        weights += probability_weight(p.w);
      }
    };
    if (masses) {
      slice.visit([&](int quad) {
        const float4 scaled = slice.at(quad);
        keep(quad, float4{mass_fraction(round_to_integer(scaled.x), denominator, reciprocal),
                          mass_fraction(round_to_integer(scaled.y), denominator, reciprocal),
                          mass_fraction(round_to_integer(scaled.z), denominator, reciprocal),
                          mass_fraction(round_to_integer(scaled.w), denominator, reciprocal)});
      });
    } else {
      const float lowest =
          float_from_order_code(static_cast<std::uint32_t>(law.boundary_key >> 32));
      slice.visit([&](int quad) {
        const float4 values = slice.at(quad);
        float4 p = {0, 0, 0, 0};
        if (values.x >= lowest || values.y >= lowest || values.z >= lowest || values.w >= lowest) {
          const std::int32_t id = slice.begin + 4 * quad;
          const auto fraction_at = [&](float value, int i) {
            if (4 * quad + i >= slice.count) return 0.0f;
            return mass_fraction(law_mass(law, value, id + i), denominator, reciprocal);
          };
          p = {fraction_at(values.x, 0), fraction_at(values.y, 1), fraction_at(values.z, 2),
               fraction_at(values.w, 3)};
        }
        keep(quad, p);
      });
    }
    if constexpr (Sink::kSamples) {
      const std::uint64_t own = block_sum(weights, memory.warp_sums);
      if (thread < blocks) {
        cluster.map_shared_rank(&memory, static_cast<unsigned>(thread))->weights[rank] = own;
      }
      cluster.sync();
      draw_token(sink, row, slice, rank, blocks, memory);
    }
    if (rank == 0 && thread == 0) {
      law.scale = law_scale(law.total);
      sink.law(row, law);
    }
  }
#endif
}

/// Launches a cluster per row; the shape has blocks. `early`: the kernel may be started before the
/// one enqueued just before it has ended (it waits by itself).
template <class Sink>
void launch_row_clusters(const Rows& logits, const SamplingRule& rule, const ClusterShape& shape,
                         const Sink& sink, cudaStream_t stream, bool early = false) {
  // Beyond 48 KiB a kernel has to ask; asking for the most once is enough.
  static const cudaError_t asked =
      cudaFuncSetAttribute(row_cluster_kernel<Sink>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(kMostClusterShared));
  DSPARK_CUDA_CHECK(asked);
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = static_cast<unsigned>(shape.blocks);
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid_of(logits.rows * shape.blocks);
  config.blockDim = dim3(kClusterThreads);
  config.dynamicSmemBytes = shape.shared;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = early ? 2 : 1;
  DSPARK_CUDA_CHECK(
      cudaLaunchKernelEx(&config, row_cluster_kernel<Sink>, logits, rule, shape.chunk, sink));
}

}  // namespace dspark::kernels
