#include "replay/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <optional>

#include "cost/cost.h"
#include "replay/causality.h"
#include "replay/closed_loop.h"
#include "replay/intervals.h"
#include "replay/ledger.h"
#include "replay/off_policy.h"
#include "replay/open_loop.h"
#include "replay/outcomes.h"
#include "replay/rounds.h"
#include "replay/strata.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

// Rounds of a moving block: a round does not reach into the next, but what is written does.
constexpr std::int64_t kRoundsOfDependence = 8;

/// Fields that every row of a job shares, and those that follow from tau and what was verified.
void complete_row(const ReplayJob& job, const Policy& policy, PolicyResult& row) {
  row.trace = job.trace.header().file;
  row.verification = verification_name(job.verification);
  row.sampling = job.sampling;
  row.policy = policy_name(policy);
  row.parameters = policy_parameters(policy);
  row.bound = is_bound(policy);
  if (row.tau) row.accepted_per_round = *row.tau - 1.0;
  if (row.verified_per_round) {
    if (*row.verified_per_round > 0 && row.accepted_per_round) {
      row.acceptance_rate = *row.accepted_per_round / *row.verified_per_round;
    }
    row.cost_per_round =
        speculates(policy) ? round_cost(job.cost, *row.verified_per_round) : step_cost(job.cost);
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

void add_strata(const ReplayJob& job, std::vector<Stratum> strata, ReplayResult& result) {
  for (Stratum& stratum : strata) {
    stratum.trace = job.trace.header().file;
    stratum.verification = verification_name(job.verification);
    stratum.sampling = job.sampling;
    if (stratum.by == "trace") stratum.label = job.trace.header().domain;
    result.strata.push_back(std::move(stratum));
  }
}

PolicyResult evaluate_anchors(const OutcomeTable& table, const Policy& policy,
                              const LinearCost& cost, RoundFlow& flow) {
  const ClosedLoop loop = closed_loop(table, policy, cost, flow);
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

/// Calls work(i) for i = 0 .. count - 1 on `threads` threads, each with its own copy of `scratch`;
/// rethrows what one of them threw.
template <class Scratch, class Work>
void for_each_row(std::int64_t count, int threads, const Scratch& scratch, const Work& work) {
  std::exception_ptr failure;
#pragma omp parallel num_threads(threads)
  {
    Scratch own = scratch;
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t i = 0; i < count; ++i) {
      try {
        work(static_cast<std::size_t>(i), own);
      } catch (...) {
#pragma omp critical
        failure = std::current_exception();
      }
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
  // The bounds speak of the closed loop, which the recorded text does not have under this setting.
  std::vector<Policy> policies;
  std::copy_if(job.policies.begin(), job.policies.end(), std::back_inserter(policies),
               [](const Policy& policy) { return !is_bound(policy); });
  if (policies.size() < job.policies.size() && options.notice) {
    options.notice(fmt::format(
        "{}: the oracles are left out for {} verification at temperature {:g}: a setting that was "
        "not recorded has no closed loop",
        job.trace.header().file, verification_name(job.verification), job.sampling.temperature));
  }
  std::vector<PolicyResult> rows(policies.size());
  for_each_row(static_cast<std::int64_t>(rows.size()), options.threads, 0, [&](std::size_t i, int) {
    rows[i] = evaluate_off_policy(table, policies[i], job.cost, job.verification);
    complete_row(job, policies[i], rows[i]);
  });
  for (PolicyResult& row : rows) result.results.push_back(std::move(row));
  refuse_to_rank(job, options, first, result);
}

/// Whether the row is lossless, and how far its rule is from its early-stopped form (a causal one
/// is not); `table` null: that cannot be said.
void judge_causality(const ReplayJob& job, const Policy& policy, const OutcomeTable* table,
                     PolicyResult& row) {
  if (is_bound(policy)) return;  // nobody runs it
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

/// The rows of one job: evaluates every policy, each as the work of one thread, so that no result
/// depends on their number.
class RowEvaluator {
 public:
  RowEvaluator(const ReplayJob& job, const ReplayOptions& options, const Resampling& resampling,
               const std::vector<std::size_t>& order)
      : job_(job), options_(options), resampling_(resampling), order_(order) {}

  /// Appends the rows. `evaluate(policy, flow)` gives tau, rounds and what was verified.
  template <class Evaluate>
  void run(const Evaluate& evaluate, ReplayResult& result) {
    rows_.resize(job_.policies.size());
    efficiency_.resize(rows_.size() * resampling_.draws());
    const std::int32_t block_size = job_.trace.header().block_size;
    for_each_row(count(), options_.threads, Scratch{}, [&](std::size_t i, Scratch& scratch) {
      const Policy& policy = job_.policies[i];
      PolicyResult& row = rows_[i];
      row = evaluate(policy, scratch.flow);
      complete_row(job_, policy, row);
      row.ledger = make_ledger(row, scratch.flow, job_.cost, block_size, speculates(policy));
      sum_cells(scratch.flow, order_, resampling_, scratch.sums);
      row_intervals(resampling_, scratch.sums, job_.cost, speculates(policy), scratch.intervals,
                    row, efficiency_of(i));
    });
    compare();
    add_notes(result);
    for (PolicyResult& row : rows_) result.results.push_back(std::move(row));
  }

 private:
  struct Scratch {
    RoundFlow flow;
    RowSums sums;
    IntervalScratch intervals;
  };

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(rows_.size()); }
  [[nodiscard]] float* efficiency_of(std::size_t row) {
    return efficiency_.data() + row * resampling_.draws();
  }

  /// The row at the rank that was asked for, in the order of rank_results().
  [[nodiscard]] std::size_t reference() const {
    std::vector<std::size_t> ranking;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (!rows_[i].bound && rows_[i].tokens_per_cost) ranking.push_back(i);
    }
    std::stable_sort(ranking.begin(), ranking.end(), [&](std::size_t a, std::size_t b) {
      return *rows_[a].tokens_per_cost > *rows_[b].tokens_per_cost;
    });
    const auto rank = static_cast<std::size_t>(options_.reference);
    if (rank > ranking.size()) {
      throw usage_error("--reference",
                        fmt::format("there is no rank {} among the {} ranked rows of {}", rank,
                                    ranking.size(), job_.trace.header().file),
                        "give the rank of a row");
    }
    return ranking[rank - 1];
  }

  void compare() {
    const bool nothing_ranked = std::none_of(rows_.begin(), rows_.end(), [](const auto& row) {
      return !row.bound && row.tokens_per_cost.has_value();
    });
    if (nothing_ranked && options_.reference == 1) return;
    const std::size_t best = reference();
    rows_[best].is_reference = true;
    for_each_row(count(), options_.threads, IntervalScratch{},
                 [&](std::size_t i, IntervalScratch& scratch) {
                   if (i == best) return;
                   rows_[i].versus = compare_rows(resampling_, rows_[i], efficiency_of(i),
                                                  rows_[best], efficiency_of(best), scratch);
                 });
  }

  void note(ReplayResult& result, const std::string& text) const {
    result.notes.push_back(fmt::format("{}: {}", job_.trace.header().file, text));
    if (options_.notice) options_.notice(result.notes.back());
  }

  void add_notes(ReplayResult& result) const {
    std::optional<double> fewest;
    for (const PolicyResult& row : rows_) {
      if (!row.bound && row.rounds && (!fewest || *row.rounds < *fewest)) fewest = row.rounds;
    }
    if (fewest && *fewest < kFewRounds) {
      note(result, fmt::format("some rows rest on as few as {:.0f} rounds; below {:.0f} even the "
                               "intervals are rough, so record more text",
                               *fewest, kFewRounds));
    }
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto* oracle = std::get_if<Oracle>(&job_.policies[i]);
      if (oracle == nullptr || oracle->bound != OracleBound::shortest) continue;
      if (rows_[i].speedup && *rows_[i].speedup < 1) {
        note(result, fmt::format("even the oracle's shortest path has a speedup of {:.3f}: under "
                                 "these costs no schedule can win with this drafter",
                                 *rows_[i].speedup));
      }
    }
  }

  const ReplayJob& job_;
  const ReplayOptions& options_;
  const Resampling& resampling_;
  const std::vector<std::size_t>& order_;
  std::vector<PolicyResult> rows_;
  std::vector<float> efficiency_;  ///< [rows, draws] tokens per cost in every draw
};

void replay_anchor_trace(Backend& backend, const ReplayJob& job, const ReplayOptions& options,
                         TraceSummary& summary, ReplayResult& result) {
  const OutcomeTable table = outcomes_of(backend, job, options);
  summary.anchors = table.anchors();
  summary.sequences = static_cast<std::int64_t>(table.sequence_offsets.size()) - 1;
  summary.invalid_rows += table.invalid_rows;
  summary.impossible_tokens += table.impossible_tokens;
  summary.near_ties += table.near_ties;
  if (job.off_policy) {
    add_off_policy(job, table, options, result);
    return;
  }
  const Resampling resampling = anchor_resampling(table, options.seed, options.confidence);
  add_positions(job, open_loop(table, &resampling), result);
  add_strata(job, make_strata(table), result);
  const std::vector<std::size_t> as_recorded;
  RowEvaluator(job, options, resampling, as_recorded)
      .run(
          [&](const Policy& policy, RoundFlow& flow) {
            PolicyResult row = evaluate_anchors(table, policy, job.cost, flow);
            judge_causality(job, policy, &table, row);
            return row;
          },
          result);
}

void replay_round_trace(Backend& backend, const ReplayJob& job, const ReplayOptions& options,
                        TraceSummary& summary, ReplayResult& result) {
  const RoundTable table = rounds_of(backend, job, options);
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
  const RoundOrder order = order_rounds(table);
  const Resampling resampling(order.offsets, kRoundsOfDependence, 0, options.seed,
                              options.confidence);
  add_positions(job, round_positions(table, &order, &resampling), result);
  RowEvaluator(job, options, resampling, order.rounds)
      .run(
          [&](const Policy& policy, RoundFlow& flow) {
            PolicyResult row = evaluate_rounds(table, policy, job.cost, flow);
            judge_causality(job, policy, nullptr, row);
            return row;
          },
          result);
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
