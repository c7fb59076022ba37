// A policy as a value: what decides how many drafts of a block are verified.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/dspark_ops.h"

namespace dspark {

/// How drafts are verified.
enum class Verification { greedy, probabilistic };
/// "greedy" or "probabilistic".
[[nodiscard]] const char* verification_name(Verification verification);

/// No speculation: one target step per token, no draft cost.
struct NoSpeculation {
  bool operator==(const NoSpeculation&) const = default;
};

/// Always `length` drafts; 0 = draft, but verify none.
struct FixedLength {
  std::int32_t length = 0;
  bool operator==(const FixedLength&) const = default;
};

/// What a threshold is compared with: the product of the confidences so far, or each of them.
enum class ThresholdRule { cumulative, per_position };
/// "cumulative" or "per_position".
[[nodiscard]] const char* threshold_rule_name(ThresholdRule rule);

/// Lengths by a threshold on the confidences. `max_length` 0: the block size.
struct Threshold {
  ThresholdRule rule = ThresholdRule::cumulative;
  double threshold = 0;
  std::int32_t min_length = 1;
  std::int32_t max_length = 0;
  bool operator==(const Threshold&) const = default;
};

/// Lengths by expected tokens per cost.
struct Sps {
  double survival_floor = 0;
  std::int32_t min_length = 1;
  std::int32_t max_length = 0;
  bool operator==(const Sps&) const = default;
};

using Policy = std::variant<NoSpeculation, FixedLength, Threshold, Sps>;

/// Name in policy files and results: "none", "fixed", "threshold", "sps".
[[nodiscard]] std::string policy_name(const Policy& policy);

/// A parameter as it is printed: an integer, a number or a word.
using ParameterValue = std::variant<std::int64_t, double, std::string>;
/// The policy's parameters in their printing order; `max_length` only where it is a limit of its
/// own (not 0).
[[nodiscard]] std::vector<std::pair<std::string, ParameterValue>> policy_parameters(
    const Policy& policy);

/// True if the rule looks at confidences (then what it verifies needs sampled worlds).
[[nodiscard]] bool uses_confidence(const Policy& policy);

/// The largest length the policy names (fixed length, min and max lengths), for the check against a
/// trace's block size.
[[nodiscard]] std::int32_t largest_named_length(const Policy& policy);

/// Drafts to verify for a block of `slots` drafts with these confidences (unused where the rule
/// does not look at them). `cost` is what `sps` optimises.
[[nodiscard]] std::int32_t scheduled_length(const Policy& policy, const float* confidence,
                                            std::int32_t slots, const LinearCost& cost);

}  // namespace dspark
