#include "kernels/tensor/mma.h"

#include "kernels/common/launch.cuh"
#include "kernels/tensor/tile_order.h"

namespace dspark::kernels {
namespace {

// A block makes 128 x 128 outputs with 8 warps of 64 x 32, from a ring of stages that asynchronous
// copies fill.
constexpr int kTileM = 128;
constexpr int kTileN = 128;
constexpr int kTileK = 64;
constexpr int kStages = 3;
constexpr int kBlockThreads = 256;
constexpr int kWarpM = 64;
constexpr int kWarpN = 32;
constexpr int kWarpsN = kTileN / kWarpN;
static_assert(kTileM / kWarpM * kWarpsN * 32 == kBlockThreads);
constexpr int kRowBytes = kTileK * 2;
constexpr int kPieces = kRowBytes / 16;
constexpr int kStageBytes = (kTileM + kTileN) * kRowBytes;
constexpr int kSharedBytes = kStages * kStageBytes;
static_assert(kSharedBytes <= 99 * 1024, "what a block of the smallest supported device may have");
/// Tiles above each other whose part of a (2048 rows) stays in the second-level cache.
constexpr std::int64_t kOrderGroup = 16;

struct MmaOperand {
  const std::uint16_t* data;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t stride;
};

struct MmaShape {
  MmaOperand a, b, a2, b2;
  std::int32_t steps;       // of kTileK, over the first pair
  std::int32_t more_steps;  // over the second pair
  TileOrder order;
  Rows out;
  const std::uint8_t* wanted;
  bool aligned;  // pairs of columns may be stored in one access
};

/// Where a 16-byte piece of a row stands in a tile: pieces are permuted by row, so that neither
/// writing rows nor reading columns of pieces collides.
__device__ inline std::uint32_t piece_offset(int row, int piece) {
  return static_cast<std::uint32_t>(row * kRowBytes + (piece ^ (row % kPieces)) * 16);
}

/// `bytes` of 16 from global to shared memory, zeros for the rest; a wait and a barrier make it
/// visible.
__device__ inline void copy_piece(std::uint32_t target, const void* source, std::uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source),
               "r"(bytes)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Rows [first, first + kRows) and columns [k0, k0 + kTileK) of an operand, zeros beyond it.
template <int kRows>
__device__ void copy_tile(const MmaOperand& from, std::int64_t first, std::int64_t k0,
                          std::uint32_t target) {
#pragma unroll
  for (int i = 0; i < kRows * kPieces / kBlockThreads; ++i) {
    const int unit = static_cast<int>(threadIdx.x) + i * kBlockThreads;
    const int row = unit / kPieces;
    const int piece = unit % kPieces;
    const std::int64_t k = k0 + piece * 8;
    std::uint32_t bytes = 0;
    const std::uint16_t* source = from.data;
    if (first + row < from.rows && k < from.cols) {
      const std::int64_t left = from.cols - k;
      bytes = left < 8 ? static_cast<std::uint32_t>(left) * 2 : 16;
      source += (first + row) * from.stride + k;
    }
    copy_piece(target + piece_offset(row, piece), source, bytes);
  }
}

/// Four 8 x 8 blocks of 16-bit elements; lane l names row l mod 8 of block l / 8.
__device__ inline void load_blocks(std::uint32_t (&out)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

template <DType kType>
__device__ void multiply(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                         std::uint32_t b1) {
  if constexpr (kType == DType::f16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

template <DType kType>
__global__ void __launch_bounds__(kBlockThreads) mma_kernel(const MmaShape shape) {
  extern __shared__ __align__(128) unsigned char dynamic[];
  const auto base = static_cast<std::uint32_t>(__cvta_generic_to_shared(dynamic));
  const TileOrder::Tile tile = shape.order.at(blockIdx.x);
  const std::int64_t first_m = tile.m * kTileM;
  const std::int64_t first_n = tile.n * kTileN;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_m = warp / kWarpsN * kWarpM;
  const int warp_n = warp % kWarpsN * kWarpN;
  const std::int32_t steps = shape.steps + shape.more_steps;

  const auto copy_step = [&](std::int32_t step) {
    if (step < steps) {
      const std::uint32_t target = base + static_cast<std::uint32_t>(step % kStages * kStageBytes);
      const bool first = step < shape.steps;
      const std::int64_t k0 = static_cast<std::int64_t>(first ? step : step - shape.steps) * kTileK;
      copy_tile<kTileM>(first ? shape.a : shape.a2, first_m, k0, target);
      copy_tile<kTileN>(first ? shape.b : shape.b2, first_n, k0, target + kTileM * kRowBytes);
    }
    commit_copies();  // an empty group where there is nothing, so that counting them stays right
  };

  float sum[kWarpM / 16][kWarpN / 8][4];
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpN / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][j][e] = 0.0f;
    }
  }

#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) copy_step(step);
  for (std::int32_t step = 0; step < steps; ++step) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    // The stage that is filled now was read in the previous step, which ended before the barrier.
    copy_step(step + kStages - 1);
    const std::uint32_t tile_a = base + static_cast<std::uint32_t>(step % kStages * kStageBytes);
    const std::uint32_t tile_b = tile_a + kTileM * kRowBytes;
#pragma unroll
    for (int k = 0; k < kTileK / 16; ++k) {
      std::uint32_t a[kWarpM / 16][4];
      std::uint32_t b[kWarpN / 16][4];
      // Blocks of a: rows 0-7 and 8-15, then the same of the next 8 columns.
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i) {
        load_blocks(a[i], tile_a + piece_offset(warp_m + 16 * i + lane % 16, 2 * k + lane / 16));
      }
      // Blocks of b: columns 0-7 and 8-15 of rows 0-7, then the same of rows 8-15.
#pragma unroll
      for (int j = 0; j < kWarpN / 16; ++j) {
        load_blocks(b[j], tile_b + piece_offset(warp_n + 16 * j + lane / 16 * 8 + lane % 8,
                                                2 * k + lane / 8 % 2));
      }
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
        for (int j = 0; j < kWarpN / 8; ++j) {
          multiply<kType>(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
  }
  wait_for_copies<0>();

#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t m = first_m + warp_m + 16 * i + 8 * half + lane / 4;
      if (m >= shape.out.rows || (shape.wanted != nullptr && shape.wanted[m] == 0)) continue;
      float* const row = shape.out.data + m * shape.out.stride;
#pragma unroll
      for (int j = 0; j < kWarpN / 8; ++j) {
        const std::int64_t n = first_n + warp_n + 8 * j + lane % 4 * 2;
        const float2 values = {sum[i][j][2 * half], sum[i][j][2 * half + 1]};
        if (shape.aligned && n + 2 <= shape.out.vocab) {
          __stcs(reinterpret_cast<float2*>(row + n), values);
        } else {
          if (n < shape.out.vocab) __stcs(row + n, values.x);
          if (n + 1 < shape.out.vocab) __stcs(row + n + 1, values.y);
        }
      }
    }
  }
}

MmaOperand mma_operand(const Matrix& matrix) {
  return {static_cast<const std::uint16_t*>(matrix.data), matrix.rows, matrix.cols, matrix.stride};
}

std::int32_t steps_of(std::int64_t depth) {
  return static_cast<std::int32_t>((depth + kTileK - 1) / kTileK);
}

template <DType kType>
void launch(const MmaShape& shape, cudaStream_t stream) {
  const auto kernel = mma_kernel<kType>;
  static const cudaError_t asked =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  DSPARK_CUDA_CHECK(asked);
  DSPARK_LAUNCH(kernel, grid_of(shape.order.count()), kBlockThreads, kSharedBytes, stream, shape);
}

}  // namespace

void mma_product(const TensorProduct& args, cudaStream_t stream) {
  const bool second = args.a2.data != nullptr;
  MmaShape shape;
  shape.a = mma_operand(args.a);
  shape.b = mma_operand(args.b);
  shape.a2 = mma_operand(second ? args.a2 : args.a);
  shape.b2 = mma_operand(second ? args.b2 : args.b);
  shape.steps = steps_of(args.a.cols);
  shape.more_steps = second ? steps_of(args.a2.cols) : 0;
  shape.order = {(args.out.rows + kTileM - 1) / kTileM, (args.out.vocab + kTileN - 1) / kTileN,
                 kOrderGroup};
  shape.out = args.out;
  shape.wanted = args.wanted;
  shape.aligned =
      reinterpret_cast<std::uintptr_t>(args.out.data) % 8 == 0 && args.out.stride % 2 == 0;
  if (args.a.type == DType::f16) {
    launch<DType::f16>(shape, stream);
  } else {
    launch<DType::bf16>(shape, stream);
  }
}

}  // namespace dspark::kernels
