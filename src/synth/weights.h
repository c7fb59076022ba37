// The heads of a synthetic trace, as functions of (seed, id): nothing vocabulary-wide is held on
// the host.
//
// Columns of a hidden state and of `lm_head`, R the Markov rank:
//   [0, R)       Markov part: `lm_head` holds `markov_w2` itself here
//   [R, H - 3)   the rest of the context
//   H - 3, H - 2 the gap in two parts: what is subtracted from the logits of half B
//   H - 1        the confidence channel: `lm_head` is 0 here
//
// All weights and hidden states lie on coarse grids, so that their sums of products are exact in
// f32 (or nearly so, for very large H) and the Markov bias of the recorded token cancels exactly,
// whatever type they are stored in.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/half.h"
#include "synth/synth.h"

namespace dspark::synth {

/// Numbers that are evenly spread, symmetric around 0, and exact in every stored type: odd
/// multiples of a power of two.
struct Grid {
  std::int32_t levels = 2;  ///< even
  float unit = 1;

  /// (2 i - levels + 1) · unit for i in [0, levels).
  [[nodiscard]] float value(std::int32_t i) const {
    return static_cast<float>(2 * i - levels + 1) * unit;
  }
  /// The value that 16 random bits pick.
  [[nodiscard]] float pick(std::uint32_t bits16) const {
    return value(static_cast<std::int32_t>((bits16 * static_cast<std::uint32_t>(levels)) >> 16));
  }
};

class Weights {
 public:
  explicit Weights(const SynthOptions& options);

  [[nodiscard]] std::int64_t vocab() const { return vocab_; }
  [[nodiscard]] std::int64_t hidden() const { return hidden_; }
  [[nodiscard]] std::int64_t rank() const { return rank_; }
  /// Columns of the context: H - 3.
  [[nodiscard]] std::int64_t context() const { return hidden_ - 3; }

  /// 1 where an id belongs to half B; [V].
  [[nodiscard]] const std::vector<std::uint8_t>& half_b() const { return half_b_; }
  /// The gap at which B has no mass, whatever the row; exact in every stored type.
  [[nodiscard]] float wall() const { return wall_; }

  /// Row `id` of `lm_head` as f16, to out[H]; exact.
  void lm_head_row(std::int64_t id, Float16* out) const;
  /// Row `id` of `markov_w1`, to out[R].
  void markov_w1_row(std::int64_t id, float* out) const;
  /// Row `id` of `markov_w2`, to out[R]: the first columns of `lm_head`.
  void markov_w2_row(std::int64_t id, float* out) const;
  /// A target hidden state: a random context from `key`, the wall, nothing in the confidence
  /// channel; to out[H].
  void target_hidden(std::uint64_t key, float* out) const;
  /// The confidence head: [H + R] (R may be 0), f32 values that f32 stores exactly.
  [[nodiscard]] std::vector<float> confidence_weight() const;
  [[nodiscard]] static float confidence_bias() { return 0.5f; }

 private:
  std::uint64_t seed_;
  std::int64_t vocab_, hidden_, rank_;
  Grid head_, markov_context_, other_context_, w1_;
  std::array<Float16, 128> head_values_;
  std::uint64_t head_key_, w1_key_;
  float wall_;
  std::vector<std::uint8_t> half_b_;
};

/// `value` as it reads back from a dataset of that type.
[[nodiscard]] float round_to(StoredType type, float value);
/// The same for an array, in place.
void round_to(StoredType type, std::span<float> values, int threads);

}  // namespace dspark::synth
