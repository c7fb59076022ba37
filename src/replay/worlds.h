// What rules see of one block's drafts, along the text and in the worlds that the reduce stage
// sampled for it.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "policy/policy.h"
#include "replay/outcome_table.h"

namespace dspark {

/// What `policy` looks at in a block; empty where at neither of them.
[[nodiscard]] std::optional<DraftSignal> signal_of(const Policy& policy);
/// The same. Throws Error(internal) where `table` was made without the top probabilities that it
/// looks at (ReduceRequest::top_probability).
[[nodiscard]] std::optional<DraftSignal> signal_of(const Policy& policy, const OutcomeTable& table);

/// Block of one anchor: its confidences, or its top probabilities, along the recorded text and in
/// each sampled world. Refers to the table, which must outlive it.
class BlockWorlds {
 public:
  BlockWorlds(const OutcomeTable& table, std::int64_t anchor,
              DraftSignal signal = DraftSignal::confidence)
      : table_(table),
        signal_(signal),
        anchor_(static_cast<std::size_t>(anchor)),
        slots_(table.slots[anchor_]),
        text_(table.along_text(signal).data() +
              anchor_ * static_cast<std::size_t>(table.block_size)) {
    std::copy(text_, text_ + slots_, world_.begin());
  }

  /// Drafts a policy sees.
  [[nodiscard]] std::int32_t slots() const { return slots_; }
  /// [slots] along the text; deterministic drafts: of the drafted chain.
  [[nodiscard]] const float* text() const { return text_; }
  /// [slots] where draft `rejected` (1-based, below `slots`) is rejected in repeat `repeat`; only
  /// where the table has_worlds() of this signal. The text's own where the excess vanished and no
  /// world was drawn (a weight near 2^-40). Valid until the next call.
  [[nodiscard]] const float* rejected_at(std::int32_t rejected, std::int32_t repeat) {
    const auto per_repeat = static_cast<std::size_t>(worlds_per_repeat(table_.block_size));
    const float* later =
        table_.in_worlds(signal_).data() +
        (anchor_ * static_cast<std::size_t>(table_.repeats) + static_cast<std::size_t>(repeat)) *
            per_repeat +
        world_offset(table_.block_size, rejected, rejected + 1);
    std::copy(text_, text_ + rejected, world_.begin());
    const float* source = std::isnan(later[0]) ? text_ + rejected : later;
    std::copy(source, source + (slots_ - rejected), world_.begin() + rejected);
    return world_.data();
  }
  /// visit(rejected, confidence [slots], probability) for every world that is rejected before its
  /// last slot and has a probability: these may have drafts of their own behind it. Returns
  /// Π_{k<slots} β_k: what is left for those that see the text's all along, rejected at the last
  /// slot or nowhere. Only where the table has_worlds() of this signal.
  template <class Visit>
  double for_each_rejected(const Visit& visit) {
    const double* const beta = betas();
    double reach = 1;
    for (std::int32_t r = 1; r < slots_; ++r) {
      const double weight = reach * (1.0 - beta[r - 1]);
      reach *= beta[r - 1];
      if (!(weight > 0)) continue;
      for (std::int32_t s = 0; s < table_.repeats; ++s) {
        visit(r, rejected_at(r, s), weight / table_.repeats);
      }
    }
    return reach;
  }
  /// visit(accepted, confidence [slots], probability) for every outcome of the full block that has
  /// a probability, and last for all accepted, whatever its probability. Only where the table
  /// has_worlds() of this signal.
  template <class Visit>
  void for_each_outcome(const Visit& visit) {
    double reach =
        for_each_rejected([&](std::int32_t rejected, const float* confidence, double probability) {
          visit(rejected - 1, confidence, probability);
        });
    if (slots_ > 0) {
      const double last = betas()[slots_ - 1];
      const double rejected = reach * (1.0 - last);
      if (rejected > 0) visit(slots_ - 1, text_, rejected);
      reach *= last;
    }
    visit(slots_, text_, reach);
  }

 private:
  /// [slots]
  [[nodiscard]] const double* betas() const {
    return table_.beta.data() + anchor_ * static_cast<std::size_t>(table_.block_size);
  }

  const OutcomeTable& table_;
  DraftSignal signal_;
  std::size_t anchor_;
  std::int32_t slots_;
  const float* text_;
  std::array<float, 64> world_{};  // block_size is at most 64 (trace format)
};

}  // namespace dspark
