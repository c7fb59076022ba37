#include "kernels/rows/row_laws.h"

#include <cub/block/block_reduce.cuh>

#include "kernels/common/launch.cuh"
#include "kernels/common/visit.cuh"
#include "kernels/rows/boundary.cuh"
#include "kernels/rows/row_cluster.cuh"
#include "kernels/rows/top_two.cuh"

// How a filter finds its boundary token without sorting the row: tokens are counted and their
// masses summed in bins of equal distance to the largest logit (1/64 nat each); the bin that holds
// the boundary is known then, its few tokens are gathered, sorted and walked. Bins never split
// equal logits, and sums are of integers, so the result is exact.

namespace dspark::kernels {
namespace {

inline constexpr int kSolveThreads = 512;
inline constexpr int kEach = kPerSolver<kSolveThreads>;
/// Rows that are filtered in one go: bounds the workspace, and keeps thousands of blocks in a
/// launch.
inline constexpr std::int64_t kFilterRows = 1024;

/// What is known of a row between the passes.
struct FilterState {
  std::uint64_t mass_above;  // of the tokens in bins before `first_bin`
  std::uint64_t target;      // mass to reach; 0 while it depends on the top-k set
  std::uint32_t count_above;
  std::uint32_t gathered;
  std::uint32_t first_bin;
  std::uint32_t
      last_bin;  // below first_bin: too many tokens, the row is searched by its block alone
};

struct FilterWorkspace {
  std::uint64_t* mass;        // [rows, kBins]
  std::uint32_t* count;       // [rows, kBins]
  FilterState* state;         // [rows]
  std::uint64_t* candidates;  // [rows, kCandidates], token keys
};

constexpr std::size_t kRowWorkspace = kBins * (sizeof(std::uint64_t) + sizeof(std::uint32_t)) +
                                      sizeof(FilterState) + kCandidates * sizeof(std::uint64_t);

FilterWorkspace divide(const Scratch& workspace, std::int64_t rows) {
  FilterWorkspace out;
  out.mass = static_cast<std::uint64_t*>(workspace.data);
  out.candidates = out.mass + rows * kBins;
  out.state = reinterpret_cast<FilterState*>(out.candidates + rows * kCandidates);
  out.count = reinterpret_cast<std::uint32_t*>(out.state + rows);
  return out;
}

/// The bin of a logit: monotone, so that bins hold neighbours in rank. The last bin starts where
/// masses have become 0.
__device__ std::uint32_t bin_of(float logit, const RowLaw& law) {
  const float distance = (law.max_logit - logit) * law.inverse_temperature * 64.0f;
  return distance < static_cast<float>(kBins - 1) ? static_cast<std::uint32_t>(distance)
                                                  : kBins - 1;  // NaN (inf times 0) too
}

__global__ void __launch_bounds__(kThreads)
    top_two_kernel(Rows logits, RowLaw* laws, SamplingRule rule, RowSplit split) {
  const std::int64_t row = blockIdx.x / split.slices;
  const std::int32_t begin = static_cast<std::int32_t>(blockIdx.x % split.slices) * split.length;
  const std::int32_t end = min(logits.vocab, begin + split.length);
  RowLaw& law = laws[row];
  const TopTwo found = top_two_of_range(logits.data + row * logits.stride, begin, end);
  if (threadIdx.x == 0) add_top_two(law, found);
  if (last_block_to_arrive(&law.reserved, static_cast<std::uint32_t>(split.slices)) &&
      threadIdx.x == 0) {
    law = law_of_top_two(law, rule);
  }
}

__global__ void __launch_bounds__(kThreads)
    total_kernel(Rows logits, RowLaw* laws, RowSplit split) {
  using Reduce = cub::BlockReduce<std::uint64_t, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const std::int64_t row = blockIdx.x / split.slices;
  const std::int32_t begin = static_cast<std::int32_t>(blockIdx.x % split.slices) * split.length;
  const std::int32_t end = min(logits.vocab, begin + split.length);
  RowLaw& law = laws[row];
  if (law.status != kRowValid) return;
  const float max_logit = law.max_logit;
  const float inverse_temperature = law.inverse_temperature;
  std::uint64_t sum = 0;
  visit_row(logits.data + row * logits.stride, begin, end, [&](std::int32_t, float value) {
    sum += unfiltered_mass(value, max_logit, inverse_temperature);
  });
  sum = Reduce(storage).Sum(sum);
  if (threadIdx.x == 0) atomic_add(&law.total, sum);
  if (last_block_to_arrive(&law.reserved, static_cast<std::uint32_t>(split.slices)) &&
      threadIdx.x == 0) {
    law.scale = law_scale(read_shared_state(law.total));
    law.reserved = 0;
  }
}

__global__ void __launch_bounds__(kThreads)
    bin_kernel(Rows logits, const RowLaw* laws, FilterWorkspace workspace, RowSplit split) {
  __shared__ SharedBins bins;
  const std::int64_t row = blockIdx.x / split.slices;
  const std::int32_t begin = static_cast<std::int32_t>(blockIdx.x % split.slices) * split.length;
  const std::int32_t end = min(logits.vocab, begin + split.length);
  const RowLaw law = laws[row];
  if (law.status != kRowValid) return;
  bins.clear();
  __syncthreads();
  visit_row(logits.data + row * logits.stride, begin, end, [&](std::int32_t, float value) {
    const std::uint32_t bin = bin_of(value, law);
    // The last bin's count is what the others leave, and its mass is 0.
    if (bin < kBins - 1) {
      bins.add(bin, unfiltered_mass(value, law.max_logit, law.inverse_temperature));
    }
  });
  __syncthreads();
  for (int bin = static_cast<int>(threadIdx.x); bin < kBins - 1; bin += kThreads) {
    if (bins.count[bin] != 0) {
      atomicAdd(&workspace.count[row * kBins + bin], bins.count[bin]);
      const std::uint64_t mass = bins.mass(bin);
      if (mass != 0) atomic_add(&workspace.mass[row * kBins + bin], mass);
    }
  }
}

/// Decides, per row, which bins to gather.
__global__ void __launch_bounds__(kSolveThreads)
    choose_kernel(std::int32_t vocab, const RowLaw* laws, SamplingRule rule,
                  FilterWorkspace workspace) {
  __shared__ SolveStorage<kSolveThreads> storage;
  const std::int64_t row = blockIdx.x;
  if (laws[row].status != kRowValid) return;
  BlockBins<kSolveThreads> bins;
  std::uint64_t counted = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const std::int64_t at = row * kBins + threadIdx.x * kEach + i;
    bins.count[i] = workspace.count[at];
    bins.mass[i] = workspace.mass[at];
    counted += bins.count[i];
  }
  std::uint64_t before;
  std::uint64_t total_count;
  SolveScan<kSolveThreads>(storage.scan).ExclusiveSum(counted, before, total_count);
  __syncthreads();
  if (threadIdx.x == kSolveThreads - 1) {
    bins.count[kEach - 1] += static_cast<std::uint64_t>(vocab) - total_count;
  }
  bins.scan(storage);

  FilterState state = {0, 0, 0, 0, 1, 0};
  if (rule.top_k == 0) {
    state.target = top_p_target(bins.total_mass, rule.top_p);
    const BinPrefix found = bins.find(storage, true, state.target);
    if (found.count <= kCandidates) {
      state.first_bin = found.bin;
      state.last_bin = found.bin;
      state.count_above = found.count_before;
      state.mass_above = found.mass_before;
    }
  } else {
    const BinPrefix found = bins.find(storage, false, static_cast<std::uint64_t>(rule.top_k));
    if (rule.top_p == 0) {
      if (found.count <= kCandidates) {
        state.first_bin = found.bin;
        state.last_bin = found.bin;
        state.count_above = found.count_before;
        state.mass_above = found.mass_before;
      }
    } else if (found.count_before + found.count <= kCandidates) {
      // Both filters: the whole top-k set is gathered, top-p's boundary is in it.
      state.first_bin = 0;
      state.last_bin = found.bin;
    }
  }
  if (threadIdx.x == 0) workspace.state[row] = state;
}

__global__ void __launch_bounds__(kThreads)
    gather_kernel(Rows logits, const RowLaw* laws, FilterWorkspace workspace, RowSplit split) {
  const std::int64_t row = blockIdx.x / split.slices;
  const std::int32_t begin = static_cast<std::int32_t>(blockIdx.x % split.slices) * split.length;
  const std::int32_t end = min(logits.vocab, begin + split.length);
  const RowLaw law = laws[row];
  if (law.status != kRowValid) return;
  FilterState& state = workspace.state[row];
  const std::uint32_t first_bin = state.first_bin;
  const std::uint32_t last_bin = state.last_bin;
  if (first_bin > last_bin) return;
  visit_row(logits.data + row * logits.stride, begin, end, [&](std::int32_t id, float value) {
    const std::uint32_t bin = bin_of(value, law);
    if (bin >= first_bin && bin <= last_bin) {
      const std::uint32_t place = atomicAdd(&state.gathered, 1u);
      if (place < kCandidates)
        workspace.candidates[row * kCandidates + place] = token_key(value, id);
    }
  });
}

__global__ void __launch_bounds__(kSolveThreads)
    solve_kernel(Rows logits, RowLaw* laws, SamplingRule rule, FilterWorkspace workspace) {
  __shared__ SolveStorage<kSolveThreads> storage;
  __shared__ union {
    SharedBins bins;
    std::uint64_t keys[kCandidates];
  } memory;
  __shared__ Boundary found;
  __shared__ std::uint64_t found_target;

  const std::int64_t row = blockIdx.x;
  const RowLaw law = laws[row];
  if (law.status != kRowValid) return;
  const FilterState state = workspace.state[row];

  if (state.first_bin > state.last_bin) {
    const float* source = logits.data + row * logits.stride;
    std::uint64_t target = state.target;
    Boundary boundary = {};
    if (rule.top_k != 0) {
      boundary = search_row(source, logits.vocab, law, false,
                            static_cast<std::uint64_t>(rule.top_k), memory.bins, storage);
      if (rule.top_p != 0) {
        target = top_p_target(boundary.mass_before + key_mass(boundary.key, law), rule.top_p);
      }
    }
    if (rule.top_p != 0) {
      boundary = search_row(source, logits.vocab, law, true, target, memory.bins, storage);
    }
    if (threadIdx.x == 0) finish_law(laws[row], rule, boundary, target);
    return;
  }

  const int gathered = static_cast<int>(state.gathered);
  int size = 2;
  while (size < gathered) size *= 2;
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kSolveThreads) {
    memory.keys[i] = i < gathered ? workspace.candidates[row * kCandidates + i] : 0;
  }
  __syncthreads();
  sort_descending<kSolveThreads>(memory.keys, size);

  std::uint64_t mass[kEach];
  std::uint64_t before[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = static_cast<int>(threadIdx.x) * kEach + i;
    mass[i] = at < gathered ? key_mass(memory.keys[at], law) : 0;
  }
  SolveScan<kSolveThreads>(storage.scan).ExclusiveSum(mass, before);
  __syncthreads();
  // Rank of the last token of the top-k set among those gathered; without top-k there is no such
  // token.
  const int last = rule.top_k != 0 ? rule.top_k - 1 - static_cast<int>(state.count_above) : -1;
  if (rule.top_p == 0 || state.target == 0) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (static_cast<int>(threadIdx.x) * kEach + i == last) {
        found = {memory.keys[last], state.mass_above + before[i]};
        found_target = rule.top_p == 0 ? 0 : top_p_target(before[i] + mass[i], rule.top_p);
      }
    }
    __syncthreads();
  } else if (threadIdx.x == 0) {
    found_target = state.target;
  }
  __syncthreads();
  if (rule.top_p != 0) {
    const std::uint64_t needed = found_target - state.mass_above;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (before[i] < needed && needed <= before[i] + mass[i]) {
        found = {memory.keys[static_cast<int>(threadIdx.x) * kEach + i],
                 state.mass_above + before[i]};
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) finish_law(laws[row], rule, found, found_target);
}

}  // namespace

SamplingRule effective_rule(SamplingRule rule, std::int32_t vocab) {
  if (rule.top_k >= vocab) rule.top_k = 0;
  if (rule.greedy) {
    rule.top_k = 0;
    rule.top_p = 0;
  }
  return rule;
}

std::size_t row_laws_workspace(std::int64_t rows, const SamplingRule& rule) {
  if (rule.greedy || (rule.top_k == 0 && rule.top_p == 0) || rows <= 0) return 0;
  return static_cast<std::size_t>(rows < kFilterRows ? rows : kFilterRows) * kRowWorkspace;
}

void row_laws(const RowLawsArgs& args, const Scratch& workspace, cudaStream_t stream) {
  const Rows& logits = args.logits;
  if (logits.rows <= 0 || logits.vocab <= 0) return;
  const SamplingRule rule = effective_rule(args.rule, logits.vocab);
  const ClusterShape shape = cluster_shape(logits, rule);
  if (shape.blocks > 0) {
    launch_row_clusters(logits, rule, shape, LawSink{args.laws.data}, stream);
    return;
  }

  const RowSplit split = split_rows(logits.rows, logits.vocab, 1024);
  DSPARK_CUDA_CHECK(cudaMemsetAsync(
      args.laws.data, 0, static_cast<std::size_t>(logits.rows) * sizeof(RowLaw), stream));
  DSPARK_LAUNCH(top_two_kernel, grid_of(logits.rows * split.slices), kThreads, 0, stream, logits,
                args.laws.data, rule, split);
  if (rule.greedy) return;
  if (rule.top_k == 0 && rule.top_p == 0) {
    DSPARK_LAUNCH(total_kernel, grid_of(logits.rows * split.slices), kThreads, 0, stream, logits,
                  args.laws.data, split);
    return;
  }

  if (workspace.bytes < row_laws_workspace(logits.rows, rule)) {
    throw_launch_error("row_laws", "the workspace is too small");
  }
  for (std::int64_t first = 0; first < logits.rows; first += kFilterRows) {
    Rows part = logits;
    part.rows = logits.rows - first < kFilterRows ? logits.rows - first : kFilterRows;
    part.data = logits.data + first * logits.stride;
    RowLaw* laws = args.laws.data + first;
    const FilterWorkspace memory = divide(workspace, part.rows);
    const RowSplit part_split = split_rows(part.rows, part.vocab, 4096);
    const dim3 grid = grid_of(part.rows * part_split.slices);
    const std::size_t bins = static_cast<std::size_t>(part.rows) * kBins;
    DSPARK_CUDA_CHECK(cudaMemsetAsync(memory.mass, 0, bins * sizeof(std::uint64_t), stream));
    DSPARK_CUDA_CHECK(cudaMemsetAsync(memory.count, 0, bins * sizeof(std::uint32_t), stream));
    DSPARK_LAUNCH(bin_kernel, grid, kThreads, 0, stream, part, laws, memory, part_split);
    DSPARK_LAUNCH(choose_kernel, grid_of(part.rows), kSolveThreads, 0, stream, part.vocab, laws,
                  rule, memory);
    DSPARK_LAUNCH(gather_kernel, grid, kThreads, 0, stream, part, laws, memory, part_split);
    DSPARK_LAUNCH(solve_kernel, grid_of(part.rows), kSolveThreads, 0, stream, part, laws, rule,
                  memory);
  }
}

}  // namespace dspark::kernels
