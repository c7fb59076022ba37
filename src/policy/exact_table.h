// TensorRT-LLM's exact cost tables (its generation B): measured steps alone may be chosen.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "policy/batch.h"

namespace dspark {

/// A measured step of a graph for G requests.
struct ExactCell {
  std::int32_t tokens = 0;  ///< V: tokens submitted, anchors and padding rows included; 0 is the
                            ///< native full block
  double price = 0;         ///< time of the step, above 0
  bool operator==(const ExactCell&) const = default;
};

/// What verifying less costs at the end of a run, when the tokens that were not gained now have to
/// be made up in steps of few requests.
struct DrainGuard {
  double loss_multiplier = 1;  ///< above 0
  double mean_output = 1;      ///< mean_output_tokens_per_request_iteration, above 0
  double minimum_value = 0;    ///< minimum_group_value_ms, in the unit of the prices
  double tail_price = 0;       ///< native price of the tail's graph
  bool operator==(const DrainGuard&) const = default;
};

/// A choice among the cells of one graph.
struct ExactChoice {
  std::int32_t tokens = 0;            ///< V of the cell; 0: native
  std::int32_t drafts = kEveryDraft;  ///< capacity for allocate(): V - G drafts, or all
  double price = 0;                   ///< of the cell
  double yield = 0;                   ///< expected tokens of the step
  bool operator==(const ExactChoice&) const = default;
};

/// `exact_table`: among the cells with 0 < V < the full block, G·(P + 1), whose tokens per time
/// are better than the native path's, and by the fraction `min_gain`, the one of most value, where
///     value = T(native) - T(V) - loss_multiplier · (Y(native) - Y(V)) / R · tail_price
///             / mean_output,
/// if it is above the guard's minimum; of equal values the one of more tokens per time, then of
/// more tokens. Otherwise, and always without a drain guard, the native path. Y(V) = R + the V - G
/// largest survivals: every row of the graph submits its anchor.
///
/// `cells` ascending by tokens, the first native (tokens 0): where it is not, or its price not
/// above 0, nothing is compared and the choice is native. G ≥ R. A cell too small for the floor of
/// `options` is left out.
[[nodiscard]] ExactChoice exact_table_choice(const BatchStep& step, std::int32_t graph,
                                             std::span<const ExactCell> cells, double min_gain,
                                             const std::optional<DrainGuard>& guard,
                                             const BatchOptions& options,
                                             BatchWorkspace& workspace);

}  // namespace dspark
