// Parts of a trace: where the drafter is good, and where it is not.
#pragma once

#include <vector>

#include "replay/intervals.h"
#include "replay/outcome_table.h"
#include "replay/result.h"

namespace dspark {

/// A part with fewer full blocks than this is never called the worst: it would be by chance.
inline constexpr double kFewAnchors = 30;
/// Bins of the confidence of slot 1, of equal width on [0, 1].
inline constexpr int kConfidenceStrata = 5;

/// The strata of a table, those with a full block only: the whole trace, the depth in the sequence
/// (0-63, 64-127, and from there in powers of two), the confidence of slot 1 (1.0 belongs to the
/// last bin). Identity fields, and the label of the whole trace, are the caller's to fill. An
/// anchor counts if all its slots are there; its survivals are Π_{i<k} β_i · α_k. Intervals (and
/// what those of the means are made from) where `resampling` (of the table's sequences) is given.
[[nodiscard]] std::vector<Stratum> make_strata(const OutcomeTable& table,
                                               const Resampling* resampling = nullptr);

/// Fills result.strata_means (and forgets the strata's draws) and marks the worst stratum of each
/// kind that has at least two with kFewAnchors. Call once, when the strata of all traces are there.
void finish_strata(ReplayResult& result);

}  // namespace dspark
