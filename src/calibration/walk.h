// Walking through the positions of the samples, left to right. Private to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "calibration/samples.h"

namespace dspark {

enum class SamplePart : std::uint8_t { fit, held_out };

/// What a block says at one position: `prefix` · sigmoid(logit / T), held against `label`.
struct Claim {
  double prefix = 1;  ///< cumulative: Π of the earlier tempered confidences; conditional: 1
  double logit = 0;
  double label = 0;
  double weight = 0;
  std::int32_t input = 0;
};

/// The claims of one part of the samples at position 1, then 2, and so on. Refers to the samples.
class PositionWalk {
 public:
  PositionWalk(const CalibrationSamples& samples, SamplePart part);

  /// At the current position, in the order of the blocks; those without a slot or a weight there
  /// are left out. Valid until the next advance().
  [[nodiscard]] const std::vector<Claim>& claims() const { return claims_; }
  /// Settles the current position's temperature and goes to the next position.
  void advance(double temperature);

 private:
  void collect();

  const CalibrationSamples& samples_;
  std::size_t position_ = 0;  // 0-based
  std::vector<std::size_t> blocks_;
  std::vector<double> prefix_;  // of blocks_
  std::vector<Claim> claims_;
};

/// The claim as a probability under temperature T, kept inside [1e-8, 1 - 1e-8] as the engines do
/// before they bin it.
[[nodiscard]] double claimed(const Claim& claim, double temperature);

/// Which of `bins` equal bins on [0, 1] a probability belongs to; 1 belongs to the last.
[[nodiscard]] int bin_of(double probability, int bins);

}  // namespace dspark
