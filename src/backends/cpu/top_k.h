// Rows of the K best tokens (core/sparse_proposal.h), one at a time on the calling thread.
#pragma once

#include <cstdint>

#include "core/law.h"

namespace dspark::cpu {

/// The `k` best tokens of a valid row, by descending token_key. `keys`: memory of k elements.
void select_top_k(const float* logits, std::int32_t vocab, std::int32_t k, std::uint64_t* keys,
                  float* values, std::int32_t* ids);

/// A row of K values as a law.
struct TopKRow {
  const float* values;
  const std::int32_t* ids;  ///< null: the slots are the ids
  std::int32_t k;           ///< ≤ kMaxTopK
  std::int32_t vocab;  ///< a slot whose id lies outside [0, vocab) counts as -inf; below 0: ids are
                       ///< not checked
};

/// What is known of such a row once its probabilities are written.
struct TopKLaw {
  bool valid;
  float largest;
  float second;  ///< -inf where there is none
};

/// probabilities[0, k) of the row's law; zeros if it is invalid. `probabilities` may be the values.
TopKLaw normalize_top_k(const TopKRow& row, const SamplingRule& rule, float* probabilities);

}  // namespace dspark::cpu
