#include "calibration/walk.h"

#include <algorithm>

#include "calibration/logit.h"

namespace dspark {

PositionWalk::PositionWalk(const CalibrationSamples& samples, SamplePart part) : samples_(samples) {
  const auto belongs = [&](const SampleBlock& block) {
    const auto sequence = static_cast<std::size_t>(block.sequence);
    return samples.sequences()[sequence].held_out == (part == SamplePart::held_out);
  };
  const auto count = static_cast<std::size_t>(
      std::count_if(samples.blocks().begin(), samples.blocks().end(), belongs));
  blocks_.reserve(count);
  for (std::size_t i = 0; i < samples.blocks().size(); ++i) {
    if (belongs(samples.blocks()[i])) blocks_.push_back(i);
  }
  prefix_.assign(count, 1.0);
  claims_.reserve(count);
  collect();
}

void PositionWalk::collect() {
  claims_.clear();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const SampleBlock& block = samples_.blocks()[blocks_[i]];
    const auto slots = samples_.slots_of(block);
    if (position_ >= slots.size() || !(slots[position_].weight > 0)) continue;
    const SampleSlot& slot = slots[position_];
    const auto sequence = static_cast<std::size_t>(block.sequence);
    claims_.push_back({.prefix = prefix_[i],
                       .logit = slot.logit,
                       .label = slot.label,
                       .weight = slot.weight,
                       .input = samples_.sequences()[sequence].input});
  }
}

void PositionWalk::advance(double temperature) {
  if (samples_.labels() == LabelKind::cumulative) {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const auto slots = samples_.slots_of(samples_.blocks()[blocks_[i]]);
      if (position_ < slots.size()) prefix_[i] *= tempered(slots[position_].logit, temperature);
    }
  }
  ++position_;
  collect();
}

double claimed(const Claim& claim, double temperature) {
  constexpr double kMargin = 1e-8;
  return std::clamp(claim.prefix * tempered(claim.logit, temperature), kMargin, 1 - kMargin);
}

int bin_of(double probability, int bins) {
  return std::clamp(static_cast<int>(probability * bins), 0, bins - 1);
}

}  // namespace dspark
