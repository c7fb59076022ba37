#include "policy/gate.h"

#include <algorithm>

namespace dspark {

SpeculationGate::SpeculationGate(std::int32_t window, double min_accepted)
    : accepted_(static_cast<std::size_t>(std::max(window, 0))), min_accepted_(min_accepted) {}

void SpeculationGate::complete(std::int64_t tokens, std::int64_t rounds) {
  if (!open_ || accepted_.empty() || rounds <= 0) return;
  const double per_round = static_cast<double>(tokens) / static_cast<double>(rounds);
  const auto window = static_cast<std::int64_t>(accepted_.size());
  accepted_[static_cast<std::size_t>(completed_ % window)] = std::max(0.0, per_round - 1);
  if (++completed_ < window) return;
  // Added up anew: a running sum would drift. The ring's order stands for the requests'.
  open_ = !gate_closes(accepted_.data(), static_cast<std::int32_t>(window), min_accepted_);
}

}  // namespace dspark
