// The row operations of the reduce stage: arguments of each, shared by the backend interface, the
// CPU code and the kernels. All pointers are in the backend's memory. Nothing here allocates or
// synchronises. Ids that arrive in arrays are checked where they are used: an id out of range sets
// kOpBadId in `status` and its output is left as if the row were invalid.
#pragma once

#include <cstdint>

#include "core/law.h"
#include "core/views.h"

namespace dspark {

/// Bits that operations OR into a status word in backend memory.
enum OpStatus : std::uint32_t {
  kOpOk = 0,
  kOpBadToken = 1,    ///< a token id outside [0, V)
  kOpBadRow = 2,      ///< a row index outside its array
  kOpBadLength = 4,   ///< a proposal length outside [0, P]
  kOpInvalidRow = 8,  ///< a row with NaN, +inf or no finite value (kernels.md, decision 4)
};

/// out[m, n] = Σ_k a[m, k] · b[n, k]: hidden states times a vocabulary matrix.
/// Contract (bits): a chain of f32 fused multiply-adds over ascending k starting from 0. `a` is f32
/// [M, K]; `b` any stored type [N, K]; `out` f32 [M, N].
struct ProjectArgs {
  Matrix a;
  Matrix b;
  Rows out;
};

/// out[i, v] = float(in[i, v]) for stored logits or hidden states of any type. `in` [M, N], `out`
/// [M, N].
struct WidenArgs {
  Matrix in;
  Rows out;
};

/// out[i, v] = backbone[backbone_row[i], v] + Σ_r w1[previous[i], r] · w2[v, r], the
/// Markov-corrected draft logits (vanilla head). The sum is ProjectArgs' chain, added to the
/// backbone once. Without a Markov head (`w1.data` null) the bias is absent. `w1` [V, R], `w2` [V,
/// R], `backbone` f32 [*, V], `out` f32 [M, V]; `previous`, `backbone_row` [M]. A negative
/// `previous` marks an unused row: its output is not written.
struct MarkovRowsArgs {
  Rows backbone;
  Array<const std::int32_t> backbone_row;
  Array<const std::int32_t> previous;
  Matrix w1;
  Matrix w2;
  Rows out;
  std::uint32_t* status = nullptr;
};

/// out[i] = sigmoid(hidden[hidden_row[i]] · weight[0:H] + w1[previous[i]] · weight[H:H+R] + bias),
/// the confidence head. The dot products are 32 interleaved f32 fused chains (element j goes to
/// lane j mod 32; hidden first, then the Markov part, each starting at lane 0) joined pairwise:
/// lanes i and i+16, then i+8, 4, 2, 1. `hidden` f32 [*, H]; `weight` f32 [H] or [H + R]; `w1` is
/// read only if the weight has the Markov part. A negative `previous` gives NaN.
struct ConfidenceRowsArgs {
  Matrix hidden;
  Array<const std::int32_t> hidden_row;
  Array<const std::int32_t> previous;
  Matrix w1;
  Array<const float> weight;
  float bias = 0;
  Array<float> out;
  std::uint32_t* status = nullptr;
};

/// law[i] of row i of `logits` under `rule`. Invalid rows get their status bits, argmax -1 and
/// total 0. `logits.vocab` is the logical vocabulary: padding ids are simply not in the row.
struct RowLawsArgs {
  Rows logits;
  SamplingRule rule;
  Array<RowLaw> laws;
};

/// One target row beside one draft row.
struct RowPair {
  std::int32_t target_row;
  std::int32_t draft_row;
  std::int32_t token;  ///< the recorded token y
};

/// What a pair of rows says; probabilities in units of 2^-61.
struct PairOutcome {
  std::uint64_t alpha;         ///< Σ_v min(p(v), q(v))
  std::uint64_t target_token;  ///< p(y)
  std::uint64_t draft_token;   ///< q(y)
  float target_logit;          ///< target logit of y
  std::uint32_t valid;  ///< 1 if both rows are valid and y is in range; else the other fields are 0
};

struct ComparePairsArgs {
  Rows target;
  Array<const RowLaw> target_laws;
  Rows draft;
  Array<const RowLaw> draft_laws;
  Array<const RowPair> pairs;
  Array<PairOutcome> out;
};

/// token[i] = the token that a uniform picks from row `row[i]`: the first id (ascending) whose
/// running mass exceeds cdf_target(uniform[i], total). -1 where the row is invalid or `row[i]` < 0.
struct SampleRowsArgs {
  Rows logits;
  Array<const RowLaw> laws;
  Array<const std::int32_t> row;
  Array<const std::uint64_t> uniform;
  Array<std::int32_t> token;
};

/// token[i] = the token that a uniform picks from the normalised excess (q - p)⁺ of the draft row
/// over the target row of pair `pair[i]`: the law of a drafted token given that it is rejected. -1
/// where the excess is 0 or a row is invalid.
struct SampleExcessArgs {
  Rows target;
  Array<const RowLaw> target_laws;
  Rows draft;
  Array<const RowLaw> draft_laws;
  Array<const RowPair> pairs;
  Array<const std::int32_t> pair;
  Array<const std::uint64_t> uniform;
  Array<std::int32_t> token;
};

}  // namespace dspark
