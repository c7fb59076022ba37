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
  std::optional<double> tau_lo, tau_hi;  ///< bracket where rounds are censored (rounds traces)
  std::optional<std::int64_t> censored_rounds;
  std::optional<double> rounds;
  std::optional<double> tokens;
  std::optional<double> accepted_per_round;
  std::optional<double> verified_per_round, verified_per_round_se, verified_per_round_on_trajectory;
  std::optional<double> acceptance_rate;
  std::optional<double> cost_per_round, tokens_per_cost, speedup;
};

struct ReplayResult {
  std::string version;  ///< of the tool
  std::string backend;  ///< "cpu" or "cuda"
  std::string device;
  std::uint64_t seed = 0;
  std::int32_t repeats = 0;
  LinearCost cost;
  std::vector<TraceSummary> traces;
  std::vector<PositionResult> positions;
  std::vector<PolicyResult> results;  ///< ranked: rank_results()
  double seconds = 0;                 ///< the only field that may differ between two runs
};

/// Sorts `results` by tokens_per_cost, best first; rows without one last; ties keep their order.
void rank_results(std::vector<PolicyResult>& results);

}  // namespace dspark
