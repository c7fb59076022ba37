#include "bench/statistics.h"

#include <algorithm>
#include <cstddef>

#include "support/error.h"

namespace dspark {
namespace {

double percentile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = at - static_cast<double>(below);
  return sorted[below] + part * (sorted[above] - sorted[below]);
}

}  // namespace

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) throw internal_error("spread_of", "there are no samples");
  std::sort(samples.begin(), samples.end());
  return {percentile(samples, 0.5), samples.front(), percentile(samples, 0.1),
          percentile(samples, 0.9)};
}

}  // namespace dspark
