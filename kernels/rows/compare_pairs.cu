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

/// min(p, q) of two rows without filters. Unrounded masses tell which is the smaller unless they
/// are close, and the other need not be worked out.
struct SmallerProbability {
  float max_target;
  float max_draft;
  float inverse_target;
  float inverse_draft;
  std::uint64_t scale_target;
  std::uint64_t scale_draft;
  // Bounds on a probability are those of its mass, which is within 1 of the unrounded one.
  float above_target, below_target;
  float above_draft, below_draft;

  __device__ SmallerProbability(const RowLaw& target, const RowLaw& draft)
      : max_target(target.max_logit),
        max_draft(draft.max_logit),
        inverse_target(target.inverse_temperature),
        inverse_draft(draft.inverse_temperature),
        scale_target(target.scale),
        scale_draft(draft.scale) {
    constexpr float kMargin = 0x1p-16f;  // far more than the bounds' own rounding
    const float factor_target = static_cast<float>(scale_target);
    const float factor_draft = static_cast<float>(scale_draft);
    above_target = factor_target * (1.0f + kMargin);
    below_target = factor_target * (1.0f - kMargin);
    above_draft = factor_draft * (1.0f + kMargin);
    below_draft = factor_draft * (1.0f - kMargin);
  }
  __device__ std::uint64_t operator()(float target_logit, float draft_logit) const {
    const float p = unrounded_mass(target_logit, max_target, inverse_target);
    const float q = unrounded_mass(draft_logit, max_draft, inverse_draft);
    const bool target_smaller =
        fmaf(p, above_target, above_target) < fmaf(q, below_draft, -below_draft);
    const bool draft_smaller =
        fmaf(q, above_draft, above_draft) < fmaf(p, below_target, -below_target);
    std::uint64_t smaller = mass_to_probability(round_to_integer(draft_smaller ? q : p),
                                                draft_smaller ? scale_draft : scale_target);
    if (!target_smaller && !draft_smaller) {
      smaller = min(smaller, mass_to_probability(round_to_integer(q), scale_draft));
    }
    return smaller;
  }
};

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
  const float* target_row = args.target.data + pair.target_row * args.target.stride;
  const float* draft_row = args.draft.data + pair.draft_row * args.draft.stride;
  std::uint64_t sum = 0;
  if (target.boundary_key == 0 && draft.boundary_key == 0) {
    const SmallerProbability smaller(target, draft);
    visit_rows(target_row, draft_row, begin, end,
               [&](std::int32_t, float target_logit, float draft_logit) {
                 sum += smaller(target_logit, draft_logit);
               });
  } else {
    visit_rows(target_row, draft_row, begin, end,
               [&](std::int32_t id, float target_logit, float draft_logit) {
                 sum += min(law_probability(target, target_logit, id),
                            law_probability(draft, draft_logit, id));
               });
  }
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
