// The tables of a trace, for everything that asks for one.
#pragma once

#include <string>

#include "replay/outcome_table.h"
#include "replay/replay.h"
#include "replay/rounds.h"

namespace dspark {

/// The table of `job`'s anchors trace under its setting, with sampled worlds: the one that
/// `options.cache` keeps, or reduced now (reduce_anchors(), which says what is thrown). Of the
/// job's policies it matters only whether one looks at top probabilities; its cost is not looked
/// at.
[[nodiscard]] OutcomeTable outcomes_of(Backend& backend, const ReplayJob& job,
                                       const ReplayOptions& options);
/// The same for a rounds trace (replay_rounds()).
[[nodiscard]] RoundTable rounds_of(Backend& backend, const ReplayJob& job,
                                   const ReplayOptions& options);

/// What a trace lacks for confidences, "no confidence head" or "no draft_hidden"; empty if nothing.
[[nodiscard]] std::string missing_for_confidences(const TraceFile& trace, const Heads& heads);

}  // namespace dspark
