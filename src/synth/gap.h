// The gap that gives a draft row its acceptance.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/law.h"
#include "synth/synth.h"

namespace dspark::synth {

/// A gap as it is stored, in two parts; their sum is what counts.
struct Gap {
  float high = 0;
  float low = 0;
  [[nodiscard]] double sum() const { return double(high) + double(low); }
};

/// Splits a gap into two numbers of the stored type, the second one holding what the first one
/// loses.
[[nodiscard]] Gap split_gap(StoredType type, double gap);

/// What the gap of a row is solved under; the same for all rows.
struct GapSetting {
  SamplingRule rule;
  double temperature = 1;
  double top_p = 1;  ///< as the rule has it
  StoredType type = StoredType::f16;
  float wall = 0;    ///< largest gap: B (or, negative, A) has no mass there
  float margin = 0;  ///< greedy: by how much an argmax leads
};

/// One row of logits in two halves: how much acceptance a gap brings. Reuses its memory from row to
/// row.
///
/// The target's law is that of half A alone, the draft's that of A and of B lowered by the gap.
/// Their overlap Σ min(p, q) grows with the gap from 0 to 1: continuously without filters, in steps
/// where top-k or top-p let whole tokens in.
class RowHalves {
 public:
  explicit RowHalves(const GapSetting& setting) : setting_(setting) {}

  /// Takes the target's logits of a row, in which B stands `wall` below where it would stand with a
  /// gap of 0.
  void load(std::span<const float> logits, std::span<const std::uint8_t> half_b);

  /// Whether the best token of each half leads its second one by the setting's margin (always,
  /// unless greedy).
  [[nodiscard]] bool clear() const { return lead_ >= setting_.margin; }

  /// The gap for an acceptance in [0, 1]. `choice`, uniform in [0, 1), decides where the acceptance
  /// cannot be had exactly: between the two gaps that come closest (with filters), or between
  /// accepted and rejected (greedy), with the probabilities that keep the mean.
  [[nodiscard]] Gap gap(double acceptance, double choice) const;

  /// Σ_v min(p(v), q(v)) of the row under a gap.
  [[nodiscard]] double overlap(double gap) const;

 private:
  /// Unnormalised weights of one half, best first, relative to its best token, with running sums
  /// from 0.
  struct Half {
    std::vector<double> weight, sum;
    float best = 0;
    double total = 0;
    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(weight.size()); }
  };
  /// What a law keeps of A: `whole` tokens, then one with `boundary` of its weight; divided by
  /// `total`.
  struct Kept {
    std::int64_t whole = 0;
    double boundary = 0;
    double scale = 1;
    double total = 1;
  };

  [[nodiscard]] bool filtered() const { return setting_.rule.top_k > 0 || setting_.rule.top_p > 0; }
  [[nodiscard]] double log_ratio(double gap) const;
  [[nodiscard]] double gap_of(double log_ratio) const;
  [[nodiscard]] Kept kept(double scale_a, double scale_b) const;
  [[nodiscard]] double overlap_of(double log_ratio) const;

  GapSetting setting_;
  Half a_, b_;
  float lead_ = 0;
};

}  // namespace dspark::synth
