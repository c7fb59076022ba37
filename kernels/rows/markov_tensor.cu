#include "kernels/rows/markov_tensor.h"

#include <cuda_pipeline.h>

#include "kernels/common/launch.cuh"
#include "kernels/common/visit.cuh"

// The vocabulary is the long side of the product: a warp holds 16 rows of w2 in registers, as the
// tensor cores want them, and meets 8 rows of w1 at a time. Nothing of w2 passes through shared
// memory, and it is read once whatever the number of rows.
//
// Elements of k are dealt to the lanes in pieces of 16 bytes, the same way for both operands; so
// each instruction's sum is over the same 16 elements for every row and every launch.

namespace dspark::kernels {
namespace {

inline constexpr int kTile = 16;        // vocabulary rows of a warp
inline constexpr int kColumns = 8;      // rows of w1 in an instruction
inline constexpr int kGroup = 64;       // rows of w1 in shared memory
inline constexpr int kPieceBytes = 64;  // of a row, per piece: 16 bytes of each of 4 lanes
inline constexpr int kThinWarps = 8;
/// Of the kernel for many rows: as many as the registers hold.
template <int kPieces>
constexpr int kWideWarps = kPieces <= 8 ? 16 : 8;

/// Bytes between rows of w1 in shared memory: 16-byte reads of 8 lanes do not collide.
template <int kPieces>
constexpr int kPitch = kPieces* kPieceBytes + (kPieces % 2 == 0 ? 64 : 0);

__device__ inline uint4 load_weights(const void* place) {
  uint4 out;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "l"(place));
  return out;
}

template <DType kType>
__device__ void multiply(float (&sum)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                         std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  if constexpr (kType == DType::f16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

/// What becomes of an output row: an offset into the backbone, or one of these.
inline constexpr std::int64_t kSkip = -1;
inline constexpr std::int64_t kNaN = -2;

struct RowPlan {
  std::int64_t previous;  // row of w1, or -1
  std::int64_t backbone;  // offset, kSkip or kNaN
  std::uint32_t problems;
};

__device__ inline RowPlan plan_row(const MarkovTensorArgs& args, std::int64_t m) {
  const MarkovIndex& index = args.index;
  const bool arrays = index.previous != nullptr;
  std::int64_t previous;
  std::int64_t row;
  if (arrays) {
    previous = index.previous[m];
    row = index.backbone_row[m];
    if (previous < 0) return {-1, kSkip, kOpOk};
  } else {
    previous = index.step == 0 ? index.first_previous[m]
                               : index.draft[m * index.block_size + index.step - 1];
    row = m * index.logits_stride + index.step + index.logits_offset;
  }
  std::uint32_t problems = kOpOk;
  if (previous < 0 || previous >= args.w1.rows) problems |= kOpBadToken;
  if (row < 0 || row >= args.backbone.rows) problems |= kOpBadRow;
  if (problems != kOpOk) return {-1, arrays ? kSkip : kNaN, problems};
  return {previous, row * args.backbone.stride, kOpOk};
}

/// A group of rows of w1 in shared memory, and what becomes of their outputs.
template <int kPieces>
struct GroupMemory {
  unsigned char w1[kGroup][kPitch<kPieces>];
  std::int64_t backbone[kGroup];
};

/// Starts copying rows [first, first + kGroup) of the output's w1 rows; rows that are not used are
/// zeros.
template <int kPieces>
__device__ void start_group(const MarkovTensorArgs& args, std::int64_t first,
                            GroupMemory<kPieces>& group, bool reports) {
  constexpr int kUnits = kPieces * kPieceBytes / 16;
  const int units = static_cast<int>(args.w1.cols) / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kGroup * kUnits;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / kUnits;
    const int unit = i % kUnits;
    const std::int64_t m = first + row;
    RowPlan plan = {-1, kSkip, kOpOk};
    if (m < args.out.rows) plan = plan_row(args, m);
    if (unit == 0) {
      group.backbone[row] = plan.backbone;
      if (reports) report(args.status, plan.problems);
    }
    unsigned char* place = group.w1[row] + unit * 16;
    if (plan.previous >= 0 && unit < units) {
      __pipeline_memcpy_async(place,
                              static_cast<const unsigned char*>(args.w1.data) +
                                  (plan.previous * args.w1.stride + unit * 8) * 2,
                              16);
    } else {
      *reinterpret_cast<uint4*>(place) = uint4{0, 0, 0, 0};
    }
  }
}

/// A warp's 16 rows of w2: lane 4·g + t has piece t of rows g and g + 8.
template <int kPieces>
struct WeightTile {
  uint4 low[kPieces];
  uint4 high[kPieces];

  __device__ void load(const MarkovTensorArgs& args, std::int64_t tile, std::int64_t tiles) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t v = tile * kTile + lane / 4;
    const int units = static_cast<int>(args.w2.cols) / 8;
    const auto* row = static_cast<const unsigned char*>(args.w2.data) + v * args.w2.stride * 2;
    const bool has_low = tile < tiles && v < args.out.vocab;
    const bool has_high = tile < tiles && v + 8 < args.out.vocab;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int unit = p * 4 + lane % 4;
      low[p] = has_low && unit < units ? load_weights(row + unit * 16) : uint4{0, 0, 0, 0};
      high[p] = has_high && unit < units ? load_weights(row + 8 * args.w2.stride * 2 + unit * 16)
                                         : uint4{0, 0, 0, 0};
    }
  }
};

/// Outputs of a tile and kMany times 8 rows from `column` on.
template <DType kType, int kPieces, int kMany>
__device__ void finish_columns(const MarkovTensorArgs& args, const WeightTile<kPieces>& weights,
                               std::int64_t tile, const GroupMemory<kPieces>& group,
                               std::int64_t first, int column) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const std::int64_t v = tile * kTile + g;
  const bool has_low = v < args.out.vocab;
  const bool has_high = v + 8 < args.out.vocab;
  float base[kMany][4];
  std::int64_t from[kMany][2];
#pragma unroll
  for (int j = 0; j < kMany; ++j) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      from[j][c] = group.backbone[column + j * kColumns + 2 * t + c];
      const float* row = args.backbone.data + from[j][c] + v;
      base[j][c] = from[j][c] >= 0 && has_low ? __ldcs(row) : 0.0f;
      base[j][2 + c] = from[j][c] >= 0 && has_high ? __ldcs(row + 8) : 0.0f;
    }
  }
#pragma unroll
  for (int j = 0; j < kMany; ++j) {
    float sum[4] = {0, 0, 0, 0};
    const unsigned char* b = group.w1[column + j * kColumns + g] + t * 16;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const uint4 factor = *reinterpret_cast<const uint4*>(b + p * kPieceBytes);
      multiply<kType>(sum, weights.low[p].x, weights.high[p].x, weights.low[p].y, weights.high[p].y,
                      factor.x, factor.y);
      multiply<kType>(sum, weights.low[p].z, weights.high[p].z, weights.low[p].w, weights.high[p].w,
                      factor.z, factor.w);
    }
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (from[j][c] == kSkip) continue;
      const bool use = from[j][c] >= 0;
      float* place =
          args.out.data + (first + column + j * kColumns + 2 * t + c) * args.out.stride + v;
      const float nan = __uint_as_float(0x7FC00000u);
      if (has_low) place[0] = use ? base[j][c] + sum[c] : nan;
      if (has_high) place[8] = use ? base[j][2 + c] + sum[2 + c] : nan;
    }
  }
}

template <DType kType, int kPieces>
__device__ void finish_tile(const MarkovTensorArgs& args, const WeightTile<kPieces>& weights,
                            std::int64_t tile, const GroupMemory<kPieces>& group,
                            std::int64_t first) {
  const std::int64_t left = args.out.rows - first;
  const int columns = static_cast<int>(left < kGroup ? left : kGroup);
  if (columns <= kColumns) {
    finish_columns<kType, kPieces, 1>(args, weights, tile, group, first, 0);
    return;
  }
  for (int column = 0; column < columns; column += 4 * kColumns) {
    finish_columns<kType, kPieces, 4>(args, weights, tile, group, first, column);
  }
}

/// Up to kGroup rows: every warp walks its tiles, the next one on its way while this is multiplied.
template <DType kType, int kPieces>
__global__ void __launch_bounds__(kThinWarps * 32, 1) thin_kernel(MarkovTensorArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  GroupMemory<kPieces>& group = *reinterpret_cast<GroupMemory<kPieces>*>(dynamic);
  const std::int64_t tiles = (static_cast<std::int64_t>(args.out.vocab) + kTile - 1) / kTile;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThinWarps;
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * kThinWarps + threadIdx.x / 32;
  const auto place = [&](std::int64_t tile) {
    return args.reverse && tile < tiles ? tiles - 1 - tile : tile;
  };
  // Two tiles that take turns, where the registers suffice.
  constexpr bool kAhead = kPieces <= 8;
  WeightTile<kPieces> even;
  even.load(args, place(warp), tiles);
  wait_for_previous_kernel();
  start_group<kPieces>(args, 0, group, blockIdx.x == 0);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  let_next_kernel_start();
  if constexpr (kAhead) {
    WeightTile<kPieces> odd;
    for (std::int64_t tile = warp; tile < tiles; tile += 2 * step) {
      odd.load(args, place(tile + step), tiles);
      finish_tile<kType, kPieces>(args, even, place(tile), group, 0);
      if (tile + step >= tiles) break;
      even.load(args, place(tile + 2 * step), tiles);
      finish_tile<kType, kPieces>(args, odd, place(tile + step), group, 0);
    }
  } else {
    for (std::int64_t tile = warp; tile < tiles; tile += step) {
      finish_tile<kType, kPieces>(args, even, place(tile), group, 0);
      even.load(args, place(tile + step), tiles);
    }
  }
}

/// Many rows: a block keeps its tiles while the rows of w1 pass through shared memory.
template <DType kType, int kPieces>
__global__ void __launch_bounds__(kWideWarps<kPieces> * 32, 1) wide_kernel(MarkovTensorArgs args) {
  extern __shared__ __align__(16) unsigned char dynamic[];
  auto* groups = reinterpret_cast<GroupMemory<kPieces>*>(dynamic);
  const std::int64_t tiles = (static_cast<std::int64_t>(args.out.vocab) + kTile - 1) / kTile;
  const std::int64_t tile =
      static_cast<std::int64_t>(blockIdx.x) * kWideWarps<kPieces> + threadIdx.x / 32;
  WeightTile<kPieces> weights;
  weights.load(args, tile, tiles);
  const bool reports = blockIdx.x == 0;
  start_group<kPieces>(args, 0, groups[0], reports);
  __pipeline_commit();
  int current = 0;
  for (std::int64_t first = 0; first < args.out.rows; first += kGroup) {
    if (first + kGroup < args.out.rows) {
      start_group<kPieces>(args, first + kGroup, groups[current ^ 1], reports);
    }
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    if (tile < tiles) finish_tile<kType, kPieces>(args, weights, tile, groups[current], first);
    __syncthreads();
    current ^= 1;
  }
  __pipeline_wait_prior(0);
}

template <DType kType, int kPieces>
void launch(const MarkovTensorArgs& args, cudaStream_t stream) {
  constexpr std::size_t kBytes = sizeof(GroupMemory<kPieces>);
  const std::int64_t tiles = (static_cast<std::int64_t>(args.out.vocab) + kTile - 1) / kTile;
  if (args.out.rows > kGroup) {
    // Beyond 48 KiB a kernel has to ask, once.
    static const cudaError_t asked = cudaFuncSetAttribute(
        wide_kernel<kType, kPieces>, cudaFuncAttributeMaxDynamicSharedMemorySize, 2 * kBytes);
    DSPARK_CUDA_CHECK(asked);
    DSPARK_LAUNCH((wide_kernel<kType, kPieces>),
                  grid_of((tiles + kWideWarps<kPieces> - 1) / kWideWarps<kPieces>),
                  kWideWarps<kPieces> * 32, 2 * kBytes, stream, args);
    return;
  }
  static const cudaError_t asked = cudaFuncSetAttribute(
      thin_kernel<kType, kPieces>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  DSPARK_CUDA_CHECK(asked);
  const std::int64_t blocks = (tiles + kThinWarps - 1) / kThinWarps;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim =
      grid_of(blocks < device_traits().multiprocessors ? blocks : device_traits().multiprocessors);
  config.blockDim = dim3(kThinWarps * 32);
  config.dynamicSmemBytes = kBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = args.early && device_traits().major >= 9 ? 1 : 0;
  DSPARK_CUDA_CHECK(cudaLaunchKernelEx(&config, thin_kernel<kType, kPieces>, args));
}

bool rows_at_16_bytes(const Matrix& matrix) {
  return reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0 && matrix.stride % 8 == 0;
}

}  // namespace

bool markov_tensor_applies(const Matrix& w1, const Matrix& w2) {
  return w1.data != nullptr && w1.type == w2.type && w1.type != DType::f32 && w1.cols > 0 &&
         w1.cols % 8 == 0 && w1.cols <= 512 && rows_at_16_bytes(w1) && rows_at_16_bytes(w2);
}

void markov_tensor(const MarkovTensorArgs& args, cudaStream_t stream) {
  if (args.out.rows <= 0 || args.out.vocab <= 0) return;
  const bool short_rank = args.w1.cols <= 256;
  if (args.w1.type == DType::f16) {
    short_rank ? launch<DType::f16, 8>(args, stream) : launch<DType::f16, 16>(args, stream);
  } else {
    short_rank ? launch<DType::bf16, 8>(args, stream) : launch<DType::bf16, 16>(args, stream);
  }
}

}  // namespace dspark::kernels
