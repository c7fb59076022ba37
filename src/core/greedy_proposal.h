// The greedy proposal of DSpark (API pages "dsparkFusedGreedySupported",
// "dsparkMarkovGreedyFusedStep…", "dsparkQuantizeMarkovW2Fp8", "dsparkFinalizeGreedyDraftTokens"):
// arguments of each. What dspark_ops.h says of the other functions holds for these too.
//
// A slot holds the token_key (core/law.h) of a draft token: the largest logit, ties to the lowest
// id, +0 = -0. 0 is an empty slot: the row had no token.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dspark_ops.h"
#include "core/row_ops.h"
#include "core/views.h"

namespace dspark {

/// `dsparkFusedGreedySupported`: what its page says of a rank.
[[nodiscard]] constexpr bool dspark_fused_greedy_supported(std::int64_t rank) {
  return rank > 0 && rank % 8 == 0 && rank <= 512;
}

/// E4M3 rows are quantised and read in pieces of this many codes (16 bytes).
inline constexpr std::int64_t kFloat8Piece = 16;

/// Whether MarkovGreedyStepArgs takes a Markov head of that rank with `w2` of that type. Any rank
/// of 1 or more in f16, bf16 and f32, as for the other products; with e4m3 whole pieces.
[[nodiscard]] constexpr bool fused_greedy_supported(std::int64_t rank, DType type) {
  return type == DType::e4m3 ? rank > 0 && rank % kFloat8Piece == 0 : rank > 0;
}

/// `dsparkQuantizeMarkovW2Fp8`: row v of w2 as E4M3 codes and one f16 scale (core/fp8.h):
/// scale[v] = float8_scale(max |w2[v, r]| over finite weights), codes[v, r] = quantize_float8(w2[v,
/// r], scale[v]): the weights are measured in the scale that is stored. R must be a multiple of
/// 16. `status`: kOpInvalidRow for a NaN (its code is NaN), an infinity or a weight beyond
/// kFloat8LargestWeight (both saturate).
struct QuantizeMarkovW2Args {
  Matrix w2;                        ///< f16, bf16 or f32 [V, R]
  Float8* codes = nullptr;          ///< [V, R]
  Float16* scale = nullptr;         ///< [V]
  std::uint32_t* status = nullptr;  ///< optional
};

/// The codes as the `w2` of the other functions.
[[nodiscard]] inline Matrix float8_matrix(const Float8* codes, std::int64_t rows,
                                          std::int64_t cols) {
  return {codes, DType::e4m3, rows, cols, cols};
}

/// `dsparkMarkovGreedyFusedStep` and `dsparkMarkovGreedyFusedStepFp8`: slots[b, step] = the best
/// token of the row
///   c[v] = backbone[b·logits_stride + step + logits_offset, v] + w1[previous] · w2[v].
/// The product is MarkovRowsArgs'; with e4m3 the chain runs over the codes' values and is
/// multiplied once by w2_scale[v] before it is added. previous = first_previous[b] for step 0, else
/// the token in slots[b, step-1]; steps run in order. Without a Markov head (`w1.data` null) c is
/// the backbone row, and ids are not read. Products::tensor needs rows of w1 and w2 at multiples of
/// 16 bytes, a rank that is a multiple of 8 and at most 512, and both in f16, both in bf16, or w1
/// in f16 and e4m3 codes (rank a multiple of 16); other heads are exact. The bits of c, and so the
/// slots, then depend on the row's own operands alone.
///
/// The step writes its own column of `slots` and no other, and needs no slot zeroed before. Empty
/// slots: a row with NaN, +inf or no finite value, reported as kOpInvalidRow; and a row whose
/// previous token is none (the slot before is empty) or lies outside [0, V), reported as
/// kOpBadToken: so a draft block ends at its first empty slot. With a bad previous token the row
/// of `stacked` is NaN.
struct MarkovGreedyStepArgs {
  std::int32_t batch = 0;
  std::int32_t block_size = 0;     ///< P
  std::int32_t step = 0;           ///< 0-based slot
  Rows backbone;                   ///< [*, V]
  std::int32_t logits_stride = 0;  ///< rows per batch entry; ≤ 0: P
  std::int32_t logits_offset = 0;
  Matrix w1;                                     ///< f16, bf16 or f32 [V, R]; null data: no head
  Matrix w2;                                     ///< [V, R], e4m3 too
  const Float16* w2_scale = nullptr;             ///< [V], with e4m3
  const std::int32_t* first_previous = nullptr;  ///< [B]
  Products products = Products::exact;           ///< of the Markov bias
  std::uint64_t* slots = nullptr;                ///< [B, P]
  Rows stacked;                   ///< optional (null data) [B·(P+1), V]: c of row b goes to row
                                  ///< b·(P+1) + stacked_row
  std::int32_t stacked_row = -1;  ///< in [0, P]; below 0: step + 1
  float* margin = nullptr;  ///< optional [B, P]: best logit less the second best; 0: empty slot
  Scratch scratch;          ///< markov_greedy_step_scratch(B) bytes
  std::uint32_t* status = nullptr;  ///< optional
};

/// What a step keeps per row: 16 bytes for its best two logits, and the previous token; and a word
/// per call.
[[nodiscard]] constexpr std::size_t markov_greedy_step_scratch(std::int32_t batch) {
  const auto b = static_cast<std::size_t>(batch);
  return scratch_round_up(b * 16) + scratch_round_up(b * sizeof(std::int32_t)) +
         scratch_round_up(sizeof(std::uint32_t));
}

/// `dsparkFinalizeGreedyDraftTokens`: tokens[i] = the id in slot i, -1 for an empty slot. An id
/// outside [0, vocab) is reported (kOpBadToken) and becomes -1.
struct FinalizeGreedyDraftTokensArgs {
  Array<const std::uint64_t> slots;  ///< B·P of them
  std::int32_t vocab = 0;
  Array<std::int32_t> tokens;       ///< as many
  std::uint32_t* status = nullptr;  ///< optional
};

/// A whole greedy proposal: the P steps of MarkovGreedyStepArgs and their tokens. With a Markov
/// head the tokens of a block are -1 from its first invalid row on; without one each row stands
/// alone. `status` as there.
struct GreedyProposeArgs {
  std::int32_t batch = 0;
  std::int32_t block_size = 0;     ///< P ≥ 1
  Rows backbone;                   ///< [*, V]
  std::int32_t logits_stride = 0;  ///< rows per batch entry; ≤ 0: P
  std::int32_t logits_offset = 0;
  Matrix w1;                                     ///< f16, bf16 or f32 [V, R]; null data: no head
  Matrix w2;                                     ///< [V, R], e4m3 too
  const Float16* w2_scale = nullptr;             ///< [V], with e4m3
  const std::int32_t* first_previous = nullptr;  ///< [B]
  Products products = Products::exact;           ///< of the Markov bias
  std::int32_t* tokens = nullptr;                ///< [B, P]
  float* margin = nullptr;  ///< optional [B, P]: best logit less the second best; 0: no token
  Scratch scratch;          ///< greedy_propose_scratch(B, P) bytes
  std::uint32_t* status = nullptr;  ///< optional
};

/// Scratch of GreedyProposeArgs: a step's, 16 bytes for each slot, and a word per call.
[[nodiscard]] constexpr std::size_t greedy_propose_scratch(std::int32_t batch,
                                                           std::int32_t block_size) {
  return markov_greedy_step_scratch(batch) + scratch_round_up(sizeof(std::uint32_t)) +
         scratch_round_up(static_cast<std::size_t>(batch) * static_cast<std::size_t>(block_size) *
                          16);
}

}  // namespace dspark
