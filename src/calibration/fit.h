// Sequential Temperature Scaling: one temperature per draft position, found left to right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "calibration/samples.h"

namespace dspark {

inline constexpr int kMaxCalibrationBins = 1000;
inline constexpr int kMaxGridSize = 10000;
inline constexpr double kMinGridTemperature = 1e-3;
inline constexpr double kMaxGridTemperature = 1e3;

/// How the temperature of a position is searched for.
struct FitRule {
  int bins = 15;  ///< equal bins of the calibration error, 1..kMaxCalibrationBins
  /// Temperatures tried: grid_size of them, 2..kMaxGridSize, log-spaced, both ends included;
  /// kMinGridTemperature ≤ grid_min < grid_max ≤ kMaxGridTemperature.
  double grid_min = 0.1;
  double grid_max = 10;
  int grid_size = 41;
  /// true: 1 is tried besides, and kept unless another one is strictly better. false: the
  /// smallest of the best wins.
  bool prefers_one = false;
};

/// SGLang's `dspark_sts_fit`: 15 bins, 41 temperatures in [0.1, 10].
[[nodiscard]] FitRule sglang_fit();
/// DeepSpec's `fit_confidence_calibration.py`: 20 bins, 256 temperatures in [0.05, 20], and 1.
[[nodiscard]] FitRule deepspec_fit();

/// The temperatures of the grid, ascending.
[[nodiscard]] std::vector<double> grid_temperatures(const FitRule& rule);

/// What was found for one position.
struct FittedTemperature {
  double temperature = 1;   ///< 1 where there are no samples
  std::int64_t blocks = 0;  ///< that have a weight at the position
  bool at_edge = false;     ///< an end of the grid: the best one may lie outside
};

/// Fits on the part of the samples that is not held out. Per position, left to right, the
/// temperature with the least calibration error
///   Σ_bins |Σ w (p - label)| / Σ w,  p = Π_{i<k} sigmoid(logit_i / T_i) · sigmoid(logit_k / T_k),
/// with the temperatures of earlier positions as found; p = sigmoid(logit_k / T_k) for conditional
/// labels. O(blocks · positions · grid); `threads` share the grid, and no result depends on them.
/// Returns block_size() entries.
[[nodiscard]] std::vector<FittedTemperature> fit_temperatures(const CalibrationSamples& samples,
                                                              const FitRule& rule, int threads);

}  // namespace dspark
