// Replay of a rounds trace: what an engine did, round by round, done again with the DSpark
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replay/closed_loop.h"
#include "replay/intervals.h"
#include "replay/replay.h"

namespace dspark {

/// One round, replayed. Draft slots are 1-based; P = block size.
struct RoundOutcome {
  /// Drafts a policy sees: P, cut before the first invalid row.
  std::int32_t slots = 0;
  /// Drafts accepted when all `slots` are verified (at least this many if censored).
  std::int32_t accepted = 0;
  /// First slot whose draft differs from the recorded one; 0: none.
  std::int32_t diverged_slot = 0;
  /// A draft that differs was accepted: no further target row exists.
  bool censored = false;
  /// Drafts, accept length and accepted tokens are the recorded ones.
  bool reproduced = false;
  /// A decision within 1e-3 of going the other way.
  bool near_tie = false;
};

/// A replayed rounds trace.
struct RoundTable {
  std::int32_t block_size = 0;
  bool has_confidence = false;
  /// False: no uniforms are recorded, the recorded drafts were taken as proposed.
  bool drafts_replayed = false;
  /// Acceptance was replayed with the recorded uniforms (or greedily), so it can be compared.
  bool outcomes_recorded = false;
  std::vector<RoundOutcome> rounds;   ///< [M]
  std::vector<std::int32_t> request;  ///< [M]
  std::vector<float> confidence;      ///< [M, P] of the proposed drafts; NaN: none
  /// [M, P] of the laws that they are drawn from (top_probability(), pass.h); NaN: an invalid row;
  /// empty where not asked for
  std::vector<float> top_probability;
  std::int64_t invalid_rows = 0;
  std::string first_problem;  ///< the first invalid row, for a notice
};

/// Proposes, verifies and compares every round of `trace` under its recorded sampling. Greedy: by
/// argmax; else with the recorded uniforms where there are some, and with keyed ones (seed,
/// request, round, slot) where there are none. With `top_probability`
/// those of the drafts too; greedy drafts need a second pass over their rows for them. Memory: the
/// heads and a few chunks of rounds; a thread of its own reads the trace meanwhile, and nobody else
/// may. Does not depend on the chunk, nor with exact products on the backend. Throws Error(trace)
/// if no round has a valid first row.
[[nodiscard]] RoundTable replay_rounds(Backend& backend, TraceFile& trace, const Heads& heads,
                                       const SamplingLabel& sampling, Verification verification,
                                       const ReplayOptions& options, bool top_probability = false);

/// What the user is told where blocks of `table` were cut; empty if none was.
[[nodiscard]] std::string invalid_rows_notice(const std::string& file, const RoundTable& table);

/// A rounds trace request by request, each in the order of its rounds: the order in which rounds
/// are resampled.
struct RoundOrder {
  std::vector<std::size_t> rounds;    ///< [M] indices into RoundTable::rounds
  std::vector<std::int64_t> offsets;  ///< [requests + 1] as the sequences of an anchors trace
};
[[nodiscard]] RoundOrder order_rounds(const RoundTable& table);

/// Positions of a replayed rounds trace (identity fields are the caller's to fill); intervals where
/// `resampling` (of `order`) is given.
[[nodiscard]] std::vector<PositionResult> round_positions(const RoundTable& table,
                                                          const RoundOrder* order = nullptr,
                                                          const Resampling* resampling = nullptr);

/// A row of a replayed rounds trace (identity fields are the caller's to fill). Lengths of a policy
/// shorten what was verified: accepted = min(a, ℓ). Where rounds are censored under a policy,
/// tau_lo counts them as ended and tau_hi as fully accepted; tau and what follows from it are the
/// lower bound. Oracles: `no_waste` verifies a; `shortest` the l ≤ a of every round that give the
/// most tokens per cost in all (rounds do not lead to each other here). Throws Error(internal) for
/// `oracle_confidence`: α is not known, and for a policy that looks at top probabilities where the
/// table has none. `flow`: the parts; no round is interior.
[[nodiscard]] PolicyResult evaluate_rounds(const RoundTable& table, const Policy& policy,
                                           const RoundPrices& prices);
[[nodiscard]] PolicyResult evaluate_rounds(const RoundTable& table, const Policy& policy,
                                           const RoundPrices& prices, RoundFlow& flow);

}  // namespace dspark
