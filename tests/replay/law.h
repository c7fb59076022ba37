// Sampling laws in float64, straight from their definitions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/law.h"

namespace dspark {

using Law = std::vector<double>;

/// Softmax with temperature, top-k and top-p straight from their definitions.
inline Law law_of(const std::vector<double>& logits, double temperature, std::int64_t top_k,
                  double top_p, TopPRule rule) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return logits[a] > logits[b]; });
  Law law(logits.size(), 0.0);
  const std::size_t kept =
      top_k > 0 ? std::min<std::size_t>(order.size(), static_cast<std::size_t>(top_k))
                : order.size();
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i)
    total += law[order[i]] = std::exp((logits[order[i]] - logits[order[0]]) / temperature);
  for (double& p : law) p /= total;
  if (top_p < 1) {
    double left = top_p, sum = 0;
    for (std::size_t i = 0; i < kept; ++i) {
      double& p = law[order[i]];
      const double mass = p;
      if (left <= 0) {
        p = 0;
      } else if (rule == TopPRule::water_filling) {
        p = std::min(p, left);
      }
      left -= mass;
      sum += p;
    }
    for (double& p : law) p /= sum;
  }
  return law;
}

/// All mass on the lowest id with the largest logit.
inline Law greedy_law(const std::vector<double>& logits) {
  Law law(logits.size(), 0.0);
  law[static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())] =
      1.0;
  return law;
}

}  // namespace dspark
