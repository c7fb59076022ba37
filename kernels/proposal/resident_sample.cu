#include "kernels/proposal/resident_sample.h"

#include <cstdint>

#include "core/law.h"
#include "core/random.h"
#include "kernels/common/inverse_cdf.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/mass.cuh"
#include "kernels/common/visit.cuh"
#include "kernels/rows/markov_tensor.h"
#include "kernels/rows/markov_tile.cuh"
#include "kernels/rows/top_two.cuh"

// Every block owns a part of the vocabulary. Its logits of a step stay in shared memory, where they
// become masses, then probabilities, then weights; after each of these the blocks meet, as each
// needs a number of the whole row: the largest logit, the sum of the masses, the sums of the
// weights, and the token that was drawn.

namespace dspark::kernels {
namespace {

using markov::kColumns;
using markov::kTile;
using markov::WeightStage;
using markov::WeightTile;

inline constexpr int kWarps = 8;
inline constexpr int kRank = 256;
/// Shared memory for logits beside three tiles of each warp, or beside two.
inline constexpr std::size_t kSmallLogits = 24 * 1024;
inline constexpr std::size_t kLargeLogits = 80 * 1024;

/// What blocks tell each other of each of kColumns rows: words that carry their step's tag, so that
/// who waits for a word has it when it is there. All are zero before the launch. A word is not
/// written again before all have read it: what follows it in a step needs something of every block
/// that has.
struct Meeting {
  std::uint64_t* largest;  // [kColumns, blocks]: order code of the largest logit, and flags
  std::uint64_t* masses;   // [kColumns, blocks]
  std::uint64_t* weights;  // [kColumns, blocks]
  std::uint64_t* tokens;   // [kColumns]
};

/// Above the tag's bits a word has no room; a block's sum has at most 2^40 for each of its tokens.
inline constexpr int kTagShift = 56;
inline constexpr std::uint64_t kValue = (std::uint64_t{1} << kTagShift) - 1;
inline constexpr std::int64_t kMostOwn = 1 << 15;
/// Blocks whose words a warp waits for at once.
inline constexpr int kMostBlocks = 256;

__device__ inline void post(std::uint64_t* place, int step, std::uint64_t value) {
  *static_cast<volatile std::uint64_t*>(place) =
      static_cast<std::uint64_t>(step + 1) << kTagShift | value;
}

/// take(block, value) for the words of all blocks in this step, by the lanes of a warp.
template <class Take>
__device__ void gather(const std::uint64_t* words, int blocks, int step, Take&& take) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto tag = static_cast<std::uint64_t>(step + 1);
  std::uint64_t word[kMostBlocks / 32];
  bool missing;
  do {
    missing = false;
#pragma unroll
    for (int i = 0; i < kMostBlocks / 32; ++i) {
      const int at = lane + 32 * i;
      word[i] = at < blocks ? read_shared_state(words[at]) : tag << kTagShift;
    }
#pragma unroll
    for (int i = 0; i < kMostBlocks / 32; ++i) missing |= word[i] >> kTagShift != tag;
  } while (__any_sync(0xFFFFFFFFu, missing));
#pragma unroll
  for (int i = 0; i < kMostBlocks / 32; ++i) {
    const int at = lane + 32 * i;
    if (at < blocks) take(at, word[i] & kValue);
  }
}

/// The word of one place in this step.
__device__ inline std::uint64_t wait_for(const std::uint64_t* place, int step) {
  std::uint64_t word;
  do {
    word = read_shared_state(*place);
  } while (word >> kTagShift != static_cast<std::uint64_t>(step + 1));
  return word & kValue;
}

std::size_t row_words() {
  return kColumns * static_cast<std::size_t>(device_traits().multiprocessors);
}

std::size_t meeting_bytes() { return (3 * row_words() + kColumns) * sizeof(std::uint64_t); }

/// Tiles of each warp.
std::int64_t tiles_each(std::int32_t vocab) {
  const std::int64_t tiles = (static_cast<std::int64_t>(vocab) + kTile - 1) / kTile;
  const std::int64_t warps = device_traits().multiprocessors * kWarps;
  return (tiles + warps - 1) / warps;
}

std::size_t logits_bytes(const VanillaMarkovSampleArgs& args) {
  return static_cast<std::size_t>(args.batch) *
         static_cast<std::size_t>(tiles_each(args.backbone.vocab)) * kWarps * kTile * sizeof(float);
}

/// A lane's part of the backbone's tile: columns 2t and 2t + 1, rows g and g + 8.
struct Base {
  float values[4];

  __device__ void load(const VanillaMarkovSampleArgs& args, const std::int64_t (&from)[2],
                       std::int64_t tile) {
    const std::int64_t v = tile * kTile + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float* row = args.backbone.data + from[c] + v;
      values[c] = from[c] >= 0 && v < args.backbone.vocab ? __ldcs(row) : 0.0f;
      values[2 + c] = from[c] >= 0 && v + 8 < args.backbone.vocab ? __ldcs(row + 8) : 0.0f;
    }
  }
};

/// Where the backbone of row m begins in a step; -1: outside.
__device__ inline std::int64_t backbone_offset(const VanillaMarkovSampleArgs& args, std::int64_t m,
                                               int step) {
  const std::int64_t stride = args.logits_stride > 0 ? args.logits_stride : args.block_size;
  const std::int64_t row = m * stride + step + args.logits_offset;
  return row >= 0 && row < args.backbone.rows ? row * args.backbone.stride : -1;
}

template <DType kType, int kStages>
__global__ void __launch_bounds__(kWarps * 32, 1)
    resident_kernel(VanillaMarkovSampleArgs args, SamplingRule rule, std::int64_t each,
                    Meeting meeting) {
  using Weights = WeightTile<kType, kRank>;
  extern __shared__ __align__(16) unsigned char dynamic[];
  __shared__ std::uint64_t warp_sums[kWarps];
  __shared__ std::uint32_t warp_flags[kWarps];
  // What a row's first warp has gathered.
  __shared__ std::uint64_t row_value[kColumns];
  __shared__ std::uint64_t row_before[kColumns];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int blocks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x);
  const std::int32_t vocab = args.backbone.vocab;
  const int steps = args.block_size;

  // The block's tokens, and its rows of logits.
  const int width = static_cast<int>(each) * kWarps * kTile;
  const std::int64_t first_token = static_cast<std::int64_t>(block) * width;
  const int own = static_cast<int>(
      max(std::int64_t{0}, min(static_cast<std::int64_t>(width), vocab - first_token)));
  float* const logits =
      reinterpret_cast<float*>(dynamic + sizeof(WeightStage<kType, kRank>) * kWarps * kStages);

  const std::int64_t first_tile = (static_cast<std::int64_t>(block) * kWarps + warp) * each;
  const markov::ChainWalk walk(first_tile, each,
                               (static_cast<std::int64_t>(vocab) + kTile - 1) / kTile, steps);
  markov::WeightStream<kType, kRank, kStages, markov::ChainWalk> stream(dynamic, args.w2, vocab,
                                                                        walk);

  // Beside the products a warp works on a segment of one row.
  const int row_places = args.batch <= 1 ? 1 : args.batch <= 2 ? 2 : args.batch <= 4 ? 4 : 8;
  const int row_warps = kWarps / row_places;
  const int m = warp / row_warps;
  const int part = warp % row_warps;
  const bool works = m < args.batch;
  const int segment = ((own + row_warps - 1) / row_warps + 31) / 32 * 32;
  const int begin = min(own, part * segment);
  const int end = works ? min(own, begin + segment) : begin;
  float* const row = logits + m * width;
  const bool leads = works && part == 0;
  /// The block's sum over a row's warps, to every block.
  const auto tell = [&](std::uint64_t sum, std::uint64_t* words, int step) {
    sum = sum_warp(sum);
    if (lane == 0) warp_sums[warp] = sum;
    __syncthreads();
    if (leads && lane == 0) {
      std::uint64_t all = 0;
      for (int w = 0; w < row_warps; ++w) all += warp_sums[warp + w];
      post(words + m * blocks + block, step, all);
    }
  };

  const int units = static_cast<int>(args.w1.cols) / 8;
  const float nan = __uint_as_float(0x7FC00000u);
  std::int64_t base_from[2];
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    base_from[c] = 2 * t + c < args.batch ? backbone_offset(args, 2 * t + c, 0) : -1;
  }
  Base base = {};
  if (walk.each > 0) base.load(args, base_from, walk.tile(0));
  for (int step = 0; step < steps; ++step) {
    // Logits of the block's tokens.
    std::int64_t previous = -1;
    if (g < args.batch) {
      const std::int64_t token =
          step == 0 ? args.first_previous[g]
                    : static_cast<std::int64_t>(wait_for(meeting.tokens + g, step - 1));
      std::uint32_t problems = kOpOk;
      if (token < 0 || token >= args.w1.rows) problems |= kOpBadToken;
      if (backbone_offset(args, g, step) < 0) problems |= kOpBadRow;
      if (problems == kOpOk) {
        previous = token;
      } else if (block == 0 && warp == 0 && t == 0) {
        report(args.status, problems);
      }
    }
    const bool good[2] = {__shfl_sync(0xFFFFFFFFu, previous, 8 * t) >= 0,
                          __shfl_sync(0xFFFFFFFFu, previous, 8 * t + 4) >= 0};
    uint4 factor[Weights::kFactors];
#pragma unroll
    for (int f = 0; f < Weights::kFactors; ++f) {
      const int unit = Weights::factor_unit(f, t);
      factor[f] = previous >= 0 && unit < units
                      ? markov::load_weights(static_cast<const unsigned char*>(args.w1.data) +
                                             (previous * args.w1.stride + unit * 8) * 2)
                      : uint4{0, 0, 0, 0};
    }
    const std::int64_t from = step * walk.each;
    Weights weights;
    for (std::int64_t i = 0; i < walk.each; ++i) {
      stream.take(from + i, weights);
      const std::int64_t tile = walk.tile(from + i);
      Base next = {};
      if (i + 1 < walk.each) next.load(args, base_from, walk.tile(from + i + 1));
      float sum[4] = {0, 0, 0, 0};
#pragma unroll
      for (int f = 0; f < Weights::kFactors; ++f) weights.add_factor(sum, f, factor[f]);
      const int at = static_cast<int>(tile * kTile - first_token) + g;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (2 * t + c >= args.batch) continue;
        float* const place = logits + (2 * t + c) * width + at;
        if (at < own) place[0] = good[c] ? base.values[c] + sum[c] : nan;
        if (at + 8 < own) place[8] = good[c] ? base.values[2 + c] + sum[2 + c] : nan;
      }
      base = next;
    }
    if (walk.each > 0 && step + 1 < steps) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        base_from[c] = 2 * t + c < args.batch ? backbone_offset(args, 2 * t + c, step + 1) : -1;
      }
      base.load(args, base_from, walk.tile(from + walk.each));
    }
    __syncthreads();

    // The row's largest logit, and whether it is valid.
    {
      std::uint32_t code = 0;
      std::uint32_t flags = 0;
      for (int i = begin + lane; i < end; i += 32) {
        const std::uint32_t own_code = order_code(row[i]);
        code = max(code, own_code);
        if (own_code == 0) flags |= kRowNaN;
        if (own_code == kPlusInfinityCode) flags |= kRowPlusInfinity;
        if (own_code > kMinusInfinityCode && own_code < kPlusInfinityCode) flags |= kSawFinite;
      }
      code = __reduce_max_sync(0xFFFFFFFFu, code);
      flags = __reduce_or_sync(0xFFFFFFFFu, flags);
      if (lane == 0) {
        warp_sums[warp] = code;
        warp_flags[warp] = flags;
      }
      __syncthreads();
      if (leads) {
        for (int w = 1; w < row_warps; ++w) {
          code = max(code, static_cast<std::uint32_t>(warp_sums[warp + w]));
          flags |= warp_flags[warp + w];
        }
        if (lane == 0) {
          post(meeting.largest + m * blocks + block, step,
               static_cast<std::uint64_t>(flags) << 32 | code);
        }
        gather(meeting.largest + m * blocks, blocks, step, [&](int, std::uint64_t value) {
          code = max(code, static_cast<std::uint32_t>(value));
          flags |= static_cast<std::uint32_t>(value >> 32);
        });
        code = __reduce_max_sync(0xFFFFFFFFu, code);
        flags = __reduce_or_sync(0xFFFFFFFFu, flags);
        if (lane == 0) row_value[m] = static_cast<std::uint64_t>(flags) << 32 | code;
      }
      __syncthreads();
    }
    const auto code = static_cast<std::uint32_t>(works ? row_value[m] : 0);
    const auto flags = static_cast<std::uint32_t>(works ? row_value[m] >> 32 : 0);
    const bool valid = (flags & (kRowNaN | kRowPlusInfinity)) == 0 && (flags & kSawFinite) != 0;
    if (leads && !valid && block == 0 && lane == 0) report(args.status, kOpInvalidRow);

    // Masses in the place of logits.
    {
      const float max_logit = float_from_order_code(code);
      std::uint64_t sum = 0;
      for (int i = begin + lane; i < end; i += 32) {
        const float mass =
            valid ? unrounded_mass(row[i], max_logit, rule.inverse_temperature) : 0.0f;
        row[i] = mass;
        sum += round_to_integer(mass);
      }
      tell(sum, meeting.masses, step);
    }

    // Probabilities in their place.
    {
      if (leads) {
        std::uint64_t total = 0;
        gather(meeting.masses + m * blocks, blocks, step,
               [&](int, std::uint64_t value) { total += value; });
        total = sum_warp(total);
        if (lane == 0) row_value[m] = total;
      }
      __syncthreads();
      const double denominator = static_cast<double>(works ? row_value[m] : 1);
      const double reciprocal = 1.0 / denominator;
      float* const out =
          args.draft_probabilities.data +
          (static_cast<std::int64_t>(m) * steps + step) * args.draft_probabilities.stride +
          first_token;
      std::uint64_t sum = 0;
      for (int i = begin + lane; i < end; i += 32) {
        const float p = mass_fraction(round_to_integer(row[i]), denominator, reciprocal);
        row[i] = p;
        __stcs(out + i, p);
        sum += probability_weight(p);
      }
      tell(sum, meeting.weights, step);
    }

    // The token, by the warp whose segment holds it.
    if (leads) {
      std::uint64_t before = 0;
      std::uint64_t total = 0;
      gather(meeting.weights + m * blocks, blocks, step, [&](int other, std::uint64_t value) {
        if (other < block) before += value;
        total += value;
      });
      before = sum_warp(before);
      total = sum_warp(total);
      if (lane == 0) {
        row_before[m] = before;
        row_value[m] = total;
      }
    }
    __syncthreads();
    if (works) {
      std::uint64_t before = row_before[m];
      const std::uint64_t total = row_value[m];
      const std::int64_t cell = static_cast<std::int64_t>(m) * steps + step;
      const std::uint64_t uniform = uniform_from_float(args.uniforms[cell]);
      const auto write = [&](const CdfHit& hit) {
        const std::int32_t token = hit.token < 0 ? 0 : hit.token;
        post(meeting.tokens + m, step, static_cast<std::uint64_t>(token));
        args.tokens[cell] = token;
        if (args.distance != nullptr) {
          args.distance[cell] = static_cast<float>(cdf_distance(uniform, hit, kUnitMass));
        }
      };
      if (total == 0) {
        if (block == 0 && leads && lane == 0) write({-1, 0, 0});
      } else {
        // Beyond the row's sum the last token of positive weight is taken.
        const std::uint64_t target = min(cdf_target(uniform, kUnitMass), total - 1);
        for (int w = 0; w < part; ++w) before += warp_sums[warp - part + w];
        if (target >= before && target < before + warp_sums[warp]) {
          const int lanes = (end - begin + 31) / 32;
          const int mine = min(end, begin + lane * lanes);
          const int last = min(end, mine + lanes);
          std::uint64_t sum = 0;
          for (int i = mine; i < last; ++i) sum += probability_weight(row[i]);
          std::uint64_t lower = before + scan_warp(sum) - sum;
          for (int i = mine; i < last; ++i) {
            const std::uint64_t weight = probability_weight(row[i]);
            if (lower <= target && target < lower + weight) {
              write({static_cast<std::int32_t>(first_token + i), lower, lower + weight});
            }
            lower += weight;
          }
        }
      }
    }
    __syncthreads();  // the row's numbers are read
  }
  __pipeline_wait_prior(0);
}

template <DType kType, int kStages>
void launch(const VanillaMarkovSampleArgs& args, const SamplingRule& rule, const Meeting& meeting,
            cudaStream_t stream) {
  constexpr std::size_t kStream = sizeof(WeightStage<kType, kRank>) * kWarps * kStages;
  static_assert(kStream + (kStages > 2 ? kSmallLogits : kLargeLogits) + 1024 <=
                static_cast<std::size_t>(markov::kLargeMemory));
  const auto kernel = resident_kernel<kType, kStages>;
  // Beyond 48 KiB a kernel has to ask; asking for the most once is enough.
  static const cudaError_t asked =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(kStream + (kStages > 2 ? kSmallLogits : kLargeLogits)));
  DSPARK_CUDA_CHECK(asked);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid_of(device_traits().multiprocessors);
  config.blockDim = dim3(kWarps * 32);
  config.dynamicSmemBytes = kStream + logits_bytes(args);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  DSPARK_CUDA_CHECK(
      cudaLaunchKernelEx(&config, kernel, args, rule, tiles_each(args.backbone.vocab), meeting));
}

template <DType kType>
void launch_any(const VanillaMarkovSampleArgs& args, const SamplingRule& rule,
                const Meeting& meeting, cudaStream_t stream) {
  if (logits_bytes(args) <= kSmallLogits) {
    launch<kType, 3>(args, rule, meeting, stream);
  } else {
    launch<kType, 2>(args, rule, meeting, stream);
  }
}

}  // namespace

bool resident_sample_applies(const VanillaMarkovSampleArgs& args, const SamplingRule& rule) {
  return device_traits().hopper && device_traits().block_memory >= markov::kLargeMemory &&
         args.products == Products::tensor && markov_tensor_applies(args.w1, args.w2) &&
         args.w1.cols <= kRank && args.batch <= kColumns && !rule.greedy && rule.top_k == 0 &&
         rule.top_p == 0 && args.block_size < 255 &&
         device_traits().multiprocessors <= kMostBlocks &&
         tiles_each(args.backbone.vocab) * kWarps * kTile <= kMostOwn &&
         logits_bytes(args) <= kLargeLogits && meeting_bytes() <= args.scratch.bytes;
}

void resident_sample(const VanillaMarkovSampleArgs& args, cudaStream_t stream) {
  Meeting meeting;
  meeting.largest = static_cast<std::uint64_t*>(args.scratch.data);
  meeting.masses = meeting.largest + row_words();
  meeting.weights = meeting.masses + row_words();
  meeting.tokens = meeting.weights + row_words();
  DSPARK_CUDA_CHECK(cudaMemsetAsync(args.scratch.data, 0, meeting_bytes(), stream));
  if (args.w2.type == DType::f16) {
    launch_any<DType::f16>(args, args.rule, meeting, stream);
  } else {
    launch_any<DType::bf16>(args, args.rule, meeting, stream);
  }
}

}  // namespace dspark::kernels
