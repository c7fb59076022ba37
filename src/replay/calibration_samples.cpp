#include "replay/calibration_samples.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "calibration/logit.h"
#include "replay/worlds.h"

namespace dspark {
namespace {

using Slots = std::array<SampleSlot, kMaxCalibratedSlots>;

/// The logits of `count` slots, or up to the first one that has no confidence; returns how many.
std::size_t set_logits(const float* confidence, std::size_t count, Slots& slots) {
  std::size_t k = 0;
  for (; k < count && !std::isnan(confidence[k]); ++k) slots[k].logit = logit_of(confidence[k]);
  return k;
}

/// Adds the blocks of one anchor after the other.
class Sampler {
 public:
  Sampler(const OutcomeTable& table, CalibrationSamples& samples)
      : table_(table), samples_(samples) {}

  void add(std::int64_t anchor) {
    const std::size_t row =
        static_cast<std::size_t>(anchor) * static_cast<std::size_t>(table_.block_size);
    alpha_ = table_.alpha.data() + row;
    beta_ = table_.beta.data() + row;
    BlockWorlds worlds(table_, anchor);
    if (samples_.labels() == LabelKind::conditional) {
      add_conditional(worlds);
    } else if (table_.greedy) {
      add_drafted_chain(worlds);
    } else {
      add_worlds(worlds);
    }
  }

 private:
  void add_conditional(const BlockWorlds& worlds) {
    count_ = set_logits(worlds.text(), static_cast<std::size_t>(worlds.slots()), slots_);
    double reach = 1;  // Π_{i<k} β_i
    for (std::size_t k = 0; k < count_; ++k) {
      slots_[k].label = std::clamp(alpha_[k], 0.0, 1.0);
      slots_[k].weight = reach;
      reach *= beta_[k];
    }
    samples_.add_block({slots_.data(), count_});
  }

  /// The chain that was drafted; accepted as long as its drafts are the recorded tokens. A last
  /// draft that is accepted with a probability (greedy drafts, sampled verification) makes two
  /// outcomes of one chain.
  void add_drafted_chain(const BlockWorlds& worlds) {
    count_ = set_logits(worlds.text(), static_cast<std::size_t>(worlds.slots()), slots_);
    double survival = 1;
    for (std::size_t k = 0; k < count_; ++k) {
      slots_[k].label = std::clamp(survival * alpha_[k], 0.0, 1.0);
      slots_[k].weight = 1;
      survival *= beta_[k];
    }
    samples_.add_block({slots_.data(), count_});
  }

  void add_worlds(BlockWorlds& worlds) {
    worlds.for_each_outcome(
        [&](std::int32_t accepted, const float* confidence, double probability) {
          add_chain(confidence, worlds.slots(), accepted, probability);
        });
  }

  void add_chain(const float* confidence, std::int32_t count, std::int32_t accepted,
                 double weight) {
    count_ = set_logits(confidence, static_cast<std::size_t>(count), slots_);
    for (std::size_t k = 0; k < count_; ++k) {
      slots_[k].label = static_cast<std::int32_t>(k) < accepted ? 1 : 0;
      slots_[k].weight = weight;
    }
    samples_.add_block({slots_.data(), count_});
  }

  const OutcomeTable& table_;
  CalibrationSamples& samples_;
  const double* alpha_ = nullptr;
  const double* beta_ = nullptr;
  Slots slots_;
  std::size_t count_ = 0;
};

/// Chains that an anchor gives at most.
std::size_t chains_per_anchor(const OutcomeTable& table, LabelKind labels) {
  if (labels == LabelKind::conditional || table.greedy) return 1;
  return 2 +
         static_cast<std::size_t>(table.repeats) * static_cast<std::size_t>(table.block_size - 1);
}

}  // namespace

void add_calibration_samples(const OutcomeTable& table, CalibrationSamples& samples) {
  samples.raise_block_size(table.block_size);
  if (!table.has_confidence) return;
  const auto blocks =
      static_cast<std::size_t>(table.anchors()) * chains_per_anchor(table, samples.labels());
  samples.make_room(blocks, blocks * static_cast<std::size_t>(table.block_size));
  Sampler sampler(table, samples);
  for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
    samples.add_sequence(static_cast<std::int32_t>(s));
    for (std::int64_t n = table.sequence_offsets[s];
         n + table.block_size <= table.sequence_offsets[s + 1]; ++n) {
      sampler.add(n);
    }
  }
}

void add_calibration_samples(const RoundTable& table, CalibrationSamples& samples) {
  samples.raise_block_size(table.block_size);
  if (!table.has_confidence) return;
  const auto block = static_cast<std::size_t>(table.block_size);
  samples.make_room(table.rounds.size(), table.rounds.size() * block);
  const RoundOrder order = order_rounds(table);
  Slots slots;
  for (std::size_t request = 0; request + 1 < order.offsets.size(); ++request) {
    const auto begin = static_cast<std::size_t>(order.offsets[request]);
    const auto end = static_cast<std::size_t>(order.offsets[request + 1]);
    if (begin < end) samples.add_sequence(table.request[order.rounds[begin]]);
    for (std::size_t i = begin; i < end; ++i) {
      const RoundOutcome& round = table.rounds[order.rounds[i]];
      const auto accepted = static_cast<std::size_t>(round.accepted);
      const std::size_t known = round.censored ? accepted : static_cast<std::size_t>(round.slots);
      const std::size_t count =
          set_logits(table.confidence.data() + order.rounds[i] * block, known, slots);
      for (std::size_t k = 0; k < count; ++k) {
        const bool counts = samples.labels() == LabelKind::cumulative || k <= accepted;
        slots[k].label = k < accepted ? 1 : 0;
        slots[k].weight = counts ? 1 : 0;
      }
      samples.add_block({slots.data(), count});
    }
  }
}

}  // namespace dspark
