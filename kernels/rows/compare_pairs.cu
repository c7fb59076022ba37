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

/// Pairs that a block looks through; it works on those of its slice that start a chain.
inline constexpr int kGroup = 16;
inline constexpr int kQuads = 4;  // of each thread
inline constexpr std::int32_t kPart = 4 * kQuads * kThreads;

/// A thread's quads of a row's part: quad u of the thread starts at element 4 (u kThreads +
/// thread).
struct PartQuads {
  float4 values[kQuads];

  /// `row` starts at the part; elements from `count` on are -inf.
  __device__ void load(const float* row, std::int32_t count) {
    const bool aligned = (reinterpret_cast<std::uintptr_t>(row) & 15u) == 0;
#pragma unroll
    for (int u = 0; u < kQuads; ++u) {
      const std::int32_t at = 4 * (u * kThreads + static_cast<std::int32_t>(threadIdx.x));
      if (aligned && at + 4 <= count) {
        values[u] = *reinterpret_cast<const float4*>(row + at);
      } else {
        const float nothing = -__builtin_huge_valf();
        values[u] = {at < count ? row[at] : nothing, at + 1 < count ? row[at + 1] : nothing,
                     at + 2 < count ? row[at + 2] : nothing,
                     at + 3 < count ? row[at + 3] : nothing};
      }
    }
  }
};

struct FourProbabilities {
  std::uint64_t values[4];
};

/// Under filters, or with a mass of more than a word: seldom, and long, so not inlined.
__device__ __noinline__ FourProbabilities any_probabilities(const RowLaw& law, float4 logits,
                                                            std::int32_t id) {
  return {{law_probability(law, logits.x, id), law_probability(law, logits.y, id + 1),
           law_probability(law, logits.z, id + 2), law_probability(law, logits.w, id + 3)}};
}

/// Probabilities of four tokens, the first of them `id`.
__device__ inline FourProbabilities probabilities_of(const RowLaw& law, const float4& logits,
                                                     std::int32_t id) {
  const float mass[4] = {unrounded_mass(logits.x, law.max_logit, law.inverse_temperature),
                         unrounded_mass(logits.y, law.max_logit, law.inverse_temperature),
                         unrounded_mass(logits.z, law.max_logit, law.inverse_temperature),
                         unrounded_mass(logits.w, law.max_logit, law.inverse_temperature)};
  const float most = fmaxf(fmaxf(mass[0], mass[1]), fmaxf(mass[2], mass[3]));
  if (law.boundary_key != 0 || most >= 0x1p31f) return any_probabilities(law, logits, id);
  FourProbabilities out;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    out.values[c] = word_to_probability(__float2uint_rn(mass[c]), law.scale);
  }
  return out;
}

/// Σ min(p, q) over a part of the vocabulary. Pairs i, i + chain, i + 2 chain, ... that name one
/// target row are a chain: its first pair's block works out the target's probabilities once.
__global__ void __launch_bounds__(kThreads, 3)
    alpha_kernel(ComparePairsArgs args, std::int32_t parts) {
  using Reduce = cub::BlockReduce<std::uint64_t, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const std::int32_t begin = static_cast<std::int32_t>(blockIdx.x % parts) * kPart;
  const std::int32_t count = min(args.target.vocab - begin, kPart);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x / parts) * kGroup;
  const std::int64_t last = min(args.pairs.size, first + kGroup);
  const auto target_row_of = [&](std::int64_t i) { return args.pairs.data[i].target_row; };
  for (std::int64_t head = first; head < last; ++head) {
    const std::int32_t row = target_row_of(head);
    if (args.chain > 0 && head >= args.chain && target_row_of(head - args.chain) == row) continue;
    if (row < 0 || row >= args.target.rows) continue;
    const RowLaw target = args.target_laws.data[row];
    if (target.status != kRowValid) continue;
    FourProbabilities p[kQuads];
    {
      PartQuads quads;
      quads.load(args.target.data + row * args.target.stride + begin, count);
#pragma unroll
      for (int u = 0; u < kQuads; ++u) {
        const std::int32_t at = 4 * (u * kThreads + static_cast<std::int32_t>(threadIdx.x));
        p[u] = probabilities_of(target, quads.values[u], begin + at);
      }
    }
    for (std::int64_t i = head; i < args.pairs.size && target_row_of(i) == row; i += args.chain) {
      if (args.out.data[i].valid != 0) {
        const std::int64_t draft_row = args.pairs.data[i].draft_row;
        const RowLaw draft = args.draft_laws.data[draft_row];
        PartQuads quads;
        quads.load(args.draft.data + draft_row * args.draft.stride + begin, count);
        std::uint64_t sum = 0;
#pragma unroll
        for (int u = 0; u < kQuads; ++u) {
          const std::int32_t at = 4 * (u * kThreads + static_cast<std::int32_t>(threadIdx.x));
          const FourProbabilities q = probabilities_of(draft, quads.values[u], begin + at);
#pragma unroll
          for (int c = 0; c < 4; ++c) sum += min(p[u].values[c], q.values[c]);
        }
        sum = Reduce(storage).Sum(sum);
        if (threadIdx.x == 0 && sum != 0) atomic_add(&args.out.data[i].alpha, sum);
        __syncthreads();
      }
      if (args.chain == 0) break;
    }
  }
}

}  // namespace

void compare_pairs(const ComparePairsArgs& args, cudaStream_t stream) {
  if (args.pairs.size <= 0) return;
  DSPARK_LAUNCH(start_kernel, grid_for_items(args.pairs.size), kThreads, 0, stream, args);
  if (args.target.vocab <= 0) return;
  const std::int32_t parts = (args.target.vocab + kPart - 1) / kPart;
  const std::int64_t groups = (args.pairs.size + kGroup - 1) / kGroup;
  DSPARK_LAUNCH(alpha_kernel, grid_of(groups * parts), kThreads, 0, stream, args, parts);
}

}  // namespace dspark::kernels
