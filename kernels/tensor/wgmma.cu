#include "kernels/tensor/wgmma.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include "kernels/common/launch.cuh"
#include "kernels/tensor/hopper.cuh"
#include "kernels/tensor/tile_order.h"

namespace dspark::kernels {

#if defined(DSPARK_WGMMA_BUILT)
const bool kWgmmaBuilt = true;
#else
const bool kWgmmaBuilt = false;
#endif

namespace {

// A block makes 128 x 256 outputs: one warpgroup keeps a ring of stages filled, two multiply, each
// with 64 rows. Two blocks, one above the other, are a cluster: each loads half of their common
// tile of b, for both.
constexpr int kTileM = 128;
constexpr int kTileN = 256;
constexpr int kTileK = 64;  // 128 bytes, the width of the swizzle
constexpr int kStages = 4;
constexpr int kCluster = 2;
constexpr int kGroupM = 64;
constexpr int kWarpgroup = 128;
constexpr int kBlockThreads = (1 + kTileM / kGroupM) * kWarpgroup;

constexpr std::uint32_t kBytesA = kTileM * kTileK * 2;
constexpr std::uint32_t kBytesB = kTileN * kTileK * 2;
constexpr std::uint32_t kStageBytes = kBytesA + kBytesB;
constexpr int kHalfN = kTileN / kCluster;
constexpr std::uint32_t kSharedAlignment = 1024;  // a whole atom of the swizzle
constexpr std::uint32_t kSharedBytes =
    kSharedAlignment + kStages * kStageBytes + 2 * kStages * sizeof(std::uint64_t);
static_assert(kSharedBytes <= 227 * 1024);
/// Clusters above each other whose part of a (2048 rows) stays in the second-level cache.
constexpr std::int64_t kOrderGroup = 8;

struct WgmmaShape {
  std::int32_t rows;
  std::int32_t columns;
  std::int32_t steps;       // of kTileK, over the first pair
  std::int32_t more_steps;  // over the second pair
  TileOrder order;          // of the clusters' tiles, 2 · kTileM rows each
};

struct WgmmaOutput {
  float* data;
  std::int64_t stride;
  const std::uint8_t* wanted;
  bool aligned;  // pairs of columns may be stored in one access
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Of 65536 registers: 128 · 40 + 256 · 232.
constexpr int kLoaderRegisters = 40;
constexpr int kMultiplierRegisters = 232;

/// Position in the ring of stages, and the parity of the phase that is waited for there.
struct RingPosition {
  std::uint32_t stage = 0;
  std::uint32_t parity = 0;

  __device__ void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// Addresses in shared memory.
struct WgmmaShared {
  std::uint32_t base;

  __device__ std::uint32_t a(std::uint32_t stage) const { return base + stage * kStageBytes; }
  __device__ std::uint32_t b(std::uint32_t stage) const { return a(stage) + kBytesA; }
  /// The stage holds both tiles.
  __device__ std::uint32_t full(std::uint32_t stage) const {
    return base + kStages * kStageBytes + stage * 8;
  }
  /// All warps of the cluster are done with the stage.
  __device__ std::uint32_t empty(std::uint32_t stage) const { return full(stage) + kStages * 8; }
};

/// A warp is done with a stage: both blocks of the cluster write to it next.
__device__ inline void release_stage(const WgmmaShared& shared, std::uint32_t stage) {
  const std::uint32_t lane = threadIdx.x % 32;
  if (lane < kCluster) hopper::barrier_arrive(shared.empty(stage), lane);
}

/// Rows from `row` (this thread's first) of a warpgroup's sums, columns from `column`.
__device__ inline void store_sums(const hopper::Accumulators& sum, const WgmmaShape& shape,
                                  const WgmmaOutput& out, std::int32_t row, std::int32_t column) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int32_t m = row + 8 * half;
    if (m >= shape.rows || (out.wanted != nullptr && out.wanted[m] == 0)) continue;
    float* const place = out.data + m * out.stride + column;
    if (out.aligned && column + kTileN <= shape.columns) {
#pragma unroll
      for (int j = 0; j < kTileN / 8; ++j) {
        __stcs(reinterpret_cast<float2*>(place + 8 * j),
               float2{sum[4 * j + 2 * half], sum[4 * j + 2 * half + 1]});
      }
    } else {
#pragma unroll
      for (int j = 0; j < kTileN / 8; ++j) {
        if (column + 8 * j < shape.columns) __stcs(place + 8 * j, sum[4 * j + 2 * half]);
        if (column + 8 * j + 1 < shape.columns) {
          __stcs(place + 8 * j + 1, sum[4 * j + 2 * half + 1]);
        }
      }
    }
  }
}

#endif

template <DType kType>
__global__ void __launch_bounds__(kBlockThreads, 1)
    wgmma_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                 const __grid_constant__ CUtensorMap a2, const __grid_constant__ CUtensorMap b2,
                 const WgmmaShape shape, const WgmmaOutput out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char dynamic[];
  const WgmmaShared shared = {(hopper::shared_address(dynamic) + kSharedAlignment - 1) /
                              kSharedAlignment * kSharedAlignment};
  const std::uint32_t rank = hopper::cluster_rank();
  if (threadIdx.x == 0) {
    for (std::uint32_t stage = 0; stage < kStages; ++stage) {
      hopper::barrier_init(shared.full(stage), 1);
      // Every multiplying warp of the cluster.
      hopper::barrier_init(shared.empty(stage), kCluster * (kTileM / kGroupM) * (kWarpgroup / 32));
    }
    hopper::barrier_init_fence();
  }
  hopper::cluster_sync();

  const std::int64_t clusters = gridDim.x / kCluster;
  const std::int64_t first = blockIdx.x / kCluster;
  const std::int64_t count = shape.order.count();
  const int role = static_cast<int>(threadIdx.x) / kWarpgroup;
  RingPosition ring;
  if (role == 0) {
    hopper::give_up_registers<kLoaderRegisters>();
    if (threadIdx.x == 0) {
      hopper::prefetch_map(a);
      hopper::prefetch_map(b);
      for (std::int64_t index = first; index < count; index += clusters) {
        const TileOrder::Tile tile = shape.order.at(index);
        const auto m = static_cast<std::int32_t>((tile.m * kCluster + rank) * kTileM);
        const auto n = static_cast<std::int32_t>(tile.n * kTileN + rank * kHalfN);
        const auto load = [&](const CUtensorMap& map_a, const CUtensorMap& map_b,
                              std::int32_t steps) {
          for (std::int32_t step = 0; step < steps; ++step) {
            hopper::barrier_wait(shared.empty(ring.stage), ring.parity ^ 1);
            const std::uint32_t full = shared.full(ring.stage);
            hopper::barrier_expect(full, kStageBytes);
            hopper::load_box(map_a, shared.a(ring.stage), full, step * kTileK, m);
            hopper::load_box_for(map_b, shared.b(ring.stage) + rank * (kBytesB / kCluster), full,
                                 step * kTileK, n, (1 << kCluster) - 1);
            ring.next();
          }
        };
        load(a, b, shape.steps);
        load(a2, b2, shape.more_steps);
      }
    }
  } else {
    hopper::take_registers<kMultiplierRegisters>();
    const std::int32_t steps = shape.steps + shape.more_steps;
    const std::int32_t group_row = (role - 1) * kGroupM;
    const int warp = static_cast<int>(threadIdx.x) % kWarpgroup / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    hopper::Accumulators sum;
    for (std::int64_t index = first; index < count; index += clusters) {
      const TileOrder::Tile tile = shape.order.at(index);
      const auto m = static_cast<std::int32_t>((tile.m * kCluster + rank) * kTileM) + group_row;
      if (m >= shape.rows) {
        // Nothing but zeros: the other warpgroups still need the stages.
        for (std::int32_t step = 0; step < steps; ++step, ring.next()) {
          hopper::barrier_wait(shared.full(ring.stage), ring.parity);
          release_stage(shared, ring.stage);
        }
        continue;
      }
#pragma unroll
      for (int i = 0; i < 128; ++i) sum[i] = 0.0f;
      hopper::pin(sum);
      std::uint32_t before = 0;
      for (std::int32_t step = 0; step < steps; ++step) {
        hopper::barrier_wait(shared.full(ring.stage), ring.parity);
        const std::uint64_t rows = hopper::operand_descriptor(
            shared.a(ring.stage) + static_cast<std::uint32_t>(group_row) * (kTileK * 2));
        const std::uint64_t columns = hopper::operand_descriptor(shared.b(ring.stage));
        hopper::wgmma_fence();
#pragma unroll
        for (int k = 0; k < kTileK / 16; ++k) {
          hopper::wgmma<kType>(sum, rows + 2 * k, columns + 2 * k);
        }
        hopper::wgmma_commit();
        // The products of this step stay under way while those of the one before end.
        hopper::wgmma_wait<1>();
        if (step > 0) release_stage(shared, before);
        before = ring.stage;
        ring.next();
      }
      hopper::wgmma_wait<0>();
      hopper::pin(sum);
      release_stage(shared, before);
      store_sums(sum, shape, out, m + warp * 16 + lane / 4,
                 static_cast<std::int32_t>(tile.n * kTileN) + lane % 4 * 2);
    }
  }
  // A block's shared memory may be written and its barriers arrived at by the other one until then.
  __syncwarp();
  hopper::cluster_sync();
#endif
}

// --- host -------------------------------------------------------------------------------------

PFN_cuTensorMapEncodeTiled_v12000 find_encoder() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  // Asked of the driver at run time: a program that is linked with it does not start without one.
#if CUDART_VERSION >= 12050
  DSPARK_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                     cudaEnableDefault, &result));
#else
  DSPARK_CUDA_CHECK(
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result));
#endif
  if (result != cudaDriverEntryPointSuccess || found == nullptr) {
    throw_cuda_error(cudaErrorInsufficientDriver, "cuTensorMapEncodeTiled", __FILE__, __LINE__);
  }
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
}

/// Boxes of kTileK columns and `box_rows` rows; what they hold beyond the matrix is 0.
CUtensorMap tensor_map(const Matrix& matrix, std::uint32_t box_rows) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = find_encoder();
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(matrix.cols),
                               static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(matrix.stride) * 2};
  const cuuint32_t box[2] = {kTileK, box_rows};
  const cuuint32_t element_strides[2] = {1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map,
             matrix.type == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                       : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
             2, const_cast<void*>(matrix.data), sizes, strides, box, element_strides,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    // The runtime's codes are the driver's.
    throw_cuda_error(static_cast<cudaError_t>(result), "cuTensorMapEncodeTiled", __FILE__,
                     __LINE__);
  }
  return map;
}

std::int32_t steps_of(std::int64_t depth) {
  return static_cast<std::int32_t>((depth + kTileK - 1) / kTileK);
}

template <DType kType>
void launch(const TensorProduct& args, cudaStream_t stream) {
  const auto kernel = wgmma_kernel<kType>;
  static const cudaError_t asked = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSharedBytes));
  DSPARK_CUDA_CHECK(asked);
  int device = 0;
  int processors = 0;
  DSPARK_CUDA_CHECK(cudaGetDevice(&device));
  DSPARK_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));

  const bool second = args.a2.data != nullptr;
  const CUtensorMap a = tensor_map(args.a, kTileM);
  const CUtensorMap b = tensor_map(args.b, kHalfN);
  const CUtensorMap a2 = second ? tensor_map(args.a2, kTileM) : a;
  const CUtensorMap b2 = second ? tensor_map(args.b2, kHalfN) : b;
  const std::int64_t rows = args.out.rows;
  const std::int64_t columns = args.out.vocab;
  WgmmaShape shape;
  shape.rows = static_cast<std::int32_t>(rows);
  shape.columns = static_cast<std::int32_t>(columns);
  shape.steps = steps_of(args.a.cols);
  shape.more_steps = second ? steps_of(args.a2.cols) : 0;
  shape.order = {(rows + kCluster * kTileM - 1) / (kCluster * kTileM),
                 (columns + kTileN - 1) / kTileN, kOrderGroup};
  const WgmmaOutput out = {
      args.out.data, args.out.stride, args.wanted,
      reinterpret_cast<std::uintptr_t>(args.out.data) % 8 == 0 && args.out.stride % 2 == 0};

  const std::int64_t room = processors / kCluster > 0 ? processors / kCluster : 1;
  const std::int64_t clusters = shape.order.count() < room ? shape.order.count() : room;
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = kCluster;
  cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid_of(clusters * kCluster);
  config.blockDim = dim3(kBlockThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  DSPARK_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, a, b, a2, b2, shape, out));
}

}  // namespace

void wgmma_product(const TensorProduct& args, cudaStream_t stream) {
  if (args.a.type == DType::f16) {
    launch<DType::f16>(args, stream);
  } else {
    launch<DType::bf16>(args, stream);
  }
}

}  // namespace dspark::kernels
