// Replays: a trace, a setting and policies in; result rows out.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cost/cost_model.h"
#include "policy/policy.h"
#include "replay/backend.h"
#include "replay/pricing.h"
#include "replay/result.h"
#include "trace/trace.h"

namespace dspark {

/// Default bounds on vocabulary-wide rows: on the host a tile should stay near the caches, on a GPU
/// it should fill the chip.
inline constexpr std::uint64_t kHostTileBytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kDeviceTileBytes = std::uint64_t{4} << 30;

class TableCache;  // cache.h

/// How to work; no result depends on `threads`, `chunk` or `tile_bytes`.
struct ReplayOptions {
  std::uint64_t seed = 0;
  std::int32_t repeats = 4;  ///< sampled worlds per anchor (replay.md), 1..1000
  std::int64_t chunk = 0;    ///< anchors (rounds) per step; 0: what fits `tile_bytes`
  /// Bound on the vocabulary-wide rows, and the part of the file that they come from, held in
  /// backend memory; 0: kHostTileBytes, or kDeviceTileBytes but half of what is free. Where a
  /// handful of anchors is larger, up to 8 times as much is used for them; one anchor (round) is
  /// always held.
  std::uint64_t tile_bytes = 0;
  std::uint64_t memory_budget = 0;      ///< bytes of host memory; 0: no bound beyond the machine's
  int threads = 1;                      ///< for the evaluate stage
  Products products = Products::exact;  ///< of hidden states and Markov rows; changes last bits
  TableCache* cache = nullptr;          ///< where tables are kept between runs; may be null
  double confidence = 0.95;             ///< level of the intervals, in (0.5, 0.995)
  std::int64_t reference =
      1;  ///< rank, within the job, of the row that the others are compared with
  /// Called with (blocks done, blocks in all) from the calling thread; may be empty.
  std::function<void(std::int64_t, std::int64_t)> progress;
  /// Called with one line on the memory that a pass will use before it starts; may be empty.
  std::function<void(const std::string&)> plan;
  /// Called with one line that belongs to the numbers (first invalid row, too few rounds, ...), the
  /// same in every run; may be empty.
  std::function<void(const std::string&)> note;
  /// Called with one line about this run alone (a damaged table was made anew, ...); may be empty.
  std::function<void(const std::string&)> notice;
};

/// One trace under one setting.
struct ReplayJob {
  TraceFile& trace;
  const Heads& heads;
  Verification verification;
  SamplingLabel sampling;  ///< the setting replayed
  std::vector<Policy> policies;
  CostModel cost;
  std::vector<std::int32_t> concurrency = {1};  ///< requests in flight, ascending
  Width width = Width::ragged;
  std::vector<double> calibration =
      {};                   ///< temperatures of the confidences [P]; empty: as they are
  bool off_policy = false;  ///< another setting than the recorded one (anchors only): estimates
};

/// Replays a trace of kind anchors or rounds and appends to `result` its positions and rows
/// (unranked), strata (not finished: finish_strata()); fills `summary`'s counts. Throws
/// Error(trace) where nothing can be replayed, Error(device) where the backend fails.
void replay_trace(Backend& backend, const ReplayJob& job, const ReplayOptions& options,
                  TraceSummary& summary, ReplayResult& result);

}  // namespace dspark
