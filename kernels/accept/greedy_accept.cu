#include "kernels/accept/greedy_accept.h"

#include <algorithm>

#include "kernels/common/cluster.cuh"
#include "kernels/rows/top_two.cuh"

namespace dspark::kernels {
namespace {

inline constexpr int kLanes = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// --- clusters ---

inline constexpr int kMostClusterBlocks = 8;
/// Elements of a block; fewer are not worth one.
inline constexpr std::int32_t kLeastChunk = 1024;

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

/// Drafts a batch entry has in the rows that count, and what the caller gave.
struct Proposed {
  std::int32_t given;
  std::int32_t count;

  __device__ Proposed(const GreedyAcceptArgs& args, std::int64_t b)
      : given(args.lengths[b]), count(max(1, min(args.length, given))) {}
};

/// Stores what the walk reads of a row's law, its margin and its status.
__device__ void store_row(const GreedyAcceptArgs& args, std::int64_t row, const RowLaw& law) {
  args.laws[row].argmax = law.argmax;
  if (law.status != kRowValid) report(args.status, kOpInvalidRow);
  if (args.margin != nullptr) {
    args.margin[row] = law.argmax < 0 ? 0.0f : law.max_logit - law.second_logit;
  }
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/// Has the copy engine bring ids [begin, end) of a row to the L2 cache, a part per warp.
__device__ inline void fetch_to_cache(const float* row, std::int32_t begin, std::int32_t end,
                                      int warps) {
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const std::int32_t part = (end - begin + warps - 1) / warps;
  const std::int32_t first = min(end, begin + warp * part);
  const std::int32_t last = min(end, first + part);
  // Whole units of 16 bytes.
  const std::uintptr_t from = (reinterpret_cast<std::uintptr_t>(row + first) + 15u) / 16u * 16u;
  const std::uintptr_t to = reinterpret_cast<std::uintptr_t>(row + last) / 16u * 16u;
  if (threadIdx.x % kLanes == 0 && from < to) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from),
                 "r"(static_cast<std::uint32_t>(to - from)));
  }
}
#endif

/// A cluster per row: its blocks send their largest two logits to the first one, whose first warp
/// goes on alone. The last row of a batch entry to be done walks; `tickets` counts them, and is 0
/// again after that. Each thread has `kLoads` loads of 16 bytes under way; with one block a
/// multiprocessor the rows are few, and the whole of them is asked for at once.
template <int kBlockThreads, int kLoads, int kBlocks>
__global__ void __launch_bounds__(kBlockThreads, kBlocks)
    cluster_kernel(GreedyAcceptArgs args, std::int32_t blocks, std::int32_t chunk,
                   std::uint32_t* tickets) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __shared__ alignas(8) std::uint64_t arrivals;
  __shared__ uint4 messages[kMostClusterBlocks];
  const Mailbox mailbox(&arrivals);
  const auto rank = static_cast<std::int32_t>(blockIdx.x % blocks);
  const std::int64_t row = blockIdx.x / blocks;
  const std::int64_t width = static_cast<std::int64_t>(args.length) + 1;
  const std::int64_t b = row / width;
  const int thread = static_cast<int>(threadIdx.x);
  const float* logits = args.logits.data + row * args.logits.stride;
  const std::int32_t begin = min(args.logits.vocab, rank * chunk);
  const std::int32_t end = min(args.logits.vocab, begin + chunk);
  if constexpr (kBlocks == 1) {
    // Nothing else uses the memory while the length is on its way.
    fetch_to_cache(logits, begin, end, kBlockThreads / kLanes);
    if (rank == 0 && thread < args.length) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(args.draft + b * args.draft_stride + thread));
    }
  }
  mailbox.open(rank == 0, static_cast<std::uint32_t>(blocks * sizeof(uint4)));
  const Proposed proposed(args, b);
  if (row % width > proposed.count) {
    if (rank == 0 && thread == 0 && args.margin != nullptr) args.margin[row] = 0.0f;
    mailbox.wait_until_open();
    return;
  }
  const TopTwo found = top_two_of_range<kBlockThreads, kLoads>(logits, begin, end);
  mailbox.wait_until_open();
  if (thread == 0) {
    const uint4 message = {static_cast<std::uint32_t>(found.key),
                           static_cast<std::uint32_t>(found.key >> 32), found.second, found.flags};
    if (blocks > 1) {
      mailbox.send(messages + rank, message);
    } else {
      messages[0] =
          message;  // this thread reads it; a cluster of one block has no other to send to
    }
  }
  if (rank != 0 || thread >= kLanes) return;
  if (blocks > 1) mailbox.wait();
  bool walks = false;
  if (thread == 0) {
    TopTwo whole = {0, 0, 0};
    for (int i = 0; i < blocks; ++i) {
      const uint4 message = messages[i];
      whole = MergeTopTwo{}(whole, TopTwo{(static_cast<std::uint64_t>(message.y) << 32) | message.x,
                                          message.z, message.w});
    }
    store_row(args, row, law_of_top_two(whole, SamplingRule{}));
    __threadfence();
    walks = atomicAdd(&tickets[b], 1u) == static_cast<std::uint32_t>(proposed.count);
    __threadfence();
    if (walks) {
      tickets[b] = 0;
      if (proposed.given < 0 || proposed.given > args.draft_stride) {
        report(args.status, kOpBadLength);
      }
    }
  }
  // What the first lane has seen of other blocks, its warp may read.
  __syncwarp();
  if (__shfl_sync(kAllLanes, walks ? 1 : 0, 0) != 0) walk(args, b, proposed.count);
#endif
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
  const Proposed proposed(args, b);
  if (row % width > proposed.count) {
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
    // Only what the walk reads: `total` of the first law is still counting.
    store_row(args, row, law_of_top_two(law, SamplingRule{}));
    __threadfence();
    auto* rows_done = reinterpret_cast<unsigned long long*>(&args.laws[b * width].total);
    walks = atomicAdd(rows_done, 1ull) == static_cast<unsigned long long>(proposed.count);
    __threadfence();
    if (walks && (proposed.given < 0 || proposed.given > args.draft_stride)) {
      report(args.status, kOpBadLength);
    }
  }
  __syncthreads();
  if (walks && threadIdx.x < kLanes) walk(args, b, proposed.count);
}

void launch_clusters(const GreedyAcceptArgs& args, std::uint32_t* tickets, cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(args.batch) * (args.length + 1LL);
  const std::int64_t processors = device_traits().multiprocessors;
  const std::int32_t vocab = args.logits.vocab;
  // Eight blocks a multiprocessor are enough for their ends not to matter.
  std::int32_t blocks = 1;
  while (blocks < kMostClusterBlocks && vocab / (2 * blocks) >= kLeastChunk &&
         rows * blocks < 8 * processors) {
    blocks *= 2;
  }
  // A multiple of 8 keeps the parts of an aligned row aligned.
  const std::int32_t chunk = ((vocab + blocks - 1) / blocks + 7) / 8 * 8;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(blocks);
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid_of(rows * blocks);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const auto launch = [&](auto kernel, int threads) {
    config.blockDim = dim3(static_cast<unsigned>(threads));
    DSPARK_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, args, blocks, chunk, tickets));
  };
  if (rows * blocks <= processors) {
    // A block asks for an eighth of a row of 150,000 at once.
    launch(cluster_kernel<1024, 5, 1>, 1024);
  } else {
    // 96 KiB under way a multiprocessor, more than twice what memory takes to answer at full speed.
    launch(cluster_kernel<512, 4, 3>, 512);
  }
}

/// Entries [first, first + batch) of a call.
GreedyAcceptArgs part_of(GreedyAcceptArgs args, std::int32_t first, std::int32_t batch) {
  const std::int64_t row = first * (args.length + 1LL);
  args.batch = batch;
  args.logits.data += row * args.logits.stride;
  args.draft += static_cast<std::int64_t>(first) * args.draft_stride;
  args.lengths += first;
  args.accepted += row;
  args.accept_length += first;
  if (args.margin != nullptr) args.margin += row;
  args.laws += row;
  return args;
}

}  // namespace

void greedy_accept(const GreedyAcceptArgs& args, std::uint32_t* tickets, cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(args.batch) * (args.length + 1LL);
  if (rows <= 0 || args.logits.vocab <= 0) return;
  if (device_traits().hopper) {
    for (std::int32_t first = 0; first < args.batch; first += kGreedyAcceptTickets) {
      launch_clusters(part_of(args, first, std::min(args.batch - first, kGreedyAcceptTickets)),
                      tickets, stream);
    }
    return;
  }
  DSPARK_CUDA_CHECK(
      cudaMemsetAsync(args.laws, 0, static_cast<std::size_t>(rows) * sizeof(RowLaw), stream));
  const RowSplit split = split_rows(rows, args.logits.vocab, 1024);
  DSPARK_LAUNCH(greedy_kernel, grid_of(rows * split.slices), kThreads, 0, stream, args, split);
}

}  // namespace dspark::kernels
