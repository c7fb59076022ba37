#include "kernels/sparse/select_top_k.h"

#include <cub/block/block_scan.cuh>

#include "kernels/common/launch.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/common/sort.cuh"
#include "kernels/common/visit.cuh"
#include "kernels/rows/top_two.cuh"

// How the best K keys of a set are found without sorting it: the range of its keys is cut into bins
// of equal width, the bin that holds the K-th key becomes the range, and so on until a bin ends
// exactly at K. Keys are distinct, so there always is such a bin; a slice of a row stays in the
// cache meanwhile. Which keys are the best K does not depend on any order, and they are sorted in
// the end.

namespace dspark::kernels {
namespace {

inline constexpr int kBins = 2048;
inline constexpr int kBinBits = 11;
inline constexpr int kPerThread = kBins / kThreads;

using Scan = cub::BlockScan<std::uint32_t, kThreads>;

/// A range of keys.
struct KeyRange {
  std::uint64_t low;
  std::uint64_t high;
  std::uint32_t flags;  // kRowNaN, kRowPlusInfinity, kSawFinite
  std::uint32_t unused;
};

/// Reduces keys to their range (kernels/common/reduce.cuh).
struct RangeOfKeys {
  using Part = KeyRange;
  __device__ static KeyRange none() { return {~std::uint64_t{0}, 0, 0, 0}; }
  __device__ static KeyRange merge(const KeyRange& a, const KeyRange& b) {
    return {min(a.low, b.low), max(a.high, b.high), a.flags | b.flags, 0};
  }
};

struct SelectStorage {
  std::uint32_t count[kBins];  // bins in descending order of keys
  typename Scan::TempStorage scan;
  KeyRange range;
  std::uint32_t bin;
  std::uint32_t before;
  std::uint32_t gathered;
};

/// The least key that belongs to the best `rank` of a set, or a number between it and the next one
/// below. `visit(f)` calls f(key) for each of the set's `count` keys, all in `range`, over all
/// threads of the block; 1 ≤ rank ≤ count. All threads get the result.
template <class VisitKeys>
__device__ std::uint64_t threshold_of_rank(const VisitKeys& visit, KeyRange range,
                                           std::uint32_t count, std::uint32_t rank,
                                           SelectStorage& storage) {
  while (rank < count) {
    const int width = 64 - __clzll(static_cast<long long>(range.high - range.low));
    const int shift = width > kBinBits ? width - kBinBits : 0;
    for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads) {
      storage.count[bin] = 0;
    }
    __syncthreads();
    visit([&](std::uint64_t key) {
      if (key < range.low || key > range.high) return;
      const std::uint64_t distance = (key - range.low) >> shift;
      // The lowest bin's count is what the others leave: in a masked row it holds nearly all.
      if (distance != 0) atomicAdd(&storage.count[kBins - 1 - static_cast<int>(distance)], 1u);
    });
    __syncthreads();
    std::uint32_t own[kPerThread];
    std::uint32_t before[kPerThread];
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      own[i] = storage.count[threadIdx.x * kPerThread + i];
    }
    std::uint32_t counted;
    Scan(storage.scan).ExclusiveSum(own, before, counted);
    if (threadIdx.x == kThreads - 1) own[kPerThread - 1] = count - counted;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      if (before[i] < rank && rank <= before[i] + own[i]) {
        storage.bin = threadIdx.x * kPerThread + i;
        storage.before = before[i];
        storage.gathered = own[i];
      }
    }
    __syncthreads();
    range.low += static_cast<std::uint64_t>(kBins - 1 - storage.bin) << shift;
    range.high = min(range.high, range.low + ((std::uint64_t{1} << shift) - 1));
    rank -= storage.before;
    count = storage.gathered;
    __syncthreads();
  }
  return range.low;
}

/// Appends the keys of at least `threshold` to `out`, in any order.
template <class VisitKeys>
__device__ void gather(const VisitKeys& visit, std::uint64_t threshold, std::uint64_t* out,
                       SelectStorage& storage) {
  if (threadIdx.x == 0) storage.gathered = 0;
  __syncthreads();
  visit([&](std::uint64_t key) {
    if (key >= threshold) out[atomicAdd(&storage.gathered, 1u)] = key;
  });
  __syncthreads();
}

/// The range of a set's keys, in every thread.
template <class VisitKeys>
__device__ KeyRange range_of_keys(const VisitKeys& visit, SelectStorage& storage) {
  KeyRange mine = RangeOfKeys::none();
  visit([&](std::uint64_t key) {
    const std::uint32_t code = static_cast<std::uint32_t>(key >> 32);
    std::uint32_t flags = 0;
    if (code == 0) flags |= kRowNaN;
    if (code == kPlusInfinityCode) flags |= kRowPlusInfinity;
    if (code > kMinusInfinityCode && code < kPlusInfinityCode) flags |= kSawFinite;
    mine = RangeOfKeys::merge(mine, {key, key, flags, 0});
  });
  mine = merge_block<RangeOfKeys, kThreads>(mine);
  if (threadIdx.x == 0) storage.range = mine;
  __syncthreads();
  const KeyRange range = storage.range;
  __syncthreads();
  return range;
}

/// What the blocks of a row share; zero at the start.
struct SelectRow {
  std::uint32_t arrived;
  std::uint32_t flags;
};
static_assert(sizeof(SelectRow) == 8, "select_top_k_scratch counts on it");

__global__ void __launch_bounds__(kThreads)
    select_kernel(SelectTopKArgs args, SelectRow* rows, std::uint64_t* candidates) {
  __shared__ SelectStorage storage;
  __shared__ std::uint64_t best[kMaxTopK];
  const std::int32_t vocab = args.logits.vocab;
  const std::int32_t slices = slice_count(vocab);
  const std::int32_t k = args.values.vocab;
  const std::int64_t row = blockIdx.x / slices;
  const std::int32_t slice = static_cast<std::int32_t>(blockIdx.x % slices);
  const std::int32_t begin = slice * kSlice;
  const std::int32_t end = min(vocab, begin + kSlice);
  const float* logits = args.logits.data + row * args.logits.stride;
  std::uint64_t* row_candidates = candidates + row * slices * k;

  const auto visit_slice = [&](auto&& use) {
    visit_row(logits, begin, end, [&](std::int32_t id, float logit) { use(token_key(logit, id)); });
  };
  const KeyRange range = range_of_keys(visit_slice, storage);
  const std::int32_t kept = min(k, end - begin);
  const std::uint64_t threshold =
      threshold_of_rank(visit_slice, range, static_cast<std::uint32_t>(end - begin),
                        static_cast<std::uint32_t>(kept), storage);
  // All slices but the last have kSlice ≥ K tokens, so that the candidates are contiguous.
  gather(visit_slice, threshold, row_candidates + static_cast<std::int64_t>(slice) * k, storage);
  if (threadIdx.x == 0) atomicOr(&rows[row].flags, range.flags);
  if (!last_block_to_arrive(&rows[row].arrived, static_cast<std::uint32_t>(slices))) return;

  float* values = args.values.data + row * args.values.stride;
  std::int32_t* ids = args.ids + row * k;
  const std::uint32_t flags = read_shared_state(rows[row].flags);
  if ((flags & (kRowNaN | kRowPlusInfinity)) != 0 || (flags & kSawFinite) == 0) {
    if (threadIdx.x == 0) report(args.status, kOpInvalidRow);
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < k; i += kThreads) {
      values[i] = __uint_as_float(0x7FC00000u);
      ids[i] = -1;
    }
    return;
  }
  const std::int32_t last_kept = min(k, vocab - (slices - 1) * kSlice);
  const std::int32_t count = (slices - 1) * k + last_kept;
  const auto visit_candidates = [&](auto&& use) {
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < count; i += kThreads) {
      use(__ldcg(reinterpret_cast<const unsigned long long*>(row_candidates + i)));
    }
  };
  const KeyRange candidate_range = range_of_keys(visit_candidates, storage);
  const std::uint64_t least =
      threshold_of_rank(visit_candidates, candidate_range, static_cast<std::uint32_t>(count),
                        static_cast<std::uint32_t>(k), storage);
  int size = 1;
  while (size < k) size *= 2;
  for (int i = k + static_cast<int>(threadIdx.x); i < size; i += kThreads) best[i] = 0;
  gather(visit_candidates, least, best, storage);
  sort_descending<kThreads>(best, size);
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < k; i += kThreads) {
    values[i] = float_from_order_code(static_cast<std::uint32_t>(best[i] >> 32));
    ids[i] = token_of_key(best[i]);
  }
}

}  // namespace

void select_top_k(const SelectTopKArgs& args, cudaStream_t stream) {
  static_assert(kMaxTopK <= kSlice);
  const Rows& logits = args.logits;
  if (logits.rows <= 0) return;
  const std::int64_t slices = slice_count(logits.vocab);
  const auto rows = static_cast<std::size_t>(logits.rows);
  ScratchCutter scratch(args.scratch);
  auto* candidates = static_cast<std::uint64_t*>(
      scratch
          .take(rows * static_cast<std::size_t>(slices) *
                static_cast<std::size_t>(args.values.vocab) * sizeof(std::uint64_t))
          .data);
  const std::size_t state_bytes = rows * sizeof(SelectRow);
  auto* state = static_cast<SelectRow*>(scratch.take(state_bytes).data);
  DSPARK_CUDA_CHECK(cudaMemsetAsync(state, 0, state_bytes, stream));
  DSPARK_LAUNCH(select_kernel, grid_of(logits.rows * slices), kThreads, 0, stream, args, state,
                candidates);
}

}  // namespace dspark::kernels
