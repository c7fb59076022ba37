#include "policy/exact_table.h"

#include <tuple>

namespace dspark {

ExactChoice exact_table_choice(const BatchStep& step, std::int32_t graph,
                               std::span<const ExactCell> cells, double min_gain,
                               const std::optional<DrainGuard>& guard, const BatchOptions& options,
                               BatchWorkspace& workspace) {
  const SurvivalPath path = survival_path(step, options, SurvivalPrecision::f32, workspace);
  const auto yield_of = [&path](std::int32_t drafts) {
    return static_cast<double>(path.at(drafts)) / static_cast<double>(kTokenWeight);
  };
  ExactChoice native;
  native.yield = yield_of(path.last);
  if (cells.empty() || cells.front().tokens != 0) return native;
  native.price = cells.front().price;
  if (!guard || !(native.price > 0)) return native;

  const double native_rate = native.yield / native.price;
  const std::int64_t full = std::int64_t{graph} * (step.positions + 1);
  ExactChoice best = native;
  auto most = std::make_tuple(guard->minimum_value, 0.0, std::int32_t{0});
  for (const ExactCell& cell : cells.subspan(1)) {
    if (cell.tokens < graph || cell.tokens >= full || !(cell.price > 0)) continue;
    const std::int32_t drafts = cell.tokens - graph;
    if (drafts < path.floor) continue;
    const double yield = yield_of(drafts);
    const double rate = yield / cell.price;
    if (!(rate > native_rate && rate >= native_rate * (1 + min_gain))) continue;
    const double lost_tokens = (native.yield - yield) / step.requests;
    const double value =
        native.price - cell.price -
        guard->loss_multiplier * lost_tokens * guard->tail_price / guard->mean_output;
    if (!(value > guard->minimum_value)) continue;
    const auto merit = std::make_tuple(value, rate, cell.tokens);
    if (merit > most) {
      most = merit;
      best = {cell.tokens, drafts, cell.price, yield};
    }
  }
  return best;
}

}  // namespace dspark
