#include "kernels/schedule/schedule.h"

#include "kernels/common/cluster.cuh"
#include "kernels/confidence/score.cuh"
#include "policy/lengths.h"

namespace dspark::kernels {
namespace {

/// A cluster of blocks scores a batch entry's slots, one each where there are enough, so that a
/// block has one row to load and one walk to make. Against one block for all slots of 7 drafts this
/// takes a seventh of the loads and of the shared memory's reads a multiprocessor has to serve
/// (about 1.2 us), for a store to a neighbour's shared memory (about 0.3 us).
constexpr std::int32_t kScoreBlocks = 8;
/// Most slots whose scores are joined in shared memory.
constexpr std::int32_t kMostJoinedSlots = 1024;

__global__ void __launch_bounds__(kThreads) fill_kernel(FillProposalLengthsArgs args) {
  const std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (b < args.batch) args.lengths[b] = args.value;
}

/// The length in lane 0 of the calling warp.
__device__ std::int32_t length_of(const ThresholdLengthsArgs& args, const float* scores) {
  if (threadIdx.x != 0) return 0;
  return cumulative_threshold_length(scores, args.scores.block_size, args.threshold,
                                     max(1, args.min_length), args.max_length);
}

/// sps_length (policy/lengths.h) with a length per lane: survivals and sums are the same products
/// and sums in the same order, but the divisions are made at once.
__device__ std::int32_t length_of(const SpsLengthsArgs& args, const float* scores) {
  const int lane = static_cast<int>(threadIdx.x);
  const LengthLimits limits =
      length_limits(args.scores.block_size, max(1, args.min_length), args.max_length);
  const LinearPrice price{args.cost};
  double best = -1;
  std::int32_t selected = limits.lower;
  // Of the last length that a round before looked at.
  double survival_before = 1;
  double expected_before = 1;
  for (std::int32_t base = 0; base <= limits.upper; base += kWarp) {
    const std::int32_t length = base + lane;
    double survival = survival_before;
    double expected = expected_before;
#pragma unroll 4
    for (std::int32_t i = max(0, base - 1); i < min(length, limits.upper); ++i) {
      survival *= static_cast<double>(scores[i]);
      expected += survival;
    }
    const bool counts = length >= limits.lower && length <= limits.upper;
    const unsigned last = __ballot_sync(
        kAllLanes, counts && args.survival_floor > 0 && !(survival >= args.survival_floor));
    if (counts && (last == 0 || lane < __ffs(static_cast<int>(last)))) {
      const double cost = price(length);
      const double value = expected / cost;
      if (cost > 0 && value > best) {
        best = value;
        selected = length;
      }
    }
    if (last != 0) break;
    survival_before = __shfl_sync(kAllLanes, survival, kWarp - 1);
    expected_before = __shfl_sync(kAllLanes, expected, kWarp - 1);
  }
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const double other = __shfl_xor_sync(kAllLanes, best, step);
    const std::int32_t other_length = __shfl_xor_sync(kAllLanes, selected, step);
    // Equally good: the shorter one, which the rule meets first.
    if (other > best || (other == best && other_length < selected)) {
      best = other;
      selected = other_length;
    }
  }
  return selected;
}

/// `blocks` blocks per batch entry, a cluster if there are several. Scores are joined in the first
/// one's shared memory, where one warp applies the rule to the few of them. Nothing waits for a
/// store to global memory: the scores are sent, and counted as they arrive.
template <class Args>
__global__ void __launch_bounds__(kScoreThreads, kScoreBlocksPerProcessor)
    lengths_kernel(Args args, ScorePlan plan, std::int32_t blocks) {
  extern __shared__ __align__(16) unsigned char memory[];
  const std::int64_t b = blockIdx.x / blocks;
  const auto rank = static_cast<std::int32_t>(blockIdx.x % blocks);
  const std::int32_t slots = args.scores.block_size;
  float* const scores = args.scores.scores + b * slots;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __shared__ alignas(8) std::uint64_t arrivals;
  const Mailbox mailbox(&arrivals);
  auto* const joined = reinterpret_cast<float*>(memory + plan.bytes());
  if (blocks > 1) mailbox.open(rank == 0, static_cast<std::uint32_t>(slots) * sizeof(float));
#endif
  bool weights_there = false;
  for (std::int32_t slot = rank; slot < slots; slot += blocks) {
    if (slot != rank) __syncthreads();
    const float score = slot_score(args.scores, plan, memory, weights_there, b, slot);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (blocks > 1) {
      if (slot == rank) mailbox.wait_until_open();
      if (threadIdx.x == 0) mailbox.send(joined + slot, score);
      continue;
    }
#endif
    if (threadIdx.x == 0) scores[slot] = score;
  }
  if (rank != 0 || threadIdx.x >= kWarp) return;
  const float* all = scores;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (blocks > 1) {
    mailbox.wait();
    for (auto slot = static_cast<std::int32_t>(threadIdx.x); slot < slots; slot += kWarp) {
      scores[slot] = joined[slot];
    }
    all = joined;
  }
#endif
  __syncwarp();
  const std::int32_t length = length_of(args, all);
  if (threadIdx.x == 0) args.lengths[b] = length;
}

template <class Args>
void launch_lengths(const Args& args, cudaStream_t stream) {
  if (args.scores.batch <= 0) return;
  static const cudaError_t allowed =
      allow_score_shared(lengths_kernel<Args>, kMostJoinedSlots * sizeof(float));
  DSPARK_CUDA_CHECK(allowed);
  const ScorePlan plan = score_plan(args.scores);
  const std::int32_t slots = args.scores.block_size;
  const bool joins = device_traits().hopper && slots > 1 && slots <= kMostJoinedSlots;
  const std::int32_t blocks = joins ? std::min(slots, kScoreBlocks) : 1;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(blocks);
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid_of(std::int64_t{args.scores.batch} * blocks);
  config.blockDim = dim3(kScoreThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(plan.bytes()) +
                            (joins ? static_cast<std::size_t>(slots) * sizeof(float) : 0);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = joins ? 1 : 0;
  DSPARK_CUDA_CHECK(cudaLaunchKernelEx(&config, lengths_kernel<Args>, args, plan, blocks));
}

}  // namespace

void fill_proposal_lengths(const FillProposalLengthsArgs& args, cudaStream_t stream) {
  if (args.batch <= 0) return;
  DSPARK_LAUNCH(fill_kernel, grid_for_items(args.batch), kThreads, 0, stream, args);
}

void threshold_lengths(const ThresholdLengthsArgs& args, cudaStream_t stream) {
  launch_lengths(args, stream);
}

void sps_lengths(const SpsLengthsArgs& args, cudaStream_t stream) { launch_lengths(args, stream); }

}  // namespace dspark::kernels
