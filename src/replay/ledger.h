// Where a row's cost goes.
#pragma once

#include "replay/pricing.h"
#include "replay/result.h"
#include "replay/round_flow.h"

namespace dspark {

/// The ledger of a row; empty where its verified_per_round is missing. Rounds and tokens are the
/// flow's; totals follow from the row's own means, so that they agree: accepted = tokens - rounds,
/// verified = rounds · verified_per_round, and the costs add up to rounds · cost_per_round: a
/// step's drafting and overhead are shared by its requests, and verifying is what is left.
/// `drafting`: the share of steps that draft, a block per request. Off-policy rows have no
/// accepted_histogram, and where their lengths were weighted no scheduled_histogram: estimates slot
/// by slot make no distribution.
[[nodiscard]] std::optional<Ledger> make_ledger(const PolicyResult& row, const RoundFlow& flow,
                                                const CostModel& cost, const StepPrices& prices,
                                                double drafting);

}  // namespace dspark
