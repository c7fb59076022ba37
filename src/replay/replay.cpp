#include "replay/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "replay/apply_calibration.h"
#include "replay/causality.h"
#include "replay/closed_loop.h"
#include "replay/off_policy.h"
#include "replay/open_loop.h"
#include "replay/outcomes.h"
#include "replay/rounds.h"
#include "replay/rows.h"
#include "replay/strata.h"
#include "replay/worlds.h"
#include "support/text.h"

namespace dspark {
namespace {

// A round does not reach into the next.
constexpr std::int64_t kRoundsOfDependence = 1;

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
                              const RoundPrices& prices, Acceptance acceptance, RoundFlow& flow,
                              LoopScratch& scratch) {
  const ClosedLoop loop = closed_loop(table, policy, prices, flow, scratch, acceptance);
  PolicyResult row;
  row.tau = loop.tau;
  row.tau_interior = loop.tau_interior;
  row.rounds = loop.rounds;
  row.tokens = loop.tokens;
  row.verified_per_round = loop.verified;
  row.verified_per_round_se = loop.verified_se;
  if (acceptance == Acceptance::along_text) {
    row.verified_per_round_on_trajectory = loop.verified_on_trajectory;
  }
  return row;
}

/// Says how many of a job's rows, from `first` on, are not ranked for lack of samples.
void note_refused(const ReplayJob& job, const ReplayOptions& options, std::size_t first,
                  const ReplayResult& result) {
  const auto begin = result.results.begin() + static_cast<std::ptrdiff_t>(first);
  const auto refused = std::count_if(begin, result.results.end(), [](const PolicyResult& row) {
    return row.effective_samples.value_or(0) < kMinEffectiveSamples;
  });
  if (refused == 0 || !options.note) return;
  options.note(fmt::format(
      "{}: {} of {} rows of a setting that was not recorded ({} verification, temperature {}) "
      "rest on fewer than {} effective samples and are not ranked; record more, or a trace with "
      "this setting",
      job.trace.header().file, refused, result.results.size() - first,
      verification_name(job.verification), shortest(job.sampling.temperature),
      shortest(kMinEffectiveSamples)));
}

/// Whether sampled drafts of the job can be changed by a rule that is not causal.
bool samples_drafts(const ReplayJob& job) {
  return job.verification == Verification::probabilistic && job.sampling.drafts != "greedy";
}

/// A row of a policy of one request, with whether it is lossless and how far its rule is from its
/// early-stopped form (a causal one is not).
PolicyResult evaluate_judged(const ReplayJob& job, const OutcomeTable& table, const Policy& policy,
                             const RoundPrices& prices, RoundFlow& flow, LoopScratch& scratch) {
  if (is_bound(policy)) {  // nobody runs it
    return evaluate_anchors(table, policy, prices, Acceptance::along_text, flow, scratch);
  }
  const bool causal = is_causal(policy, prices, table.block_size);
  const bool lossless = causal || !samples_drafts(job);
  PolicyResult row =
      evaluate_anchors(table, policy, prices,
                       lossless ? Acceptance::along_text : Acceptance::full_blocks, flow, scratch);
  row.lossless = lossless;
  row.early_stop_difference =
      causal ? 0.0 : early_stop_difference(table, scratch.starts, length_rule(policy, prices));
  return row;
}

void replay_off_policy(const ReplayJob& job, const OutcomeTable& table,
                       const Resampling& resampling, const ReplayOptions& options,
                       ReplayResult& result) {
  const std::size_t first = result.results.size();
  add_positions(job, off_policy_positions(table, &resampling), result);
  // The bounds and the walks speak of the closed loop, which the recorded text does not have under
  // this setting.
  ReplayJob runnable = job;
  std::erase_if(runnable.policies,
                [](const Policy& policy) { return is_bound(policy) || !is_per_request(policy); });
  if (runnable.policies.size() < job.policies.size() && options.note) {
    options.note(fmt::format(
        "{}: the oracles, and policies that look at several requests or back in time, are left out "
        "for {} verification at temperature {:g}: a setting that was not recorded has no closed "
        "loop",
        job.trace.header().file, verification_name(job.verification), job.sampling.temperature));
  }
  const RoundPrices prices(round_prices(job.cost, table.block_size));
  evaluate_rows(runnable, options, resampling,
                {.evaluate =
                     [&](const Policy& policy, RoundFlow& flow, LoopScratch&) {
                       return evaluate_off_policy(table, policy, prices, job.verification, flow);
                     }},
                result);
  note_refused(job, options, first, result);
}

void evaluate_anchor_rows(const ReplayJob& job, const ReplayOptions& options,
                          const Resampling& resampling, const OutcomeTable& table,
                          ReplayResult& result) {
  const RoundPrices prices(round_prices(job.cost, table.block_size));
  evaluate_rows(job, options, resampling,
                {.evaluate =
                     [&](const Policy& policy, RoundFlow& flow, LoopScratch& scratch) {
                       return evaluate_judged(job, table, policy, prices, flow, scratch);
                     },
                 .table = &table},
                result);
}

/// The rows of the policies that look at confidences, on the table as it is.
std::vector<PolicyResult> confident_rows(const ReplayJob& job, const ReplayOptions& options,
                                         const Resampling& resampling, const OutcomeTable& table) {
  ReplayJob confident = job;
  std::erase_if(confident.policies, [](const Policy& policy) {
    return !uses_confidence(policy) && !std::holds_alternative<OracleConfidence>(policy);
  });
  // What true probabilities would be worth is always told.
  const bool has_oracle = std::any_of(
      confident.policies.begin(), confident.policies.end(),
      [](const Policy& policy) { return std::holds_alternative<OracleConfidence>(policy); });
  if (!has_oracle) confident.policies.emplace_back(OracleConfidence{});
  ReplayOptions quiet = options;
  quiet.note = nullptr;
  quiet.reference = 1;
  ReplayResult rows;
  evaluate_anchor_rows(confident, quiet, resampling, table, rows);
  return std::move(rows.results);
}

/// The best row at a concurrency of those that look at confidences; of the oracles where `bounds`.
const PolicyResult* best_confident(const std::vector<PolicyResult>& rows, std::int32_t concurrency,
                                   const std::set<std::string>& names, bool bounds) {
  const PolicyResult* best = nullptr;
  for (const PolicyResult& row : rows) {
    const bool counts = row.concurrency == concurrency && row.bound == bounds &&
                        row.tokens_per_cost && names.contains(row.policy);
    if (counts && (best == nullptr || *row.tokens_per_cost > *best->tokens_per_cost)) best = &row;
  }
  return best;
}

PolicyValue value_of(const PolicyResult& row) {
  return {row.policy, row.parameters, row.tokens_per_cost.value()};
}

/// Compares the rows of a job before and after calibration.
void add_calibration_worth(const std::vector<PolicyResult>& before,
                           const std::vector<PolicyResult>& after,
                           const std::vector<std::int32_t>& concurrency, ReplayResult& result) {
  std::set<std::string> names;
  for (const PolicyResult& row : before) names.insert(row.policy);
  for (const std::int32_t requests : concurrency) {
    const PolicyResult* was = best_confident(before, requests, names, false);
    const PolicyResult* is = best_confident(after, requests, names, false);
    if (was == nullptr || is == nullptr) continue;
    const PolicyResult* oracle = best_confident(before, requests, {"oracle_confidence"}, true);
    CalibrationWorth worth;
    worth.trace = is->trace;
    worth.verification = is->verification;
    worth.sampling = is->sampling;
    worth.concurrency = requests;
    worth.before = value_of(*was);
    worth.after = value_of(*is);
    if (oracle != nullptr) worth.oracle = value_of(*oracle);
    result.calibration_worth.push_back(std::move(worth));
  }
}

void replay_anchor_trace(Backend& backend, const ReplayJob& job, const ReplayOptions& options,
                         TraceSummary& summary, ReplayResult& result) {
  OutcomeTable table = outcomes_of(backend, job, options);
  summary.anchors = table.anchors();
  summary.sequences = static_cast<std::int64_t>(table.sequence_offsets.size()) - 1;
  summary.invalid_rows += table.invalid_rows;
  summary.impossible_tokens += table.impossible_tokens;
  summary.near_ties += table.near_ties;
  const Resampling resampling = anchor_resampling(table, options.seed, options.confidence);
  const bool recalibrates = !job.calibration.empty() && table.has_confidence;
  const std::vector<PolicyResult> uncalibrated =
      recalibrates && !job.off_policy ? confident_rows(job, options, resampling, table)
                                      : std::vector<PolicyResult>();
  if (recalibrates) apply_calibration(table, job.calibration);
  if (job.off_policy) {
    replay_off_policy(job, table, resampling, options, result);
    return;
  }
  add_positions(job, open_loop(table, &resampling), result);
  add_strata(job, make_strata(table, &resampling), result);
  const std::size_t first = result.results.size();
  evaluate_anchor_rows(job, options, resampling, table, result);
  if (recalibrates) {
    add_calibration_worth(
        uncalibrated,
        {result.results.begin() + static_cast<std::ptrdiff_t>(first), result.results.end()},
        job.concurrency, result);
  }
}

void replay_round_trace(Backend& backend, const ReplayJob& job, const ReplayOptions& options,
                        TraceSummary& summary, ReplayResult& result) {
  RoundTable table = rounds_of(backend, job, options);
  if (!job.calibration.empty()) apply_calibration(table, job.calibration);
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
  const RoundPrices prices(round_prices(job.cost, table.block_size));
  evaluate_rows(job, options, resampling,
                {.evaluate =
                     [&](const Policy& policy, RoundFlow& flow, LoopScratch&) {
                       PolicyResult row = evaluate_rounds(table, policy, prices, flow);
                       if (is_bound(policy)) return row;
                       const bool causal = is_causal(policy, prices, table.block_size);
                       row.lossless = causal || !samples_drafts(job);
                       if (causal) row.early_stop_difference = 0.0;
                       return row;
                     },
                 .order = order.rounds},
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
