#include "kernels/accept/greedy_accept.h"

#include "kernels/rows/top_two.cuh"

namespace dspark::kernels {
namespace {

inline constexpr int kLanes = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

/// The walk over a batch entry's drafts, by one warp: all slots are compared at once, the first
/// miss ends the run.
__device__ void walk(const GreedyAcceptArgs& args, std::int64_t b, std::int32_t proposed) {
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t width = static_cast<std::int64_t>(args.length) + 1;
  const RowLaw* laws = args.laws + b * width;
  const std::int32_t* draft = args.draft + b * args.draft_stride;
  std::int32_t* accepted = args.accepted + b * width;
  std::int32_t count = 0;
  bool stopped = false;
  while (count < proposed && !stopped) {
    const std::int32_t slot = count + lane;
    bool miss = true;
    bool reached = false;  // a draft the walk looks at unless it ends before
    std::int32_t token = 0;
    if (slot < proposed) {
      const std::int32_t argmax = read_shared_state(laws[slot].argmax);
      token = draft[slot];
      reached = argmax >= 0;
      miss = argmax < 0 || token != argmax;
    }
    const unsigned misses = __ballot_sync(kAllLanes, miss);
    const int run = misses == 0 ? kLanes : __ffs(static_cast<int>(misses)) - 1;
    if (lane <= run && reached && (token < 0 || token >= args.logits.vocab)) {
      report(args.status, kOpBadToken);
    }
    if (lane < run) accepted[slot] = token;
    stopped = run < kLanes;
    count += run;
  }
  if (lane == 0) {
    accepted[count] = max(0, read_shared_state(laws[count].argmax));
    args.accept_length[b] = count + 1;
  }
  for (std::int64_t i = count + 1 + lane; i < width; i += kLanes) accepted[i] = 0;
}

/// Blocks of a row merge their largest two logits in the row's law (top_two.cuh); the last of them
/// adds the row to its batch entry, counted in `total` of the entry's first law; the last row
/// walks.
__global__ void __launch_bounds__(kThreads) greedy_kernel(GreedyAcceptArgs args, RowSplit split) {
  __shared__ bool walks;
  const std::int64_t row = blockIdx.x / split.slices;
  const std::int32_t slice = static_cast<std::int32_t>(blockIdx.x % split.slices);
  const std::int64_t width = static_cast<std::int64_t>(args.length) + 1;
  const std::int64_t b = row / width;
  const std::int32_t given = args.lengths[b];
  const std::int32_t proposed = max(1, min(args.length, given));
  if (row % width > proposed) {
    if (slice == 0 && threadIdx.x == 0 && args.margin != nullptr) args.margin[row] = 0.0f;
    return;
  }
  RowLaw& law = args.laws[row];
  const std::int32_t begin = slice * split.length;
  const std::int32_t end = min(args.logits.vocab, begin + split.length);
  const TopTwo found = top_two_of_range(args.logits.data + row * args.logits.stride, begin, end);
  if (threadIdx.x == 0) add_top_two(law, found);
  if (!last_block_to_arrive(&law.reserved, static_cast<std::uint32_t>(split.slices))) return;
  if (threadIdx.x == 0) {
    const RowLaw result = law_of_top_two(law, SamplingRule{});
    // Only what the walk reads: `total` of the first law is still counting.
    law.argmax = result.argmax;
    if (result.status != kRowValid) report(args.status, kOpInvalidRow);
    if (args.margin != nullptr) {
      args.margin[row] = result.argmax < 0 ? 0.0f : result.max_logit - result.second_logit;
    }
    __threadfence();
    auto* rows_done = reinterpret_cast<unsigned long long*>(&args.laws[b * width].total);
    walks = atomicAdd(rows_done, 1ull) == static_cast<unsigned long long>(proposed);
    __threadfence();
    if (walks && (given < 0 || given > args.draft_stride)) report(args.status, kOpBadLength);
  }
  __syncthreads();
  if (walks && threadIdx.x < kLanes) walk(args, b, proposed);
}

}  // namespace

void greedy_accept(const GreedyAcceptArgs& args, cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(args.batch) * (args.length + 1LL);
  if (rows <= 0 || args.logits.vocab <= 0) return;
  DSPARK_CUDA_CHECK(
      cudaMemsetAsync(args.laws, 0, static_cast<std::size_t>(rows) * sizeof(RowLaw), stream));
  const RowSplit split = split_rows(rows, args.logits.vocab, 1024);
  DSPARK_LAUNCH(greedy_kernel, grid_of(rows * split.slices), kThreads, 0, stream, args, split);
}

}  // namespace dspark::kernels
