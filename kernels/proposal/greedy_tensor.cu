#include "kernels/proposal/greedy_tensor.h"

#include <algorithm>
#include <cstdint>

#include "kernels/common/launch.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/common/visit.cuh"
#include "kernels/proposal/greedy_step.cuh"
#include "kernels/rows/markov_tensor.h"
#include "kernels/rows/markov_tile.cuh"

// The products of kernels/rows/markov_tile.cuh with an epilogue that keeps the best two logits of
// each row and stores nothing. The next step may start early, and has w2 on its way when it learns
// the previous tokens.

namespace dspark::kernels {
namespace {

using markov::kColumns;
using markov::kTile;
using markov::Walk;
using markov::WeightStage;
using markov::WeightTile;
using Part = GreedyStep::Part;

inline constexpr int kMiddleRows = 64;

/// Where the backbone of row m begins.
__device__ const float* backbone_of(const GreedyStep& step, std::int64_t m) {
  return step.backbone.data +
         (m * step.backbone_stride + step.backbone_first) * step.backbone.stride;
}

/// Adds the logit of token v in row m. A thread may see its tokens in any order.
__device__ void take_logit(const GreedyStep& step, Part& part, std::int64_t m, std::int64_t v,
                           float logit) {
  if (step.stacked.data != nullptr) step.stack(m, v, logit);
  const std::uint32_t code = GreedyStep::code_of(logit);
  const std::uint32_t rank = 0xFFFFFFFFu - static_cast<std::uint32_t>(v);
  if (code > part.code || (code == part.code && rank > part.rank)) {
    part = {code, rank, part.code};
  } else {
    part.second = max(part.second, code);
  }
}

/// The rows' parts of all lanes with the same columns: lane t has columns 2t and 2t + 1.
__device__ Part merge_tokens(Part part) {
#pragma unroll
  for (int mask = 4; mask < 32; mask *= 2) part = GreedyStep::merge(part, exchange(part, mask));
  return part;
}

/// What a lane needs of a tile beside the products: scales of rows g and g + 8 of w2.
template <DType kType>
struct Scales {
  float low = 1;
  float high = 1;

  __device__ void load(const GreedyStep& step, std::int64_t v) {
    if constexpr (kType == DType::e4m3) {
      const std::int64_t last = step.backbone.vocab - 1;
      low = widen_f16(step.scale[v < last ? v : last]);
      high = widen_f16(step.scale[v + 8 < last ? v + 8 : last]);
    }
  }
  __device__ float apply_low(float sum) const { return kType == DType::e4m3 ? sum * low : sum; }
  __device__ float apply_high(float sum) const { return kType == DType::e4m3 ? sum * high : sum; }
};

// --- up to 8 rows -------------------------------------------------------------------------------

/// A lane's part of the backbone's tile: columns 2t and 2t + 1, rows g and g + 8.
template <DType kType>
struct ThinBase {
  float values[4];
  Scales<kType> scales;

  __device__ void load(const GreedyStep& step, std::int64_t tile) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t v = tile * kTile + lane / 4;
    const std::int64_t vocab = step.backbone.vocab;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int m = lane % 4 * 2 + c;
      const float* row = backbone_of(step, m) + v;
      values[c] = m < step.batch && v < vocab ? __ldcs(row) : 0.0f;
      values[2 + c] = m < step.batch && v + 8 < vocab ? __ldcs(row + 8) : 0.0f;
    }
    scales.load(step, v);
  }
};

template <DType kType, int kRank, bool kLarge>
__global__ void __launch_bounds__(markov::kThinWarps<kType, kRank> * 32, 1)
    thin_kernel(GreedyStep step, Matrix w1, Matrix w2, bool reverse) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  using Weights = WeightTile<kType, kRank>;
  constexpr int kWarps = markov::kThinWarps<kType, kRank>;
  constexpr int kStages = markov::kThinStages<kType, kRank, kLarge>;
  __shared__ Part parts[kWarps][kColumns];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const std::int64_t vocab = step.backbone.vocab;
  const Walk walk(static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32,
                  static_cast<std::int64_t>(gridDim.x) * kWarps, (vocab + kTile - 1) / kTile,
                  reverse);
  markov::WeightStream<kType, kRank, kStages> stream(dynamic, w2, vocab, walk);
  ThinBase<kType> base = {};
  if (walk.count > 0) base.load(step, walk.tile(0));

  wait_for_previous_kernel();
  const std::int64_t previous = g < step.batch ? read_shared_state(step.previous[g]) : -1;
  const int units = static_cast<int>(w1.cols) / 8;
  uint4 factor[Weights::kFactors];
#pragma unroll
  for (int f = 0; f < Weights::kFactors; ++f) {
    const int unit = Weights::factor_unit(f, t);
    factor[f] = previous >= 0 && unit < units
                    ? markov::load_weights(static_cast<const unsigned char*>(w1.data) +
                                           (previous * w1.stride + unit * 8) * 2)
                    : uint4{0, 0, 0, 0};
  }
  let_next_kernel_start();

  Part part[2] = {};
  Weights weights;
  for (std::int64_t i = 0; i < walk.count; ++i) {
    stream.take(i, weights);
    ThinBase<kType> next = {};
    if (i + 1 < walk.count) next.load(step, walk.tile(i + 1));
    float sum[4] = {0, 0, 0, 0};
#pragma unroll
    for (int f = 0; f < Weights::kFactors; ++f) weights.add_factor(sum, f, factor[f]);
    const std::int64_t v = walk.tile(i) * kTile + g;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int m = 2 * t + c;
      if (m >= step.batch) continue;
      if (v < vocab) {
        take_logit(step, part[c], m, v, base.values[c] + base.scales.apply_low(sum[c]));
      }
      if (v + 8 < vocab) {
        take_logit(step, part[c], m, v + 8,
                   base.values[2 + c] + base.scales.apply_high(sum[2 + c]));
      }
    }
    base = next;
  }
  __pipeline_wait_prior(0);
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    part[c] = merge_tokens(part[c]);
    if (g == 0) parts[threadIdx.x / 32][2 * t + c] = part[c];
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < step.batch) {
    Part all = parts[0][threadIdx.x];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp)
      all = GreedyStep::merge(all, parts[warp][threadIdx.x]);
    step.commit(threadIdx.x, all);
  }
  step.finish();
}

// --- up to 64 rows ------------------------------------------------------------------------------

template <DType kType, int kRank>
inline constexpr int kMiddleWarps = kRank <= 256 ? 8 : 4;
inline constexpr int kMiddleStages = 3;

template <DType kType, int kRank>
struct MiddleMemory {
  static constexpr int kWarps = kMiddleWarps<kType, kRank>;
  static constexpr int kWidth = kWarps * kTile;
  static constexpr int kPitch = kWidth + 4;
  WeightStage<kType, kRank> weights[kWarps];
  unsigned char factors[kMiddleRows][WeightTile<kType, kRank>::kFactorPitch];
  float logits[kMiddleStages][kMiddleRows][kPitch];
  Part parts[kWarps][kMiddleRows];
};

/// A block walks the vocabulary; the next tile of w2 and the next two of the backbone are on their
/// way while one is multiplied.
template <DType kType, int kRank>
__global__ void __launch_bounds__(kMiddleWarps<kType, kRank> * 32, 1)
    middle_kernel(GreedyStep step, Matrix w1, Matrix w2, bool reverse) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  using Weights = WeightTile<kType, kRank>;
  using Memory = MiddleMemory<kType, kRank>;
  constexpr int kWarps = Memory::kWarps;
  constexpr int kWidth = Memory::kWidth;
  constexpr int kMany = 4;  // instructions side by side
  constexpr int kHalves = kMiddleRows / (kMany * kColumns);
  auto& memory = *reinterpret_cast<Memory*>(dynamic);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int g = thread % 32 / 4;
  const int t = thread % 4;
  const std::int64_t vocab = step.backbone.vocab;
  const int rows = step.batch;
  const Walk walk(blockIdx.x, gridDim.x, (vocab + kWidth - 1) / kWidth, reverse);
  const bool quads = reinterpret_cast<std::uintptr_t>(step.backbone.data) % 16 == 0 &&
                     step.backbone.stride % 4 == 0;
  const auto start_weights = [&](std::int64_t i) {
    if (i < walk.count) memory.weights[warp].start(w2, vocab, walk.tile(i) * kWarps + warp);
    __pipeline_commit();
  };
  const auto start_logits = [&](std::int64_t i, int stage) {
    constexpr int kQuads = kWidth / 4;
    const markov::LogitCopier copy;
    const std::int64_t first = i < walk.count ? walk.tile(i) * kWidth : vocab;
    for (int j = thread; j < rows * kQuads; j += kWarps * 32) {
      const int at = j % kQuads * 4;
      const std::int64_t left = vocab - (first + at);
      if (left <= 0) continue;
      const float* source = backbone_of(step, j / kQuads) + first + at;
      float* target = &memory.logits[stage][j / kQuads][at];
      if (quads && left >= 4) {
        copy(target, source);
        continue;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (e < left) __pipeline_memcpy_async(target + e, source + e, 4);
      }
    }
    __pipeline_commit();
  };
  start_logits(0, 0);
  start_weights(0);
  wait_for_previous_kernel();
  const int units = static_cast<int>(w1.cols) / 8;
  for (int j = thread; j < kMiddleRows * (kRank / 8); j += kWarps * 32) {
    const int row = j / (kRank / 8);
    const int unit = j % (kRank / 8);
    const std::int64_t previous = row < rows ? read_shared_state(step.previous[row]) : -1;
    const bool copies = previous >= 0 && unit < units;
    const auto* data = static_cast<const unsigned char*>(w1.data);
    markov::copy_unit_or_zeros(memory.factors[row] + unit * markov::kUnitBytes,
                               copies ? data + (previous * w1.stride + unit * 8) * 2 : data,
                               copies);
  }
  __pipeline_commit();
  start_logits(1, 1);
  let_next_kernel_start();

  Part part[kHalves][kMany][2] = {};
  int stage = 0;
  for (std::int64_t i = 0; i < walk.count; ++i) {
    // All but the next tile of the backbone has come, and everyone is done with the tile before.
    __pipeline_wait_prior(1);
    __syncthreads();
    Weights weights;
    weights.take(memory.weights[warp]);
    __syncwarp();
    start_weights(i + 1);
    start_logits(i + 2, stage == 0 ? kMiddleStages - 1 : stage - 1);
    const std::int64_t v = walk.tile(i) * kWidth + warp * kTile + g;
    Scales<kType> scales;
    scales.load(step, v);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      if (half * kMany * kColumns >= rows) break;
      float sum[kMany][4] = {};
#pragma unroll
      for (int f = 0; f < Weights::kFactors; ++f) {
#pragma unroll
        for (int j = 0; j < kMany; ++j) {
          const int row = (half * kMany + j) * kColumns + g;
          weights.add_factor(
              sum[j], f,
              *reinterpret_cast<const uint4*>(memory.factors[row] +
                                              Weights::factor_unit(f, t) * markov::kUnitBytes));
        }
      }
#pragma unroll
      for (int j = 0; j < kMany; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int m = (half * kMany + j) * kColumns + 2 * t + c;
          if (m >= rows) continue;
          const float* base = &memory.logits[stage][m][warp * kTile + g];
          Part& best = part[half][j][c];
          if (v < vocab) take_logit(step, best, m, v, base[0] + scales.apply_low(sum[j][c]));
          if (v + 8 < vocab) {
            take_logit(step, best, m, v + 8, base[8] + scales.apply_high(sum[j][2 + c]));
          }
        }
      }
    }
    stage = stage + 1 == kMiddleStages ? 0 : stage + 1;
  }
  __pipeline_wait_prior(0);
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
#pragma unroll
    for (int j = 0; j < kMany; ++j) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const Part best = merge_tokens(part[half][j][c]);
        if (g == 0) memory.parts[warp][(half * kMany + j) * kColumns + 2 * t + c] = best;
      }
    }
  }
  __syncthreads();
  if (thread < rows) {
    Part all = memory.parts[0][thread];
#pragma unroll
    for (int other = 1; other < kWarps; ++other) {
      all = GreedyStep::merge(all, memory.parts[other][thread]);
    }
    step.commit(thread, all);
  }
  step.finish();
}

// --- a whole proposal, up to 8 rows --------------------------------------------------------------

/// Warps of a block: codes take longer to multiply than to arrive, so more warps share them.
template <DType kType>
inline constexpr int kResidentWarps = kType == DType::e4m3 ? 16 : 8;
/// Tiles that a warp has on its way: 192 KiB of a multiprocessor's memory.
template <DType kType>
inline constexpr int kResidentStages = static_cast<int>(196608 / (sizeof(WeightStage<kType, 256>) *
                                                                  kResidentWarps<kType>));

/// Every warp walks the same tiles in each step. The best tokens of all blocks meet in `rows`
/// [steps, batch], which was empty, as was `counter`; every block then knows the next previous
/// tokens, and the first one writes the results.
template <DType kType>
__global__ void __launch_bounds__(kResidentWarps<kType> * 32, 1)
    resident_kernel(GreedyStep step, Matrix w1, Matrix w2, std::int64_t tiles_each, GreedyRow* rows,
                    std::uint32_t* counter) {
  constexpr int kRank = 256;
  constexpr int kStages = kResidentStages<kType>;
  extern __shared__ __align__(16) unsigned char dynamic[];
  using Weights = WeightTile<kType, kRank>;
  constexpr int kWarps = kResidentWarps<kType>;
  __shared__ Part parts[kWarps][kColumns];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const std::int64_t vocab = step.backbone.vocab;
  const int steps = step.block_size;
  const std::int64_t first_backbone = step.backbone_first;
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * kWarps + thread / 32;
  const markov::ChainWalk walk(warp * tiles_each, tiles_each, (vocab + kTile - 1) / kTile, steps);
  markov::WeightStream<kType, kRank, kStages, markov::ChainWalk> stream(dynamic, w2, vocab, walk);
  const int units = static_cast<int>(w1.cols) / 8;
  std::uint32_t turn = 0;

  // The token of slot s - 1 of row m, or the one before the block; -1: none.
  const auto token_before = [&](int s, std::int32_t m) -> std::int64_t {
    if (s == 0) return step.first_previous[m];
    const std::uint64_t key = read_shared_state(rows[(s - 1) * step.batch + m].key);
    const auto code = static_cast<std::uint32_t>(key >> 32);
    const bool valid = code > kMinusInfinityCode && code < kPlusInfinityCode;
    return valid ? token_of_key(key) : -1;
  };
  std::int64_t previous = -1;  // of row g
  bool alive = true;           // no token of row g was missing so far
  ThinBase<kType> base = {};
  if (walk.each > 0) base.load(step, walk.tile(0));
  for (int s = 0; s < steps; ++s) {
    step.step = s;
    step.backbone_first = first_backbone + s;
    step.rows = rows + static_cast<std::int64_t>(s) * step.batch;
    if (g < step.batch) {
      const std::int64_t token = alive ? token_before(s, g) : -1;
      alive = token >= 0 && token < step.ids;
      if (!alive && warp == 0 && t == 0) report(step.status, kOpBadToken);
      previous = alive ? token : -1;
    }
    uint4 factor[Weights::kFactors];
#pragma unroll
    for (int f = 0; f < Weights::kFactors; ++f) {
      const int unit = Weights::factor_unit(f, t);
      factor[f] = previous >= 0 && unit < units
                      ? markov::load_weights(static_cast<const unsigned char*>(w1.data) +
                                             (previous * w1.stride + unit * 8) * 2)
                      : uint4{0, 0, 0, 0};
    }
    const std::int64_t from = s * walk.each;
    Part part[2] = {};
    Weights weights;
    for (std::int64_t i = 0; i < walk.each; ++i) {
      stream.take(from + i, weights);
      const std::int64_t tile = walk.tile(from + i);
      ThinBase<kType> next = {};
      if (i + 1 < walk.each) next.load(step, walk.tile(from + i + 1));
      float sum[4] = {0, 0, 0, 0};
#pragma unroll
      for (int f = 0; f < Weights::kFactors; ++f) weights.add_factor(sum, f, factor[f]);
      const std::int64_t v = tile * kTile + g;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int m = 2 * t + c;
        if (m >= step.batch) continue;
        if (v < vocab) {
          take_logit(step, part[c], m, v, base.values[c] + base.scales.apply_low(sum[c]));
        }
        if (v + 8 < vocab) {
          take_logit(step, part[c], m, v + 8,
                     base.values[2 + c] + base.scales.apply_high(sum[2 + c]));
        }
      }
      base = next;
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      part[c] = merge_tokens(part[c]);
      if (g == 0) parts[thread / 32][2 * t + c] = part[c];
    }
    __syncthreads();
    if (thread < step.batch) {
      Part all = parts[0][thread];
#pragma unroll
      for (int other = 1; other < kWarps; ++other) {
        all = GreedyStep::merge(all, parts[other][thread]);
      }
      step.commit(thread, all);
    }
    if (walk.each > 0 && s + 1 < steps) {
      step.backbone_first = first_backbone + s + 1;
      base.load(step, walk.tile(from + walk.each));
    }
    grid_barrier(counter, turn);
    // Results, by the lanes that know whether their row still had a token before.
    if (warp == 0 && t == 0 && g < step.batch) {
      const std::uint64_t key = read_shared_state(step.rows[g].key);
      const std::uint32_t second = read_shared_state(step.rows[g].second);
      const auto code = static_cast<std::uint32_t>(key >> 32);
      const bool valid = alive && code > kMinusInfinityCode && code < kPlusInfinityCode;
      if (alive && !valid) report(step.status, kOpInvalidRow);
      const std::int64_t cell = static_cast<std::int64_t>(g) * step.block_size + s;
      step.tokens[cell] = valid ? token_of_key(key) : -1;
      if (step.margin != nullptr) {
        const float next = float_from_order_code(second != 0 ? second : kMinusInfinityCode);
        step.margin[cell] = valid ? float_from_order_code(code) - next : 0.0f;
      }
    }
  }
  __pipeline_wait_prior(0);
}

// --- launches -----------------------------------------------------------------------------------

/// Launches at most one block per multiprocessor, early where the device can.
void launch_walk(void (*kernel)(GreedyStep, Matrix, Matrix, bool), std::int64_t blocks, int warps,
                 std::size_t shared, const GreedyStep& step, const Matrix& w1, const Matrix& w2,
                 bool reverse, cudaStream_t stream) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid_of(std::min(blocks, device_traits().multiprocessors));
  config.blockDim = dim3(static_cast<unsigned>(warps) * 32);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = device_traits().hopper ? 1 : 0;
  DSPARK_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, step, w1, w2, reverse));
}

/// Lets a kernel have `shared` bytes of shared memory; beyond 48 KiB it has to ask, once.
template <class Kernel>
cudaError_t ask_for(Kernel* kernel, std::size_t shared) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(shared));
}

template <DType kType, int kRank, bool kLarge>
void launch_thin(const GreedyStep& step, const Matrix& w1, const Matrix& w2, bool reverse,
                 cudaStream_t stream) {
  constexpr int kWarps = markov::kThinWarps<kType, kRank>;
  constexpr std::size_t kShared =
      sizeof(WeightStage<kType, kRank>) * kWarps * markov::kThinStages<kType, kRank, kLarge>;
  static const cudaError_t asked = ask_for(thin_kernel<kType, kRank, kLarge>, kShared);
  DSPARK_CUDA_CHECK(asked);
  const std::int64_t tiles = (static_cast<std::int64_t>(step.backbone.vocab) + kTile - 1) / kTile;
  launch_walk(thin_kernel<kType, kRank, kLarge>, (tiles + kWarps - 1) / kWarps, kWarps, kShared,
              step, w1, w2, reverse, stream);
}

template <DType kType, int kRank>
void launch_middle(const GreedyStep& step, const Matrix& w1, const Matrix& w2, bool reverse,
                   cudaStream_t stream) {
  using Memory = MiddleMemory<kType, kRank>;
  static_assert(sizeof(Memory) <= markov::kLargeMemory);
  static const cudaError_t asked = ask_for(middle_kernel<kType, kRank>, sizeof(Memory));
  DSPARK_CUDA_CHECK(asked);
  const std::int64_t tiles =
      (static_cast<std::int64_t>(step.backbone.vocab) + Memory::kWidth - 1) / Memory::kWidth;
  launch_walk(middle_kernel<kType, kRank>, tiles, Memory::kWarps, sizeof(Memory), step, w1, w2,
              reverse, stream);
}

template <DType kType, int kRank>
void launch_rows(const GreedyStep& step, const Matrix& w1, const Matrix& w2, bool reverse,
                 cudaStream_t stream) {
  const bool large = device_traits().block_memory >= markov::kLargeMemory;
  const std::int32_t most = large && step.batch > kColumns ? kMiddleRows : kColumns;
  for (std::int32_t first = 0; first < step.batch; first += most) {
    const GreedyStep part = step.rows_from(first, std::min(most, step.batch - first));
    if (part.batch > kColumns) {
      launch_middle<kType, kRank>(part, w1, w2, reverse, stream);
    } else if (large) {
      launch_thin<kType, kRank, true>(part, w1, w2, reverse, stream);
    } else {
      launch_thin<kType, kRank, false>(part, w1, w2, reverse, stream);
    }
    reverse = !reverse;
  }
}

/// Tiles of each warp of the resident kernel.
std::int64_t resident_tiles(std::int32_t vocab, int block_warps) {
  const std::int64_t tiles = (static_cast<std::int64_t>(vocab) + kTile - 1) / kTile;
  const std::int64_t warps = device_traits().multiprocessors * block_warps;
  return (tiles + warps - 1) / warps;
}

template <DType kType>
void launch_resident(const GreedyStep& step, const Matrix& w1, const Matrix& w2, GreedyRow* rows,
                     std::uint32_t* counter, cudaStream_t stream) {
  constexpr std::size_t kShared =
      sizeof(WeightStage<kType, 256>) * kResidentWarps<kType> * kResidentStages<kType>;
  static const cudaError_t asked = ask_for(resident_kernel<kType>, kShared);
  DSPARK_CUDA_CHECK(asked);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid_of(device_traits().multiprocessors);
  config.blockDim = dim3(kResidentWarps<kType> * 32);
  config.dynamicSmemBytes = kShared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  DSPARK_CUDA_CHECK(cudaLaunchKernelEx(&config, resident_kernel<kType>, step, w1, w2,
                                       resident_tiles(step.backbone.vocab, kResidentWarps<kType>),
                                       rows, counter));
}

}  // namespace

bool greedy_tensor_applies(const Matrix& w1, const Matrix& w2) {
  if (w2.type != DType::e4m3) return markov_tensor_applies(w1, w2);
  const auto at_16_bytes = [](const Matrix& matrix) {
    return reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0 &&
           static_cast<std::size_t>(matrix.stride) * size_of(matrix.type) % 16 == 0;
  };
  return w1.data != nullptr && w1.type == DType::f16 && w1.cols > 0 && w1.cols % 16 == 0 &&
         w1.cols <= 512 && at_16_bytes(w1) && at_16_bytes(w2);
}

void greedy_tensor_step(const GreedyStep& step, const Matrix& w1, const Matrix& w2, bool reverse,
                        cudaStream_t stream) {
  const bool short_rank = w1.cols <= 256;
  switch (w2.type) {
    case DType::e4m3:
      return short_rank ? launch_rows<DType::e4m3, 256>(step, w1, w2, reverse, stream)
                        : launch_rows<DType::e4m3, 512>(step, w1, w2, reverse, stream);
    case DType::bf16:
      return short_rank ? launch_rows<DType::bf16, 256>(step, w1, w2, reverse, stream)
                        : launch_rows<DType::bf16, 512>(step, w1, w2, reverse, stream);
    default:
      return short_rank ? launch_rows<DType::f16, 256>(step, w1, w2, reverse, stream)
                        : launch_rows<DType::f16, 512>(step, w1, w2, reverse, stream);
  }
}

bool greedy_resident_applies(const GreedyStep& step, const Matrix& w1, const Matrix& w2) {
  return device_traits().hopper && device_traits().block_memory >= markov::kLargeMemory &&
         step.head && step.stacked.data == nullptr && step.batch <= kColumns && w1.cols <= 256 &&
         greedy_tensor_applies(w1, w2);
}

void greedy_resident(const GreedyStep& step, const Matrix& w1, const Matrix& w2,
                     const Scratch& memory, cudaStream_t stream) {
  auto* const counter = static_cast<std::uint32_t*>(memory.data);
  auto* const rows = reinterpret_cast<GreedyRow*>(static_cast<unsigned char*>(memory.data) + 256);
  const std::size_t bytes = 256 + static_cast<std::size_t>(step.batch) *
                                      static_cast<std::size_t>(step.block_size) * sizeof(GreedyRow);
  DSPARK_CUDA_CHECK(cudaMemsetAsync(memory.data, 0, bytes, stream));
  if (w2.type == DType::e4m3) {
    launch_resident<DType::e4m3>(step, w1, w2, rows, counter, stream);
  } else if (w2.type == DType::f16) {
    launch_resident<DType::f16>(step, w1, w2, rows, counter, stream);
  } else {
    launch_resident<DType::bf16>(step, w1, w2, rows, counter, stream);
  }
}

}  // namespace dspark::kernels
