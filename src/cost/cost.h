// What a round costs.
#pragma once

#include "core/dspark_ops.h"

namespace dspark {

/// Cost of a speculative round that verifies `verified` drafts (may be a mean: the model is
/// linear), in the model's units.
[[nodiscard]] double round_cost(const LinearCost& cost, double verified);

/// Cost of one decoding step without speculation: verify_base + verify_token.
[[nodiscard]] double step_cost(const LinearCost& cost);

}  // namespace dspark
