// Bounds: what no scheduler can do better than, because it would have to know the outcome.
#pragma once

#include "replay/closed_loop.h"

namespace dspark {

/// The closed loop of an oracle that knows, at every position n, how many drafts a of a full block
/// will be accepted.
/// - no_waste verifies exactly a. Its rounds are those of the full block.
/// - shortest verifies the l ≤ a that is cheapest in the end:
///   C(n) = Σ_a Pr(a) min_{l ≤ a} [cost(l) + C(n + l + 1)], C(end) = 0; tokens per cost N /
///   C(first). A rule that verifies more than a pays for waste and lands no further, and one that
///   verifies l ≤ a is one of the choices: no rule that drafts in every round can beat it, as long
///   as a longer verification costs no less. (Decoding without speculation pays for no drafts, and
///   can.)
/// Exact for the recorded text. Costs O(N·P) steps and 8 bytes per position; one thread.
[[nodiscard]] ClosedLoop follow_bound(const OutcomeTable& table, const Oracle& oracle,
                                      const RoundPrices& prices, RoundFlow& flow,
                                      LoopScratch& scratch);

}  // namespace dspark
