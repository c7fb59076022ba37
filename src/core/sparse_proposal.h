// The sparse proposal of DSpark: laws over the K best tokens of a row (API pages
// "dsparkNormalizeTopKRows", "dsparkStoreDraftStepTop1", "dsparkSampleTopKRowsAndStore") and the
// selection they start from. What dspark_ops.h says of the other functions holds for these too.
//
// The law of a row of K values: mass_k = unfiltered_mass(value_k, largest value, 1/T) (core/law.h),
// probability_k = float(mass_k / Σ mass) in f64. A greedy rule (T < 1e-3) is one-hot on the largest
// value, ties to the lowest token id. A row with NaN, +inf or no finite value is invalid: its
// probabilities are 0, and it is reported as kOpInvalidRow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dspark_ops.h"
#include "core/law.h"
#include "core/row_ops.h"
#include "core/views.h"

namespace dspark {

/// Largest K of these operations.
inline constexpr std::int32_t kMaxTopK = 1024;

/// The K best tokens of each row by descending token_key (so ties to the lowest id):
/// values[row, k] and ids[row, k]; a zero is +0. -inf counts as a value. An invalid row (NaN, +inf,
/// no finite value) is reported as kOpInvalidRow, its values are NaN and its ids -1.
struct SelectTopKArgs {
  Rows logits;                      ///< [rows, V], V ≤ kMaxMassVocab
  Rows values;                      ///< [rows, K], 1 ≤ K ≤ min(V, kMaxTopK)
  std::int32_t* ids = nullptr;      ///< [rows, K]
  Scratch scratch;                  ///< select_top_k_scratch(rows, V, K) bytes
  std::uint32_t* status = nullptr;  ///< optional
};

/// Scratch of SelectTopKArgs: the best K of each slice, and a few words per row.
[[nodiscard]] constexpr std::size_t select_top_k_scratch(std::int64_t rows, std::int32_t vocab,
                                                         std::int32_t k) {
  const auto r = static_cast<std::size_t>(rows);
  return scratch_round_up(r * static_cast<std::size_t>(slice_count(vocab)) *
                          static_cast<std::size_t>(k) * sizeof(std::uint64_t)) +
         scratch_round_up(r * 2 * sizeof(std::uint32_t));
}

/// `dsparkNormalizeTopKRows`: probabilities[row, k] of the row's law.
struct NormalizeTopKRowsArgs {
  Rows values;                        ///< [rows, K], K ≤ kMaxTopK
  const std::int32_t* ids = nullptr;  ///< optional [rows, K]: break ties of a greedy rule; without
                                      ///< them the first slot wins
  SamplingRule rule;                  ///< its temperature; no filters
  Rows probabilities;                 ///< [rows, K]; may be `values` itself
  std::uint32_t* status = nullptr;    ///< optional
};

/// `dsparkStoreDraftStepTop1`: tokens[b, step] = ids[b, 0]. An id outside [0, vocab) is reported
/// (kOpBadToken) and stored as -1.
struct StoreDraftStepTop1Args {
  std::int32_t batch = 0;
  std::int32_t block_size = 0;  ///< P
  std::int32_t step = 0;
  std::int32_t vocab = 0;
  const std::int32_t* ids = nullptr;  ///< [B, ids_stride]
  std::int32_t ids_stride = 1;        ///< ids per row
  std::int32_t* tokens = nullptr;     ///< [B, P]
  std::uint32_t* status = nullptr;    ///< optional
};

/// `dsparkSampleTopKRowsAndStore`: the law of each row, stored as row b·P + step of `probabilities`
/// and `stored_ids`, and a token drawn from it: the inverse CDF at uniforms[b, step] in the order
/// of the slots, with weights as in SampleProbabilityRowsArgs; beyond the row's sum the last slot
/// of positive weight. A slot whose id lies outside [0, vocab) is reported (kOpBadToken), counts as
/// -inf, and its id is stored as -1. An invalid row draws no token: -1.
struct SampleTopKRowsArgs {
  std::int32_t batch = 0;
  std::int32_t block_size = 0;  ///< P
  std::int32_t step = 0;
  std::int32_t vocab = 0;
  Rows values;                         ///< [B, K], K ≤ kMaxTopK
  const std::int32_t* ids = nullptr;   ///< [B, K]
  const float* uniforms = nullptr;     ///< [B, P]
  SamplingRule rule;                   ///< its temperature; no filters
  Rows probabilities;                  ///< [B·P, K]
  std::int32_t* stored_ids = nullptr;  ///< [B·P, K]
  std::int32_t* tokens = nullptr;      ///< [B, P]
  /// Optional [B, P]: distance of the uniform to the nearest CDF boundary of its token, see
  /// SampleProbabilityRowsArgs; greedy rules: largest value less the second largest. 0: no token.
  float* distance = nullptr;
  std::uint32_t* status = nullptr;  ///< optional
};

}  // namespace dspark
