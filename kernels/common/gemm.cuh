// out[m, n] = Σ_k a[m, k] · b[n, k] as one chain of f32 fused multiply-adds over ascending k per
// output (core/row_ops.h, ProjectArgs), both operands row-major in k and stored as f16, bf16 or
// f32, `b` also as e4m3. k is never split, so the bits do not depend on the tile. Two kernels: a
// register-tiled one, and one for few rows of `a` that streams `b` once at memory speed.
//
// An Epilogue is passed by value and has
//   report(m)          called once per row: checks its indices and reports bad ones
// and, where it stores the outputs,
//   wanted(m)          false: the row is not written
//   store(m, n, value) and store4(m, n, values) for n a multiple of 4
// or, where it reduces each row to a Part (trivially copyable, of 32-bit words; a default one is
// empty),
//   add(part, m, n, value)   adds an output to a thread's part of row m; a thread's n ascend
//   add4(part, m, n, values, valid)   the same for n to n + valid, 1 to 4 of them
//   merge(a, b)              static: the part of both, in whatever order
//   commit(m, part)          adds a warp's or block's part to the row's result: one thread
//   finish()                 called by all threads of a block when its parts are committed
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_pipeline.h>

#include <cstdint>
#include <type_traits>

#include "core/views.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/reduce.cuh"

namespace dspark::kernels {

/// A matrix whose row m is row `gather[m]` of the stored one (or m itself). Rows out of range read
/// as 0.
struct GemmOperand {
  const void* data;
  DType type;
  std::int64_t rows;
  std::int64_t stride;
  const std::int32_t* gather;
};

inline GemmOperand gemm_operand(const Matrix& matrix, const std::int32_t* gather = nullptr) {
  return {matrix.data, matrix.type, matrix.rows, matrix.stride, gather};
}

/// True if every row starts at a multiple of `bytes`.
inline bool rows_aligned(const GemmOperand& operand, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(operand.data) % bytes == 0 &&
         static_cast<std::size_t>(operand.stride) * size_of(operand.type) % bytes == 0;
}

__device__ inline float widen_f16(std::uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}
__device__ inline float widen_bf16(std::uint32_t bits) { return __uint_as_float(bits << 16); }
/// Two E4M3 codes, the first in the low byte; exact.
__device__ inline float2 widen_e4m3(std::uint32_t bits) {
  const __half2_raw halves =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(bits), __NV_E4M3);
  return __half22float2(__half2(halves));
}

__device__ inline float load_element(const void* data, DType type, std::int64_t index) {
  if (type == DType::f32) return static_cast<const float*>(data)[index];
  if (type == DType::e4m3) return widen_e4m3(static_cast<const std::uint8_t*>(data)[index]).x;
  const std::uint32_t bits = static_cast<const std::uint16_t*>(data)[index];
  return type == DType::f16 ? widen_f16(bits) : widen_bf16(bits);
}

/// Stored row of row m, or -1.
__device__ inline std::int64_t operand_row(const GemmOperand& operand, std::int64_t m,
                                           std::int64_t count) {
  if (m >= count) return -1;
  const std::int64_t row = operand.gather != nullptr ? operand.gather[m] : m;
  return row >= 0 && row < operand.rows ? row : -1;
}

/// Four elements as they are stored, so that a load in flight need not be waited for before its
/// values are widened.
struct RawQuad {
  std::uint32_t x, y, z, w;
};

/// Elements [index, index + valid) of the array, zeros beyond; `aligned`: a quad may be loaded in
/// one access. kCoded: the type may be e4m3.
template <bool kCoded = false>
__device__ inline RawQuad load_quad(const void* data, DType type, std::int64_t index, int valid,
                                    bool aligned) {
  RawQuad quad = {0, 0, 0, 0};
  if (valid <= 0) return quad;
  if (type == DType::f32) {
    const std::uint32_t* source = static_cast<const std::uint32_t*>(data) + index;
    if (aligned && valid >= 4) {
      const uint4 loaded = *reinterpret_cast<const uint4*>(source);
      return {loaded.x, loaded.y, loaded.z, loaded.w};
    }
    quad.x = source[0];
    if (valid > 1) quad.y = source[1];
    if (valid > 2) quad.z = source[2];
    if (valid > 3) quad.w = source[3];
    return quad;
  }
  if constexpr (kCoded) {
    if (type == DType::e4m3) {
      const std::uint8_t* codes = static_cast<const std::uint8_t*>(data) + index;
      if (aligned && valid >= 4) {
        quad.x = *reinterpret_cast<const std::uint32_t*>(codes);
        return quad;
      }
      quad.x = codes[0];
      if (valid > 1) quad.x |= static_cast<std::uint32_t>(codes[1]) << 8;
      if (valid > 2) quad.x |= static_cast<std::uint32_t>(codes[2]) << 16;
      if (valid > 3) quad.x |= static_cast<std::uint32_t>(codes[3]) << 24;
      return quad;
    }
  }
  const std::uint16_t* source = static_cast<const std::uint16_t*>(data) + index;
  if (aligned && valid >= 4) {
    const uint2 loaded = *reinterpret_cast<const uint2*>(source);
    quad.x = loaded.x;
    quad.y = loaded.y;
    return quad;
  }
  quad.x = source[0];
  if (valid > 1) quad.x |= static_cast<std::uint32_t>(source[1]) << 16;
  if (valid > 2) quad.y = source[2];
  if (valid > 3) quad.y |= static_cast<std::uint32_t>(source[3]) << 16;
  return quad;
}

template <bool kCoded = false>
__device__ inline float4 widen_quad(const RawQuad& quad, DType type) {
  if (type == DType::f32) {
    return {__uint_as_float(quad.x), __uint_as_float(quad.y), __uint_as_float(quad.z),
            __uint_as_float(quad.w)};
  }
  if constexpr (kCoded) {
    if (type == DType::e4m3) {
      const float2 low = widen_e4m3(quad.x & 0xFFFFu);
      const float2 high = widen_e4m3(quad.x >> 16);
      return {low.x, low.y, high.x, high.y};
    }
  }
  if (type == DType::f16) {
    return {widen_f16(quad.x & 0xFFFFu), widen_f16(quad.x >> 16), widen_f16(quad.y & 0xFFFFu),
            widen_f16(quad.y >> 16)};
  }
  return {widen_bf16(quad.x & 0xFFFFu), widen_bf16(quad.x >> 16), widen_bf16(quad.y & 0xFFFFu),
          widen_bf16(quad.y >> 16)};
}

// --- register-tiled kernel --------------------------------------------------------------------

inline constexpr int kTileDepth = 16;

/// One operand's share of a tile: each thread carries kQuads quads from global to shared memory.
template <int kRows, bool kCoded>
struct TileLoader {
  static constexpr int kTotal = kRows * (kTileDepth / 4);
  static constexpr int kQuads = (kTotal + kThreads - 1) / kThreads;

  std::int64_t row[kQuads];  // stored row, or -1
  RawQuad raw[kQuads];

  __device__ void start(const GemmOperand& operand, std::int64_t first, std::int64_t count) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int unit = static_cast<int>(threadIdx.x) + i * kThreads;
      row[i] = unit < kTotal ? operand_row(operand, first + unit / (kTileDepth / 4), count) : -1;
    }
  }

  __device__ void load(const GemmOperand& operand, std::int64_t k0, std::int64_t k, bool aligned) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int unit = static_cast<int>(threadIdx.x) + i * kThreads;
      const std::int64_t at = k0 + unit % (kTileDepth / 4) * 4;
      const std::int64_t left = k - at;
      const int valid = row[i] < 0 || left <= 0 ? 0 : (left < 4 ? static_cast<int>(left) : 4);
      raw[i] = load_quad<kCoded>(operand.data, operand.type, row[i] * operand.stride + at, valid,
                                 aligned);
    }
  }

  template <int kPitch>
  __device__ void store(const GemmOperand& operand, float (&tile)[kTileDepth][kPitch]) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int unit = static_cast<int>(threadIdx.x) + i * kThreads;
      if (unit < kTotal) {
        const int column = unit / (kTileDepth / 4);
        const int depth = unit % (kTileDepth / 4) * 4;
        const float4 values = widen_quad<kCoded>(raw[i], operand.type);
        tile[depth][column] = values.x;
        tile[depth + 1][column] = values.y;
        tile[depth + 2][column] = values.z;
        tile[depth + 3][column] = values.w;
      }
    }
  }
};

/// A thread's kCount columns of a tile row: groups of 4, spread so that a warp's accesses do not
/// collide.
template <int kWidth, int kCount>
__device__ void read_fragment(const float* tile_row, int thread, float (&out)[kCount]) {
#pragma unroll
  for (int group = 0; group < kCount / 4; ++group) {
    const float4 values =
        *reinterpret_cast<const float4*>(tile_row + group * (kWidth / (kCount / 4)) + thread * 4);
    out[4 * group] = values.x;
    out[4 * group + 1] = values.y;
    out[4 * group + 2] = values.z;
    out[4 * group + 3] = values.w;
  }
}

template <int kTileM, int kTileN, int kThreadM, int kThreadN, class Epilogue>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_tile_kernel(GemmOperand a, bool a_aligned, GemmOperand b, bool b_aligned, std::int64_t m,
                     std::int64_t n, std::int64_t k, std::int64_t tiles_m, Epilogue epilogue) {
  constexpr int kColumns = kTileN / kThreadN;
  static_assert(kColumns * (kTileM / kThreadM) == kThreads);
  constexpr int kPitchA = kTileM + 4;
  constexpr int kPitchB = kTileN + 4;
  __shared__ __align__(16) float tile_a[2][kTileDepth][kPitchA];
  __shared__ __align__(16) float tile_b[2][kTileDepth][kPitchB];

  // Neighbouring blocks share a tile of b, which is therefore read from memory once.
  const std::int64_t first_m = static_cast<std::int64_t>(blockIdx.x) % tiles_m * kTileM;
  const std::int64_t first_n = static_cast<std::int64_t>(blockIdx.x) / tiles_m * kTileN;
  const int tx = static_cast<int>(threadIdx.x) % kColumns;
  const int ty = static_cast<int>(threadIdx.x) / kColumns;

  if (first_n == 0) {
    for (int i = static_cast<int>(threadIdx.x); i < kTileM && first_m + i < m; i += kThreads) {
      epilogue.report(first_m + i);
    }
  }

  float sum[kThreadM][kThreadN];
#pragma unroll
  for (int i = 0; i < kThreadM; ++i) {
#pragma unroll
    for (int j = 0; j < kThreadN; ++j) sum[i][j] = 0.0f;
  }

  TileLoader<kTileM, false> loader_a;
  TileLoader<kTileN, kReduces<Epilogue>> loader_b;
  loader_a.start(a, first_m, m);
  loader_b.start(b, first_n, n);
  loader_a.load(a, 0, k, a_aligned);
  loader_b.load(b, 0, k, b_aligned);
  loader_a.store(a, tile_a[0]);
  loader_b.store(b, tile_b[0]);
  __syncthreads();

  int current = 0;
  for (std::int64_t k0 = 0; k0 < k; k0 += kTileDepth) {
    const bool more = k0 + kTileDepth < k;
    if (more) {
      loader_a.load(a, k0 + kTileDepth, k, a_aligned);
      loader_b.load(b, k0 + kTileDepth, k, b_aligned);
    }
    const auto accumulate = [&](int depth) {
      float fragment_a[kThreadM];
      float fragment_b[kThreadN];
      read_fragment<kTileM>(tile_a[current][depth], ty, fragment_a);
      read_fragment<kTileN>(tile_b[current][depth], tx, fragment_b);
#pragma unroll
      for (int i = 0; i < kThreadM; ++i) {
#pragma unroll
        for (int j = 0; j < kThreadN; ++j) {
          sum[i][j] = fmaf(fragment_a[i], fragment_b[j], sum[i][j]);
        }
      }
    };
    // Elements beyond k are left out, not added as zeros: fma(0, 0, -0) would be +0.
    if (k - k0 >= kTileDepth) {
#pragma unroll
      for (int depth = 0; depth < kTileDepth; ++depth) accumulate(depth);
    } else {
      const int rest = static_cast<int>(k - k0);
      for (int depth = 0; depth < rest; ++depth) accumulate(depth);
    }
    if (more) {
      // The other buffer was last read before the previous barrier.
      loader_a.store(a, tile_a[current ^ 1]);
      loader_b.store(b, tile_b[current ^ 1]);
      __syncthreads();
      current ^= 1;
    }
  }

  constexpr int kGroupsM = kThreadM / 4;
  if constexpr (kReduces<Epilogue>) {
#pragma unroll
    for (int i = 0; i < kThreadM; ++i) {
      const std::int64_t row = first_m + i / 4 * (kTileM / kGroupsM) + ty * 4 + i % 4;
      typename Epilogue::Part part = {};
      if (row < m) {
#pragma unroll
        for (int group = 0; group < kThreadN / 4; ++group) {
          const std::int64_t column = first_n + group * (kTileN / (kThreadN / 4)) + tx * 4;
          if (column >= n) continue;
          const float values[4] = {sum[i][4 * group], sum[i][4 * group + 1], sum[i][4 * group + 2],
                                   sum[i][4 * group + 3]};
          epilogue.add4(part, row, column, values,
                        n - column < 4 ? static_cast<int>(n - column) : 4);
        }
      }
      // The threads of a row are neighbours in a warp.
      part = merge_lanes<Epilogue, kColumns>(part);
      if (tx == 0 && row < m) epilogue.commit(row, part);
    }
    epilogue.finish();
  } else {
#pragma unroll
    for (int i = 0; i < kThreadM; ++i) {
      const std::int64_t row = first_m + i / 4 * (kTileM / kGroupsM) + ty * 4 + i % 4;
      if (row >= m || !epilogue.wanted(row)) continue;
#pragma unroll
      for (int group = 0; group < kThreadN / 4; ++group) {
        const std::int64_t column = first_n + group * (kTileN / (kThreadN / 4)) + tx * 4;
        if (column + 4 <= n) {
          epilogue.store4(row, column,
                          float4{sum[i][4 * group], sum[i][4 * group + 1], sum[i][4 * group + 2],
                                 sum[i][4 * group + 3]});
        } else {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            if (column + j < n) epilogue.store(row, column + j, sum[i][4 * group + j]);
          }
        }
      }
    }
  }
}

// --- few rows of a ----------------------------------------------------------------------------

inline constexpr int kThinThreads = 128;
inline constexpr int kThinStages = 3;
inline constexpr int kThinChunkBytes = 128;  // of each row of b per stage
inline constexpr int kThinPitch =
    kThinChunkBytes + 16;  // 16-byte reads down a column do not collide
// What the rows of a may take: with the stages less than the 99 KiB that every supported device
// has.
inline constexpr std::size_t kThinOperandBytes = 40 * 1024;

/// Shared memory of the thin kernel; `rows` is the template's kRows.
inline std::size_t thin_shared_bytes(int rows, int per_thread, std::int64_t k) {
  const std::size_t pitch = (static_cast<std::size_t>(k) + 3) / 4 * 4;
  return static_cast<std::size_t>(kThinStages) * kThinThreads *
             static_cast<std::size_t>(per_thread) * kThinPitch +
         static_cast<std::size_t>(rows) * pitch * sizeof(float);
}

/// The elements of a 16-byte piece, widened: 4 (f32), 8 (16-bit types) or 16 (e4m3).
template <DType kType>
struct ThinPiece {
  static constexpr int kElements = static_cast<int>(16 / size_of(kType));
  float value[kElements];

  __device__ explicit ThinPiece(const uint4& raw) {
    if constexpr (kType == DType::f32) {
      value[0] = __uint_as_float(raw.x);
      value[1] = __uint_as_float(raw.y);
      value[2] = __uint_as_float(raw.z);
      value[3] = __uint_as_float(raw.w);
    } else {
      const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
      if constexpr (kType == DType::e4m3) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float2 pair = widen_e4m3((words[i / 2] >> (16 * (i % 2))) & 0xFFFFu);
          value[2 * i] = pair.x;
          value[2 * i + 1] = pair.y;
        }
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          value[2 * i] =
              kType == DType::f16 ? widen_f16(words[i] & 0xFFFFu) : widen_bf16(words[i] & 0xFFFFu);
          value[2 * i + 1] =
              kType == DType::f16 ? widen_f16(words[i] >> 16) : widen_bf16(words[i] >> 16);
        }
      }
    }
  }
};

/// Each thread owns kPerThread rows of b and their kRows outputs; b passes through shared memory in
/// stages, so that global reads are coalesced although every chain is serial in k.
template <DType kType, int kRows, int kPerThread, class Epilogue>
__global__ void __launch_bounds__(kThinThreads)
    gemm_thin_kernel(GemmOperand a, GemmOperand b, bool b_aligned, std::int64_t m, std::int64_t n,
                     std::int64_t k, Epilogue epilogue) {
  constexpr int kElements = ThinPiece<kType>::kElements;
  constexpr int kPieces = kThinChunkBytes / 16;
  constexpr int kChunk = kElements * kPieces;
  constexpr int kBlockRows = kThinThreads * kPerThread;
  constexpr int kElementBytes = 16 / kElements;
  extern __shared__ __align__(16) unsigned char shared[];
  unsigned char* stages = shared;
  float* rows_a = reinterpret_cast<float*>(shared + kThinStages * kBlockRows * kThinPitch);
  const std::int64_t pitch_a = (k + 3) / 4 * 4;

  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first_n = static_cast<std::int64_t>(blockIdx.x) * kBlockRows;
  if (first_n == 0 && thread < m) epilogue.report(thread);

  const auto issue = [&](std::int64_t k0, int stage) {
    unsigned char* target = stages + stage * kBlockRows * kThinPitch;
#pragma unroll
    for (int i = 0; i < kPieces * kPerThread; ++i) {
      const int unit = thread + i * kThinThreads;
      const int row = unit / kPieces;
      const int piece = unit % kPieces;
      const std::int64_t at = k0 + piece * kElements;
      if (first_n + row >= n || at >= k) continue;
      unsigned char* place = target + row * kThinPitch + piece * 16;
      const unsigned char* source = static_cast<const unsigned char*>(b.data) +
                                    ((first_n + row) * b.stride + at) * kElementBytes;
      if (b_aligned && at + kElements <= k) {
        __pipeline_memcpy_async(place, source, 16);
      } else {
        const int count = k - at < kElements ? static_cast<int>(k - at) : kElements;
        for (int e = 0; e < count; ++e) {
          if constexpr (kType == DType::f32) {
            reinterpret_cast<float*>(place)[e] = reinterpret_cast<const float*>(source)[e];
          } else if constexpr (kType == DType::e4m3) {
            place[e] = source[e];
          } else {
            reinterpret_cast<std::uint16_t*>(place)[e] =
                reinterpret_cast<const std::uint16_t*>(source)[e];
          }
        }
      }
    }
  };

#pragma unroll
  for (int stage = 0; stage < kThinStages - 1; ++stage) {
    issue(static_cast<std::int64_t>(stage) * kChunk, stage);
    __pipeline_commit();
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const std::int64_t row = operand_row(a, i, m);
    for (std::int64_t e = thread; e < k; e += kThinThreads) {
      rows_a[i * pitch_a + e] = row < 0 ? 0.0f : load_element(a.data, a.type, row * a.stride + e);
    }
  }

  float sum[kPerThread][kRows];
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) sum[j][i] = 0.0f;
  }

  int stage = 0;
  for (std::int64_t k0 = 0; k0 < k; k0 += kChunk) {
    __pipeline_wait_prior(kThinStages - 2);
    __syncthreads();
    // The stage that is filled now was read in the previous round, which ended before the barrier.
    issue(k0 + (kThinStages - 1) * kChunk, (stage + kThinStages - 1) % kThinStages);
    __pipeline_commit();
    const unsigned char* source = stages + stage * kBlockRows * kThinPitch;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const std::int64_t at = k0 + piece * kElements;
      if (at >= k) break;
      if (at + kElements <= k) {
        float factors[kRows][kElements];
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
#pragma unroll
          for (int quad = 0; quad < kElements / 4; ++quad) {
            const float4 values =
                *reinterpret_cast<const float4*>(rows_a + i * pitch_a + at + 4 * quad);
            factors[i][4 * quad] = values.x;
            factors[i][4 * quad + 1] = values.y;
            factors[i][4 * quad + 2] = values.z;
            factors[i][4 * quad + 3] = values.w;
          }
        }
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) {
          const ThinPiece<kType> values(*reinterpret_cast<const uint4*>(
              source + (thread + j * kThinThreads) * kThinPitch + piece * 16));
#pragma unroll
          for (int e = 0; e < kElements; ++e) {
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
              sum[j][i] = fmaf(factors[i][e], values.value[e], sum[j][i]);
            }
          }
        }
      } else {
        for (int e = 0; at + e < k; ++e) {
#pragma unroll
          for (int j = 0; j < kPerThread; ++j) {
            const float value = load_element(
                source + (thread + j * kThinThreads) * kThinPitch + piece * 16, kType, e);
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
              sum[j][i] = fmaf(rows_a[i * pitch_a + at + e], value, sum[j][i]);
            }
          }
        }
      }
    }
    stage = (stage + 1) % kThinStages;
  }
  __pipeline_wait_prior(0);

  if constexpr (kReduces<Epilogue>) {
    __shared__ typename Epilogue::Part parts[kThinThreads / kWarp][kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      typename Epilogue::Part part = {};
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        const std::int64_t column = first_n + thread + j * kThinThreads;
        if (i < m && column < n) epilogue.add(part, i, column, sum[j][i]);
      }
      part = merge_lanes<Epilogue, kWarp>(part);
      if (thread % kWarp == 0) parts[thread / kWarp][i] = part;
    }
    __syncthreads();
    if (thread < kRows && thread < m) {
      typename Epilogue::Part part = parts[0][thread];
#pragma unroll
      for (int warp = 1; warp < kThinThreads / kWarp; ++warp) {
        part = Epilogue::merge(part, parts[warp][thread]);
      }
      epilogue.commit(thread, part);
    }
    epilogue.finish();
  } else {
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const std::int64_t column = first_n + thread + j * kThinThreads;
      if (column >= n) continue;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (i < m && epilogue.wanted(i)) epilogue.store(i, column, sum[j][i]);
      }
    }
  }
}

// --- choice -----------------------------------------------------------------------------------

template <DType kType, int kRows, int kPerThread, class Epilogue>
void launch_thin(const GemmOperand& a, const GemmOperand& b, std::int64_t m, std::int64_t n,
                 std::int64_t k, const Epilogue& epilogue, cudaStream_t stream) {
  const auto kernel = gemm_thin_kernel<kType, kRows, kPerThread, Epilogue>;
  const std::size_t bytes = thin_shared_bytes(kRows, kPerThread, k);
  // Beyond 48 KiB a kernel has to ask; the largest size it can ever be launched with, so once is
  // enough.
  static const cudaError_t asked = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
      static_cast<int>(thin_shared_bytes(kRows, kPerThread, 0) + kThinOperandBytes));
  DSPARK_CUDA_CHECK(asked);
  const std::int64_t block_rows = static_cast<std::int64_t>(kThinThreads) * kPerThread;
  DSPARK_LAUNCH(kernel, grid_of((n + block_rows - 1) / block_rows), kThinThreads, bytes, stream, a,
                b, rows_aligned(b, 16), m, n, k, epilogue);
}

template <DType kType, class Epilogue>
void launch_thin_rows(const GemmOperand& a, const GemmOperand& b, std::int64_t m, std::int64_t n,
                      std::int64_t k, const Epilogue& epilogue, cudaStream_t stream) {
  // Reading b takes longer than multiplying it with 8 rows: more kernels would gain nothing.
  if (m == 1) return launch_thin<kType, 1, 1>(a, b, m, n, k, epilogue, stream);
  return launch_thin<kType, 8, 1>(a, b, m, n, k, epilogue, stream);
}

template <int kTileM, int kTileN, int kThreadM, int kThreadN, class Epilogue>
void launch_tile(const GemmOperand& a, const GemmOperand& b, std::int64_t m, std::int64_t n,
                 std::int64_t k, const Epilogue& epilogue, cudaStream_t stream) {
  const std::int64_t tiles_m = (m + kTileM - 1) / kTileM;
  const std::int64_t tiles_n = (n + kTileN - 1) / kTileN;
  const bool a_aligned = rows_aligned(a, 4 * size_of(a.type));
  const bool b_aligned = rows_aligned(b, 4 * size_of(b.type));
  DSPARK_LAUNCH((gemm_tile_kernel<kTileM, kTileN, kThreadM, kThreadN, Epilogue>),
                grid_of(tiles_m * tiles_n), kThreads, 0, stream, a, a_aligned, b, b_aligned, m, n,
                k, tiles_m, epilogue);
}

/// m rows of a times n rows of b over k; m or n = 0 does nothing.
template <class Epilogue>
void gemm(const GemmOperand& a, const GemmOperand& b, std::int64_t m, std::int64_t n,
          std::int64_t k, const Epilogue& epilogue, cudaStream_t stream) {
  if (m <= 0 || n <= 0) return;
  const std::int64_t rows = m == 1 ? 1 : 8;
  if (m <= 8 && rows * ((k + 3) / 4 * 4) * 4 <= static_cast<std::int64_t>(kThinOperandBytes)) {
    if (b.type == DType::f16) return launch_thin_rows<DType::f16>(a, b, m, n, k, epilogue, stream);
    if (b.type == DType::bf16)
      return launch_thin_rows<DType::bf16>(a, b, m, n, k, epilogue, stream);
    // Only epilogues that reduce know of the codes' scales.
    if constexpr (kReduces<Epilogue>) {
      if (b.type == DType::e4m3)
        return launch_thin_rows<DType::e4m3>(a, b, m, n, k, epilogue, stream);
    }
    return launch_thin_rows<DType::f32>(a, b, m, n, k, epilogue, stream);
  }
  if (m <= 32) return launch_tile<32, 128, 4, 4>(a, b, m, n, k, epilogue, stream);
  if (m <= 64) return launch_tile<64, 128, 8, 4>(a, b, m, n, k, epilogue, stream);
  return launch_tile<128, 128, 8, 8>(a, b, m, n, k, epilogue, stream);
}

}  // namespace dspark::kernels
