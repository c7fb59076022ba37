// vllm-ascend's budget from a count of promising drafts, and schedules by the number of requests.
#pragma once

#include <cstdint>
#include <span>

#include "core/dspark_ops.h"
#include "core/host_device.h"
#include "policy/survival.h"

namespace dspark {

/// `count_budget` with vllm-ascend's numbers.
struct CountBudgetOptions {
  double threshold = 0.3;     ///< a draft counts where its survival is at least this
  std::int32_t refresh = 16;  ///< steps from one look at the confidences to the next, at least 1
  std::int32_t initial = 5;   ///< drafts per request before the first look
  bool operator==(const CountBudgetOptions&) const = default;
};

/// Drafts per request by one step: K = ⌈mean of #(survival ≥ threshold)⌉, at least 1, made odd (by
/// adding one) below P, at most P. No requests: 0.
DSPARK_HD std::int32_t counted_budget(const BatchStep& step, double threshold) {
  if (step.requests <= 0) return 0;
  std::int64_t count = 0;
  for (std::int32_t r = 0; r < step.requests; ++r) {
    const float* const confidence = step.confidence + r * step.stride;
    const std::int32_t slots = slots_within(step.slots[r], step.positions);
    float survival = 1;
    for (std::int32_t k = 0; k < slots; ++k) {
      survival = survival_after(survival, confidence[k]);
      if (static_cast<double>(survival) >= threshold) ++count;
    }
  }
  const auto budget = static_cast<std::int32_t>((count + step.requests - 1) / step.requests) | 1;
  return budget < step.positions ? budget : step.positions;
}

/// The budget of a run of steps. It looks back: what a step's confidences say is used from the next
/// step on, so that no draft is dropped by its own survival's part in the mean.
class CountBudget {
 public:
  explicit CountBudget(const CountBudgetOptions& options)
      : options_(options), per_request_(options.initial) {}

  /// Capacity of a step of `requests` requests and blocks of `positions`: R·K drafts, filled by
  /// rank of survival (allocate(), floor 1).
  [[nodiscard]] std::int32_t capacity(std::int32_t requests, std::int32_t positions) const;
  /// Ends a step; every `refresh`-th one sets the budget from its confidences.
  void update(const BatchStep& step);
  /// K.
  [[nodiscard]] std::int32_t per_request() const { return per_request_; }

 private:
  CountBudgetOptions options_;
  std::int32_t per_request_;
  std::int32_t steps_ = 0;
};

/// One entry of `schedule`: from this many requests in flight on, this many drafts.
struct ScheduleEntry {
  std::int32_t requests = 1;
  std::int32_t length = 0;
  bool operator==(const ScheduleEntry&) const = default;
};

/// `schedule` (TensorRT-LLM's draft_len_schedule): the length of the entry with the most requests
/// that are not more than `requests`; `entries` ascending by requests. Fewer than the first: 0. A
/// length of 0 is no speculation at all: no drafts are made.
DSPARK_HD std::int32_t length_by_requests(const ScheduleEntry* entries, std::int32_t count,
                                          std::int32_t requests) {
  std::int32_t length = 0;
  for (std::int32_t i = 0; i < count && entries[i].requests <= requests; ++i) {
    length = entries[i].length;
  }
  return length;
}
[[nodiscard]] inline std::int32_t length_by_requests(std::span<const ScheduleEntry> entries,
                                                     std::int32_t requests) {
  return length_by_requests(entries.data(), static_cast<std::int32_t>(entries.size()), requests);
}

}  // namespace dspark
