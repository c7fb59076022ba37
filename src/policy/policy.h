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

/// What no scheduler can know, and what it would be worth: bounds, not policies (replay/bounds.h).
/// `no_waste` verifies exactly what will be accepted; `shortest` is the cheapest path through the
/// text, which no rule that speculates in every round can beat.
enum class OracleBound { no_waste, shortest };
/// "no_waste" or "shortest".
[[nodiscard]] const char* oracle_bound_name(OracleBound bound);

struct Oracle {
  OracleBound bound = OracleBound::no_waste;
  bool operator==(const Oracle&) const = default;
};

/// A rule that is given the true acceptance probabilities (α along the text) in place of the
/// confidences: what a perfect confidence head would be worth to it.
struct OracleConfidence {
  std::variant<Threshold, Sps> wrapped = Sps{};
  bool operator==(const OracleConfidence&) const = default;
};

using Policy = std::variant<NoSpeculation, FixedLength, Threshold, Sps, Oracle, OracleConfidence>;

/// Name in policy files and results: "none", "fixed", "threshold", "sps", "oracle",
/// "oracle_confidence".
[[nodiscard]] std::string policy_name(const Policy& policy);

/// A parameter as it is printed: an integer, a number or a word.
using ParameterValue = std::variant<std::int64_t, double, std::string>;
/// The policy's parameters in their printing order; `max_length` only where it is a limit of its
/// own (not 0).
[[nodiscard]] std::vector<std::pair<std::string, ParameterValue>> policy_parameters(
    const Policy& policy);

/// True if the rule looks at confidences (then what it verifies needs sampled worlds). The oracles
/// look at acceptance probabilities and outcomes instead.
[[nodiscard]] bool uses_confidence(const Policy& policy);

/// True for the oracles: what nobody can run, and so never ranked among what can be run.
[[nodiscard]] bool is_bound(const Policy& policy);

/// True if rounds draft at all, and so pay for drafts.
[[nodiscard]] bool speculates(const Policy& policy);

/// The largest length the policy names (fixed length, min and max lengths), for the check against a
/// trace's block size.
[[nodiscard]] std::int32_t largest_named_length(const Policy& policy);

/// Drafts to verify for a block of `slots` drafts with these confidences (unused where the rule
/// does not look at them). `cost` is what `sps` optimises. `oracle`: all of them; what it verifies
/// depends on the outcome (replay/bounds.h). `oracle_confidence`: its rule on what the caller
/// passes.
[[nodiscard]] std::int32_t scheduled_length(const Policy& policy, const float* confidence,
                                            std::int32_t slots, const LinearCost& cost);

/// How many leading confidences decide the length: any others behind them give the same
/// scheduled_length(). In [0, slots].
[[nodiscard]] std::int32_t deciding_slots(const Policy& policy, const float* confidence,
                                          std::int32_t slots);

}  // namespace dspark
