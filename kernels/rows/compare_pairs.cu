#include "kernels/rows/compare_pairs.h"

#include <cub/block/block_reduce.cuh>

#include "kernels/common/launch.cuh"
#include "kernels/common/visit.cuh"

namespace dspark::kernels {
namespace {

/// Everything about a pair but the sum over the vocabulary.
__global__ void __launch_bounds__(kThreads) start_kernel(ComparePairsArgs args) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= args.pairs.size) return;
  const RowPair pair = args.pairs.data[i];
  PairOutcome out = {0, 0, 0, 0.0f, 0};
  if (pair.target_row >= 0 && pair.target_row < args.target.rows && pair.draft_row >= 0 &&
      pair.draft_row < args.draft.rows && pair.token >= 0 && pair.token < args.target.vocab) {
    const RowLaw target = args.target_laws.data[pair.target_row];
    const RowLaw draft = args.draft_laws.data[pair.draft_row];
    if (target.status == kRowValid && draft.status == kRowValid) {
      out.target_logit = args.target.data[pair.target_row * args.target.stride + pair.token];
      out.target_token = law_probability(target, out.target_logit, pair.token);
      out.draft_token = law_probability(
          draft, args.draft.data[pair.draft_row * args.draft.stride + pair.token], pair.token);
      out.valid = 1;
    }
  }
  args.out.data[i] = out;
}

__global__ void __launch_bounds__(kThreads) alpha_kernel(ComparePairsArgs args, RowSplit split) {
  using Reduce = cub::BlockReduce<std::uint64_t, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const std::int64_t i = blockIdx.x / split.slices;
  const std::int32_t begin = static_cast<std::int32_t>(blockIdx.x % split.slices) * split.length;
  const std::int32_t end = min(args.target.vocab, begin + split.length);
  PairOutcome& out = args.out.data[i];
  if (out.valid == 0) return;
  const RowPair pair = args.pairs.data[i];
  const RowLaw target = args.target_laws.data[pair.target_row];
  const RowLaw draft = args.draft_laws.data[pair.draft_row];
  std::uint64_t sum = 0;
  visit_rows(args.target.data + pair.target_row * args.target.stride,
             args.draft.data + pair.draft_row * args.draft.stride, begin, end,
             [&](std::int32_t id, float target_logit, float draft_logit) {
               sum += min(law_probability(target, target_logit, id),
                          law_probability(draft, draft_logit, id));
             });
  sum = Reduce(storage).Sum(sum);
  if (threadIdx.x == 0 && sum != 0) atomic_add(&out.alpha, sum);
}

}  // namespace

void compare_pairs(const ComparePairsArgs& args, cudaStream_t stream) {
  if (args.pairs.size <= 0) return;
  DSPARK_LAUNCH(start_kernel, grid_for_items(args.pairs.size), kThreads, 0, stream, args);
  if (args.target.vocab <= 0) return;
  const RowSplit split = split_rows(args.pairs.size, args.target.vocab, 1024);
  DSPARK_LAUNCH(alpha_kernel, grid_of(args.pairs.size * split.slices), kThreads, 0, stream, args,
                split);
}

}  // namespace dspark::kernels
