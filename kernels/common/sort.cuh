// Sorting by one block, in shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace dspark::kernels {

/// Sorts `keys` descending, by all kBlock threads of a block; `size` is a power of two. Ends with a
/// barrier of the block.
template <int kBlock>
__device__ void sort_descending(std::uint64_t* keys, int size) {
  for (int width = 2; width <= size; width *= 2) {
    for (int step = width / 2; step > 0; step /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < size / 2; i += kBlock) {
        const int low = 2 * step * (i / step) + i % step;
        const int high = low + step;
        const bool descending = (low & width) == 0;
        const std::uint64_t a = keys[low];
        const std::uint64_t b = keys[high];
        if ((a < b) == descending) {
          keys[low] = b;
          keys[high] = a;
        }
      }
      __syncthreads();
    }
  }
}

}  // namespace dspark::kernels
