// The closed loop of one request: a policy that accepts fewer tokens starts its next round
// elsewhere (replay.md).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "policy/policy.h"
#include "replay/outcome_table.h"
#include "replay/round_flow.h"

namespace dspark {

/// What one policy does on an outcome table; means are over the rounds of the closed loop.
struct ClosedLoop {
  double rounds = 0;                   ///< Σ v(n), expected rounds
  double tokens = 0;                   ///< positions, each emitted once
  double tau = 0;                      ///< tokens / rounds
  std::optional<double> tau_interior;  ///< over rounds with a full block and a bonus token left
  double verified_on_trajectory = 0;  ///< Σ v(n) ℓ(n) / rounds with the confidences along the text
  std::optional<double>
      verified;  ///< exact, or the mean over worlds; empty where worlds are needed but absent
  std::optional<double>
      verified_se;     ///< standard error over the repeats; empty where exact or a single repeat
  bool exact = false;  ///< `verified` is exact
};

/// How far the lengths along the recorded text say what is accepted.
enum class Acceptance {
  along_text,   ///< the rule is causal, or drafts are deterministic
  full_blocks,  ///< the rule looks ahead: accepted are min(a, l) of every sampled world
};

/// Expected number of rounds that start at each position under `policy` (v(n) of replay.md); [N].
[[nodiscard]] std::vector<double> round_starts(const OutcomeTable& table, const Policy& policy,
                                               const RoundPrices& prices);

/// Follows `policy` through every sequence. `prices` are what `sps` and the bounds optimise. Costs
/// at most O(N·P·(1 + repeats·P)) steps; one thread. For `oracle_confidence` the lengths along the
/// text stand for those after a rejection too: the target's distribution is not recorded there.
/// With full_blocks the rounds are exact for where they start, and where they start is followed
/// over the sampled worlds; verified_on_trajectory is then the same as verified.
[[nodiscard]] ClosedLoop closed_loop(const OutcomeTable& table, const Policy& policy,
                                     const RoundPrices& prices,
                                     Acceptance acceptance = Acceptance::along_text);
/// The same, with the parts; what is in `flow` and `scratch` before does not matter.
[[nodiscard]] ClosedLoop closed_loop(const OutcomeTable& table, const Policy& policy,
                                     const RoundPrices& prices, RoundFlow& flow,
                                     LoopScratch& scratch,
                                     Acceptance acceptance = Acceptance::along_text);

}  // namespace dspark
