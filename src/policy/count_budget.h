// vllm-ascend's budget from a count of promising drafts, and schedules by the number of requests.
#pragma once

#include <cstdint>
#include <span>

#include "core/dspark_ops.h"

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
[[nodiscard]] std::int32_t counted_budget(const BatchStep& step, double threshold);

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
[[nodiscard]] std::int32_t length_by_requests(std::span<const ScheduleEntry> entries,
                                              std::int32_t requests);

}  // namespace dspark
