// The open loop: survival, acceptance and calibration per draft position, from every anchor with a
// full block.
#pragma once

#include <vector>

#include "replay/outcome_table.h"
#include "replay/result.h"

namespace dspark {

/// Bins of the calibration error: equal widths on [0, 1]; 1.0 belongs to the last.
inline constexpr int kCalibrationBins = 20;

/// Weighted binned calibration error: Σ_bins |Σ w (c - label)| / Σ w.
class CalibrationError {
 public:
  void add(double confidence, double label, double weight);
  /// Empty where nothing was added.
  [[nodiscard]] std::optional<double> value() const;
  [[nodiscard]] std::optional<double> mean_confidence() const;

 private:
  double gap_[kCalibrationBins] = {};
  double weight_ = 0;
  double confidence_ = 0;
};

/// One PositionResult per slot 1..P (trace, verification and sampling are the caller's to fill).
/// Definitions: replay.md, "Open loop" and "Calibration compares like with like"; an anchor whose
/// block is cut before slot k does not count at k.
[[nodiscard]] std::vector<PositionResult> open_loop(const OutcomeTable& table);

}  // namespace dspark
