// The length rules of the policies as pure functions, shared by the replay and the kernels.
// `confidence[k]` is the drafter's claim that draft k+1 is accepted given that the first k were.
// All return a number of draft tokens in [0, slots].
#pragma once

#include <cstdint>

#include "core/dspark_ops.h"
#include "core/host_device.h"

namespace dspark {

/// Lower and upper length for a block of `slots` drafts: max_length ≤ 0 means all slots; the lower
/// one never exceeds the upper.
struct LengthLimits {
  std::int32_t lower;
  std::int32_t upper;
};

DSPARK_HD LengthLimits length_limits(std::int32_t slots, std::int32_t min_length,
                                     std::int32_t max_length) {
  std::int32_t upper = max_length <= 0 || max_length > slots ? slots : max_length;
  std::int32_t lower = min_length < 0 ? 0 : min_length;
  if (lower > upper) lower = upper;
  return {lower, upper};
}

/// `fixed`: that many drafts; a negative length counts as 0.
DSPARK_HD std::int32_t fixed_length(std::int32_t slots, std::int32_t length) {
  if (length < 0) return 0;
  return length < slots ? length : slots;
}

/// `threshold`, cumulative (TensorRT-Edge-LLM): longest prefix whose product of confidences is at
/// least `threshold`. threshold ≤ 0 gives the upper limit. NaN stops.
DSPARK_HD std::int32_t cumulative_threshold_length(const float* confidence, std::int32_t slots,
                                                   double threshold, std::int32_t min_length,
                                                   std::int32_t max_length) {
  const LengthLimits limits = length_limits(slots, min_length, max_length);
  if (threshold <= 0) return limits.upper;
  double survival = 1;
  std::int32_t length = 0;
  while (length < limits.upper) {
    survival *= static_cast<double>(confidence[length]);
    if (!(survival >= threshold)) break;
    ++length;
  }
  return length < limits.lower ? limits.lower : length;
}

/// `threshold`, per position (DeepSpec, vLLM): stop before the first confidence below `threshold`.
/// NaN stops.
DSPARK_HD std::int32_t position_threshold_length(const float* confidence, std::int32_t slots,
                                                 double threshold, std::int32_t min_length,
                                                 std::int32_t max_length) {
  const LengthLimits limits = length_limits(slots, min_length, max_length);
  std::int32_t length = 0;
  while (length < limits.upper && static_cast<double>(confidence[length]) >= threshold) {
    ++length;
  }
  return length < limits.lower ? limits.lower : length;
}

/// `softmax_min` (llama.cpp): stop before the first draft whose top probability is below `minimum`.
/// The same shape as the threshold per position, on the drafter's own largest probability
/// `top_probability[k]` in place of a confidence. NaN stops.
DSPARK_HD std::int32_t softmax_min_length(const float* top_probability, std::int32_t slots,
                                          double minimum, std::int32_t max_length) {
  return position_threshold_length(top_probability, slots, minimum, 0, max_length);
}

/// `sps` (TensorRT-Edge-LLM): the length in [lower, upper] with the most expected tokens (1 + Σ
/// survival) per price; a longer one must be strictly better; the first length whose survival is
/// below the floor is the last one looked at. `price(length)` is the cost of a round that verifies
/// `length` drafts; a length whose price is not above 0 (NaN) cannot be chosen, and where none can
/// it is the lower limit.
template <class Price>
DSPARK_HD std::int32_t sps_length(const float* confidence, std::int32_t slots,
                                  double survival_floor, std::int32_t min_length,
                                  std::int32_t max_length, const Price& price) {
  const LengthLimits limits = length_limits(slots, min_length, max_length);
  double survival = 1;
  double expected = 1;
  double best = -1;
  std::int32_t selected = limits.lower;
  for (std::int32_t length = 0; length <= limits.upper; ++length) {
    if (length > 0) {
      survival *= static_cast<double>(confidence[length - 1]);
      expected += survival;
    }
    if (length < limits.lower) continue;
    const double cost = price(length);
    if (cost > 0 && expected / cost > best) {
      best = expected / cost;
      selected = length;
    }
    if (survival_floor > 0 && !(survival >= survival_floor)) break;
  }
  return selected;
}

/// The linear cost as sps_length() takes it; Edge-LLM keeps it from reaching 0.
struct LinearPrice {
  LinearCost cost;
  DSPARK_HD double operator()(std::int32_t length) const {
    const double price = round_cost(cost, length);
    return price < 1e-6 ? 1e-6 : price;
  }
};

/// `sps` with the linear cost.
DSPARK_HD std::int32_t sps_length(const float* confidence, std::int32_t slots,
                                  double survival_floor, std::int32_t min_length,
                                  std::int32_t max_length, const LinearCost& cost) {
  return sps_length(confidence, slots, survival_floor, min_length, max_length, LinearPrice{cost});
}

}  // namespace dspark
