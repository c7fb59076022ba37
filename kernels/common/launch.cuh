// Launching: grids of one dimension, checked, and how rows are split over blocks.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/common/check.h"

static_assert(__cplusplus >= 202002L, "CUDA sources are C++20; the flag is given by hand");

namespace dspark::kernels {

/// Threads of a block in every kernel that streams over a vocabulary.
inline constexpr int kThreads = 256;
/// Blocks that fill the largest device a few times over; rows are split until there are about this
/// many.
inline constexpr std::int64_t kFillBlocks = 1056;

/// Programmatic dependent launch, for a kernel that was started before the one enqueued just before
/// it has ended: waits for that one's end. Returns at once in a kernel that was not.
__device__ inline void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The kernel enqueued next may be started once every block has called this or ended.
__device__ inline void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Tells which of the architectures in this binary the device runs.
template <class>
__global__ void architecture_probe() {}

/// What kernels ask of the device: the one that is current at the first call, as a process uses
/// one.
struct DeviceTraits {
  /// Thread block clusters, bulk copies and programmatic dependent launch: compute capability 9.0,
  /// and code for it in this binary (code for an earlier one, compiled by the driver, has none).
  bool hopper = false;
  std::int64_t multiprocessors = 0;
  std::int64_t block_memory = 0;  ///< shared memory a block may have, bytes
};
inline const DeviceTraits& device_traits() {
  static const DeviceTraits traits = [] {
    int device = 0;
    DSPARK_CUDA_CHECK(cudaGetDevice(&device));
    const auto attribute = [&](cudaDeviceAttr name) {
      int value = 0;
      DSPARK_CUDA_CHECK(cudaDeviceGetAttribute(&value, name, device));
      return value;
    };
    cudaFuncAttributes code;
    DSPARK_CUDA_CHECK(cudaFuncGetAttributes(&code, architecture_probe<void>));
    DeviceTraits out;
    out.hopper = attribute(cudaDevAttrComputeCapabilityMajor) >= 9 && code.ptxVersion >= 90;
    out.multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
    out.block_memory = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    return out;
  }();
  return traits;
}

/// A barrier of all blocks of a grid that is resident as a whole (a cooperative launch). `counter`
/// was 0 before the launch; `turn` counts a block's barriers, from 0.
__device__ inline void grid_barrier(std::uint32_t* counter, std::uint32_t& turn) {
  __syncthreads();
  ++turn;
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(counter, 1u);
    const std::uint32_t all = turn * gridDim.x;
    std::uint32_t seen;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    } while (static_cast<std::int32_t>(seen - all) < 0);
    __threadfence();
  }
  __syncthreads();
}

/// A grid of `blocks` blocks; throws Error(internal) beyond what a grid can hold.
inline dim3 grid_of(std::int64_t blocks) {
  if (blocks > 0x7FFFFFFF) throw_launch_error("CUDA launch", "the work does not fit in one grid");
  return dim3(static_cast<unsigned>(blocks));
}

/// One thread per item.
inline dim3 grid_for_items(std::int64_t items) {
  return grid_of((items + kThreads - 1) / kThreads);
}

/// How a row of `vocab` elements is split: `slices` blocks of `length` elements each (the last may
/// be shorter).
struct RowSplit {
  std::int32_t slices;
  std::int32_t length;
};

/// Splits rows so that a few fill the device as well as many; a block gets at least `least`
/// elements.
inline RowSplit split_rows(std::int64_t rows, std::int32_t vocab, std::int32_t least) {
  const std::int64_t most = (static_cast<std::int64_t>(vocab) + least - 1) / least;
  std::int64_t slices = (kFillBlocks + rows - 1) / rows;
  if (slices > most) slices = most;
  if (slices < 1) slices = 1;
  // A multiple of 8 keeps the slices of an aligned row aligned.
  const std::int64_t length = ((vocab + slices - 1) / slices + 7) / 8 * 8;
  return {static_cast<std::int32_t>((vocab + length - 1) / length),
          static_cast<std::int32_t>(length)};
}

}  // namespace dspark::kernels

/// Launches `kernel` (parenthesised where it has template arguments) and checks the launch.
#define DSPARK_LAUNCH(kernel, grid, block, shared, stream, ...) \
  do {                                                          \
    kernel<<<grid, block, shared, stream>>>(__VA_ARGS__);       \
    DSPARK_CUDA_CHECK(cudaPeekAtLastError());                   \
  } while (false)
