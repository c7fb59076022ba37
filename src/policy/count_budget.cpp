#include "policy/count_budget.h"

#include <algorithm>
#include <iterator>

#include "policy/survival.h"

namespace dspark {

std::int32_t counted_budget(const BatchStep& step, double threshold) {
  if (step.requests <= 0) return 0;
  std::int64_t count = 0;
  for_each_draft<float>(step, [&](std::int32_t, std::int32_t, float survival) {
    if (static_cast<double>(survival) >= threshold) ++count;
  });
  const auto budget = static_cast<std::int32_t>((count + step.requests - 1) / step.requests);
  return std::min(budget | 1, step.positions);
}

std::int32_t CountBudget::capacity(std::int32_t requests, std::int32_t positions) const {
  return requests * std::min(per_request_, positions);
}

void CountBudget::update(const BatchStep& step) {
  if (step.requests <= 0 || ++steps_ % options_.refresh != 0) return;
  per_request_ = counted_budget(step, options_.threshold);
}

std::int32_t length_by_requests(std::span<const ScheduleEntry> entries, std::int32_t requests) {
  const auto after = std::upper_bound(
      entries.begin(), entries.end(), requests,
      [](std::int32_t count, const ScheduleEntry& entry) { return count < entry.requests; });
  return after == entries.begin() ? 0 : std::prev(after)->length;
}

}  // namespace dspark
