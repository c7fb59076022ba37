#include "replay/ledger.h"

#include "cost/cost.h"

namespace dspark {

std::optional<Ledger> make_ledger(const PolicyResult& row, const RoundFlow& flow,
                                  const LinearCost& cost, std::int32_t block_size,
                                  bool speculates) {
  const double rounds = flow.total(RoundFlow::rounds);
  if (!row.verified_per_round || !(rounds > 0)) return std::nullopt;
  Ledger out;
  out.rounds = rounds;
  out.proposed = speculates ? out.rounds * block_size : 0;
  out.verified = out.rounds * *row.verified_per_round;
  out.accepted = flow.total(RoundFlow::tokens) - out.rounds;
  out.wasted = out.verified - out.accepted;
  out.draft_cost = speculates ? out.rounds * cost.draft : 0;
  out.verify_cost =
      out.rounds * (cost.verify_base + cost.verify_token * (*row.verified_per_round + 1));
  out.accept_cost = out.rounds * (cost.accept * *row.verified_per_round);
  out.rounds_without_acceptance = flow.accepted_rounds().front();
  out.rounds_trimmed = flow.trimmed();
  if (row.cost_per_round && step_cost(cost) > 0) {
    out.break_even_tau = *row.cost_per_round / step_cost(cost);
  }
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
