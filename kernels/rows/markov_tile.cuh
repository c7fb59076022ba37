// What the kernels that multiply rows of w1 with w2 on tensor cores are made of: logits
// (markov_tensor.cu) and greedy steps (proposal/greedy_tensor.cu).
//
// The vocabulary is the long side of the product: a warp holds 16 rows of w2 in registers, as the
// tensor cores want them, and meets 8 rows of w1 at a time. Elements of k are dealt to the lanes in
// pieces of 16 bytes, the same way for both operands; each instruction's sum is over the same 16
// elements for every row and every kernel, so an output's bits do not depend on how many rows
// there are. E4M3 codes are exact in f16, and are widened on their way to the tensor cores.
#pragma once

#include <cuda_fp8.h>
#include <cuda_pipeline.h>

#include <cstdint>
#include <cstring>

#include "core/views.h"

namespace dspark::kernels::markov {

inline constexpr int kTile = 16;    // vocabulary rows of a warp
inline constexpr int kColumns = 8;  // rows of w1 in an instruction
inline constexpr int kUnitBytes = 16;

/// Copies 16 bytes to shared memory while the thread goes on, or zeros them; past the L1 cache.
__device__ inline void copy_unit_or_zeros(void* target, const void* source, bool copies) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(target))),
               "l"(source), "r"(copies ? 16 : 0)
               : "memory");
}

/// The same for 16 bytes of logits, which shall not push weights out of the L2 cache.
struct LogitCopier {
  std::uint64_t policy;

  __device__ LogitCopier() {
    asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
  }
  __device__ void operator()(float* target, const float* source) const {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, 16, %2;" ::"r"(
                     static_cast<std::uint32_t>(__cvta_generic_to_shared(target))),
                 "l"(source), "l"(policy)
                 : "memory");
  }
};

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

/// Two E4M3 codes as two f16 numbers; exact.
__device__ inline std::uint32_t widen_codes(std::uint32_t codes) {
  const __half2_raw halves =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3);
  return static_cast<std::uint32_t>(halves.y) << 16 | halves.x;
}

/// A warp's 16 rows of w2 on their way, in shared memory; kRank is the rank, or above. Odd rows
/// have their halves of 128 bytes exchanged: the lanes' reads do not collide.
template <DType kType, int kRank>
struct WeightStage {
  static constexpr int kBytes = static_cast<int>(size_of(kType));
  static constexpr int kUnits = kRank * kBytes / kUnitBytes;
  uint4 unit[kTile][kUnits];

  __device__ static int place(int row, int unit) { return unit ^ ((row & 1) << 2); }

  /// Starts copying rows [tile · 16, …) of the first `vocab` of w2; rows and elements beyond are
  /// zeros. By all lanes of a warp.
  __device__ void start(const Matrix& w2, std::int64_t vocab, std::int64_t tile) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int units = static_cast<int>(w2.cols) * kBytes / kUnitBytes;
    const std::int64_t left = vocab - tile * kTile;
    const std::int64_t stride = w2.stride * kBytes;
    const auto* data = static_cast<const unsigned char*>(w2.data);
    const unsigned char* source =
        data + (tile * kTile + lane / kUnits) * stride + lane % kUnits * kUnitBytes;
#pragma unroll
    for (int i = 0; i < kTile * kUnits / 32; ++i) {
      const int row = i * 32 / kUnits + lane / kUnits;
      const int at = i * 32 % kUnits + lane % kUnits;
      const bool copies = row < left && at < units;
      const unsigned char* from = source + i * 32 / kUnits * stride + i * 32 % kUnits * kUnitBytes;
      copy_unit_or_zeros(&unit[row][place(row, at)], copies ? from : data, copies);
    }
  }
};

/// A warp's 16 rows of w2 as operands: lane 4·g + t has 16 bytes of each piece of rows g and g + 8.
/// They meet kFactors times 16 bytes of a row of w1.
template <DType kType, int kRank>
struct WeightTile {
  using Stage = WeightStage<kType, kRank>;
  static constexpr int kPieces = Stage::kUnits / 4;
  static constexpr int kFactors = kRank / 32;
  uint4 low[kPieces];
  uint4 high[kPieces];

  /// What the warp's lanes have copied; they must have met since.
  __device__ void take(const Stage& stage) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int at = Stage::place(g, p * 4 + lane % 4);
      low[p] = stage.unit[g][at];
      high[p] = stage.unit[g + 8][at];
    }
  }

  /// The same straight from memory.
  __device__ void load(const Matrix& w2, std::int64_t vocab, std::int64_t tile) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t v = tile * kTile + lane / 4;
    const int units = static_cast<int>(w2.cols) * Stage::kBytes / kUnitBytes;
    const auto* row = static_cast<const unsigned char*>(w2.data) + v * w2.stride * Stage::kBytes;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int at = p * 4 + lane % 4;
      const uint4 zeros = {0, 0, 0, 0};
      low[p] = v < vocab && at < units ? load_weights(row + at * kUnitBytes) : zeros;
      high[p] = v + 8 < vocab && at < units
                    ? load_weights(row + 8 * w2.stride * Stage::kBytes + at * kUnitBytes)
                    : zeros;
    }
  }

  /// Which 16 bytes of a row of w1 lane 4·g + t needs as its factor f.
  __device__ static int factor_unit(int f, int t) {
    return kType == DType::e4m3 ? f / 2 * 8 + t * 2 + f % 2 : f * 4 + t;
  }
  /// Bytes between rows of w1 in shared memory: reads of a factor by 8 lanes do not collide.
  static constexpr int kFactorPitch = kRank * 2 + (kType == DType::e4m3 ? 16 : 64);

  /// Adds the products with factor f of 8 rows of w1, lane 4·g + t having that of row g.
  __device__ void add_factor(float (&sum)[4], int f, const uint4& factor) const {
    if constexpr (kType == DType::e4m3) {
      const uint4& l = low[f / 2];
      const uint4& h = high[f / 2];
      const std::uint32_t codes[4] = {f % 2 == 0 ? l.x : l.z, f % 2 == 0 ? h.x : h.z,
                                      f % 2 == 0 ? l.y : l.w, f % 2 == 0 ? h.y : h.w};
      multiply<DType::f16>(sum, widen_codes(codes[0] & 0xFFFFu), widen_codes(codes[1] & 0xFFFFu),
                           widen_codes(codes[0] >> 16), widen_codes(codes[1] >> 16), factor.x,
                           factor.y);
      multiply<DType::f16>(sum, widen_codes(codes[2] & 0xFFFFu), widen_codes(codes[3] & 0xFFFFu),
                           widen_codes(codes[2] >> 16), widen_codes(codes[3] >> 16), factor.z,
                           factor.w);
    } else {
      multiply<kType>(sum, low[f].x, high[f].x, low[f].y, high[f].y, factor.x, factor.y);
      multiply<kType>(sum, low[f].z, high[f].z, low[f].w, high[f].w, factor.z, factor.w);
    }
  }
};

/// The tiles of one warp or block, in turn or backwards.
struct Walk {
  std::int64_t first;
  std::int64_t step;
  std::int64_t count;
  bool reverse;

  __device__ Walk(std::int64_t start, std::int64_t stride, std::int64_t tiles, bool backwards)
      : first(start),
        step(stride),
        count(start < tiles ? (tiles - start + stride - 1) / stride : 0),
        reverse(backwards) {}
  __device__ std::int64_t tile(std::int64_t i) const {
    return first + (reverse ? count - 1 - i : i) * step;
  }
};

/// The tiles of one warp over a chain of steps: `count` tiles in a row, again and again, upwards
/// and downwards in turns, so that a step begins with what the one before has left in the cache.
struct ChainWalk {
  std::int64_t first;
  std::int64_t each;   // tiles of a step
  std::int64_t count;  // of all steps

  __device__ ChainWalk(std::int64_t start, std::int64_t most, std::int64_t tiles, int steps)
      : first(start),
        each(start >= tiles         ? 0
             : tiles - start < most ? tiles - start
                                    : most),
        count(each * steps) {}
  __device__ std::int64_t tile(std::int64_t i) const {
    const std::int64_t at = i % each;
    return first + (i / each % 2 != 0 ? each - 1 - at : at);
  }
};

/// Shared memory that blocks of the large shapes may have: all that Hopper gives.
inline constexpr std::int64_t kLargeMemory = 227 * 1024;

/// Warps of a block that streams w2 for up to 8 rows of w1, and the tiles that each has on its way:
/// 192 KiB of a multiprocessor's memory, or where there is less, 64 KiB.
template <DType kType, int kRank>
inline constexpr int kThinWarps = sizeof(WeightStage<kType, kRank>) <= 8192 ? 8 : 4;
template <DType kType, int kRank, bool kLarge>
inline constexpr int kThinStages = static_cast<int>(
    (kLarge ? 196608 : 65536) / (sizeof(WeightStage<kType, kRank>) * kThinWarps<kType, kRank>));

/// The stream of one warp: kStages tiles are on their way.
template <DType kType, int kRank, int kStages, class TileWalk = Walk>
struct WeightStream {
  using Stage = WeightStage<kType, kRank>;
  Stage* stages;
  Matrix w2;
  std::int64_t vocab;
  TileWalk walk;
  int next = 0;

  __device__ WeightStream(void* memory, const Matrix& weights, std::int64_t rows,
                          const TileWalk& own)
      : stages(static_cast<Stage*>(memory) + threadIdx.x / 32 * kStages),
        w2(weights),
        vocab(rows),
        walk(own) {
#pragma unroll
    for (int s = 0; s < kStages; ++s) start(s, s);
  }
  __device__ void start(std::int64_t i, int stage) {
    if (i < walk.count) stages[stage].start(w2, vocab, walk.tile(i));
    __pipeline_commit();
  }
  /// Tile i; called in turn. What follows the last one takes its place.
  __device__ void take(std::int64_t i, WeightTile<kType, kRank>& tile) {
    __pipeline_wait_prior(kStages - 1);
    __syncwarp();
    tile.take(stages[next]);
    __syncwarp();
    start(i + kStages, next);
    next = next + 1 == kStages ? 0 : next + 1;
  }
};

}  // namespace dspark::kernels::markov
