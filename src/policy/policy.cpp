#include "policy/policy.h"

#include <algorithm>
#include <stdexcept>

#include "policy/lengths.h"

namespace dspark {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

using Parameters = std::vector<std::pair<std::string, ParameterValue>>;

// The block size as upper limit is what everybody has; only a limit of its own is a parameter worth
// a word.
void append_limits(Parameters& out, std::int32_t min_length, std::int32_t max_length) {
  out.emplace_back("min_length", std::int64_t{min_length});
  if (max_length > 0) out.emplace_back("max_length", std::int64_t{max_length});
}

void append(Parameters&, const NoSpeculation&) {}

void append(Parameters& out, const FixedLength& fixed) {
  out.emplace_back("length", std::int64_t{fixed.length});
}

void append(Parameters& out, const Threshold& rule) {
  out.emplace_back("rule", std::string(threshold_rule_name(rule.rule)));
  out.emplace_back("threshold", rule.threshold);
  append_limits(out, rule.min_length, rule.max_length);
}

void append(Parameters& out, const Sps& sps) {
  out.emplace_back("survival_floor", sps.survival_floor);
  append_limits(out, sps.min_length, sps.max_length);
}

void append(Parameters& out, const Oracle& oracle) {
  out.emplace_back("bound", std::string(oracle_bound_name(oracle.bound)));
}

void append(Parameters& out, const SoftmaxMin& rule) {
  out.emplace_back("minimum", rule.minimum);
  if (rule.max_length > 0) out.emplace_back("max_length", std::int64_t{rule.max_length});
}

std::string number_list(const std::vector<std::int32_t>& values) {
  std::string out;
  for (const std::int32_t value : values) out += (out.empty() ? "" : ",") + std::to_string(value);
  return out;
}

void append(Parameters& out, const RequestSchedule& schedule) {
  std::string text;
  for (const ScheduleEntry& entry : schedule.entries) {
    text += (text.empty() ? "" : ",") + std::to_string(entry.requests) + ":" +
            std::to_string(entry.length);
  }
  out.emplace_back("lengths", text);
}

void append(Parameters& out, const BudgetFraction& budget) {
  out.emplace_back("fraction", budget.fraction);
}

void append(Parameters& out, const PromisingBudget& budget) {
  out.emplace_back("threshold", budget.options.threshold);
  out.emplace_back("refresh", std::int64_t{budget.options.refresh});
  out.emplace_back("initial", std::int64_t{budget.options.initial});
}

void append(Parameters& out, const Algorithm1& rule) {
  out.emplace_back("min_length", std::int64_t{rule.min_length});
}

void append(Parameters& out, const GlobalBudget& rule) {
  out.emplace_back("lag", std::int64_t{rule.lag});
  out.emplace_back("min_gain", rule.min_gain);
  out.emplace_back("min_length", std::int64_t{rule.min_length});
  if (!rule.tiers.empty()) out.emplace_back("tiers", number_list(rule.tiers));
  if (rule.fill_buckets) out.emplace_back("fill_buckets", std::string("true"));
}

void append(Parameters& out, const ExactTable& rule) {
  if (rule.min_gain) out.emplace_back("min_gain", *rule.min_gain);
}

void append(Parameters& out, const CapController& rule) {
  out.emplace_back("prior", rule.options.prior);
  out.emplace_back("alpha", rule.options.alpha);
  out.emplace_back("hysteresis", rule.options.hysteresis);
  out.emplace_back("repick", std::int64_t{rule.options.repick});
  out.emplace_back("probe", std::int64_t{rule.options.probe});
}

// The parameters of a policy inside another stand behind its name.
template <class Inner>
void append_wrapped(Parameters& out, const Inner& wrapped) {
  std::visit(
      [&](const auto& rule) {
        out.emplace_back("wrap", policy_name(rule));
        append(out, rule);
      },
      wrapped);
}

void append(Parameters& out, const OracleConfidence& oracle) {
  append_wrapped(out, oracle.wrapped);
}

void append(Parameters& out, const Gate& gate) {
  out.emplace_back("window", std::int64_t{gate.window});
  out.emplace_back("min_accepted", gate.min_accepted);
  append_wrapped(out, gate.wrapped);
}

std::int32_t length_of(const Threshold& rule, const float* confidence, std::int32_t slots) {
  return rule.rule == ThresholdRule::cumulative
             ? cumulative_threshold_length(confidence, slots, rule.threshold, rule.min_length,
                                           rule.max_length)
             : position_threshold_length(confidence, slots, rule.threshold, rule.min_length,
                                         rule.max_length);
}

std::int32_t length_of(const Sps& sps, const float* confidence, std::int32_t slots,
                       const RoundPrices& prices) {
  // As Edge-LLM keeps its cost from reaching 0.
  const auto price = [&](std::int32_t length) {
    const double of_round = prices(length);
    return of_round < 1e-6 ? 1e-6 : of_round;
  };
  return sps_length(confidence, slots, sps.survival_floor, sps.min_length, sps.max_length, price);
}

}  // namespace

const char* verification_name(Verification verification) {
  return verification == Verification::greedy ? "greedy" : "probabilistic";
}

const char* threshold_rule_name(ThresholdRule rule) {
  return rule == ThresholdRule::cumulative ? "cumulative" : "per_position";
}

const char* oracle_bound_name(OracleBound bound) {
  return bound == OracleBound::no_waste ? "no_waste" : "shortest";
}

std::string policy_name(const Policy& policy) {
  return std::visit(Overloaded{
                        [](const NoSpeculation&) { return "none"; },
                        [](const FixedLength&) { return "fixed"; },
                        [](const Threshold&) { return "threshold"; },
                        [](const Sps&) { return "sps"; },
                        [](const Oracle&) { return "oracle"; },
                        [](const OracleConfidence&) { return "oracle_confidence"; },
                        [](const SoftmaxMin&) { return "softmax_min"; },
                        [](const RequestSchedule&) { return "schedule"; },
                        [](const BudgetFraction&) { return "budget_fraction"; },
                        [](const PromisingBudget&) { return "count_budget"; },
                        [](const Algorithm1&) { return "algorithm1"; },
                        [](const GlobalBudget&) { return "global"; },
                        [](const ExactTable&) { return "exact_table"; },
                        [](const CapController&) { return "capped_ewma"; },
                        [](const Gate&) { return "gate"; },
                    },
                    policy);
}

std::vector<std::pair<std::string, ParameterValue>> policy_parameters(const Policy& policy) {
  Parameters out;
  std::visit([&](const auto& rule) { append(out, rule); }, policy);
  return out;
}

std::optional<Policy> inner_policy(const Policy& policy) {
  const auto widened = [](const auto& wrapped) {
    return std::visit([](const auto& rule) { return Policy(rule); }, wrapped);
  };
  if (const auto* oracle = std::get_if<OracleConfidence>(&policy)) return widened(oracle->wrapped);
  if (const auto* gate = std::get_if<Gate>(&policy)) return widened(gate->wrapped);
  return std::nullopt;
}

bool is_per_request(const Policy& policy) {
  return std::visit(Overloaded{
                        [](const BudgetFraction&) { return false; },
                        [](const PromisingBudget&) { return false; },
                        [](const Algorithm1&) { return false; },
                        [](const GlobalBudget&) { return false; },
                        [](const ExactTable&) { return false; },
                        [](const CapController&) { return false; },
                        [](const Gate&) { return false; },
                        [](const auto&) { return true; },
                    },
                    policy);
}

bool uses_confidence(const Policy& policy) {
  return std::visit(Overloaded{
                        [](const Threshold&) { return true; },
                        [](const Sps&) { return true; },
                        [](const BudgetFraction&) { return true; },
                        [](const PromisingBudget&) { return true; },
                        [](const Algorithm1&) { return true; },
                        [](const GlobalBudget&) { return true; },
                        [](const ExactTable&) { return true; },
                        [&](const Gate&) { return uses_confidence(*inner_policy(policy)); },
                        [](const auto&) { return false; },
                    },
                    policy);
}

bool uses_top_probability(const Policy& policy) {
  if (std::holds_alternative<Gate>(policy)) return uses_top_probability(*inner_policy(policy));
  return std::holds_alternative<SoftmaxMin>(policy);
}

bool optimises(const Policy& policy) {
  return std::visit(Overloaded{
                        [](const Sps&) { return true; },
                        [](const Algorithm1&) { return true; },
                        [](const GlobalBudget&) { return true; },
                        [](const ExactTable&) { return true; },
                        [](const CapController&) { return true; },
                        [&](const Gate&) { return optimises(*inner_policy(policy)); },
                        [](const auto&) { return false; },
                    },
                    policy);
}

Policy at_concurrency(const Policy& policy, std::int32_t requests) {
  const auto* schedule = std::get_if<RequestSchedule>(&policy);
  if (schedule == nullptr) return policy;
  const std::int32_t length = length_by_requests(schedule->entries, requests);
  if (length == 0) return NoSpeculation{};
  return FixedLength{length};
}

bool is_bound(const Policy& policy) {
  return std::holds_alternative<Oracle>(policy) || std::holds_alternative<OracleConfidence>(policy);
}

bool speculates(const Policy& policy) { return !std::holds_alternative<NoSpeculation>(policy); }

std::int32_t largest_named_length(const Policy& policy) {
  return std::visit(
      Overloaded{
          [](const FixedLength& fixed) { return fixed.length; },
          [](const Threshold& rule) { return std::max(rule.min_length, rule.max_length); },
          [](const Sps& sps) { return std::max(sps.min_length, sps.max_length); },
          [](const SoftmaxMin& rule) { return rule.max_length; },
          [](const RequestSchedule& schedule) {
            std::int32_t longest = 0;
            for (const ScheduleEntry& entry : schedule.entries) {
              longest = std::max(longest, entry.length);
            }
            return longest;
          },
          [](const Algorithm1& rule) { return rule.min_length; },
          [](const GlobalBudget& rule) {
            return std::max(rule.min_length, rule.tiers.empty() ? 0 : rule.tiers.back());
          },
          [&](const OracleConfidence&) { return largest_named_length(*inner_policy(policy)); },
          [&](const Gate&) { return largest_named_length(*inner_policy(policy)); },
          [](const auto&) { return 0; },
      },
      policy);
}

std::int32_t scheduled_length(const Policy& policy, const float* confidence, std::int32_t slots,
                              const RoundPrices& prices) {
  const auto of_confidence = Overloaded{
      [&](const Threshold& rule) { return length_of(rule, confidence, slots); },
      [&](const Sps& sps) { return length_of(sps, confidence, slots, prices); },
  };
  return std::visit(
      Overloaded{
          [](const NoSpeculation&) { return 0; },
          [&](const FixedLength& fixed) { return fixed_length(slots, fixed.length); },
          [&](const Threshold& rule) { return of_confidence(rule); },
          [&](const Sps& sps) { return of_confidence(sps); },
          [&](const Oracle&) { return slots; },
          [&](const OracleConfidence& oracle) { return std::visit(of_confidence, oracle.wrapped); },
          [&](const SoftmaxMin& rule) {
            return softmax_min_length(confidence, slots, rule.minimum, rule.max_length);
          },
          [&](const auto&) -> std::int32_t {
            throw std::logic_error(policy_name(policy) + " is no rule of one request");
          },
      },
      policy);
}

std::int32_t deciding_slots(const Policy& policy, const float* confidence, std::int32_t slots) {
  // A threshold stops at the first slot that fails, and reads nothing behind it.
  const auto decided_by = [&](Threshold rule) {
    rule.min_length = 0;
    const std::int32_t passed = length_of(rule, confidence, slots);
    const std::int32_t upper = length_limits(slots, 0, rule.max_length).upper;
    return passed < upper ? passed + 1 : upper;
  };
  return std::visit(
      Overloaded{
          [&](const Threshold& rule) { return decided_by(rule); },
          [&](const SoftmaxMin& rule) {
            return decided_by({ThresholdRule::per_position, rule.minimum, 0, rule.max_length});
          },
          [](const NoSpeculation&) { return 0; },
          [](const FixedLength&) { return 0; },
          [](const Oracle&) { return 0; },
          [&](const auto&) { return slots; },
      },
      policy);
}

}  // namespace dspark
