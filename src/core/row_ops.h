// The row operations of the reduce stage: arguments of each, shared by the backend interface, the
// CPU code and the kernels. All pointers are in the backend's memory. Nothing here allocates or
// synchronises. Ids that arrive in arrays are checked where they are used: a token id out of range
// sets kOpBadToken and a row index out of range sets kOpBadRow in `status`; what the output then
// is, each operation says.
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

/// Largest vocabulary of the operations that sum masses: 2^22 masses of at most 2^40 fit 62 bits
/// (law_scale).
inline constexpr std::int32_t kMaxMassVocab = 1 << 22;

/// How the products of hidden states or Markov rows with a vocabulary matrix are accumulated.
enum class Products : std::uint8_t {
  /// A chain of f32 fused multiply-adds over ascending k starting from 0, one per output: the same
  /// bits on every backend.
  exact,
  /// On tensor cores where the device has them and the operands suit them (tensor_products_apply);
  /// elsewhere exact. Products are exact and accumulated in f32 in an order that the device fixes:
  /// an output
  /// depends on its two rows alone (not on how many rows there are, nor where they stand), but its
  /// last bits differ from those of the chain.
  tensor,
};

/// Largest rank of a Markov head whose products tensor cores take; it is a multiple of 8, too.
inline constexpr std::int64_t kMostTensorRank = 512;

/// out[m, n] = Σ_k a[m, k] · b[n, k]: hidden states times a vocabulary matrix, accumulated as
/// `products` says. `a` [M, K], `b` [N, K] of any stored types; `out` f32 [M, N].
struct ProjectArgs {
  Matrix a;
  Matrix b;
  Rows out;
  Products products = Products::exact;
};

/// Whether matrices (no E4M3 codes) may be the operands of a product on tensor cores: both f16 or
/// both bf16, every row at a multiple of 16 bytes, sizes below 2^31 and rows below 2^39 bytes.
inline bool tensor_operands(const Matrix& a, const Matrix& b) {
  const auto suits = [](const Matrix& matrix) {
    constexpr std::int64_t kMaxSize = 0x7FFFFFFF;
    return matrix.type != DType::f32 && reinterpret_cast<std::uintptr_t>(matrix.data) % 16 == 0 &&
           matrix.stride % 8 == 0 && matrix.stride < (std::int64_t{1} << 38) &&
           matrix.rows <= kMaxSize && matrix.cols <= kMaxSize;
  };
  return a.type == b.type && suits(a) && suits(b);
}

/// True if the operation will use tensor cores on a device that has them: `tensor` is asked for and
/// the operands suit.
inline bool tensor_products_apply(const ProjectArgs& args) {
  return args.products == Products::tensor && tensor_operands(args.a, args.b);
}

/// out[i, v] = float(in[i, v]) for stored logits or hidden states of any type. `in` [M, N], `out`
/// [M, N].
struct WidenArgs {
  Matrix in;
  Rows out;
};

/// out[i, v] = backbone[backbone_row[i], v] + Σ_r w1[previous[i], r] · w2[v, r], the
/// Markov-corrected draft logits (vanilla head). The sum is ProjectArgs', added to the backbone
/// once; tensor products need w1 and w2 as tensor_operands says, with a rank that is a multiple of
/// 8 and at most kMostTensorRank. Without a Markov head (`w1.data` null) the bias is absent. `w1`
/// [V, R], `w2` [V, R], `backbone` f32 [*, V], `out` f32 [M, V]; `previous`, `backbone_row` [M]. A
/// negative `previous` marks an unused row: its output is not written, and its backbone_row is not
/// looked at. A bad id is reported and its row is not written. Without a Markov head, `previous` is
/// only looked at for its sign.
struct MarkovRowsArgs {
  Rows backbone;
  Array<const std::int32_t> backbone_row;
  Array<const std::int32_t> previous;
  Matrix w1;
  Matrix w2;
  Rows out;
  Products products = Products::exact;
  std::uint32_t* status = nullptr;
};

/// out[i, v] = Σ_k hidden[hidden_row[i], k] · head[v, k] + Σ_r w1[previous[i], r] · w2[v, r]: the
/// Markov-corrected draft logits straight from hidden states, without the backbone's logits in
/// between. `hidden` [*, H] and `head` [V, H] of any stored types, `w1` [*, R], `w2` [V, R], `out`
/// f32 [M, V]; `previous` [M]. `hidden_row` [M], or null data: row i of `hidden`, which then has M
/// rows. Unused rows, bad ids and a missing Markov head (`w1.data` null) are as in MarkovRowsArgs,
/// with `hidden_row` for `backbone_row`.
/// Bits: `exact` gives what ProjectArgs followed by MarkovRowsArgs gives, the second chain added
/// once to the first. `tensor` accumulates both sums in one f32 number, the hidden states' first.
struct DraftRowsArgs {
  Matrix hidden;
  Array<const std::int32_t> hidden_row;
  Array<const std::int32_t> previous;
  Matrix head;
  Matrix w1;
  Matrix w2;
  Rows out;
  Products products = Products::exact;
  std::uint32_t* status = nullptr;
};

/// As for ProjectArgs; with a Markov head both pairs of matrices must suit, and be of one type.
inline bool tensor_products_apply(const DraftRowsArgs& args) {
  if (args.products != Products::tensor || !tensor_operands(args.hidden, args.head)) return false;
  return args.w1.data == nullptr ||
         (args.w1.type == args.hidden.type && tensor_operands(args.w1, args.w2));
}

/// out[i] = sigmoid(hidden[hidden_row[i]] · weight[0:H] + w1[previous[i]] · weight[H:H+R] + bias),
/// the confidence head. The dot products are 32 interleaved f32 fused chains (element j goes to
/// lane j mod 32; hidden first, then the Markov part, each starting at lane 0) joined pairwise:
/// lanes i and i+16, then i+8, 4, 2, 1. `hidden` [*, H] of any stored type; `weight` f32 [H] or
/// [H + R]; `w1` is read only if the weight has the Markov part, and `previous` is checked against
/// it only then. A negative `previous` (an unused row) and a bad id, which is reported, give NaN.
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

/// law[i] of row i of `logits` under `rule`. `logits.vocab` (≤ kMaxMassVocab) is the logical
/// vocabulary: padding ids are simply not in the row. "Rank" is descending token_key; m(v) is
/// unfiltered_mass. Contract (bits):
///  - max_logit, second_logit: the two largest logits, as float_from_order_code gives them (a zero
///    is +0); second_logit equals max_logit where two tokens tie, and is -inf where there is no
///    other token.
///  - No filter: boundary_key 0, boundary_mass 0, total = Σ m.
///  - Greedy: the boundary is the argmax, boundary_mass = total = 2^40; filters are not looked at.
///  - Top-k (0 < top_k < vocab; else off): the boundary is the token of rank top_k and keeps its
///    own mass; total = Σ m of the tokens that are kept. A boundary of mass 0 occurs only where
///    fewer than top_k tokens have mass.
///  - Top-p: M = Σ m over the top-k set (all tokens without top-k); target = max(1, floor(M · top_p
///    / 2^32)). The boundary is the first token, by rank, at which the running mass reaches target.
///    water_filling: boundary_mass = target - the mass before it, total = target.
///    include_crossing: boundary_mass = its own mass, total = the sum through it.
///    Where the boundary is the argmax the law is one-hot and is given in greedy's form
///    (boundary_mass = total = 2^40): `target` itself may lie below the range of law_scale.
///  - scale = law_scale(total); inverse_temperature is the rule's.
///  - Invalid rows: the status bits (kRowNoFinite whenever no logit is finite, beside the others),
///    argmax -1, the rule's inverse_temperature, all other fields 0.
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

/// What a pair of rows says (a row index out of range counts as an invalid row); probabilities in
/// units of 2^-61.
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
/// running mass exceeds cdf_target(uniform[i], total). -1 where the row is invalid or `row[i]` is
/// out of range.
struct SampleRowsArgs {
  Rows logits;
  Array<const RowLaw> laws;
  Array<const std::int32_t> row;
  Array<const std::uint64_t> uniform;
  Array<std::int32_t> token;
};

/// token[i] = the token that a uniform picks from the normalised excess (q - p)⁺ of the draft row
/// over the target row of pair `pair[i]`: the law of a drafted token given that it is rejected. -1
/// where the excess is 0, a row is invalid or an index is out of range. Weights are the differences
/// of law_probability, in units of 2^-61; the target is cdf_target of their sum.
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
