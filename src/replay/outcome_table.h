// The waist of the system: per anchor and slot, the few numbers every policy can be evaluated from.
// Left of it everything is vocabulary-wide and heavy, right of it small and exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dspark {

/// What a length rule can see of a draft before it is verified.
enum class DraftSignal {
  confidence,       ///< what the confidence head claims
  top_probability,  ///< the largest of its draft law (greedy drafts: of their softmax)
};

/// Outcomes of an anchors trace under one sampling setting. N positions, P draft slots, S repeats.
/// Slot k = 1..P is index k-1. Off policy the setting is another than the recorded one: p, q, and
/// so beta and alpha, are of the setting asked for, and `importance` says how much likelier it
/// makes each recorded token.
struct OutcomeTable {
  std::int32_t block_size = 0;  ///< P
  std::int32_t repeats = 0;     ///< S; 0 where no worlds are needed, or nothing is seen in them
  bool greedy = false;          ///< drafts are deterministic: argmax drafts, however verified
  bool has_confidence = false;
  std::vector<std::int64_t> sequence_offsets;  ///< [sequences + 1]

  std::vector<std::uint8_t>
      slots;  ///< [N] slots a policy sees: min(P, left), cut before the first invalid row
  std::vector<double> beta;   ///< [N, P] P(the recorded token came by acceptance); greedy: 1 or 0
  std::vector<double> alpha;  ///< [N, P] Σ min(p, q); greedy: p of the draft while all before it
                              ///< are the recorded tokens, else 0
  std::vector<double>
      importance;  ///< [N, P] off policy: p(y) asked for / p(y) recorded; else empty
  std::vector<float>
      confidence;  ///< [N, P] along the recorded text; greedy: of the drafted chain; NaN: none
  std::vector<std::uint8_t>
      agreement;  ///< [N, P] 1 if draft and target argmax are equal (given the recorded prefix;
                  ///< greedy: 0 behind the first draft that is not the recorded token)
  std::vector<float> world_confidence;  ///< [N, S, worlds_per_repeat(P)], see world_offset()
  /// [N, P] like `confidence`, of the draft laws (top_probability(), pass.h); empty where the
  /// request did not ask for them
  std::vector<float> top_probability;
  std::vector<float> world_top_probability;  ///< like `world_confidence`, or empty

  std::int64_t invalid_rows = 0;       ///< rows with NaN, +inf or no finite value
  std::int64_t impossible_tokens = 0;  ///< recorded tokens of mass 0 under the recorded setting
  std::int64_t near_ties = 0;          ///< decisions that the last bits of a logit could turn
  std::string first_problem;           ///< the first invalid row or impossible token, for a notice

  [[nodiscard]] std::int64_t anchors() const { return static_cast<std::int64_t>(slots.size()); }
  [[nodiscard]] bool off_policy() const { return !importance.empty(); }

  /// True if rules that look at `signal` can be followed along the text.
  [[nodiscard]] bool has(DraftSignal signal) const {
    return signal == DraftSignal::confidence ? has_confidence : !top_probability.empty();
  }
  /// True if they can be followed in sampled worlds too.
  [[nodiscard]] bool has_worlds(DraftSignal signal) const { return repeats > 0 && has(signal); }
  /// [N, P]
  [[nodiscard]] const std::vector<float>& along_text(DraftSignal signal) const {
    return signal == DraftSignal::confidence ? confidence : top_probability;
  }
  /// [N, S, worlds_per_repeat(P)]
  [[nodiscard]] const std::vector<float>& in_worlds(DraftSignal signal) const {
    return signal == DraftSignal::confidence ? world_confidence : world_top_probability;
  }
};

/// Confidences (or top probabilities) that differ between worlds: a world rejected at slot r
/// (1-based) has its own at slots r+1..P.
[[nodiscard]] constexpr std::int32_t worlds_per_repeat(std::int32_t block_size) {
  return block_size * (block_size - 1) / 2;
}
/// Index of slot k's confidence (1-based, k > r) in the world rejected at slot r, within one
/// repeat.
[[nodiscard]] constexpr std::int32_t world_offset(std::int32_t block_size, std::int32_t r,
                                                  std::int32_t k) {
  // The worlds rejected at 1, 2, ..., r-1 have P-1, P-2, ... confidences.
  return (r - 1) * block_size - (r - 1) * r / 2 + (k - r - 1);
}

}  // namespace dspark
