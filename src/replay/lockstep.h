// R requests in lockstep: every step each of them drafts and verifies, under one rule for all.
#pragma once

#include <cstdint>
#include <optional>

#include "policy/policy.h"
#include "replay/outcome_table.h"
#include "replay/pricing.h"
#include "replay/round_flow.h"

namespace dspark {

/// Steps that a pass takes before it counts: rounds then start where rounds start, and a lagging
/// capacity is set by what was seen. Rules that learn (count_budget, capped_ewma) take longer.
inline constexpr std::int64_t kWarmupSteps = 4;
inline constexpr std::int64_t kLearningSteps = 32;
/// At least this many of a pass are counted.
inline constexpr std::int64_t kLeastSteps = 8;

/// What one policy does with R requests; means over the steps (or rounds) of all passes.
struct Lockstep {
  double steps = 0;                    ///< counted
  double rounds = 0;                   ///< of one pass over the text: tokens / tau
  double tokens = 0;                   ///< positions of the text
  double tau = 0;                      ///< tokens / rounds
  std::optional<double> tau_se;        ///< between passes, given the text; empty for one
  std::optional<double> tau_interior;  ///< as in ClosedLoop
  double verified = 0;                 ///< drafts per round
  std::optional<double> verified_se;   ///< between passes, given the text; empty for one
  double cost = 0;                     ///< of a step; NaN where one had no price
  double padding = 0;                  ///< tokens of a step that no request needs
  double plain_share = 0;              ///< of the steps that did not speculate
  /// Share of rounds in which a `global` without lag verifies another length than its early-stopped
  /// form, Algorithm 1; empty for the others.
  std::optional<double> early_stop_difference;
};

/// Walks `prices.requests()` requests through the recorded texts, `passes` times anew: each pass
/// has a scheduler that knows nothing yet, and requests that start spread over all texts, the r-th
/// at a random place of the r-th of R equal parts. A finished request is replaced by the next text
/// in order, over and over. Each round draws its world from those of the table: where the drafts
/// are rejected (from β) and which repeat's confidences stand behind that, keyed by (seed,
/// sequence, position, how often the sequence was entered). Accepted are min(a, l), whatever the
/// rule looks at.
///
/// Of a pass steps are counted, behind the first few, until there are kLeastSteps of them and as
/// many tokens as the text has. So a `gate`, which is off for good, is what it is worth over the
/// first pass from a fresh start. `flow` receives the counted rounds, scaled to one pass, each with
/// its share of its step's cost. Not for a table of another setting than the recorded one, nor for
/// the oracles. One thread; a pure function of its arguments.
[[nodiscard]] Lockstep walk_lockstep(const OutcomeTable& table, const Policy& policy,
                                     const StepPrices& prices, const CostModel& model,
                                     std::int32_t passes, std::uint64_t seed, RoundFlow& flow);

}  // namespace dspark
