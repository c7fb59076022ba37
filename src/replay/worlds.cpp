#include "replay/worlds.h"

#include "support/error.h"

namespace dspark {

std::optional<DraftSignal> signal_of(const Policy& policy) {
  if (uses_top_probability(policy)) return DraftSignal::top_probability;
  if (uses_confidence(policy)) return DraftSignal::confidence;
  return std::nullopt;
}

std::optional<DraftSignal> signal_of(const Policy& policy, const OutcomeTable& table) {
  const std::optional<DraftSignal> signal = signal_of(policy);
  if (signal == DraftSignal::top_probability && !table.has(*signal)) {
    throw internal_error(policy_name(policy), "the table has no top probabilities");
  }
  return signal;
}

}  // namespace dspark
