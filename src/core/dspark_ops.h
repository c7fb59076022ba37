// The DSpark runtime functions (TensorRT-Edge-LLM API pages "dspark…"): arguments of each, one
// contract for the CPU and the CUDA implementation. B batch, P draft slots (rows of a block), L =
// verify length ≤ P, V vocabulary, H hidden, R rank. All arrays are in the backend's memory;
// nothing allocates, nothing synchronises; scratch is passed in. Host-side numbers (strides, sizes)
// are checked before the launch and throw Error(internal); ids in arrays are checked on the device
// and reported in `status` (OpStatus bits, OR-ed), and nothing is read or written out of bounds.
// Decisions where the public sources disagree: kernels/README.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/law.h"
#include "core/row_ops.h"
#include "core/views.h"

namespace dspark {

/// Temporary memory of one call, in backend memory, 256-byte aligned; contents undefined before and
/// after.
struct Scratch {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Bytes up to the next multiple of 256, the alignment of every part of a scratch.
[[nodiscard]] constexpr std::size_t scratch_round_up(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

/// Cuts a call's scratch into aligned parts; the caller has checked that they fit.
class ScratchCutter {
 public:
  explicit ScratchCutter(const Scratch& scratch) : next_(static_cast<std::byte*>(scratch.data)) {}

  Scratch take(std::size_t bytes) {
    const Scratch part{next_, bytes};
    next_ += scratch_round_up(bytes);
    return part;
  }

 private:
  std::byte* next_;
};

/// `dsparkMarkovPartialCount`: vocabulary blocks of the Markov kernels, ceil(V / 16).
[[nodiscard]] constexpr std::int32_t markov_partial_count(std::int32_t vocab) {
  return (vocab + 15) / 16;
}

/// `dsparkBuildVerifyTokens`: verify[b, 0] = last[b]; verify[b, j+1] = draft[b, j] for j < length.
struct BuildVerifyTokensArgs {
  std::int32_t batch = 0;
  std::int32_t length = 0;              ///< L ≥ 0
  std::int32_t draft_stride = 0;        ///< ≥ L
  const std::int32_t* last = nullptr;   ///< [B]
  const std::int32_t* draft = nullptr;  ///< [B, draft_stride]
  std::int32_t* verify = nullptr;       ///< [B, L+1]
};

/// `dsparkFillProposalLengths`: lengths[b] = value.
struct FillProposalLengthsArgs {
  std::int32_t batch = 0;
  std::int32_t value = 0;
  std::int32_t* lengths = nullptr;  ///< [B]
};

/// `dsparkGreedyAccept`: a[b, i] = argmax of verify row i; n = clamp(lengths[b], 1, L); drafts are
/// accepted while draft[b, i] = a[b, i], i < n; then a[b, m] follows as correction or bonus. All
/// L+1 outputs of a row are written (0 beyond the emitted ones). An invalid row stops acceptance
/// before it: its argmax counts as -1, the row is reported, and the emitted token is 0. Rows past
/// the row's own n are not read. `status`: kOpInvalidRow for any of the rows 0..n, kOpBadToken
/// where the walk meets a draft id outside [0, V) (never accepted), kOpBadLength for a length
/// outside [0, draft_stride].
struct GreedyAcceptArgs {
  std::int32_t batch = 0;
  std::int32_t length = 0;                ///< L ≥ 1
  std::int32_t draft_stride = 0;          ///< ≥ L
  Rows logits;                            ///< [B·(L+1), V], row b·(L+1)+i
  const std::int32_t* draft = nullptr;    ///< [B, draft_stride]
  const std::int32_t* lengths = nullptr;  ///< [B]
  std::int32_t* accepted = nullptr;       ///< [B, L+1]
  std::int32_t* accept_length = nullptr;  ///< [B], tokens emitted: accepted drafts + 1
  float* margin = nullptr;  ///< optional [B, L+1]: top-2 distance of each row that was read; 0 for
                            ///< invalid rows and for those not read
  RowLaw* laws = nullptr;   ///< scratch [B·(L+1)]
  std::uint32_t* status = nullptr;  ///< optional, one word
};

/// `dsparkComputeConfidenceScores`: scores[b, j] = sigmoid(hidden row · weight + ...), see
/// ConfidenceRowsArgs for the bits. The hidden row of (b, j) is b·hidden_stride + j +
/// hidden_offset; the token before slot j is first_previous[b] for j = 0, else draft[b, j-1]. With
/// the Markov part an id outside [0, V) is reported and its score is NaN; without it ids are not
/// read.
struct ConfidenceScoresArgs {
  std::int32_t batch = 0;
  std::int32_t block_size = 0;     ///< P
  Matrix hidden;                   ///< any stored type [*, H]
  std::int32_t hidden_stride = 0;  ///< rows per batch entry; ≤ 0: P
  std::int32_t hidden_offset = 0;
  Matrix w1;                  ///< [V, R]; read only with the Markov part
  Array<const float> weight;  ///< f32 [H] or [H+R]
  float bias = 0;
  const std::int32_t* first_previous = nullptr;  ///< [B]
  const std::int32_t* draft = nullptr;           ///< [B, P]
  float* scores = nullptr;                       ///< [B, P]
  std::uint32_t* status = nullptr;               ///< optional
};

/// `…AndProposalLengths`: scores, then per row the longest prefix whose product of scores is ≥
/// threshold, at least max(1, min_length) and at most max_length (≤ 0: P). threshold ≤ 0 gives the
/// maximum. NaN stops.
struct ThresholdLengthsArgs {
  ConfidenceScoresArgs scores;
  double threshold = 0;
  std::int32_t min_length = 1;
  std::int32_t max_length = 0;
  std::int32_t* lengths = nullptr;  ///< [B]
};

/// Coefficients of the linear round cost: draft + verify_base + verify_token·(ℓ + 1) + accept·ℓ.
/// The defaults are Edge-LLM's.
struct LinearCost {
  double draft = 0.50;
  double verify_base = 1.00;
  double verify_token = 0.45;
  double accept = 0.02;
};

/// Cost of a speculative round that verifies `verified` drafts (may be a mean: the model is
/// linear), in the model's units.
DSPARK_HD double round_cost(const LinearCost& cost, double verified) {
  return cost.draft + cost.verify_base + cost.verify_token * (verified + 1.0) +
         cost.accept * verified;
}

/// `…AndSPSProposalLengths`: scores, then per row the length with the most expected tokens per cost
/// (policy/lengths.h).
struct SpsLengthsArgs {
  ConfidenceScoresArgs scores;
  double survival_floor = 0;
  std::int32_t min_length = 1;
  std::int32_t max_length = 0;
  LinearCost cost;
  std::int32_t* lengths = nullptr;  ///< [B]
};

/// Which of two drafts with the same survival is admitted first.
enum class TieOrder : std::uint8_t {
  position_request,  ///< the earlier position, then the lower request (SGLang, TensorRT-LLM)
  request_position,  ///< the lower request, then the earlier position (vLLM overlay)
};

/// How the number of drafts of a step is chosen along the path of falling survival.
enum class BatchRule : std::uint8_t {
  algorithm1,  ///< one by one; the first that does not improve ends it (the paper's Algorithm 1)
  global,      ///< the best total of all (the paper's section 5.2)
};

/// Where the engines differ in batch-wide scheduling (policy/batch.h).
struct BatchOptions {
  BatchRule rule = BatchRule::global;
  TieOrder ties = TieOrder::position_request;
  /// Drafts of every request that are verified whatever they promise; 0 (paper, SGLang, vLLM) or 1
  /// (TensorRT-LLM A). The token that the drafts follow is never counted.
  std::int32_t floor = 0;
  /// Drafts above the floor are dropped where their survival is below this, and at survival 0.
  double survival_epsilon = 1e-6;
  /// `global` alone: of equally good totals the largest, not the smallest.
  bool last_maximum = false;
  /// `global` alone, where above 0: all drafts are verified unless the best total is better by this
  /// fraction.
  double min_gain = 0;
};

/// Largest step of a batch rule, so that sort keys and sums of survivals fit 64 bits.
inline constexpr std::int32_t kMaxScheduledRequests = 1 << 16;
inline constexpr std::int32_t kMaxScheduledPositions = 1 << 6;

/// What a batch rule sees of one step: R requests in flight, blocks of P drafts.
struct BatchStep {
  std::int32_t requests = 0;            ///< R in [0, kMaxScheduledRequests]
  std::int32_t positions = 0;           ///< P in [0, kMaxScheduledPositions]
  std::int64_t stride = 0;              ///< confidences from one request to the next, at least P
  const float* confidence = nullptr;    ///< [R, P]; none is read at or behind a request's slots
  const std::int32_t* slots = nullptr;  ///< [R] drafts that may be verified, each in [0, P]
};

/// The capacity that verifies every draft, whatever its survival.
inline constexpr std::int32_t kEveryDraft = 0x7FFFFFFF;

/// Batch-wide scheduling by survival (policy/batch.h has the rule and its numbers):
/// lengths[r] = drafts of request r to verify. `price[n]` = cost of a step that verifies n drafts
/// in all; totals without a price, or with one that is not above 0 (NaN), cannot be chosen.
/// `status`: kOpBadLength where a request's slots lie outside [0, P] (they are clamped).
struct BatchScheduleArgs {
  BatchStep step;
  Array<const double> price;  ///< up to R·P + 1 of them; not read with `capacity`
  BatchOptions options;
  /// Optional, one word: the drafts to verify in all, as an earlier call `chose` them (a capacity
  /// that lags behind the confidences); they are only ranked then.
  const std::int32_t* capacity = nullptr;
  std::int32_t* chosen = nullptr;   ///< optional, one word: the capacity, kEveryDraft for all
  std::int32_t* lengths = nullptr;  ///< [R]
  std::uint32_t* status = nullptr;  ///< optional
};

/// `dsparkLogitsToProbabilities`: probabilities[i, v] = float(mass / total) of row i under `rule`;
/// an invalid row becomes all zeros and is reported in `status` (kOpInvalidRow).
struct LogitsToProbabilitiesArgs {
  Rows logits;  ///< [rows, V]
  SamplingRule rule;
  Rows probabilities;               ///< [rows, V]; may not alias logits
  RowLaw* laws = nullptr;           ///< scratch [rows]
  std::uint32_t* status = nullptr;  ///< optional
};

/// `dsparkFillUniforms`: uniforms[i] = edge_llm_uniform(seed, offset, i) (core/random.h).
struct FillUniformsArgs {
  Array<float> uniforms;
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

/// `dsparkBuildMarkovLogits`: corrected[b, v] = backbone[b·logits_stride + step + logits_offset, v]
/// + w1[previous]·w2[v]. previous = first_previous[b] for step 0, else draft[b, step-1]; outside
/// [0, V) it is reported and the corrected row is NaN. Without a Markov head ids are not read.
struct BuildMarkovLogitsArgs {
  std::int32_t batch = 0;
  std::int32_t block_size = 0;     ///< P
  std::int32_t step = 0;           ///< 0-based slot
  Rows backbone;                   ///< [*, V]
  std::int32_t logits_stride = 0;  ///< rows per batch entry; ≤ 0: P
  std::int32_t logits_offset = 0;
  Matrix w1;                                     ///< [V, R]; null data: no Markov head
  Matrix w2;                                     ///< [V, R]
  const std::int32_t* first_previous = nullptr;  ///< [B]
  const std::int32_t* draft = nullptr;           ///< [B, P]
  Rows corrected;                                ///< [B, V]
  Products products = Products::exact;           ///< of the Markov bias
  Scratch scratch;                               ///< build_markov_logits_scratch(B) bytes
  std::uint32_t* status = nullptr;               ///< optional
};

/// Scratch of BuildMarkovLogitsArgs: two i32 index arrays.
[[nodiscard]] constexpr std::size_t build_markov_logits_scratch(std::int32_t batch) {
  return 2 * scratch_round_up(static_cast<std::size_t>(batch) * sizeof(std::int32_t));
}

/// `dsparkSampleProbabilityRows`: tokens[b, step] = inverse CDF of row b at uniforms[b, step] in
/// ascending id order. Weights are round(p · 2^40) with p clamped to [0, 1] (NaN: 0, reported); the
/// row is not rescaled; where the uniform lies beyond the row's sum the last positive id is taken
/// (0 if there is none). A row is read to its end whatever the uniform, so that `status`
/// (kOpInvalidRow: a NaN) does not depend on it. `distance` = float(min(u - lower, upper - u)) in
/// f64, where u = uniform_from_float · 2^-64 and lower, upper = the integer weights before and
/// through the token · 2^-40 (both 0 if there is none).
struct SampleProbabilityRowsArgs {
  std::int32_t batch = 0;
  std::int32_t block_size = 0;  ///< P
  std::int32_t step = 0;
  Rows probabilities;               ///< [B, V]
  const float* uniforms = nullptr;  ///< [B, P]
  std::int32_t* tokens = nullptr;   ///< [B, P]
  float* distance = nullptr;        ///< optional [B, P]: distance of the uniform to the nearest CDF
                                    ///< boundary of its token
  Scratch scratch;                  ///< row_scan_scratch(B, V) bytes
  std::uint32_t* status = nullptr;  ///< optional
};

/// Vocabulary elements that one block of the scanning kernels handles; a row has ceil(V / kSlice)
/// slices.
inline constexpr std::int32_t kSlice = 4096;
[[nodiscard]] constexpr std::int32_t slice_count(std::int32_t vocab) {
  return (vocab + kSlice - 1) / kSlice;
}
/// Scratch of the inverse-CDF kernels: one 64-bit sum per slice of each row, and one row of
/// bookkeeping.
[[nodiscard]] constexpr std::size_t row_scan_scratch(std::int64_t rows, std::int32_t vocab) {
  return scratch_round_up(static_cast<std::size_t>(rows) *
                          (static_cast<std::size_t>(slice_count(vocab)) + 4) *
                          sizeof(std::uint64_t));
}

/// `dsparkStoreDraftStepProbabilities`: destination[b, step, :] = source[b, :].
struct StoreDraftStepProbabilitiesArgs {
  std::int32_t batch = 0;
  std::int32_t block_size = 0;  ///< P
  std::int32_t step = 0;
  Rows source;       ///< [B, V]
  Rows destination;  ///< [B·P, V]
};

/// `dsparkVanillaMarkovSample`: for each step, Markov logits → probabilities → sample → store.
struct VanillaMarkovSampleArgs {
  std::int32_t batch = 0;
  std::int32_t block_size = 0;     ///< P
  Rows backbone;                   ///< [*, V]
  std::int32_t logits_stride = 0;  ///< rows per batch entry; ≤ 0: P
  std::int32_t logits_offset = 0;
  Matrix w1;                                     ///< [V, R]; null data: no Markov head
  Matrix w2;                                     ///< [V, R]
  const std::int32_t* first_previous = nullptr;  ///< [B]
  const float* uniforms = nullptr;               ///< [B, P]
  SamplingRule rule;
  Products products = Products::exact;  ///< of the Markov bias
  std::int32_t* tokens = nullptr;       ///< [B, P]
  float* distance = nullptr;  ///< optional [B, P], see SampleProbabilityRowsArgs; greedy rules:
                              ///< top-2 margin (0: invalid row)
  Rows draft_probabilities;   ///< [B·P, V]
  Scratch scratch;            ///< vanilla_markov_sample_scratch(B, V) bytes
  std::uint32_t* status = nullptr;  ///< optional
};

/// Scratch of VanillaMarkovSampleArgs: logits and probabilities of one step, laws, and the scratch
/// of the parts.
[[nodiscard]] constexpr std::size_t vanilla_markov_sample_scratch(std::int32_t batch,
                                                                  std::int32_t vocab) {
  const auto b = static_cast<std::size_t>(batch);
  const std::size_t rows = scratch_round_up(b * static_cast<std::size_t>(vocab) * sizeof(float));
  const std::size_t laws = scratch_round_up(b * sizeof(RowLaw));
  return 2 * rows + laws + build_markov_logits_scratch(batch) + row_scan_scratch(batch, vocab);
}

/// `dsparkProbabilisticAccept`: rejection sampling. n = clamp(lengths[b], 1, L). Slot i < n is
/// accepted iff p(x) > 0 and u_i ≤ p(x)/q(x) (q(x) = 0 counts as ratio 1); at the first rejection a
/// token of (p - q)⁺ is emitted (of p, if that is 0), else a bonus token of target row n. Weights
/// as in SampleProbabilityRowsArgs. All L+1 outputs are written (0 beyond the emitted). A draft id
/// out of range is rejected and reported. The accept test is accepts() of the weights · 2^21 and
/// uniform_from_float(u). `status`: kOpInvalidRow for a NaN in p(x), q(x) of a test that was made
/// or anywhere in the rows of the residual or bonus (both p's and q's), kOpBadLength for a length
/// outside [0, draft_stride]. `distance` in f64: accept test |u - r| with r = min(1, p(x)/q(x)) of
/// the weights (1 where q(x) = 0; an id out of range makes no test); residual as in
/// SampleProbabilityRowsArgs with lower, upper as fractions of the sum of (p - q)⁺.
struct ProbabilisticAcceptArgs {
  std::int32_t batch = 0;
  std::int32_t length = 0;                ///< L ≥ 1
  std::int32_t draft_stride = 0;          ///< ≥ L; rows of `draft` and of the uniforms
  Rows target;                            ///< [B·(L+1), V]
  Rows draft;                             ///< [B·draft_stride, V]
  const std::int32_t* tokens = nullptr;   ///< [B, draft_stride]
  const std::int32_t* lengths = nullptr;  ///< [B]
  const float* uniforms = nullptr;        ///< [B, 2·draft_stride+1]: accept, residual, bonus
  std::int32_t* accepted = nullptr;       ///< [B, L+1]
  std::int32_t* accept_length = nullptr;  ///< [B], tokens emitted
  /// Optional [B]: smallest distance of any used uniform to its decision boundary.
  float* distance = nullptr;
  Scratch scratch;                  ///< row_scan_scratch(B, V) bytes
  std::uint32_t* status = nullptr;  ///< optional
};

}  // namespace dspark
