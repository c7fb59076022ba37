// The inner loops of the CPU backend: compiled once per instruction set, chosen at run time, the
// same bits from each. All run on the calling thread; arguments have been checked.
#pragma once

#include <cstdint>

#include "core/law.h"
#include "core/views.h"

namespace dspark::cpu {

/// One output row of `gemm`: out[n] = (add ? add[n] : 0) + Σ_k a[k] · b[n, k].
struct GemmRow {
  const void* a;     ///< `depth` elements of the call's type
  const float* add;  ///< added once, after the chain; null in all rows of a call or in none
  float* out;
};

/// Columns of b that are packed at a time, and the depth of such a pack.
inline constexpr std::int64_t kGemmColumns = 256;
inline constexpr std::int64_t kGemmDepth = 256;
/// Most rows of a register tile, over all instruction sets.
inline constexpr std::int64_t kGemmTileRows = 12;
/// Floats of scratch that `gemm` needs, 64-byte aligned.
inline constexpr std::int64_t kGemmScratch = kGemmDepth * (kGemmColumns + kGemmTileRows);

/// What an inverse CDF over a row of weights says.
struct WeightedPick {
  std::int32_t token;  ///< the first id whose running weight exceeds the target, else the last with
                       ///< a weight, else 0
  bool bad;            ///< the row holds a NaN
  std::uint64_t lower;  ///< weight before the token
  std::uint64_t upper;  ///< weight through it
  std::uint64_t total;  ///< weight of the row
};

/// One instruction set's versions of the loops.
struct VectorOps {
  /// Name of the instruction set, e.g. "x86-64-v3".
  const char* name;

  /// Columns [first, last) of `count` rows; chains of fused multiply-adds over ascending k from 0
  /// (ProjectArgs).
  void (*gemm)(const GemmRow* rows, std::int64_t count, DType a_type, const Matrix& b,
               std::int64_t first, std::int64_t last, float* scratch);
  /// out[i] = float(in[i]).
  void (*widen)(const void* in, DType type, float* out, std::int64_t count);
  /// The 32-lane dot of ConfidenceRowsArgs over `size` elements and then `extra_size`, without bias
  /// and sigmoid.
  float (*confidence_dot)(const void* hidden, DType hidden_type, std::int64_t size,
                          const void* extra, DType extra_type, std::int64_t extra_size,
                          const float* weight);
  /// RowLawsArgs for one row.
  RowLaw (*row_law)(const float* logits, std::int32_t vocab, const SamplingRule& rule);
  /// Σ_v min(p(v), q(v)) of two valid rows, in units of 2^-61.
  std::uint64_t (*overlap)(const float* target, const RowLaw& target_law, const float* draft,
                           const RowLaw& draft_law, std::int32_t vocab);
  /// SampleRowsArgs for one valid row.
  std::int32_t (*sample)(const float* logits, const RowLaw& law, std::int32_t vocab,
                         std::uint64_t uniform);
  /// SampleExcessArgs for one pair of valid rows; -1 where the excess is 0.
  std::int32_t (*sample_excess)(const float* target, const RowLaw& target_law, const float* draft,
                                const RowLaw& draft_law, std::int32_t vocab, std::uint64_t uniform);
  /// out[v] = float(mass / total) of a valid row.
  void (*probabilities)(const float* logits, const RowLaw& law, std::int32_t vocab, float* out);
  /// Inverse CDF over weights round(p · 2^40), or their excess over those of `minus` where that is
  /// not null; the target is cdf_target(uniform, 2^40), or cdf_target(uniform, sum) of the excess.
  WeightedPick (*pick)(const float* weights, const float* minus, std::int32_t vocab,
                       std::uint64_t uniform);
};

namespace baseline {
extern const VectorOps kVectorOps;
}
namespace x86_64_v3 {
extern const VectorOps kVectorOps;
}
namespace x86_64_v4 {
extern const VectorOps kVectorOps;
}

}  // namespace dspark::cpu
