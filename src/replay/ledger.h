// Where a row's cost goes.
#pragma once

#include "core/dspark_ops.h"
#include "replay/closed_loop.h"
#include "replay/result.h"

namespace dspark {

/// The ledger of a row; empty where its verified_per_round is missing. Rounds and tokens are the
/// flow's; totals follow from the row's own means, so that they agree: accepted = tokens - rounds,
/// verified = rounds · verified_per_round, and the three costs add up to rounds · cost_per_round.
/// `block_size`: drafts proposed per round (0 counts for `none`). Off-policy rows have no
/// accepted_histogram, and where their lengths were weighted no scheduled_histogram: estimates slot
/// by slot make no distribution.
[[nodiscard]] std::optional<Ledger> make_ledger(const PolicyResult& row, const RoundFlow& flow,
                                                const LinearCost& cost, std::int32_t block_size,
                                                bool speculates);

}  // namespace dspark
