// What a step of an engine costs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/dspark_ops.h"
#include "cost/cost_table.h"

namespace dspark {

/// What one step of an engine costs, for R requests that are stepped together. A value; copies are
/// cheap and may be used from several threads.
///
/// The linear model charges `draft` and `verify_base` once per step, `verify_token` for each of its
/// tokens and `accept` for each of its drafts: for R = 1 that is round_cost(), to the last bit. Its
/// unit is its own.
///
/// Tables give ms and are looked up as their engine does (CostFormat). Those that were measured at
/// request counts and tokens (rows, mlx) are interpolated linearly in the tokens of one request
/// count, and between two request counts linearly at equal tokens per request, since that is how
/// they are measured; beyond what was measured the outermost slope goes on (mlx: not below the
/// fewest tokens), never downwards and never below the least time of the table. With one request
/// count, or one measurement at each, the time depends on the tokens alone. Where the measurements
/// do not fall with the tokens, neither does what is made of them at a request count.
class CostModel {
 public:
  /// Edge-LLM's constants: LinearCost{}.
  CostModel();
  explicit CostModel(const LinearCost& linear);
  /// `table` as read or converted: validated.
  explicit CostModel(CostTable table);

  /// The verify forward of `requests` requests with `tokens` tokens in all, anchors included
  /// (tokens ≥ requests ≥ 1), after rounding the tokens up to a bucket. NaN where an exact table
  /// has no such cell: its request count is the graph's batch, padding included.
  [[nodiscard]] double verify(std::int64_t requests, std::int64_t tokens) const;
  /// Drafting one block for each request. Drafts that are not given cost nothing; between the
  /// request counts of a list the time is linear, the last slope goes on beyond, the first value
  /// holds below.
  [[nodiscard]] double draft(std::int64_t requests) const;
  /// The accept test of that many drafts; part of the step under a table.
  [[nodiscard]] double accept(std::int64_t drafts) const;
  /// Scheduler and the like, per speculative step.
  [[nodiscard]] double overhead() const { return overhead_; }

  /// One token per request, without speculation: verify(R, R).
  [[nodiscard]] double plain_step(std::int64_t requests) const;
  /// draft(R) + verify(R, R + drafts) + accept(drafts) + overhead().
  [[nodiscard]] double speculative_step(std::int64_t requests, std::int64_t drafts) const;

  /// "ms" for a table; "" for the linear model, whose unit is relative.
  [[nodiscard]] const std::string& unit() const;
  /// True where the verify time does not depend on the tokens, or by less than 2 % at every request
  /// count: verifying everything always looks best, and there is nothing to optimise.
  [[nodiscard]] bool is_flat() const;
  /// The four constants, where they are all there is to the model (no list of draft times, no
  /// overhead, no buckets).
  [[nodiscard]] std::optional<LinearCost> linear() const;
  /// Tokens that a step of `tokens` is charged for: the bucket that holds it.
  [[nodiscard]] std::int64_t charged_tokens(std::int64_t tokens) const;
  /// The table; null for the linear model. Lives as long as the model or a copy of it.
  [[nodiscard]] const CostTable* table() const;
  /// False where drafting was given neither by the table nor by set_draft().
  [[nodiscard]] bool has_draft() const;

  // From the policy file. Negative and infinite numbers, an empty list and one that does not
  // strictly increase throw Error(internal): the reader of the policy file has refused them.
  /// Drafting, per step, in the model's unit; takes the place of what the table or the linear model
  /// says.
  void set_draft(double per_step);
  /// The same by (requests, cost), increasing.
  void set_draft(const std::vector<std::pair<std::int64_t, double>>& by_requests);
  void set_overhead(double per_step);
  /// Token counts of captured graphs, increasing: a step is charged for the next one at or above
  /// its tokens, and above the last for its tokens. Empty: none.
  void set_buckets(std::vector<std::int64_t> buckets);
  [[nodiscard]] const std::vector<std::int64_t>& buckets() const { return buckets_; }

 private:
  class Surface;
  LinearCost linear_;
  CostCurve draft_;  // empty: the linear constant, or none given
  double overhead_ = 0;
  std::shared_ptr<const Surface> surface_;  // null: linear
  std::vector<std::int64_t> buckets_;
};

/// What a round of one request costs by the drafts that it verifies, 0 to `block_size`:
/// speculative_step(1, l).
[[nodiscard]] std::vector<double> round_prices(const CostModel& model, std::int32_t block_size);

}  // namespace dspark
