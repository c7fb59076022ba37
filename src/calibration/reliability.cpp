#include "calibration/reliability.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace dspark {
namespace {

struct Scored {
  double p = 0;
  double positive = 0;  ///< weight of its being accepted
  double negative = 0;
};

std::optional<double> area_under_curve(std::vector<Scored>& scored) {
  // Stable, so that sums of equal claims do not depend on how a library sorts.
  std::stable_sort(scored.begin(), scored.end(),
                   [](const Scored& a, const Scored& b) { return a.p < b.p; });
  double below = 0;  // negatives claimed less likely
  double positives = 0, concordant = 0;
  for (std::size_t i = 0; i < scored.size();) {
    double tied_positive = 0, tied_negative = 0;
    const double p = scored[i].p;
    for (; i < scored.size() && scored[i].p == p; ++i) {
      tied_positive += scored[i].positive;
      tied_negative += scored[i].negative;
    }
    concordant += tied_positive * (below + tied_negative / 2);
    below += tied_negative;
    positives += tied_positive;
  }
  if (!(positives > 0) || !(below > 0)) return std::nullopt;
  return concordant / positives / below;
}

}  // namespace

Reliability reliability_of(const std::vector<Claim>& claims, double temperature, int bins,
                           const std::vector<bool>& includes) {
  struct Sums {
    double weight = 0, predicted = 0, observed = 0, gap = 0;
  };
  std::vector<Sums> sums(static_cast<std::size_t>(bins));
  std::vector<Scored> scored;
  scored.reserve(claims.size());
  Reliability out;
  double predicted = 0, observed = 0, squares = 0;
  for (const Claim& claim : claims) {
    if (!includes[static_cast<std::size_t>(claim.input)]) continue;
    const double p = claimed(claim, temperature);
    const double w = claim.weight;
    out.blocks += 1;
    out.weight += w;
    predicted += w * p;
    observed += w * claim.label;
    squares += w * (claim.label * (1 - p) * (1 - p) + (1 - claim.label) * p * p);
    scored.push_back({p, w * claim.label, w * (1 - claim.label)});
    Sums& bin = sums[static_cast<std::size_t>(bin_of(p, bins))];
    bin.weight += w;
    bin.predicted += w * p;
    bin.observed += w * claim.label;
    bin.gap += w * (p - claim.label);
  }
  double gaps = 0;
  for (const Sums& bin : sums) {
    out.bins.emplace_back();
    out.bins.back().weight = bin.weight;
    if (!(bin.weight > 0)) continue;
    out.bins.back().predicted = bin.predicted / bin.weight;
    out.bins.back().observed = bin.observed / bin.weight;
    gaps += std::abs(bin.gap);
  }
  if (!(out.weight > 0)) return out;
  out.predicted = predicted / out.weight;
  out.observed = observed / out.weight;
  out.bias = (predicted - observed) / out.weight;
  out.ece = gaps / out.weight;
  out.brier = squares / out.weight;
  out.auc = area_under_curve(scored);
  return out;
}

}  // namespace dspark
