// The operations once more, slowly and from their definitions: sorting, 128-bit sums, one element
// at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/row_ops.h"

namespace dspark::test {

/// A dense row of a dense array of rows.
inline const float* row(const std::vector<float>& dense, std::int64_t index, std::int64_t vocab) {
  return dense.data() + index * vocab;
}

/// Σ_k a[k] · b[k] as a chain of f32 fused multiply-adds.
float chain(const float* a, const float* b, std::int64_t size);

RowLaw law_of(const float* logits, std::int32_t vocab, const SamplingRule& rule);
std::vector<std::uint64_t> masses_of(const float* logits, std::int32_t vocab, const RowLaw& law);
/// In units of 2^-61.
std::vector<std::uint64_t> probabilities_of(const float* logits, std::int32_t vocab,
                                            const RowLaw& law);
/// The first id whose running weight exceeds floor(uniform · Σ / 2^64); -1 if there is no weight.
std::int32_t pick_of(const std::vector<std::uint64_t>& weights, std::uint64_t uniform);

/// The 32-lane dot of ConfidenceRowsArgs, without bias and sigmoid.
float confidence_dot_of(const std::vector<float>& hidden, const std::vector<float>& embedding,
                        const std::vector<float>& weight);

/// Fails unless the laws are equal in every field.
void expect_equal(const RowLaw& got, const RowLaw& expected);
/// Fails unless the floats are equal in every bit (any NaN equals any NaN).
void expect_same_bits(const std::vector<float>& got, const std::vector<float>& expected);

}  // namespace dspark::test
