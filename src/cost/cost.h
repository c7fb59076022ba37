// What a step costs; a round with drafts: round_cost (core/dspark_ops.h).
#pragma once

#include "core/dspark_ops.h"

namespace dspark {

/// Cost of one decoding step without speculation: verify_base + verify_token.
[[nodiscard]] double step_cost(const LinearCost& cost);

}  // namespace dspark
