// The reduce stage: one pass over an anchors trace, vocabulary-wide rows in, an OutcomeTable out.
#pragma once

#include "replay/outcome_table.h"
#include "replay/replay.h"

namespace dspark {

/// What the reduce stage has to produce.
struct ReduceRequest {
  SamplingLabel sampling;  ///< the setting replayed
  Verification verification = Verification::probabilistic;
  bool worlds = false;  ///< sample worlds (a policy looks at drafts)
  /// Fill the top probabilities (a policy looks at them). They cost no pass over the vocabulary of
  /// their own, but for one over the last slot of each world and, where drafts are greedy, a second
  /// one over the draft rows.
  bool top_probability = false;
  /// The setting is another than the recorded one: the trace's temperature, top_k and top_p with
  /// `sampling`'s top-p rule, which a trace does not record. Must be covered by it (off_policy.h).
  bool off_policy = false;
};

/// Reduces an anchors trace (replay.md: "The coupling", "What needs sampled worlds", "Greedy
/// verification", "Another temperature"). The result does not depend on `options.chunk`, nor with
/// exact products on the backend. While it runs, a thread of its own reads the trace, and nobody
/// else may. Memory: the heads, `tile_bytes` of vocabulary-wide rows and of the file (at least one
/// anchor's), on the host a few such parts of the file, and the table; `options.plan` is told.
/// Throws Error(trace) if no block has a valid first row.
[[nodiscard]] OutcomeTable reduce_anchors(Backend& backend, TraceFile& trace, const Heads& heads,
                                          const ReduceRequest& request,
                                          const ReplayOptions& options);

/// What the user is told where blocks of `table` were cut; empty if none was.
[[nodiscard]] std::string invalid_rows_notice(const std::string& file, const OutcomeTable& table);

}  // namespace dspark
