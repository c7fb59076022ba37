// A policy as a value: what decides how many drafts of a block are verified.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/dspark_ops.h"
#include "policy/capped_ewma.h"
#include "policy/count_budget.h"
#include "policy/prices.h"

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

/// Drafts by the drafter's own largest probability: stop before the first one below `minimum`
/// (llama.cpp). `max_length` 0: the block size.
struct SoftmaxMin {
  double minimum = 0;
  std::int32_t max_length = 0;
  bool operator==(const SoftmaxMin&) const = default;
};

/// Lengths by requests in flight (TensorRT-LLM's draft_len_schedule), ascending by requests.
struct RequestSchedule {
  std::vector<ScheduleEntry> entries;
  bool operator==(const RequestSchedule&) const = default;
};

/// A fixed share of all drafts of a step, by rank of survival (SGLang's forced fraction).
struct BudgetFraction {
  double fraction = 0;
  bool operator==(const BudgetFraction&) const = default;
};

/// vllm-ascend's confidence_budget: as many drafts as looked promising a while ago.
struct PromisingBudget {
  CountBudgetOptions options;
  bool operator==(const PromisingBudget&) const = default;
};

/// The paper's Algorithm 1: drafts of all requests, best first, until one does not improve tokens
/// per cost.
struct Algorithm1 {
  std::int32_t min_length = 0;  ///< drafts of every request verified whatever they promise: 0 or 1
  bool operator==(const Algorithm1&) const = default;
};

/// The best number of drafts of a step (the paper's section 5.2; SGLang, TensorRT-LLM, vLLM).
struct GlobalBudget {
  std::int32_t lag = 0;  ///< steps by which the confidences that set it are old: 0, 1 or 2
  double min_gain = 0;   ///< everything is verified unless the best is better by this fraction
  std::int32_t min_length = 0;           ///< as in Algorithm1
  std::vector<std::int32_t> tiers = {};  ///< if any: only totals of R·t drafts; ascending
  bool fill_buckets = false;  ///< SGLang's align flag: a captured size is filled with drafts
  bool operator==(const GlobalBudget&) const = default;
};

/// The best of the measured cells of an exact table (TensorRT-LLM B), whose drain guard it has.
struct ExactTable {
  std::optional<double> min_gain;  ///< empty: the table's
  bool operator==(const ExactTable&) const = default;
};

/// mlx-dspark's cap controller.
struct CapController {
  CappedEwmaOptions options;
  bool operator==(const CapController&) const = default;
};

/// TensorRT-LLM's speculation gate around another policy.
struct Gate {
  using Inside = std::variant<FixedLength, Threshold, Sps, SoftmaxMin, RequestSchedule,
                              BudgetFraction, PromisingBudget, Algorithm1, GlobalBudget>;
  std::int32_t window = 1;  ///< completed requests that the mean is taken over
  double min_accepted = 0;  ///< accepted drafts per round below which speculation ends for good
  Inside wrapped;
  bool operator==(const Gate&) const = default;
};

using Policy = std::variant<NoSpeculation, FixedLength, Threshold, Sps, Oracle, OracleConfidence,
                            SoftmaxMin, RequestSchedule, BudgetFraction, PromisingBudget,
                            Algorithm1, GlobalBudget, ExactTable, CapController, Gate>;

/// Name in policy files and results: "none", "fixed", "threshold", "sps", "oracle",
/// "oracle_confidence", "softmax_min", "schedule", "budget_fraction", "count_budget", "algorithm1",
/// "global", "exact_table", "capped_ewma", "gate".
[[nodiscard]] std::string policy_name(const Policy& policy);

/// A parameter as it is printed: an integer, a number or a word.
using ParameterValue = std::variant<std::int64_t, double, std::string>;
/// The policy's parameters in their printing order; `max_length` only where it is a limit of its
/// own (not 0).
[[nodiscard]] std::vector<std::pair<std::string, ParameterValue>> policy_parameters(
    const Policy& policy);

/// The policy inside an `oracle_confidence` or a `gate`; null for the others.
[[nodiscard]] std::optional<Policy> inner_policy(const Policy& policy);

/// True if the length of a block depends on that block alone, so that one request can be followed
/// by itself. The others look at all requests of a step, or back in time (replay/lockstep.h).
[[nodiscard]] bool is_per_request(const Policy& policy);

/// True if the rule looks at confidences (then what it verifies needs sampled worlds). The oracles
/// look at acceptance probabilities and outcomes instead.
[[nodiscard]] bool uses_confidence(const Policy& policy);

/// True if the rule looks at the drafter's own largest probabilities, which need worlds too.
[[nodiscard]] bool uses_top_probability(const Policy& policy);

/// True if the rule looks for the best tokens per cost: over a flat cost there is nothing to find.
[[nodiscard]] bool optimises(const Policy& policy);

/// The policy at a number of requests in flight: a `schedule` is the fixed length (or none) that it
/// asks for there; every other policy is itself.
[[nodiscard]] Policy at_concurrency(const Policy& policy, std::int32_t requests);

/// True for the oracles: what nobody can run, and so never ranked among what can be run.
[[nodiscard]] bool is_bound(const Policy& policy);

/// True if rounds draft at all, and so pay for drafts.
[[nodiscard]] bool speculates(const Policy& policy);

/// The largest length the policy names (fixed length, min and max lengths), for the check against a
/// trace's block size.
[[nodiscard]] std::int32_t largest_named_length(const Policy& policy);

/// Drafts to verify for a block of `slots` drafts with these confidences (unused where the rule
/// does not look at them; `softmax_min`: top probabilities). `prices` are what `sps` optimises.
/// `oracle`: all of them; what it verifies depends on the outcome (replay/bounds.h).
/// `oracle_confidence`: its rule on what the caller passes. Throws std::logic_error for a
/// policy that is not is_per_request(), and for `schedule` (at_concurrency()).
[[nodiscard]] std::int32_t scheduled_length(const Policy& policy, const float* confidence,
                                            std::int32_t slots, const RoundPrices& prices);

/// How many leading confidences decide the length: any others behind them give the same
/// scheduled_length(). In [0, slots].
[[nodiscard]] std::int32_t deciding_slots(const Policy& policy, const float* confidence,
                                          std::int32_t slots);

}  // namespace dspark
