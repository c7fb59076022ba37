#include "replay/ledger.h"

namespace dspark {

std::optional<Ledger> make_ledger(const PolicyResult& row, const RoundFlow& flow,
                                  const CostModel& cost, const StepPrices& prices,
                                  double drafting) {
  const double rounds = flow.total(RoundFlow::rounds);
  if (!row.verified_per_round || !(rounds > 0)) return std::nullopt;
  Ledger out;
  out.rounds = rounds;
  out.proposed = drafting * rounds * prices.block_size();
  out.verified = rounds * *row.verified_per_round;
  out.accepted = flow.total(RoundFlow::tokens) - rounds;
  out.wasted = out.verified - out.accepted;
  const double drafting_steps = drafting * rounds / prices.requests();
  out.draft_cost = drafting_steps * cost.draft(prices.requests());
  out.overhead_cost = drafting_steps * cost.overhead();
  out.accept_cost = out.verified * cost.accept(1);
  if (row.cost_per_round) {
    out.verify_cost =
        rounds * *row.cost_per_round - out.draft_cost - out.overhead_cost - out.accept_cost;
    const double plain = prices.plain() / prices.requests();
    if (plain > 0) out.break_even_tau = *row.cost_per_round / plain;
  }
  out.rounds_without_acceptance = flow.accepted_rounds().front();
  out.rounds_trimmed = flow.trimmed();
  const bool weighted = row.off_policy && row.verified_per_round_se;
  if (!weighted) {
    for (const double count : flow.scheduled_rounds()) {
      out.scheduled_histogram.push_back(count / rounds);
    }
  }
  for (const double count : flow.accepted_rounds()) {
    if (!row.off_policy) out.accepted_histogram.push_back(count / rounds);
  }
  return out;
}

}  // namespace dspark
