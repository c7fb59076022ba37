// How well confidences say what happens: calibration error, Brier score, ranking, bias.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "calibration/walk.h"

namespace dspark {

/// One of the equal bins on [0, 1]; without claims its weight is 0 and it has no means.
struct ReliabilityBin {
  double weight = 0;
  std::optional<double> predicted, observed;  ///< weighted means
};

/// Of the claims at one position. Numbers that do not exist are empty: all of them where nothing
/// has a weight, `auc` where all that happened is the same.
struct Reliability {
  std::int64_t blocks = 0;
  double weight = 0;
  std::optional<double> predicted, observed;  ///< weighted means
  std::optional<double> bias;                 ///< predicted - observed
  std::optional<double> ece;                  ///< Σ_bins |Σ w (p - label)| / Σ w
  /// Mean squared error against 0 or 1, in expectation over the outcome where the label is its
  /// probability.
  std::optional<double> brier;
  /// Probability that an accepted one is claimed likelier than a rejected one, ties half; exact,
  /// not from a histogram. A label between 0 and 1 counts as both, by its parts.
  std::optional<double> auc;
  std::vector<ReliabilityBin> bins;
};

/// Of the claims under `temperature`, in `bins` equal bins; those of the inputs that `includes`
/// names ([inputs], true or false).
[[nodiscard]] Reliability reliability_of(const std::vector<Claim>& claims, double temperature,
                                         int bins, const std::vector<bool>& includes);

}  // namespace dspark
