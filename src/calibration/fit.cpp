#include "calibration/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "calibration/walk.h"

namespace dspark {
namespace {

double calibration_error(const std::vector<Claim>& claims, double temperature, int bins) {
  // On the stack: this runs inside a parallel loop, where an allocation that fails ends the
  // process.
  std::array<double, kMaxCalibrationBins> gaps;
  std::fill(gaps.begin(), gaps.begin() + bins, 0.0);
  double weight = 0;
  for (const Claim& claim : claims) {
    const double p = claimed(claim, temperature);
    gaps[static_cast<std::size_t>(bin_of(p, bins))] += claim.weight * (p - claim.label);
    weight += claim.weight;
  }
  double sum = 0;
  for (int bin = 0; bin < bins; ++bin) sum += std::abs(gaps[static_cast<std::size_t>(bin)]);
  return sum / weight;
}

FittedTemperature fit_position(const std::vector<Claim>& claims, const FitRule& rule,
                               const std::vector<double>& grid, std::vector<double>& errors,
                               int threads) {
  FittedTemperature fitted;
  fitted.blocks = static_cast<std::int64_t>(claims.size());
  if (claims.empty()) return fitted;
  const auto count = static_cast<std::int64_t>(grid.size());
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    errors[at] = calibration_error(claims, grid[at], rule.bins);
  }
  double least = rule.prefers_one ? calibration_error(claims, 1.0, rule.bins) : errors.front();
  fitted.temperature = rule.prefers_one ? 1.0 : grid.front();
  for (std::size_t i = 0; i < grid.size(); ++i) {
    if (!(errors[i] < least)) continue;
    least = errors[i];
    fitted.temperature = grid[i];
  }
  fitted.at_edge = fitted.temperature == grid.front() || fitted.temperature == grid.back();
  return fitted;
}

}  // namespace

FitRule sglang_fit() { return {}; }

FitRule deepspec_fit() {
  return {.bins = 20, .grid_min = 0.05, .grid_max = 20, .grid_size = 256, .prefers_one = true};
}

std::vector<double> grid_temperatures(const FitRule& rule) {
  std::vector<double> grid;
  const double steps = rule.grid_size - 1;
  for (int i = 0; i < rule.grid_size; ++i) {
    grid.push_back(rule.grid_min * std::pow(rule.grid_max / rule.grid_min, i / steps));
  }
  grid.back() = rule.grid_max;
  return grid;
}

std::vector<FittedTemperature> fit_temperatures(const CalibrationSamples& samples,
                                                const FitRule& rule, int threads) {
  const std::vector<double> grid = grid_temperatures(rule);
  std::vector<double> errors(grid.size());
  std::vector<FittedTemperature> out;
  PositionWalk walk(samples, SamplePart::fit);
  for (std::int32_t k = 0; k < samples.block_size(); ++k) {
    out.push_back(fit_position(walk.claims(), rule, grid, errors, threads));
    walk.advance(out.back().temperature);
  }
  return out;
}

}  // namespace dspark
