// What the kernels that multiply rows of w1 with w2 on tensor cores are made of (markov_tensor.cu).
//
// The vocabulary is the long side of the product: a warp holds 16 rows of w2 in registers, as the
// tensor cores want them, and meets 8 rows of w1 at a time. Elements of k are dealt to the lanes in
// pieces of 16 bytes, the same way for both operands; each instruction's sum is over the same 16
// elements for every row and every kernel, so an output's bits do not depend on how many rows
// there are.
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>

#include "core/views.h"

namespace dspark::kernels::markov {

inline constexpr int kTile = 16;        // vocabulary rows of a warp
inline constexpr int kColumns = 8;      // rows of w1 in an instruction
inline constexpr int kPieceBytes = 64;  // of a row, per piece: 16 bytes of each of 4 lanes
inline constexpr int kUnitBytes = 16;

/// Copies 16 bytes to shared memory while the thread goes on, or zeros them; past the L1 cache.
__device__ inline void copy_unit_or_zeros(void* target, const void* source, bool copies) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(target))),
               "l"(source), "r"(copies ? 16 : 0)
               : "memory");
}

/// Weights pass the caches of the multiprocessors by: each byte is used once there.
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

/// A warp's 16 rows of w2 on their way, in shared memory. Odd rows have their halves of 128 bytes
/// exchanged: the lanes' reads do not collide.
template <int kPieces>
struct WeightStage {
  static constexpr int kUnits = kPieces * (kPieceBytes / kUnitBytes);
  uint4 unit[kTile][kUnits];

  __device__ static int place(int row, int unit) { return unit ^ ((row & 1) << 2); }

  /// Starts copying rows [tile · 16, …) of the first `vocab` of w2; rows and elements beyond are
  /// zeros. By all lanes of a warp.
  __device__ void start(const Matrix& w2, std::int64_t vocab, std::int64_t tile) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int units = static_cast<int>(w2.cols) / 8;
    const auto* data = static_cast<const unsigned char*>(w2.data);
#pragma unroll
    for (int i = 0; i < kTile * kUnits / 32; ++i) {
      const int row = i * 32 / kUnits;
      const int at = i * 32 % kUnits + lane;
      const std::int64_t v = tile * kTile + row;
      const bool copies = v < vocab && at < units;
      copy_unit_or_zeros(&unit[row][place(row, at)],
                         copies ? data + (v * w2.stride + at * 8) * 2 : data, copies);
    }
  }
};

/// A warp's 16 rows of w2 as operands: lane 4·g + t has piece t of rows g and g + 8.
template <int kPieces>
struct WeightTile {
  uint4 low[kPieces];
  uint4 high[kPieces];

  /// What the warp's lanes have copied; they must have met since.
  __device__ void take(const WeightStage<kPieces>& stage) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int at = stage.place(g, p * 4 + lane % 4);
      low[p] = stage.unit[g][at];
      high[p] = stage.unit[g + 8][at];
    }
  }

  /// The same straight from memory.
  __device__ void load(const Matrix& w2, std::int64_t vocab, std::int64_t tile) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t v = tile * kTile + lane / 4;
    const int units = static_cast<int>(w2.cols) / 8;
    const auto* row = static_cast<const unsigned char*>(w2.data) + v * w2.stride * 2;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int at = p * 4 + lane % 4;
      const uint4 zeros = {0, 0, 0, 0};
      low[p] = v < vocab && at < units ? load_weights(row + at * kUnitBytes) : zeros;
      high[p] = v + 8 < vocab && at < units
                    ? load_weights(row + 8 * w2.stride * 2 + at * kUnitBytes)
                    : zeros;
    }
  }

  /// Adds the products with piece p of 8 rows of w1: lane 4·g + t has piece t of row g.
  template <DType kType>
  __device__ void add_piece(float (&sum)[4], int p, const uint4& factor) const {
    multiply<kType>(sum, low[p].x, high[p].x, low[p].y, high[p].y, factor.x, factor.y);
    multiply<kType>(sum, low[p].z, high[p].z, low[p].w, high[p].w, factor.z, factor.w);
  }
};

/// Bytes between rows of w1 in shared memory: 16-byte reads of 8 lanes do not collide.
template <int kPieces>
inline constexpr int kFactorPitch = kPieces* kPieceBytes + (kPieces % 2 == 0 ? 64 : 0);

}  // namespace dspark::kernels::markov
