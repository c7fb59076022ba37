// What a round costs by the number of drafts that it verifies: what the rules of one request and
// the oracles optimise.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "core/dspark_ops.h"

namespace dspark {

/// Prices of a round of one request alone, by drafts verified, 0 to 64; NaN where there is none.
class RoundPrices {
 public:
  RoundPrices() : RoundPrices(LinearCost{}) {}
  /// A linear cost is one way to give them.
  RoundPrices(const LinearCost& cost) {  // NOLINT(google-explicit-constructor)
    for (std::size_t l = 0; l < price_.size(); ++l) {
      price_[l] = round_cost(cost, static_cast<double>(l));
    }
  }
  /// `prices`: of 0, 1, ... drafts, at most 65; longer rounds have none.
  explicit RoundPrices(std::span<const double> prices) {
    price_.fill(std::numeric_limits<double>::quiet_NaN());
    std::copy_n(prices.begin(), std::min(prices.size(), price_.size()), price_.begin());
  }

  [[nodiscard]] double operator()(std::int32_t length) const {
    return price_[static_cast<std::size_t>(length)];
  }

 private:
  std::array<double, 65> price_{};  // block_size is at most 64 (trace format)
};

}  // namespace dspark
