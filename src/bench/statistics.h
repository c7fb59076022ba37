// What many timings of one thing come to.
#pragma once

#include <vector>

namespace dspark {

/// Median and spread of a sample.
struct Spread {
  double median = 0;
  double least = 0;
  double p10 = 0;  ///< 10th percentile
  double p90 = 0;  ///< 90th percentile
};

/// The spread of `samples`, at least one. Percentiles lie between two samples where they must:
/// the q-th of n sorted samples is the one at (n - 1) q, linearly interpolated.
[[nodiscard]] Spread spread_of(std::vector<double> samples);

}  // namespace dspark
