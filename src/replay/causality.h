// Whether a length rule keeps the target's distribution (replay.md, "Causality").
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "policy/policy.h"
#include "replay/outcome_table.h"
#include "replay/pricing.h"

namespace dspark {

/// Drafts to verify of a block with these confidences: (confidence [slots], slots) to [0, slots].
/// Reads no more than `slots` of them.
using LengthRule = std::function<std::int32_t(const float*, std::int32_t)>;

/// The rule of a policy that looks at its own block only.
[[nodiscard]] LengthRule length_rule(const Policy& policy, const RoundPrices& prices);

/// True if whether slot k is verified never changes when the confidences c_{k+1}, ..., c_slots are
/// replaced. Decided over a deterministic family of confidences (a grid of constant levels, steps
/// and keyed random vectors; continuations low, high and random), so a rule that looks ahead on
/// none of them passes. `slots` 1..64; costs a few hundred calls of the rule per slot.
[[nodiscard]] bool is_causal(const LengthRule& rule, std::int32_t slots);
/// The same of a policy that looks at its own block only; one that does not look at drafts is.
[[nodiscard]] bool is_causal(const Policy& policy, const RoundPrices& prices, std::int32_t slots);

/// The rule's early-stopped form: slots are admitted from the left as long as the rule, shown
/// c_1..c_k alone, verifies slot k. Always causal; equal to a causal rule.
[[nodiscard]] std::int32_t early_stopped_length(const LengthRule& rule, const float* confidence,
                                                std::int32_t slots);

/// True if speculative decoding under the policy draws from the target's distribution exactly:
/// greedy verification, deterministic drafts, or a causal rule.
[[nodiscard]] bool is_lossless(const Policy& policy, const RoundPrices& prices,
                               Verification verification, bool deterministic_drafts,
                               std::int32_t slots);

/// The same for a policy that schedules all requests of a step by `prices` (scheduler.h). What it
/// looks at of other requests' drafts and of earlier steps does not matter: one admission after the
/// other, and a capacity that lags or is fixed, are lossless. A `global` without lag is where the
/// prices are convex and nothing else (tiers, a gain, buckets) decides; `exact_table` never is.
[[nodiscard]] bool is_lossless_in_steps(const Policy& policy, const StepPrices& prices,
                                        const CostModel& model, Verification verification,
                                        bool deterministic_drafts);

/// Share of rounds in which `rule` verifies another length than its early-stopped form: rounds
/// weighted by `starts` (v(n) of the rule, [N]), and at each by the worlds' probabilities. Empty
/// where the rule is seen on no sampled worlds although drafts are sampled. The table must be of
/// the recorded setting.
[[nodiscard]] std::optional<double> early_stop_difference(const OutcomeTable& table,
                                                          const std::vector<double>& starts,
                                                          const LengthRule& rule);

}  // namespace dspark
