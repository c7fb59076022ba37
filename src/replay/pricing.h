// What a step of several requests costs, from how often each request verifies how many drafts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cost/cost_model.h"
#include "policy/width.h"

namespace dspark {

/// Prices of the steps of R requests with blocks of P drafts, looked up once. NaN where the cost
/// model has none (an exact table).
class StepPrices {
 public:
  /// `requests` in [1, kMaxConcurrency], `block_size` in [1, 64].
  StepPrices(const CostModel& model, Width width, std::int32_t requests, std::int32_t block_size);

  [[nodiscard]] std::int32_t requests() const { return requests_; }
  [[nodiscard]] std::int32_t block_size() const { return block_size_; }
  [[nodiscard]] Width width() const { return width_; }
  /// A step without speculation, and the tokens of it that no request needs (captured sizes).
  [[nodiscard]] double plain() const { return plain_; }
  [[nodiscard]] double plain_padding() const { return padding_.front(); }
  /// [R·P + 1] a step that drafts and verifies n drafts in all, each in its own place: what the
  /// batch rules optimise, whatever the width.
  [[nodiscard]] std::span<const double> by_total() const { return by_total_; }
  /// A step that verifies `total` drafts, at most `longest` of one request, under this width.
  [[nodiscard]] double of(std::int32_t total, std::int32_t longest) const {
    return by_total_[static_cast<std::size_t>(submitted(total, longest))];
  }
  /// Tokens of that step which no request needs: unequal widths, and captured sizes.
  [[nodiscard]] double padding(std::int32_t total, std::int32_t longest) const {
    return padding_[static_cast<std::size_t>(submitted(total, longest))] +
           (submitted(total, longest) - total);
  }

 private:
  [[nodiscard]] std::int32_t submitted(std::int32_t total, std::int32_t longest) const {
    if (width_ == Width::ragged) return total;
    return requests_ * (width_ == Width::uniform ? longest : block_size_);
  }

  std::int32_t requests_, block_size_;
  Width width_;
  double plain_;
  std::vector<double> by_total_;
  std::vector<double> padding_;  ///< by total, from captured sizes alone
};

/// A step of R requests, each of which verifies l drafts with probability share[l], independently:
/// they are at unrelated places of unrelated texts.
struct ExpectedStep {
  double cost = 0;     ///< NaN where some step that can happen has no price
  double drafts = 0;   ///< verified in all
  double padding = 0;  ///< tokens that no request needs
  /// [P+1] what a round of l drafts adds to its share of the cost: Σ share·by_length = cost / R,
  /// and to first order the same holds when the shares change.
  std::vector<double> by_length;
};

/// `share`: [P+1], adding up to 1. The sum of R lengths is a convolution, of which masses below
/// 1e-16 at either end are left out; the longest of them has the R-th power of the distribution
/// function.
[[nodiscard]] ExpectedStep expected_step(const StepPrices& prices, std::span<const double> share);

}  // namespace dspark
