// Streaming over a part of one or two rows with all threads of a block: 16-byte loads, several in
// flight, whatever the alignment of the row. Each thread sees its ids in ascending order. `visit`
// must not synchronise.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace dspark::kernels {

/// Elements from `pointer` to the next multiple of 16 bytes.
__device__ inline int elements_to_alignment(const float* pointer) {
  return static_cast<int>(((16u - (reinterpret_cast<std::uintptr_t>(pointer) & 15u)) & 15u) / 4u);
}

/// visit(id, value) for every id in [begin, end).
template <int kUnroll = 4, class Visit>
__device__ void visit_row(const float* row, std::int32_t begin, std::int32_t end, Visit&& visit) {
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const int count = end - begin;
  const int head = min(elements_to_alignment(row + begin), count);
  const int quads = (count - head) / 4;
  if (thread < head) visit(begin + thread, row[begin + thread]);
  const float4* body = reinterpret_cast<const float4*>(row + begin + head);
  for (int base = thread; base < quads; base += kUnroll * threads) {
    float4 values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int quad = base + u * threads;
      values[u] = quad < quads ? body[quad] : float4{0, 0, 0, 0};
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int quad = base + u * threads;
      if (quad < quads) {
        const std::int32_t id = begin + head + 4 * quad;
        visit(id, values[u].x);
        visit(id + 1, values[u].y);
        visit(id + 2, values[u].z);
        visit(id + 3, values[u].w);
      }
    }
  }
  const std::int32_t last = begin + head + 4 * quads + thread;
  if (last < end) visit(last, row[last]);
}

/// visit(id, first, second) for every id in [begin, end) of two rows.
template <int kUnroll = 2, class Visit>
__device__ void visit_rows(const float* first, const float* second, std::int32_t begin,
                           std::int32_t end, Visit&& visit) {
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const int skew = elements_to_alignment(first + begin);
  if (skew != elements_to_alignment(second + begin)) {
    for (std::int32_t id = begin + thread; id < end; id += threads)
      visit(id, first[id], second[id]);
    return;
  }
  const int count = end - begin;
  const int head = min(skew, count);
  const int quads = (count - head) / 4;
  if (thread < head) visit(begin + thread, first[begin + thread], second[begin + thread]);
  const float4* first_body = reinterpret_cast<const float4*>(first + begin + head);
  const float4* second_body = reinterpret_cast<const float4*>(second + begin + head);
  for (int base = thread; base < quads; base += kUnroll * threads) {
    float4 a[kUnroll];
    float4 b[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int quad = base + u * threads;
      a[u] = quad < quads ? first_body[quad] : float4{0, 0, 0, 0};
      b[u] = quad < quads ? second_body[quad] : float4{0, 0, 0, 0};
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int quad = base + u * threads;
      if (quad < quads) {
        const std::int32_t id = begin + head + 4 * quad;
        visit(id, a[u].x, b[u].x);
        visit(id + 1, a[u].y, b[u].y);
        visit(id + 2, a[u].z, b[u].z);
        visit(id + 3, a[u].w, b[u].w);
      }
    }
  }
  const std::int32_t last = begin + head + 4 * quads + thread;
  if (last < end) visit(last, first[last], second[last]);
}

/// target[id] = function(id, source[id]) for every id in [begin, end).
template <int kUnroll = 4, class Function>
__device__ void transform_row(const float* source, float* target, std::int32_t begin,
                              std::int32_t end, Function&& function) {
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x);
  const int skew = elements_to_alignment(source + begin);
  if (skew != elements_to_alignment(target + begin)) {
    for (std::int32_t id = begin + thread; id < end; id += threads) {
      target[id] = function(id, source[id]);
    }
    return;
  }
  const int count = end - begin;
  const int head = min(skew, count);
  const int quads = (count - head) / 4;
  if (thread < head) target[begin + thread] = function(begin + thread, source[begin + thread]);
  const float4* body = reinterpret_cast<const float4*>(source + begin + head);
  float4* place = reinterpret_cast<float4*>(target + begin + head);
  for (int base = thread; base < quads; base += kUnroll * threads) {
    float4 values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int quad = base + u * threads;
      values[u] = quad < quads ? body[quad] : float4{0, 0, 0, 0};
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int quad = base + u * threads;
      if (quad < quads) {
        const std::int32_t id = begin + head + 4 * quad;
        place[quad] = float4{function(id, values[u].x), function(id + 1, values[u].y),
                             function(id + 2, values[u].z), function(id + 3, values[u].w)};
      }
    }
  }
  const std::int32_t last = begin + head + 4 * quads + thread;
  if (last < end) target[last] = function(last, source[last]);
}

/// Reads what other blocks have written with atomics.
template <class T>
__device__ T read_shared_state(const T& place) {
  return *static_cast<const volatile T*>(&place);
}

/// True in all threads of the block that is the last of `blocks` to get here; everything the others
/// wrote before is then visible. `counter` must be 0 at the start.
__device__ inline bool last_block_to_arrive(std::uint32_t* counter, std::uint32_t blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(counter, 1u) == blocks - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

/// 64-bit integer atomics are declared for `unsigned long long`; these take the fixed-width type.
__device__ inline std::uint64_t atomic_max(std::uint64_t* place, std::uint64_t value) {
  return atomicMax(reinterpret_cast<unsigned long long*>(place), value);
}
__device__ inline void atomic_add(std::uint64_t* place, std::uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(place), value);
}

/// ORs `bits` into an optional status word.
__device__ inline void report(std::uint32_t* status, std::uint32_t bits) {
  if (status != nullptr && bits != 0) atomicOr(status, bits);
}

}  // namespace dspark::kernels
