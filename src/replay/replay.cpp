#include "replay/replay.h"

#include <fmt/format.h>

#include <exception>

#include "cost/cost.h"
#include "replay/causality.h"
#include "replay/closed_loop.h"
#include "replay/off_policy.h"
#include "replay/open_loop.h"
#include "replay/reduce.h"
#include "replay/rounds.h"
#include "support/text.h"

namespace dspark {
namespace {

/// Fields that every row of a job shares, and those that follow from tau and what was verified.
void complete_row(const ReplayJob& job, const Policy& policy, PolicyResult& row) {
  row.trace = job.trace.header().file;
  row.verification = verification_name(job.verification);
  row.sampling = job.sampling;
  row.policy = policy_name(policy);
  row.parameters = policy_parameters(policy);
  if (row.tau) row.accepted_per_round = *row.tau - 1.0;
  const bool speculates = !std::holds_alternative<NoSpeculation>(policy);
  if (row.verified_per_round) {
    if (*row.verified_per_round > 0 && row.accepted_per_round) {
      row.acceptance_rate = *row.accepted_per_round / *row.verified_per_round;
    }
    row.cost_per_round =
        speculates ? round_cost(job.cost, *row.verified_per_round) : step_cost(job.cost);
    if (row.tau && *row.cost_per_round > 0) row.tokens_per_cost = *row.tau / *row.cost_per_round;
    if (row.tokens_per_cost && step_cost(job.cost) > 0) {
      row.speedup = *row.tokens_per_cost * step_cost(job.cost);
    }
  }
}

void add_positions(const ReplayJob& job, std::vector<PositionResult> positions,
                   ReplayResult& result) {
  for (PositionResult& position : positions) {
    position.trace = job.trace.header().file;
    position.verification = verification_name(job.verification);
    position.sampling = job.sampling;
    result.positions.push_back(std::move(position));
  }
}

PolicyResult evaluate_anchors(const OutcomeTable& table, const Policy& policy,
                              const LinearCost& cost) {
  const ClosedLoop loop = closed_loop(table, policy, cost);
  PolicyResult row;
  row.tau = loop.tau;
  row.tau_interior = loop.tau_interior;
  row.rounds = loop.rounds;
  row.tokens = loop.tokens;
  row.verified_per_round = loop.verified;
  row.verified_per_round_se = loop.verified_se;
  row.verified_per_round_on_trajectory = loop.verified_on_trajectory;
  return row;
}

/// Evaluates every policy; each row is the work of one thread, so the result does not depend on
/// their number.
template <class Evaluate>
void add_rows(const ReplayJob& job, int threads, ReplayResult& result, Evaluate&& evaluate) {
  const auto count = static_cast<std::int64_t>(job.policies.size());
  const std::size_t first = result.results.size();
  result.results.resize(first + job.policies.size());
  std::exception_ptr failure;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      const Policy& policy = job.policies[static_cast<std::size_t>(i)];
      PolicyResult row = evaluate(policy);
      complete_row(job, policy, row);
      result.results[first + static_cast<std::size_t>(i)] = std::move(row);
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// Rows that rest on too few effective samples keep their estimates and lose their place in the
/// ranking.
void refuse_to_rank(const ReplayJob& job, const ReplayOptions& options, std::size_t first,
                    ReplayResult& result) {
  std::size_t refused = 0;
  for (std::size_t i = first; i < result.results.size(); ++i) {
    PolicyResult& row = result.results[i];
    if (row.effective_samples.value_or(0) >= kMinEffectiveSamples) continue;
    row.tokens_per_cost.reset();
    row.speedup.reset();
    ++refused;
  }
  if (refused == 0 || !options.notice) return;
  options.notice(fmt::format(
      "{}: {} of {} rows of a setting that was not recorded ({} verification, temperature {}) "
      "rest on fewer than {} effective samples and are not ranked; record more, or a trace with "
      "this setting",
      job.trace.header().file, refused, result.results.size() - first,
      verification_name(job.verification), shortest(job.sampling.temperature),
      shortest(kMinEffectiveSamples)));
}

void add_off_policy(const ReplayJob& job, const OutcomeTable& table, const ReplayOptions& options,
                    ReplayResult& result) {
  const std::size_t first = result.results.size();
  add_positions(job, off_policy_positions(table), result);
  add_rows(job, options.threads, result, [&](const Policy& policy) {
    return evaluate_off_policy(table, policy, job.cost, job.verification);
  });
  refuse_to_rank(job, options, first, result);
}

/// Whether the row is lossless, and how far its rule is from its early-stopped form (a causal one
/// is not); `table` null: that cannot be said.
void judge_causality(const ReplayJob& job, const Policy& policy, const OutcomeTable* table,
                     PolicyResult& row) {
  const LengthRule rule = length_rule(policy, job.cost);
  const bool causal = !uses_confidence(policy) || is_causal(rule, job.trace.header().block_size);
  row.lossless =
      causal || job.verification == Verification::greedy || job.sampling.drafts == "greedy";
  if (causal) {
    row.early_stop_difference = 0.0;
  } else if (table != nullptr) {
    row.early_stop_difference =
        early_stop_difference(*table, round_starts(*table, policy, job.cost), rule);
  }
}

void replay_anchor_trace(Backend& backend, const ReplayJob& job, const ReplayOptions& options,
                         TraceSummary& summary, ReplayResult& result) {
  const OutcomeTable table = reduce_anchors(backend, job.trace, job.heads,
                                            {.sampling = job.sampling,
                                             .verification = job.verification,
                                             .worlds = true,
                                             .off_policy = job.off_policy},
                                            options);
  summary.anchors = table.anchors();
  summary.sequences = static_cast<std::int64_t>(table.sequence_offsets.size()) - 1;
  summary.invalid_rows += table.invalid_rows;
  summary.impossible_tokens += table.impossible_tokens;
  summary.near_ties += table.near_ties;
  if (job.off_policy) {
    add_off_policy(job, table, options, result);
    return;
  }
  add_positions(job, open_loop(table), result);
  add_rows(job, options.threads, result, [&](const Policy& policy) {
    PolicyResult row = evaluate_anchors(table, policy, job.cost);
    judge_causality(job, policy, &table, row);
    return row;
  });
}

void replay_round_trace(Backend& backend, const ReplayJob& job, const ReplayOptions& options,
                        TraceSummary& summary, ReplayResult& result) {
  const RoundTable table =
      replay_rounds(backend, job.trace, job.heads, job.sampling, job.verification, options);
  std::int64_t reproduced = 0, diverged = 0, censored = 0;
  for (const RoundOutcome& round : table.rounds) {
    reproduced += round.reproduced;
    diverged += round.diverged_slot > 0;
    censored += round.censored;
    summary.near_ties += round.near_tie;
  }
  summary.rounds = static_cast<std::int64_t>(table.rounds.size());
  if (table.outcomes_recorded) summary.reproduced = reproduced;
  if (table.drafts_replayed) summary.diverged = diverged;
  summary.censored = censored;
  summary.invalid_rows += table.invalid_rows;
  add_positions(job, round_positions(table), result);
  add_rows(job, options.threads, result, [&](const Policy& policy) {
    PolicyResult row = evaluate_rounds(table, policy, job.cost);
    judge_causality(job, policy, nullptr, row);
    return row;
  });
}

}  // namespace

void replay_trace(Backend& backend, const ReplayJob& job, const ReplayOptions& options,
                  TraceSummary& summary, ReplayResult& result) {
  if (job.trace.header().kind == TraceKind::rounds) {
    replay_round_trace(backend, job, options, summary, result);
  } else {
    replay_anchor_trace(backend, job, options, summary, result);
  }
}

}  // namespace dspark
