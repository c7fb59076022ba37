// Recalibrated confidences.
#pragma once

#include <vector>

#include "replay/outcome_table.h"
#include "replay/rounds.h"

namespace dspark {

/// Replaces every confidence of slot k, along the text and in the worlds, by
/// sigmoid(logit / temperatures[k - 1]), with the logit that the confidence stands for
/// (calibration/logit.h); computed in double, rounded to f32. A temperature of exactly 1 leaves the
/// bits as they are, and NaN stays NaN. A table without confidences stays as it is. Throws
/// Error(policy) if there is not one temperature, finite and above 0, per slot of the block.
void apply_calibration(OutcomeTable& table, const std::vector<double>& temperatures);
/// The same for the drafts of a rounds trace.
void apply_calibration(RoundTable& table, const std::vector<double>& temperatures);

}  // namespace dspark
