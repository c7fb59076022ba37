// Reducing the parts of a row over the lanes of a warp. A part is trivially copyable and made of
// 32-bit words.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace dspark::kernels {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

/// True for an epilogue that reduces rows to parts (kernels/common/gemm.cuh).
template <class Epilogue, class = void>
inline constexpr bool kReduces = false;
template <class Epilogue>
inline constexpr bool kReduces<Epilogue, std::void_t<typename Epilogue::Part>> = true;

/// The part that the lane `mask` away holds.
template <class Part>
__device__ Part exchange(const Part& part, int mask) {
  static_assert(std::is_trivially_copyable_v<Part> && sizeof(Part) % sizeof(std::uint32_t) == 0);
  constexpr int kWords = sizeof(Part) / sizeof(std::uint32_t);
  std::uint32_t words[kWords];
  memcpy(words, &part, sizeof part);
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __shfl_xor_sync(kAllLanes, words[i], mask);
  Part out;
  memcpy(&out, words, sizeof out);
  return out;
}

/// The merged part of each group of kWidth neighbouring lanes, in all of them. All lanes of the
/// warp take part.
template <class Reducer, int kWidth>
__device__ typename Reducer::Part merge_lanes(typename Reducer::Part part) {
  static_assert(kWidth >= 1 && kWidth <= kWarp && (kWidth & (kWidth - 1)) == 0);
#pragma unroll
  for (int mask = kWidth / 2; mask > 0; mask /= 2) {
    part = Reducer::merge(part, exchange(part, mask));
  }
  return part;
}

/// The merged part of a block of kBlockThreads threads, in thread 0.
template <class Reducer, int kBlockThreads>
__device__ typename Reducer::Part merge_block(typename Reducer::Part part) {
  constexpr int kWarps = kBlockThreads / kWarp;
  static_assert(kBlockThreads % kWarp == 0);
  __shared__ typename Reducer::Part parts[kWarps];
  part = merge_lanes<Reducer, kWarp>(part);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread % kWarp == 0) parts[thread / kWarp] = part;
  __syncthreads();
  if (thread == 0) {
    for (int warp = 1; warp < kWarps; ++warp) part = Reducer::merge(part, parts[warp]);
  }
  __syncthreads();
  return part;
}

}  // namespace dspark::kernels
