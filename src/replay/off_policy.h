// Other settings than the recorded one: importance-weighted open-loop estimates (replay.md,
// "Another temperature, or greedy, on a sampled trajectory").
//
// With r_i = min(p'_i, q'_i)(y) / p_i(y) (p the recorded law, p', q' those asked for, y the
// recorded token) the weight of slot k is Π_{i<k} r_i: how often the setting asked for gets there
// by accepted drafts, relative to how often the recording does. Standard errors are between batches
// of block_size neighbouring blocks of one sequence: overlapping blocks share recorded tokens, so
// they are not independent, while batches nearly are.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/policy.h"
#include "replay/intervals.h"
#include "replay/outcome_table.h"
#include "replay/result.h"
#include "trace/schema.h"

namespace dspark {

/// Rows on fewer effective samples are estimated but not ranked.
inline constexpr double kMinEffectiveSamples = 100;
/// Numbers on fewer have no interval: it would rest on the few weights that happen to be large.
inline constexpr double kLeastEffectiveSamples = 30;

/// True if every token that can be accepted under `asked` can be drawn under what the trace was
/// recorded with, whatever the logits; otherwise no weights can make up for the tokens that are
/// never seen. Greedy verification is always covered by a sampled recording; a trace recorded
/// greedily covers greedy verification alone.
[[nodiscard]] bool is_covered(const TraceHeader& recorded, const SamplingLabel& asked,
                              Verification verification);

/// One PositionResult per slot 1..P of an off-policy table: survival with its standard error and
/// interval (`resampling`: of the table's sequences; null: no intervals),
/// survival_trajectory, conditional, the calibration fields on the same weights, predicted, and
/// Kish's effective samples (Σw)² / Σw² of the weights of the slot. Means are over the blocks with
/// P positions left that are not cut before the slot. What only a closed loop has stays empty.
[[nodiscard]] std::vector<PositionResult> off_policy_positions(
    const OutcomeTable& table, const Resampling* resampling = nullptr);

/// The row of `policy` on an off-policy table, over whole blocks with P positions left: tau = 1 +
/// Σ_k mean [weight of slot k · alpha'_k] over the blocks whose scheduled length along the text
/// reaches k; verified_per_round = Σ_k P(length ≥ k) over drafted chains (sampled worlds, weighted;
/// exact for deterministic drafts and for rules that do not look at confidences); both with
/// standard errors; effective_samples of the deepest slot that any block verifies. Greedy
/// verification: also the bracket tau_lo, tau_hi over runs along the text, a run being censored
/// where draft and target argmax agree on a token that is not the recorded one (ended there; all
/// its drafts accepted). Exact in expectation for causal rules and for deterministic drafts; a rule
/// that is neither gets no estimates. No number where no block is whole. `flow`: the parts, each
/// block being one round; its lengths are unbiased estimates, those accepted add up to the blocks
/// but for their error, and those scheduled may be negative where they were weighted.
[[nodiscard]] PolicyResult evaluate_off_policy(const OutcomeTable& table, const Policy& policy,
                                               const RoundPrices& prices,
                                               Verification verification);
[[nodiscard]] PolicyResult evaluate_off_policy(const OutcomeTable& table, const Policy& policy,
                                               const RoundPrices& prices, Verification verification,
                                               RoundFlow& flow);

}  // namespace dspark
