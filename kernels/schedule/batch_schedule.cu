#include "kernels/schedule/batch_schedule.h"

#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "kernels/common/launch.cuh"
#include "kernels/common/visit.cuh"
#include "policy/survival.h"

namespace dspark::kernels {
namespace {

/// What is known of a step before its drafts are ranked. Sums of integers, in any order.
struct StepSums {
  std::uint64_t tokens;      ///< survivals of the floor's drafts, as weights
  std::uint32_t floor;       ///< drafts of the floor
  std::uint32_t candidates;  ///< drafts above it that may be verified
  std::uint32_t drafts;      ///< Σ slots
};

struct AddSums {
  __device__ StepSums operator()(const StepSums& a, const StepSums& b) const {
    return {a.tokens + b.tokens, a.floor + b.floor, a.candidates + b.candidates,
            a.drafts + b.drafts};
  }
};

struct AdmittedBefore {
  __device__ bool operator()(std::uint64_t a, std::uint64_t b) const { return a < b; }
};

/// The choice of a step, shared by its blocks.
struct StepState {
  StepSums sums;
  std::uint32_t arrived;  ///< blocks that have offered their best
  std::int32_t capacity;
};

/// Ranks the drafts of a request into keys[0..P), kNoDraft for what may not be verified, and gives
/// it its floor.
__device__ void rank_request(const BatchScheduleArgs& args, std::int32_t request,
                             std::uint64_t* keys, StepSums& sums) {
  const BatchStep& step = args.step;
  const std::int32_t given = step.slots[request];
  const std::int32_t slots = slots_within(given, step.positions);
  if (given != slots) report(args.status, kOpBadLength);
  const std::int32_t floor = floor_within(args.options.floor, slots);
  const float* confidence = step.confidence + request * step.stride;
  float survival = 1;
  for (std::int32_t k = 0; k < step.positions; ++k) {
    keys[k] = kNoDraft;
    if (k >= slots) continue;
    survival = survival_after(survival, confidence[k]);
    if (k < floor) {
      sums.tokens += survival_weight(survival);
    } else if (is_candidate(survival, args.options.survival_epsilon)) {
      keys[k] = admission_key(survival, request, k, args.options.ties);
      ++sums.candidates;
    }
  }
  sums.floor += static_cast<std::uint32_t>(floor);
  sums.drafts += static_cast<std::uint32_t>(slots);
  args.lengths[request] = floor;
}

/// The weight of a ranked draft.
__device__ std::uint64_t weight_of(std::uint64_t key) {
  return key == kNoDraft ? 0 : survival_weight(survival_of(key));
}

/// Θ of `total` drafts that promise `tokens` beyond the floor.
__device__ double score_of(const BatchScheduleArgs& args, const StepSums& sums,
                           std::uint64_t tokens, std::int32_t total) {
  const std::uint64_t base =
      static_cast<std::uint64_t>(args.step.requests) * kTokenWeight + sums.tokens;
  return tokens_per_cost(base + tokens, price_at(args.price.data, args.price.size, total));
}

/// What a total that the rule looks at offers, so that the better offer (better_capacity) is the
/// choice. `global` compares Θ. `algorithm1` looks for the first draft that does not improve: a
/// total that ends the walk offers 1, the last one 0, the others nothing.
struct Offers {
  const BatchScheduleArgs& args;
  StepSums sums;

  __device__ bool last() const {
    return args.options.rule == BatchRule::global && args.options.last_maximum;
  }
  __device__ Capacity none() const { return {kEveryDraft, -2}; }

  /// Of the floor, and of the end of the walk.
  __device__ Capacity ends() const {
    const auto floor = static_cast<std::int32_t>(sums.floor);
    const auto end = static_cast<std::int32_t>(sums.floor + sums.candidates);
    if (args.options.rule == BatchRule::algorithm1) return {end, 0};
    return {floor, score_of(args, sums, 0, floor)};
  }

  /// Of the draft ranked `rank` (from 0) with this weight; `tokens` are those up to and with it.
  __device__ Capacity of(std::int32_t rank, std::uint64_t tokens, std::uint64_t weight) const {
    if (rank >= static_cast<std::int32_t>(sums.candidates)) return none();
    const std::int32_t total = static_cast<std::int32_t>(sums.floor) + rank + 1;
    const double score = score_of(args, sums, tokens, total);
    if (args.options.rule == BatchRule::global) return {total, score};
    const double before = score_of(args, sums, tokens - weight, total - 1);
    return score > before ? none() : Capacity{total - 1, 1};
  }

  /// The drafts to verify, given the best offer and the tokens of all candidates.
  __device__ std::int32_t capacity(const Capacity& best, std::uint64_t tokens) const {
    if (args.options.rule == BatchRule::algorithm1) return best.drafts;
    const auto drafts = static_cast<std::int32_t>(sums.drafts);
    const Capacity all{drafts, score_of(args, sums, tokens, drafts)};
    return guarded_capacity(best, all, args.options.min_gain).drafts;
  }
};

/// The better of two offers.
struct Better {
  bool last;
  __device__ Capacity operator()(const Capacity& a, const Capacity& b) const {
    return better_capacity(a, b, last);
  }
};

/// Admits the draft ranked `rank`, if the capacity reaches it.
__device__ void admit(const BatchScheduleArgs& args, const StepSums& sums, std::int32_t capacity,
                      std::int32_t rank, std::uint64_t key) {
  if (key == kNoDraft || static_cast<std::int32_t>(sums.floor) + rank >= capacity) return;
  atomicAdd(&args.lengths[request_of(key, args.options.ties)], 1);
}

__device__ void verify_all(const BatchScheduleArgs& args, std::int32_t request) {
  args.lengths[request] = slots_within(args.step.slots[request], args.step.positions);
}

/// A whole step in one block of `kBlock` threads with `kItems` drafts each.
template <int kBlock, int kItems>
__global__ void __launch_bounds__(kBlock, 1) block_kernel(BatchScheduleArgs args) {
  using Sort = cub::BlockMergeSort<std::uint64_t, kBlock, kItems>;
  using Scan = cub::BlockScan<std::uint64_t, kBlock>;
  using Reduce = cub::BlockReduce<Capacity, kBlock>;
  using ReduceSums = cub::BlockReduce<StepSums, kBlock>;
  __shared__ union {
    std::uint64_t keys[kBlock * kItems];
    typename ReduceSums::TempStorage sums;
    typename Sort::TempStorage sort;
    typename Scan::TempStorage scan;
    typename Reduce::TempStorage reduce;
  } storage;
  __shared__ StepSums sums;
  __shared__ std::int32_t chosen;

  const int thread = static_cast<int>(threadIdx.x);
  const std::int32_t count = args.step.requests * args.step.positions;
  for (int i = count + thread; i < kBlock * kItems; i += kBlock) storage.keys[i] = kNoDraft;
  StepSums own = {};
  for (std::int32_t r = thread; r < args.step.requests; r += kBlock) {
    rank_request(args, r, storage.keys + r * args.step.positions, own);
  }
  __syncthreads();

  std::uint64_t keys[kItems];
#pragma unroll
  for (int i = 0; i < kItems; ++i) keys[i] = storage.keys[thread * kItems + i];
  __syncthreads();
  own = ReduceSums(storage.sums).Reduce(own, AddSums{});
  if (thread == 0) sums = own;
  __syncthreads();
  Sort(storage.sort).Sort(keys, AdmittedBefore{});
  __syncthreads();

  if (args.capacity == nullptr) {
    std::uint64_t tokens[kItems];
    std::uint64_t all = 0;
#pragma unroll
    for (int i = 0; i < kItems; ++i) tokens[i] = weight_of(keys[i]);
    Scan(storage.scan).InclusiveSum(tokens, tokens, all);
    __syncthreads();
    const Offers offers{args, sums};
    Capacity best = thread == 0 ? offers.ends() : offers.none();
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const Capacity offer = offers.of(thread * kItems + i, tokens[i], weight_of(keys[i]));
      best = better_capacity(best, offer, offers.last());
    }
    best = Reduce(storage.reduce).Reduce(best, Better{offers.last()});
    if (thread == 0) chosen = offers.capacity(best, all);
  } else if (thread == 0) {
    chosen = *args.capacity;
  }
  __syncthreads();

  const std::int32_t capacity = chosen;
  if (thread == 0 && args.chosen != nullptr) *args.chosen = capacity;
  if (capacity == kEveryDraft) {
    for (std::int32_t r = thread; r < args.step.requests; r += kBlock) verify_all(args, r);
    return;
  }
#pragma unroll
  for (int i = 0; i < kItems; ++i) admit(args, sums, capacity, thread * kItems + i, keys[i]);
}

/// Ranks the drafts of all requests, a thread each.
__global__ void __launch_bounds__(kThreads)
    rank_kernel(BatchScheduleArgs args, std::uint64_t* keys, StepState* state) {
  using Reduce = cub::BlockReduce<StepSums, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  StepSums sums = {};
  if (r < args.step.requests) {
    rank_request(args, static_cast<std::int32_t>(r), keys + r * args.step.positions, sums);
  }
  sums = Reduce(storage).Reduce(sums, AddSums{});
  if (threadIdx.x != 0) return;
  atomic_add(&state->sums.tokens, sums.tokens);
  atomicAdd(&state->sums.floor, sums.floor);
  atomicAdd(&state->sums.candidates, sums.candidates);
  atomicAdd(&state->sums.drafts, sums.drafts);
}

/// The weight of each sorted key, for the scan.
__global__ void __launch_bounds__(kThreads)
    weight_kernel(std::int32_t count, const std::uint64_t* keys, std::uint64_t* weights) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) weights[i] = weight_of(keys[i]);
}

/// Blocks offer the best total of their part; the last of them chooses.
__global__ void __launch_bounds__(kThreads)
    choose_kernel(BatchScheduleArgs args, std::int32_t count, const std::uint64_t* keys,
                  const std::uint64_t* tokens, Capacity* best_of_block, StepState* state) {
  using Reduce = cub::BlockReduce<Capacity, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const int thread = static_cast<int>(threadIdx.x);
  const Offers offers{args, state->sums};
  const Better better{offers.last()};
  Capacity best = blockIdx.x == 0 && thread == 0 ? offers.ends() : offers.none();
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + thread; i < count;
       i += stride) {
    best = better(best, offers.of(static_cast<std::int32_t>(i), tokens[i], weight_of(keys[i])));
  }
  best = Reduce(storage).Reduce(best, better);
  if (thread == 0) best_of_block[blockIdx.x] = best;
  if (!last_block_to_arrive(&state->arrived, gridDim.x)) return;
  best = offers.none();
  for (unsigned b = threadIdx.x; b < gridDim.x; b += kThreads) {
    best = better(best, best_of_block[b]);
  }
  best = Reduce(storage).Reduce(best, better);
  if (thread == 0) state->capacity = offers.capacity(best, tokens[count - 1]);
}

/// A thread per draft admits it, or gives the request of that number all its drafts.
__global__ void __launch_bounds__(kThreads)
    admit_kernel(BatchScheduleArgs args, std::int32_t count, const std::uint64_t* keys,
                 const StepState* state) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int32_t capacity = args.capacity != nullptr ? *args.capacity : state->capacity;
  if (i == 0 && args.chosen != nullptr) *args.chosen = capacity;
  if (i >= count) return;
  if (capacity != kEveryDraft) {
    admit(args, state->sums, capacity, static_cast<std::int32_t>(i), keys[i]);
  } else if (i < args.step.requests) {
    verify_all(args, static_cast<std::int32_t>(i));
  }
}

/// Drafts of a step that one block schedules: a small block, or one that just fits its registers.
constexpr std::int64_t kSmallDrafts = 1024;
constexpr std::int64_t kBlockDrafts = 4096;
/// Blocks that look for the best total.
constexpr std::int64_t kChooseBlocks = 128;

std::int64_t draft_count(const BatchScheduleArgs& args) {
  return static_cast<std::int64_t>(args.step.requests) * args.step.positions;
}

template <int kBlock, std::int64_t kDrafts>
void launch_block(const BatchScheduleArgs& args, cudaStream_t stream) {
  DSPARK_LAUNCH((block_kernel<kBlock, static_cast<int>(kDrafts) / kBlock>), 1, kBlock, 0, stream,
                args);
}

/// The parts of the workspace of a step that one block cannot hold.
struct Parts {
  std::size_t array;  ///< one 64-bit number per draft
  std::size_t sort;   ///< the sort's own
  std::size_t scan;   ///< the scan's own
};

Parts parts_of(std::int64_t count) {
  const auto items = static_cast<int>(count);
  const std::uint64_t* in = nullptr;
  std::uint64_t* out = nullptr;
  Parts parts{static_cast<std::size_t>(count) * sizeof(std::uint64_t), 0, 0};
  DSPARK_CUDA_CHECK(
      cub::DeviceRadixSort::SortKeys(nullptr, parts.sort, in, out, items, 0, kAdmissionKeyBits));
  DSPARK_CUDA_CHECK(cub::DeviceScan::InclusiveSum(nullptr, parts.scan, out, out, items));
  return parts;
}

}  // namespace

std::size_t batch_schedule_workspace(const BatchScheduleArgs& args) {
  const std::int64_t count = draft_count(args);
  if (count <= kBlockDrafts) return 0;
  const Parts parts = parts_of(count);
  return scratch_round_up(sizeof(StepState)) + scratch_round_up(kChooseBlocks * sizeof(Capacity)) +
         2 * scratch_round_up(parts.array) + scratch_round_up(parts.sort) +
         scratch_round_up(parts.scan);
}

void batch_schedule(const BatchScheduleArgs& args, const Scratch& workspace, cudaStream_t stream) {
  const std::int64_t drafts = draft_count(args);
  if (drafts <= kSmallDrafts) return launch_block<256, kSmallDrafts>(args, stream);
  if (drafts <= kBlockDrafts) return launch_block<512, kBlockDrafts>(args, stream);
  Parts parts = parts_of(drafts);
  ScratchCutter cutter(workspace);
  auto* state = static_cast<StepState*>(cutter.take(sizeof(StepState)).data);
  auto* best = static_cast<Capacity*>(cutter.take(kChooseBlocks * sizeof(Capacity)).data);
  // The ranked keys are not needed once they are sorted: their place then holds the tokens.
  auto* ranked = static_cast<std::uint64_t*>(cutter.take(parts.array).data);
  auto* sorted = static_cast<std::uint64_t*>(cutter.take(parts.array).data);
  void* const sort = cutter.take(parts.sort).data;
  void* const scan = cutter.take(parts.scan).data;

  const auto count = static_cast<std::int32_t>(drafts);
  DSPARK_CUDA_CHECK(cudaMemsetAsync(state, 0, sizeof(StepState), stream));
  DSPARK_LAUNCH(rank_kernel, grid_for_items(args.step.requests), kThreads, 0, stream, args, ranked,
                state);
  DSPARK_CUDA_CHECK(cub::DeviceRadixSort::SortKeys(sort, parts.sort, ranked, sorted, count, 0,
                                                   kAdmissionKeyBits, stream));
  if (args.capacity == nullptr) {
    DSPARK_LAUNCH(weight_kernel, grid_for_items(count), kThreads, 0, stream, count, sorted, ranked);
    DSPARK_CUDA_CHECK(
        cub::DeviceScan::InclusiveSum(scan, parts.scan, ranked, ranked, count, stream));
    DSPARK_LAUNCH(choose_kernel, grid_of(kChooseBlocks), kThreads, 0, stream, args, count, sorted,
                  ranked, best, state);
  }
  DSPARK_LAUNCH(admit_kernel, grid_for_items(count), kThreads, 0, stream, args, count, sorted,
                state);
}

}  // namespace dspark::kernels
