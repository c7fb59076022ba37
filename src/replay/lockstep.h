// R requests in lockstep: every step each of them drafts and verifies, under one rule for all.
#pragma once

#include <cstdint>
#include <optional>

#include "policy/policy.h"
#include "replay/outcome_table.h"
#include "replay/pricing.h"
#include "replay/round_flow.h"

namespace dspark {

/// Steps that a walk takes before it counts: rules with a memory have then forgotten its start.
inline constexpr std::int64_t kWarmupSteps = 32;
/// At least this many are counted.
inline constexpr std::int64_t kLeastSteps = 64;

/// What one policy does with R requests; means over the steps (or rounds) of one sampled walk.
struct Lockstep {
  double steps = 0;
  double rounds = 0;
  double tokens = 0;
  double tau = 0;                      ///< tokens / rounds
  std::optional<double> tau_se;        ///< between batches of steps
  std::optional<double> tau_interior;  ///< as in ClosedLoop
  double verified = 0;                 ///< drafts per round
  std::optional<double> verified_se;   ///< between batches of steps
  double cost = 0;                     ///< of a step; NaN where one had no price
  double padding = 0;                  ///< tokens of a step that no request needs
  double plain_share = 0;              ///< of the steps that did not speculate
};

/// Walks `prices.requests()` requests through the recorded texts. Request r starts in sequence r
/// modulo their number; where there are more requests than sequences, those of one sequence start
/// evenly spread over it. A finished request is replaced by the next sequence in order, over and
/// over. Each round draws its world from those of the table: where the drafts are rejected (from
/// β) and which repeat's confidences stand behind that, keyed by (seed, sequence, position, pass
/// over the sequence), so that all policies and concurrencies meet the same worlds. Accepted are
/// min(a, l), whatever the rule looks at.
///
/// Counted are steps, behind kWarmupSteps, until there are kLeastSteps of them and each position
/// has been emitted `passes` times on average. `flow` receives the counted rounds, each with its
/// share of its step's cost. Not for a table of another setting than the recorded one, nor for the
/// oracles. One thread; a pure function of its arguments.
[[nodiscard]] Lockstep walk_lockstep(const OutcomeTable& table, const Policy& policy,
                                     const StepPrices& prices, const CostModel& model,
                                     std::int32_t passes, std::uint64_t seed, RoundFlow& flow);

}  // namespace dspark
