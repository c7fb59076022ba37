#include "policy/count_budget.h"

#include <algorithm>

namespace dspark {

std::int32_t CountBudget::capacity(std::int32_t requests, std::int32_t positions) const {
  return requests * std::min(per_request_, positions);
}

void CountBudget::update(const BatchStep& step) {
  if (step.requests <= 0 || ++steps_ % options_.refresh != 0) return;
  per_request_ = counted_budget(step, options_.threshold);
}

}  // namespace dspark
