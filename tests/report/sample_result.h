// A small result with everything in it: two traces, empty numbers, hostile names.
#pragma once

#include <cstdint>
#include <string>

#include "replay/result.h"

namespace dspark {

inline SamplingLabel sample_sampling(double temperature) {
  return {.temperature = temperature, .top_k = 0, .top_p = 1, .top_p_rule = "water_filling"};
}

/// One anchors trace, probabilistic: two positions and three policies, one of them without drafts.
inline ReplayResult anchors_result() {
  ReplayResult result;
  result.version = "0.1.0";
  result.backend = "cpu";
  result.device = "Test CPU";
  result.seed = 7;
  result.repeats = 4;
  result.seconds = 0.25;

  TraceSummary trace;
  trace.file = "code.h5";
  trace.kind = "anchors";
  trace.vocab_size = 8192;
  trace.block_size = 2;
  trace.temperature = 1;
  trace.domain = "code";
  trace.anchors = 768;
  trace.sequences = 3;
  trace.near_ties = 5;
  result.traces.push_back(trace);

  PositionResult position;
  position.trace = "code.h5";
  position.verification = "probabilistic";
  position.sampling = sample_sampling(1);
  position.position = 1;
  position.survival = 0.43;
  position.survival_trajectory = 0.42;
  position.survival_visited = 0.41;
  position.conditional = 0.43;
  position.predicted_conditional = 0.458;
  position.conditional_ece = 0.041;
  position.predicted = 0.4581;
  position.intervals.survival = Range{0.4, 0.46};
  position.intervals.conditional_ece = Range{0.02, 0.06};
  result.positions.push_back(position);
  position.position = 2;
  position.survival = 0.1716;
  position.conditional = 0.4119;
  position.predicted = std::nullopt;
  position.intervals = {};
  result.positions.push_back(position);

  PolicyResult row;
  row.trace = "code.h5";
  row.verification = "probabilistic";
  row.sampling = sample_sampling(1);
  row.policy = "none";
  row.tau = 1;
  row.tau_interior = 1;
  row.rounds = 768;
  row.tokens = 768;
  row.accepted_per_round = 0;
  row.verified_per_round = 0;
  row.cost_per_round = 1.45;
  row.tokens_per_cost = 1 / 1.45;
  row.speedup = 1;
  row.intervals.tau = Range{1, 1};
  row.intervals.tokens_per_cost = Range{1 / 1.45, 1 / 1.45};
  row.is_reference = true;
  result.results.push_back(row);

  row.policy = "threshold";
  row.parameters = {
      {"rule", std::string("cumulative")}, {"threshold", 0.3}, {"min_length", std::int64_t{1}}};
  row.tau = 1.483;
  row.tau_interior = 1.48;
  row.rounds = 517.9;
  row.accepted_per_round = 0.483;
  row.verified_per_round = 1.204;
  row.verified_per_round_se = 0.002;
  row.verified_per_round_on_trajectory = 1.192;
  row.acceptance_rate = 0.4012;
  row.cost_per_round = 2.516;
  row.tokens_per_cost = 0.589;
  row.speedup = 0.855;
  row.intervals.tau = Range{1.4, 1.55};
  row.intervals.verified_per_round = Range{1.1, 1.3};
  row.intervals.tokens_per_cost = Range{0.5711, 0.6062};
  row.intervals.speedup = Range{0.828, 0.879};
  row.is_reference = false;
  row.versus = PairedComparison{"loss", -0.1007, {-0.1186, -0.0835}};
  Ledger ledger;
  ledger.rounds = 500;
  ledger.proposed = 1000;
  ledger.verified = 600;
  ledger.accepted = 240;
  ledger.wasted = 360;
  ledger.draft_cost = 250;
  ledger.verify_cost = 740;
  ledger.accept_cost = 10;
  ledger.rounds_without_acceptance = 300;
  ledger.rounds_trimmed = 5;
  ledger.break_even_tau = 1.735;
  ledger.scheduled_histogram = {0.1, 0.6, 0.3};
  ledger.accepted_histogram = {0.6, 0.32, 0.08};
  row.ledger = ledger;
  result.results.push_back(row);

  PolicyResult empty;
  empty.trace = "code.h5";
  empty.verification = "probabilistic";
  empty.sampling = sample_sampling(1);
  empty.policy = "fixed";
  empty.parameters = {{"length", std::int64_t{2}}};
  empty.lossless = false;
  empty.versus = PairedComparison{"within noise", -0.01, {-0.03, 0.01}};
  result.results.push_back(empty);

  PolicyResult bound = row;
  bound.policy = "oracle";
  bound.parameters = {{"bound", std::string("shortest")}};
  bound.bound = true;
  bound.verified_per_round_se = std::nullopt;
  bound.ledger = std::nullopt;
  result.results.push_back(bound);

  Stratum stratum;
  stratum.trace = "code.h5";
  stratum.verification = "probabilistic";
  stratum.sampling = sample_sampling(1);
  stratum.by = "trace";
  stratum.label = "code";
  stratum.anchors = 765;
  stratum.survival = 0.43;
  stratum.tau_open_loop = 1.6;
  stratum.predicted_conditional = 0.458;
  stratum.intervals.tau_open_loop = Range{1.5, 1.7};
  result.strata.push_back(stratum);
  stratum.by = "depth";
  stratum.label = "positions 0-63";
  stratum.anchors = 192;
  stratum.tau_open_loop = 1.75;
  result.strata.push_back(stratum);
  stratum.label = "positions 64-127";
  stratum.tau_open_loop = 1.25;
  stratum.predicted_conditional = std::nullopt;
  stratum.intervals.tau_open_loop = std::nullopt;
  stratum.worst = true;
  result.strata.push_back(stratum);
  result.strata_means.push_back(
      {"", "probabilistic", sample_sampling(1), "trace", 1.6, 1.6, {}, {}});
  result.strata_means.push_back({"code.h5", "probabilistic", sample_sampling(1), "depth", 1.5, 1.5,
                                 Range{1.4, 1.6}, std::nullopt});
  VerificationPair pair;
  pair.domain = "code";
  pair.policy = "fixed";
  pair.parameters = {{"length", std::int64_t{2}}};
  pair.greedy = {"code_t0.h5", sample_sampling(0), false, 2.25, 0.75};
  pair.probabilistic = {"code.h5", sample_sampling(1), false, 1.5, 0.5};
  pair.tau_difference = 0.75;
  pair.tau_interval = Range{0.5, 1};
  pair.efficiency_difference = 0.25;
  result.pairs.push_back(pair);
  result.notes = {"code.h5: a \"note\""};
  return result;
}

/// A rounds trace with a hostile name, greedy, two sampling settings.
inline ReplayResult rounds_result() {
  ReplayResult result;
  result.version = "0.1.0";
  result.backend = "cuda";
  result.products = "tensor";
  result.device = "GPU";
  TraceSummary trace;
  trace.file = "a|b,\"c\"\n\x1b[2J\xff.h5";
  trace.kind = "rounds";
  trace.vocab_size = 100;
  trace.block_size = 1;
  trace.rounds = 28;
  trace.reproduced = 26;
  trace.diverged = 1;
  trace.censored = 1;
  trace.invalid_rows = 2;
  trace.impossible_tokens = 3;
  result.traces.push_back(trace);

  PolicyResult row;
  row.trace = trace.file;
  row.verification = "greedy";
  row.sampling = sample_sampling(0);
  row.policy = "fixed";
  row.parameters = {{"length", std::int64_t{1}}};
  row.tau = 1.5;
  row.tau_lo = 1.25;
  row.tau_hi = 1.75;
  row.censored_rounds = 1;
  row.cost_per_round = 1234.5;
  row.tokens_per_cost = 0.00125;
  result.results.push_back(row);
  row.sampling = sample_sampling(0.7);
  row.cost_per_round = 99;
  row.tokens_per_cost = 0.001;
  result.results.push_back(row);
  return result;
}

}  // namespace dspark
