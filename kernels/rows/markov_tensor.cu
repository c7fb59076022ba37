#include "kernels/rows/markov_tensor.h"

#include "kernels/common/launch.cuh"
#include "kernels/common/visit.cuh"
#include "kernels/rows/markov_tile.cuh"

// Three kernels with the same instructions per output (markov_tile.cuh). Up to 8 rows: w2 alone
// counts, and warps stream it independently. Up to 64: blocks walk the vocabulary, and logits pass
// through shared memory so that memory sees whole lines. Beyond: logits alone count; a block keeps
// its part of w2 while rows pass by.

namespace dspark::kernels {
namespace {

using markov::kColumns;
using markov::kLargeMemory;
using markov::kTile;
using markov::Walk;
using markov::WeightStage;
using markov::WeightTile;

/// What becomes of an output row: an offset into the backbone, or one of these.
inline constexpr std::int64_t kSkip = -1;
inline constexpr std::int64_t kNaN = -2;

struct RowPlan {
  std::int64_t previous;  // row of w1, or -1
  std::int64_t backbone;  // offset, kSkip or kNaN
};

/// An output row's ids, as they stand in memory.
struct RowIds {
  std::int64_t previous;
  std::int64_t backbone;
};

__device__ inline RowIds load_ids(const MarkovIndex& index, std::int64_t m) {
  if (index.previous != nullptr) return {index.previous[m], index.backbone_row[m]};
  const std::int64_t previous = index.step == 0
                                    ? index.first_previous[m]
                                    : index.draft[m * index.block_size + index.step - 1];
  return {previous, m * index.logits_stride + index.step + index.logits_offset};
}

__device__ inline RowPlan plan_row(const MarkovTensorArgs& args, const RowIds& ids, bool reports) {
  const bool arrays = args.index.previous != nullptr;
  if (arrays && ids.previous < 0) return {-1, kSkip};
  std::uint32_t problems = kOpOk;
  if (ids.previous < 0 || ids.previous >= args.w1.rows) problems |= kOpBadToken;
  if (ids.backbone < 0 || ids.backbone >= args.backbone.rows) problems |= kOpBadRow;
  if (problems == kOpOk) return {ids.previous, ids.backbone * args.backbone.stride};
  if (reports) report(args.status, problems);
  return {-1, arrays ? kSkip : kNaN};
}

/// One lane's 16 bytes of a row of w1; zeros for a row that is not used.
__device__ inline const unsigned char* factor_place(const MarkovTensorArgs& args,
                                                    std::int64_t previous, int unit) {
  return static_cast<const unsigned char*>(args.w1.data) +
         (previous * args.w1.stride + unit * 8) * 2;
}

// --- up to 8 rows -------------------------------------------------------------------------------

/// A lane's part of the backbone's tile: columns 2t and 2t + 1, rows g and g + 8.
struct ThinBase {
  float values[4];

  __device__ void load(const MarkovTensorArgs& args, const std::int64_t (&from)[2],
                       std::int64_t tile) {
    const std::int64_t v = tile * kTile + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float* row = args.backbone.data + from[c] + v;
      values[c] = from[c] >= 0 && v < args.out.vocab ? __ldcs(row) : 0.0f;
      values[2 + c] = from[c] >= 0 && v + 8 < args.out.vocab ? __ldcs(row + 8) : 0.0f;
    }
  }
};

template <DType kType, int kRank, int kStages>
__global__ void __launch_bounds__(markov::kThinWarps<kType, kRank> * 32, 1)
    thin_kernel(MarkovTensorArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  using Weights = WeightTile<kType, kRank>;
  constexpr int kWarps = markov::kThinWarps<kType, kRank>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const std::int64_t vocab = args.out.vocab;
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const Walk walk(warp, static_cast<std::int64_t>(gridDim.x) * kWarps, (vocab + kTile - 1) / kTile,
                  args.reverse);
  markov::WeightStream<kType, kRank, kStages> stream(dynamic, args.w2, vocab, walk);

  wait_for_previous_kernel();
  RowPlan plan = {-1, kSkip};
  if (g < args.out.rows) plan = plan_row(args, load_ids(args.index, g), warp == 0 && t == 0);
  const int units = static_cast<int>(args.w1.cols) / 8;
  uint4 factor[Weights::kFactors];
#pragma unroll
  for (int f = 0; f < Weights::kFactors; ++f) {
    const int unit = Weights::factor_unit(f, t);
    factor[f] = plan.previous >= 0 && unit < units
                    ? markov::load_weights(factor_place(args, plan.previous, unit))
                    : uint4{0, 0, 0, 0};
  }
  const std::int64_t from[2] = {__shfl_sync(0xFFFFFFFFu, plan.backbone, 8 * t),
                                __shfl_sync(0xFFFFFFFFu, plan.backbone, 8 * t + 4)};
  ThinBase base = {};
  if (walk.count > 0) base.load(args, from, walk.tile(0));
  let_next_kernel_start();

  const float nan = __uint_as_float(0x7FC00000u);
  Weights weights;
  for (std::int64_t i = 0; i < walk.count; ++i) {
    stream.take(i, weights);
    ThinBase next = {};
    if (i + 1 < walk.count) next.load(args, from, walk.tile(i + 1));
    float sum[4] = {0, 0, 0, 0};
#pragma unroll
    for (int f = 0; f < Weights::kFactors; ++f) weights.add_factor(sum, f, factor[f]);
    const std::int64_t v = walk.tile(i) * kTile + g;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (from[c] == kSkip) continue;
      float* out = args.out.data + (2 * t + c) * args.out.stride + v;
      if (v < vocab) out[0] = from[c] >= 0 ? base.values[c] + sum[c] : nan;
      if (v + 8 < vocab) out[8] = from[c] >= 0 ? base.values[2 + c] + sum[2 + c] : nan;
    }
    base = next;
  }
  __pipeline_wait_prior(0);
}

// --- more rows ----------------------------------------------------------------------------------

/// A group of kRows output rows: rows of w1 in shared memory.
template <DType kType, int kRank, int kRows>
struct Factors {
  unsigned char bytes[kRows][WeightTile<kType, kRank>::kFactorPitch];

  /// Starts copying; rows that are not used become zeros.
  __device__ void start(const MarkovTensorArgs& args, const RowPlan (&plan)[kRows]) {
    constexpr int kUnits = kRank / 8;
    const int units = static_cast<int>(args.w1.cols) / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kUnits;
         i += static_cast<int>(blockDim.x)) {
      const int row = i / kUnits;
      const int unit = i % kUnits;
      const std::int64_t previous = plan[row].previous;
      const bool copies = previous >= 0 && unit < units;
      markov::copy_unit_or_zeros(bytes[row] + unit * markov::kUnitBytes,
                                 copies ? factor_place(args, previous, unit) : args.w1.data,
                                 copies);
    }
  }
};

/// kRows rows of kWidth logits in shared memory. The pitch spreads the lanes of a product's outputs
/// (8 neighbours in 4 rows) over all banks.
template <int kRows, int kWidth>
struct Logits {
  static constexpr int kQuads = kWidth / 4;
  float values[kRows][kWidth + 4];

  /// Starts copying `rows` rows of the backbone from `first` on. `quad`: whole quads may be
  /// copied.
  __device__ void start(const MarkovTensorArgs& args, const RowPlan (&plan)[kRows], int rows,
                        std::int64_t first, bool quad) {
    const markov::LogitCopier copy;
    for (int i = static_cast<int>(threadIdx.x); i < rows * kQuads;
         i += static_cast<int>(blockDim.x)) {
      const int row = i / kQuads;
      const int at = i % kQuads * 4;
      const std::int64_t left = args.out.vocab - (first + at);
      if (plan[row].backbone < 0 || left <= 0) continue;
      const float* source = args.backbone.data + plan[row].backbone + first + at;
      float* target = &values[row][at];
      if (quad && left >= 4) {
        copy(target, source);
        continue;
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (e < left) __pipeline_memcpy_async(target + e, source + e, 4);
      }
    }
  }

  /// Writes them from output row `first_row` on.
  template <bool kStream>
  __device__ void store(const MarkovTensorArgs& args, const RowPlan (&plan)[kRows], int rows,
                        std::int64_t first_row, std::int64_t first, bool quad) const {
    const float nan = __uint_as_float(0x7FC00000u);
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < rows * kQuads;
         i += static_cast<int>(blockDim.x)) {
      const int row = i / kQuads;
      const int at = i % kQuads * 4;
      const std::int64_t left = args.out.vocab - (first + at);
      const std::int64_t backbone = plan[row].backbone;
      if (backbone == kSkip || left <= 0) continue;
      float4 logits = *reinterpret_cast<const float4*>(&values[row][at]);
      if (backbone == kNaN) logits = {nan, nan, nan, nan};
      float* target = args.out.data + (first_row + row) * args.out.stride + first + at;
      if (quad && left >= 4) {
        if constexpr (kStream) {
          __stcs(reinterpret_cast<float4*>(target), logits);
        } else {
          *reinterpret_cast<float4*>(target) = logits;
        }
        continue;
      }
      target[0] = logits.x;
      if (left > 1) target[1] = logits.y;
      if (left > 2) target[2] = logits.z;
      if (left > 3) target[3] = logits.w;
    }
  }
};

/// Adds a warp's products with kMany times 8 rows from `column` on; its kTiles tiles begin at
/// logit `own`.
template <DType kType, int kRank, int kTiles, int kMany, int kRows, int kWidth>
__device__ void add_columns(const WeightTile<kType, kRank> (&weights)[kTiles],
                            const Factors<kType, kRank, kRows>& factors,
                            Logits<kRows, kWidth>& logits, int column, int own) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  float sum[kMany][kTiles][4] = {};
#pragma unroll
  for (int f = 0; f < WeightTile<kType, kRank>::kFactors; ++f) {
#pragma unroll
    for (int j = 0; j < kMany; ++j) {
      const uint4 factor = *reinterpret_cast<const uint4*>(
          factors.bytes[column + j * kColumns + g] +
          WeightTile<kType, kRank>::factor_unit(f, t) * markov::kUnitBytes);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        weights[i].add_factor(sum[j][i], f, factor);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kMany; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float* row = logits.values[column + j * kColumns + 2 * t + c] + own + g;
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        row[i * kTile] += sum[j][i][c];
        row[i * kTile + 8] += sum[j][i][2 + c];
      }
    }
  }
}

/// Adds the products of all `rows` rows of the group.
template <DType kType, int kRank, int kTiles, int kRows, int kWidth>
__device__ void add_products(const WeightTile<kType, kRank> (&weights)[kTiles],
                             const Factors<kType, kRank, kRows>& factors,
                             Logits<kRows, kWidth>& logits, int rows, int own) {
  constexpr int kMany = 4 / kTiles;
  for (int column = 0; column < rows; column += kMany * kColumns) {
    add_columns<kType, kRank, kTiles, kMany>(weights, factors, logits, column, own);
  }
}

__device__ inline bool quad_rows(const Rows& rows) {
  return reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && rows.stride % 4 == 0;
}

// --- up to 64 rows ------------------------------------------------------------------------------

inline constexpr int kMiddleRows = 64;
template <int kRank>
inline constexpr int kMiddleWarps = kRank <= 256 ? 8 : 4;
inline constexpr int kMiddleStages = 3;

template <DType kType, int kRank>
struct MiddleMemory {
  static constexpr int kWidth = kMiddleWarps<kRank> * kTile;
  WeightStage<kType, kRank> weights[kMiddleWarps<kRank>];
  Factors<kType, kRank, kMiddleRows> factors;
  Logits<kMiddleRows, kWidth> logits[kMiddleStages];
  RowPlan plan[kMiddleRows];
};

/// A block walks the vocabulary; the next tile of w2 and the next two of the backbone are on their
/// way while one is multiplied.
template <DType kType, int kRank>
__global__ void __launch_bounds__(kMiddleWarps<kRank> * 32, 1)
    middle_kernel(MarkovTensorArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  constexpr int kWarps = kMiddleWarps<kRank>;
  constexpr int kWidth = MiddleMemory<kType, kRank>::kWidth;
  auto& memory = *reinterpret_cast<MiddleMemory<kType, kRank>*>(dynamic);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t vocab = args.out.vocab;
  const int rows = static_cast<int>(args.out.rows);
  const Walk walk(blockIdx.x, gridDim.x, (vocab + kWidth - 1) / kWidth, args.reverse);
  const bool quad_base = quad_rows(args.backbone);
  const bool quad_out = quad_rows(args.out);
  const auto start_weights = [&](std::int64_t i) {
    if (i < walk.count) memory.weights[warp].start(args.w2, vocab, walk.tile(i) * kWarps + warp);
    __pipeline_commit();
  };
  const auto start_logits = [&](std::int64_t i, int stage) {
    if (i < walk.count) {
      memory.logits[stage].start(args, memory.plan, rows, walk.tile(i) * kWidth, quad_base);
    }
    __pipeline_commit();
  };
  start_weights(0);
  wait_for_previous_kernel();
  for (int row = static_cast<int>(threadIdx.x); row < kMiddleRows; row += kWarps * 32) {
    memory.plan[row] = row < rows ? plan_row(args, load_ids(args.index, row), blockIdx.x == 0)
                                  : RowPlan{-1, kSkip};
  }
  __syncthreads();
  memory.factors.start(args, memory.plan);
  start_logits(0, 0);
  start_logits(1, 1);
  let_next_kernel_start();

  int stage = 0;
  for (std::int64_t i = 0; i < walk.count; ++i) {
    // All but the next tile of the backbone has come, and everyone is done with the tile before.
    __pipeline_wait_prior(1);
    __syncthreads();
    WeightTile<kType, kRank> weights[1];
    weights[0].take(memory.weights[warp]);
    __syncwarp();
    start_weights(i + 1);
    start_logits(i + 2, stage == 0 ? kMiddleStages - 1 : stage - 1);
    add_products<kType, kRank>(weights, memory.factors, memory.logits[stage], rows, warp * kTile);
    __syncthreads();
    memory.logits[stage].template store<false>(args, memory.plan, rows, 0, walk.tile(i) * kWidth,
                                               quad_out);
    stage = stage + 1 == kMiddleStages ? 0 : stage + 1;
  }
  __pipeline_wait_prior(0);
}

// --- any number of rows -------------------------------------------------------------------------

/// How a block of the kernel for many rows is cut. Large where the device has the memory.
template <int kRank, bool kLarge>
struct WideShape {
  static constexpr int kRows = kLarge ? 64 : 32;
  static constexpr int kWarps = kRank <= 256 || kLarge ? 8 : 4;
  static constexpr int kTiles = kRank <= 256 && kLarge ? 2 : 1;
  static constexpr int kWidth = kWarps * kTiles * kTile;
};

template <DType kType, int kRank, bool kLarge>
struct WideMemory {
  using Shape = WideShape<kRank, kLarge>;
  Factors<kType, kRank, Shape::kRows> factors[2];
  Logits<Shape::kRows, Shape::kWidth> logits[2];
  RowPlan plan[4][Shape::kRows];
};

/// The work is the pairs of a part of the vocabulary and a group of rows, rows fastest, in equal
/// shares: a block keeps a part of w2 in registers while w1, the backbone and the outputs pass
/// through shared memory.
template <DType kType, int kRank, bool kLarge>
__global__ void __launch_bounds__(WideShape<kRank, kLarge>::kWarps * 32, 1)
    wide_kernel(MarkovTensorArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  using Shape = WideShape<kRank, kLarge>;
  constexpr int kRows = Shape::kRows;
  constexpr int kWidth = Shape::kWidth;
  constexpr int kTiles = Shape::kTiles;
  static_assert(kRows <= Shape::kWarps * 32, "a thread per row");
  auto& memory = *reinterpret_cast<WideMemory<kType, kRank, kLarge>*>(dynamic);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const std::int64_t vocab = args.out.vocab;
  const std::int64_t groups = (args.out.rows + kRows - 1) / kRows;
  const std::int64_t items = (vocab + kWidth - 1) / kWidth * groups;
  const std::int64_t begin = items * blockIdx.x / gridDim.x;
  const std::int64_t end = items * (blockIdx.x + 1) / gridDim.x;
  const bool quad_base = quad_rows(args.backbone);
  const bool quad_out = quad_rows(args.out);
  const auto rows_of = [&](std::int64_t item) {
    const std::int64_t left = args.out.rows - item % groups * kRows;
    return static_cast<int>(left < kRows ? left : kRows);
  };
  const auto ids_of = [&](std::int64_t item) {
    const bool has = item < end && thread < rows_of(item);
    return has ? load_ids(args.index, item % groups * kRows + thread) : RowIds{-1, -1};
  };
  const auto write_plan = [&](std::int64_t item, const RowIds& ids) {
    if (item >= end || thread >= kRows) return;
    // The first part of the vocabulary reports.
    memory.plan[(item - begin) % 4][thread] =
        thread < rows_of(item) ? plan_row(args, ids, item < groups) : RowPlan{-1, kSkip};
  };
  const auto start = [&](std::int64_t item) {
    if (item < end) {
      const RowPlan(&plan)[kRows] = memory.plan[(item - begin) % 4];
      memory.factors[(item - begin) % 2].start(args, plan);
      memory.logits[(item - begin) % 2].start(args, plan, rows_of(item), item / groups * kWidth,
                                              quad_base);
    }
    __pipeline_commit();
  };
  WeightTile<kType, kRank> weights[kTiles];
  const auto load_weights = [&](std::int64_t item) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      weights[i].load(args.w2, vocab, (item / groups * Shape::kWarps + warp) * kTiles + i);
    }
  };
  if (begin >= end) return;
  load_weights(begin);
  write_plan(begin, ids_of(begin));
  write_plan(begin + 1, ids_of(begin + 1));
  __syncthreads();
  start(begin);
  for (std::int64_t item = begin; item < end; ++item) {
    __pipeline_wait_prior(0);
    __syncthreads();
    start(item + 1);
    const RowIds ids = ids_of(item + 2);
    Logits<kRows, kWidth>& logits = memory.logits[(item - begin) % 2];
    add_products<kType, kRank>(weights, memory.factors[(item - begin) % 2], logits, rows_of(item),
                               warp * kTiles * kTile);
    if (item + 1 < end && (item + 1) % groups == 0) load_weights(item + 1);
    write_plan(item + 2, ids);
    __syncthreads();
    logits.template store<true>(args, memory.plan[(item - begin) % 4], rows_of(item),
                                item % groups * kRows, item / groups * kWidth, quad_out);
  }
}

// --- launches -----------------------------------------------------------------------------------

/// Launches a kernel of at most one block per multiprocessor with `shared` bytes.
void launch_walk(void (*kernel)(MarkovTensorArgs), std::int64_t blocks, int warps,
                 std::size_t shared, bool early, const MarkovTensorArgs& args,
                 cudaStream_t stream) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim =
      grid_of(blocks < device_traits().multiprocessors ? blocks : device_traits().multiprocessors);
  config.blockDim = dim3(static_cast<unsigned>(warps) * 32);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early && device_traits().hopper ? 1 : 0;
  DSPARK_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, args));
}

/// Lets a kernel have `shared` bytes of shared memory; beyond 48 KiB it has to ask, once.
cudaError_t ask_for(void (*kernel)(MarkovTensorArgs), std::size_t shared) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(shared));
}

template <DType kType, int kRank, bool kLarge>
void launch_thin(const MarkovTensorArgs& args, cudaStream_t stream) {
  constexpr int kWarps = markov::kThinWarps<kType, kRank>;
  constexpr int kStages = markov::kThinStages<kType, kRank, kLarge>;
  constexpr std::size_t kShared = sizeof(WeightStage<kType, kRank>) * kWarps * kStages;
  static const cudaError_t asked = ask_for(thin_kernel<kType, kRank, kStages>, kShared);
  DSPARK_CUDA_CHECK(asked);
  const std::int64_t tiles = (static_cast<std::int64_t>(args.out.vocab) + kTile - 1) / kTile;
  launch_walk(thin_kernel<kType, kRank, kStages>, (tiles + kWarps - 1) / kWarps, kWarps, kShared,
              args.early, args, stream);
}

template <DType kType, int kRank>
void launch_middle(const MarkovTensorArgs& args, cudaStream_t stream) {
  constexpr std::size_t kShared = sizeof(MiddleMemory<kType, kRank>);
  constexpr int kWidth = MiddleMemory<kType, kRank>::kWidth;
  static const cudaError_t asked = ask_for(middle_kernel<kType, kRank>, kShared);
  DSPARK_CUDA_CHECK(asked);
  launch_walk(middle_kernel<kType, kRank>,
              (static_cast<std::int64_t>(args.out.vocab) + kWidth - 1) / kWidth,
              kMiddleWarps<kRank>, kShared, args.early, args, stream);
}

template <DType kType, int kRank, bool kLarge>
void launch_wide(const MarkovTensorArgs& args, cudaStream_t stream) {
  using Shape = WideShape<kRank, kLarge>;
  constexpr std::size_t kShared = sizeof(WideMemory<kType, kRank, kLarge>);
  static const cudaError_t asked = ask_for(wide_kernel<kType, kRank, kLarge>, kShared);
  DSPARK_CUDA_CHECK(asked);
  const std::int64_t groups = (args.out.rows + Shape::kRows - 1) / Shape::kRows;
  const std::int64_t parts =
      (static_cast<std::int64_t>(args.out.vocab) + Shape::kWidth - 1) / Shape::kWidth;
  launch_walk(wide_kernel<kType, kRank, kLarge>, parts * groups, Shape::kWarps, kShared, false,
              args, stream);
}

template <DType kType, int kRank>
void launch(const MarkovTensorArgs& args, cudaStream_t stream) {
  static_assert(sizeof(WideMemory<kType, kRank, true>) <= kLargeMemory);
  static_assert(sizeof(MiddleMemory<kType, kRank>) <= kLargeMemory);
  static_assert(sizeof(WideMemory<kType, kRank, false>) <= 99 * 1024);
  const bool large = device_traits().block_memory >= kLargeMemory;
  if (args.out.rows <= kColumns) {
    large ? launch_thin<kType, kRank, true>(args, stream)
          : launch_thin<kType, kRank, false>(args, stream);
  } else if (!large) {
    launch_wide<kType, kRank, false>(args, stream);
  } else if (args.out.rows <= kMiddleRows) {
    launch_middle<kType, kRank>(args, stream);
  } else {
    launch_wide<kType, kRank, true>(args, stream);
  }
}

bool rows_at_16_bytes(const Matrix& matrix) {
  return reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0 && matrix.stride % 8 == 0;
}

}  // namespace

bool markov_tensor_applies(const Matrix& w1, const Matrix& w2) {
  return w1.data != nullptr && w1.type == w2.type &&
         (w1.type == DType::f16 || w1.type == DType::bf16) && w1.cols > 0 && w1.cols % 8 == 0 &&
         w1.cols <= kMostTensorRank && rows_at_16_bytes(w1) && rows_at_16_bytes(w2);
}

void markov_tensor(const MarkovTensorArgs& args, cudaStream_t stream) {
  if (args.out.rows <= 0 || args.out.vocab <= 0) return;
  const bool short_rank = args.w1.cols <= 256;
  if (args.w1.type == DType::f16) {
    short_rank ? launch<DType::f16, 256>(args, stream) : launch<DType::f16, 512>(args, stream);
  } else {
    short_rank ? launch<DType::bf16, 256>(args, stream) : launch<DType::bf16, 512>(args, stream);
  }
}

}  // namespace dspark::kernels
