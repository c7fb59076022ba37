// The result model: what a replay found, and nothing about how it is printed. Numbers that do not
// exist are empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policy/policy.h"

namespace dspark {

struct TraceSummary {
  std::string file;
  std::string kind;  ///< "anchors" or "rounds"
  std::int32_t vocab_size = 0;
  std::int32_t block_size = 0;
  double temperature = 0;
  std::string domain;
  std::optional<std::int64_t> anchors;  ///< anchors traces
  std::optional<std::int64_t> sequences;
  std::optional<std::int64_t> rounds;  ///< rounds traces, as the four below
  std::optional<std::int64_t> reproduced;
  std::optional<std::int64_t> diverged;
  std::optional<std::int64_t> censored;
  std::int64_t invalid_rows = 0;
  std::int64_t impossible_tokens = 0;
  std::int64_t near_ties = 0;
};

/// The sampling setting of a row; shown wherever a plan has more than one, always in JSON.
struct SamplingLabel {
  double temperature = 0;
  std::int64_t top_k = 0;
  double top_p = 1;
  std::string top_p_rule;  ///< "water_filling" or "include_crossing"
  /// "sampled" from the draft law, or "greedy": its argmax, then verified like any other draft.
  /// Greedy verification always has greedy drafts.
  std::string drafts = "sampled";

  bool operator==(const SamplingLabel&) const = default;
};

/// A confidence interval of one number; both ends exist or there is no interval.
struct Range {
  double lo = 0;
  double hi = 0;
};

/// Intervals of a position's numbers (replay/intervals.h).
struct PositionIntervals {
  std::optional<Range> survival, survival_trajectory, survival_visited;
  std::optional<Range> conditional, predicted_conditional, conditional_ece, predicted;
  std::optional<Range> top1_agreement;
};

/// Intervals of a row's numbers (replay/intervals.h).
struct RowIntervals {
  std::optional<Range> tau, tau_interior, rounds;
  std::optional<Range> accepted_per_round, verified_per_round, acceptance_rate;
  std::optional<Range> cost_per_round, cost_per_step, speedup;
  std::optional<Range> tokens_per_cost, tokens_per_cost_per_user;
};

/// Where a row's cost goes, as expectations over the rounds of the replay.
struct Ledger {
  double rounds = 0;
  double proposed = 0;  ///< drafts proposed: the block of every round that speculates
  double verified = 0;  ///< drafts sent to verification
  double accepted = 0;
  double wasted = 0;  ///< verified - accepted
  double draft_cost = 0, verify_cost = 0, accept_cost = 0,
         overhead_cost = 0;              ///< in the cost model's units, over all rounds
  double rounds_without_acceptance = 0;  ///< rounds that accepted no draft
  double rounds_trimmed = 0;             ///< rounds that verified no draft although they had some
  std::optional<double>
      break_even_tau;  ///< the tau at which this cost per round equals decoding without speculation
  std::vector<double> scheduled_histogram;  ///< [P+1] share of rounds by verified length; or empty
  std::vector<double> accepted_histogram;   ///< [P+1] share of rounds by accepted drafts; or empty
};

/// How one row compares with the reference row (ReplayOptions::reference) on the same resampled
/// sequences.
struct PairedComparison {
  std::string verdict;    ///< "win", "loss" or "within noise", of the row against the reference
  double difference = 0;  ///< tokens_per_cost of the row minus the reference's
  Range interval;         ///< of the difference
};

/// Intervals of a stratum's numbers.
struct StratumIntervals {
  std::optional<Range> survival, tau_open_loop, predicted_conditional;
};

/// One part of a trace: by sequence depth, by confidence, or the whole trace; numbers under
/// full-length verification.
struct Stratum {
  std::string trace;
  std::string verification;
  SamplingLabel sampling;
  std::string by;      ///< "trace", "depth" or "confidence"
  std::string label;   ///< e.g. "positions 0-63", "confidence 0.2-0.4"; "trace": its domain
  double anchors = 0;  ///< full blocks that started in it
  std::optional<double> survival;               ///< @1
  std::optional<double> tau_open_loop;          ///< 1 + Σ survival over its anchors
  std::optional<double> predicted_conditional;  ///< @1
  bool worst = false;  ///< lowest tau_open_loop of its kind (finish_strata())
  StratumIntervals intervals;
  /// Sums over the draws of the bootstrap, and how far intervals are widened: for the means over
  /// strata.
  std::vector<double> anchor_draws, token_draws;
  double widening = 1;
};

/// Means of tau_open_loop over the strata of one kind: of one trace, or (by "trace") of all traces
/// under one verification, where `trace` is empty.
struct StrataMean {
  std::string trace;
  std::string verification;
  SamplingLabel sampling;  ///< of the first stratum
  std::string by;
  double macro = 0;  ///< every stratum counts once
  double micro = 0;  ///< every anchor counts once
  std::optional<Range> macro_interval, micro_interval;
};

struct PositionResult {
  std::string trace;
  std::string verification;  ///< "greedy" or "probabilistic"
  SamplingLabel sampling;
  std::int32_t position = 0;  ///< 1-based
  std::optional<double> survival, survival_trajectory, survival_visited;
  std::optional<double> conditional, predicted_conditional, conditional_ece;
  std::optional<double> predicted, predicted_se;
  std::optional<double> top1_agreement;
  std::optional<double> effective_samples;  ///< off-policy settings: Kish's (Σw)² / Σw²
  std::optional<double> survival_se;        ///< off-policy settings: standard error of `survival`
  PositionIntervals intervals;
};

struct PolicyResult {
  std::string trace;
  std::string verification;
  SamplingLabel sampling;
  std::string policy;
  std::vector<std::pair<std::string, ParameterValue>> parameters;
  std::int32_t concurrency = 1;
  bool lossless = true;
  std::optional<double> tau, tau_interior;
  std::optional<double> tau_se;          ///< off-policy rows and walks: standard error of `tau`
  std::optional<double> tau_lo, tau_hi;  ///< bracket where rounds are censored (rounds traces,
                                         ///< greedy along a sampled text)
  std::optional<std::int64_t> censored_rounds;
  std::optional<double> censored_share;  ///< off-policy greedy rows: of the blocks looked at
  std::optional<double> rounds;
  std::optional<double> tokens;
  std::optional<double> accepted_per_round;
  std::optional<double> verified_per_round, verified_per_round_se, verified_per_round_on_trajectory;
  std::optional<double> acceptance_rate;
  std::optional<double> cost_per_round;            ///< cost_per_step / concurrency
  std::optional<double> cost_per_step;             ///< of all requests in flight
  std::optional<double> tokens_per_cost;           ///< of all requests together
  std::optional<double> tokens_per_cost_per_user;  ///< tokens_per_cost / concurrency
  std::optional<double> speedup;
  std::optional<double> budget;         ///< drafts that a step verifies in all
  std::optional<double> padded_tokens;  ///< tokens of a step that no request needs
  bool walked = false;  ///< from a sampled walk in lockstep, not from the exact closed loop
  bool pareto = false;  ///< no other row of its kind is better for the system and for the user
  bool off_policy =
      false;  ///< an importance-weighted estimate of another setting than the recorded one
  std::optional<double>
      effective_samples;  ///< off-policy rows: of the deepest slot that the row uses
  std::optional<double> early_stop_difference;  ///< share of rounds in which the rule differs from
                                                ///< its early-stopped form
  bool bound = false;  ///< an oracle: nobody can run it, so it is not ranked
  RowIntervals intervals;
  bool is_reference = false;  ///< the row that the others of its table are compared with
  std::optional<PairedComparison> versus;  ///< empty for the reference itself
  std::optional<Ledger> ledger;
};

/// One row of a pair (replay/pairs.h).
struct PairSide {
  std::string trace;
  SamplingLabel sampling;
  bool off_policy = false;
  double tau = 0;
  std::optional<double> tokens_per_cost;
};

/// One policy under greedy and under probabilistic verification (replay/pairs.h).
struct VerificationPair {
  std::string domain;
  std::string policy;
  std::vector<std::pair<std::string, ParameterValue>> parameters;
  std::int32_t concurrency = 1;
  PairSide greedy, probabilistic;
  double tau_difference = 0;  ///< greedy minus probabilistic, as the others
  std::optional<Range> tau_interval;
  std::optional<double> efficiency_difference;  ///< of tokens_per_cost
  std::optional<Range> efficiency_interval;
};

/// What was charged.
struct CostSummary {
  std::optional<LinearCost> linear = LinearCost{};  ///< empty: a table
  std::string file;                                 ///< of the table
  std::string format;                               ///< of the table: cost_format_name()
  std::string unit;                                 ///< "ms", or "" for the linear model's own
  double overhead = 0;                              ///< per speculative step
  std::vector<std::int64_t> buckets;
  std::string width = "ragged";  ///< width_name()
};

/// The best policy at one number of requests in flight, of one trace under one setting.
struct BestPolicy {
  std::string trace;
  std::string verification;
  SamplingLabel sampling;
  std::int32_t concurrency = 1;
  std::string policy;
  std::vector<std::pair<std::string, ParameterValue>> parameters;
  std::optional<double> tokens_per_cost, tokens_per_cost_per_user, speedup, budget, padded_tokens;
  std::optional<Range> tokens_per_cost_interval;
  bool changes = false;  ///< another policy than at the next lower concurrency
};

/// A policy and what it reaches.
struct PolicyValue {
  std::string policy;
  std::vector<std::pair<std::string, ParameterValue>> parameters;
  double tokens_per_cost = 0;
};

/// What a calibration is worth to the policies that look at confidences, of one trace under one
/// setting at one concurrency: the best of them before and after, and with true probabilities.
struct CalibrationWorth {
  std::string trace;
  std::string verification;
  SamplingLabel sampling;
  std::int32_t concurrency = 1;
  PolicyValue before, after;
  std::optional<PolicyValue> oracle;  ///< `oracle_confidence`, where it was replayed
};

struct ReplayResult {
  std::string version;  ///< of the tool
  std::string backend;  ///< "cpu" or "cuda"
  std::string device;
  std::uint64_t seed = 0;
  std::int32_t repeats = 0;
  std::string products = "exact";  ///< "tensor" where some were accumulated on tensor cores
  double confidence = 0.95;        ///< level of all intervals
  std::int64_t reference = 1;      ///< rank of the row that the others are compared with
  CostSummary cost;
  std::vector<TraceSummary> traces;
  std::vector<PositionResult> positions;
  std::vector<Stratum> strata;
  std::vector<StrataMean> strata_means;
  std::vector<PolicyResult> results;  ///< ranked: rank_results()
  std::vector<VerificationPair> pairs;
  std::string calibration;  ///< file of the temperatures; empty: none
  std::vector<CalibrationWorth> calibration_worth;
  std::vector<BestPolicy> best;  ///< by concurrency, where there are several: find_best_policies()
  std::vector<std::string> notes;  ///< what a reader of the numbers should know, one line each
  /// The fields that may differ between two runs.
  double seconds = 0;
  std::optional<bool> cached;  ///< every table was kept by an earlier run; empty: without a cache
};

/// Sorts `results` by concurrency, then by tokens_per_cost, best first, then the rows without one;
/// within a concurrency the bounds stand last, in the same way. Ties keep their order.
void rank_results(std::vector<PolicyResult>& results);

/// Marks the rows of each trace and setting that no other row beats in tokens_per_cost and
/// tokens_per_cost_per_user at once, and fills result.best where there is more than one
/// concurrency. Call behind rank_results().
void find_best_policies(ReplayResult& result);

}  // namespace dspark
