// The open loop: survival, acceptance and calibration per draft position, from every anchor with a
// full block.
#pragma once

#include <vector>

#include "replay/intervals.h"
#include "replay/outcome_table.h"
#include "replay/result.h"

namespace dspark {

/// Bins of the calibration error: equal widths on [0, 1]; 1.0 belongs to the last.
inline constexpr int kCalibrationBins = 20;

/// Weighted binned calibration error: Σ_bins |Σ w (c - label)| / Σ w.
class CalibrationError {
 public:
  /// Counts a claim; what is no probability, or has no weight, does not count.
  void add(double confidence, double label, double weight);
  /// Empty where nothing was added.
  [[nodiscard]] std::optional<double> value() const;
  [[nodiscard]] std::optional<double> mean_confidence() const;

 private:
  double gap_[kCalibrationBins] = {};
  double weight_ = 0;
  double confidence_ = 0;
};

/// Sums of one draft slot over anchors (or rounds), from which its numbers follow. Nothing but
/// doubles, each a sum: a resample of the anchors is a sum of these.
struct SlotSums {
  double anchors = 0;  ///< Σ 1 over anchors with a full block
  double survival = 0, trajectory = 0;
  double visits = 0, visited = 0;  ///< weighted with where rounds of the full length start
  double reached = 0;              ///< Σ Π_{i<k} β
  double predictions = 0, predicted = 0;
  double compared = 0, agreed = 0;  ///< draft and target argmax, at every anchor with the slot
  CalibrationError calibration;

  static constexpr std::size_t kColumns = 10 + kCalibrationBins + 2;
};
static_assert(sizeof(SlotSums) == SlotSums::kColumns * sizeof(double));

/// Fills the numbers of `position` from sums over all cells, and, with a `resampling`, their
/// intervals. `cells`: [cells]; `predicted_by_repeat`: the mean prediction in
/// each repeat, empty where it is exact.
void fill_position(const std::vector<SlotSums>& cells, const Resampling* resampling,
                   const std::vector<double>& predicted_by_repeat, PositionResult& position);

/// One PositionResult per slot 1..P (trace, verification and sampling are the caller's to fill).
/// Definitions: replay.md, "Open loop" and "Calibration compares like with like"; an anchor whose
/// block is cut before slot k does not count at k. Intervals where `resampling` (of the table's
/// sequences) is given.
[[nodiscard]] std::vector<PositionResult> open_loop(const OutcomeTable& table,
                                                    const Resampling* resampling = nullptr);

}  // namespace dspark
