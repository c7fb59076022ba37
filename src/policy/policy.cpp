#include "policy/policy.h"

#include <algorithm>

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

void append_parameters(Parameters& out, const Threshold& rule) {
  out.emplace_back("rule", std::string(threshold_rule_name(rule.rule)));
  out.emplace_back("threshold", rule.threshold);
  append_limits(out, rule.min_length, rule.max_length);
}

void append_parameters(Parameters& out, const Sps& sps) {
  out.emplace_back("survival_floor", sps.survival_floor);
  append_limits(out, sps.min_length, sps.max_length);
}

std::int32_t length_of(const Threshold& rule, const float* confidence, std::int32_t slots,
                       const LinearCost&) {
  return rule.rule == ThresholdRule::cumulative
             ? cumulative_threshold_length(confidence, slots, rule.threshold, rule.min_length,
                                           rule.max_length)
             : position_threshold_length(confidence, slots, rule.threshold, rule.min_length,
                                         rule.max_length);
}

std::int32_t length_of(const Sps& sps, const float* confidence, std::int32_t slots,
                       const LinearCost& cost) {
  return sps_length(confidence, slots, sps.survival_floor, sps.min_length, sps.max_length, cost);
}

Policy wrapped_policy(const OracleConfidence& oracle) {
  return std::visit([](const auto& rule) { return Policy(rule); }, oracle.wrapped);
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
                    },
                    policy);
}

std::vector<std::pair<std::string, ParameterValue>> policy_parameters(const Policy& policy) {
  Parameters out;
  std::visit(
      Overloaded{
          [](const NoSpeculation&) {},
          [&](const FixedLength& fixed) { out.emplace_back("length", std::int64_t{fixed.length}); },
          [&](const Threshold& rule) { append_parameters(out, rule); },
          [&](const Sps& sps) { append_parameters(out, sps); },
          [&](const Oracle& oracle) {
            out.emplace_back("bound", std::string(oracle_bound_name(oracle.bound)));
          },
          [&](const OracleConfidence& oracle) {
            out.emplace_back("wrap", policy_name(wrapped_policy(oracle)));
            std::visit([&](const auto& rule) { append_parameters(out, rule); }, oracle.wrapped);
          },
      },
      policy);
  return out;
}

bool uses_confidence(const Policy& policy) {
  return std::holds_alternative<Threshold>(policy) || std::holds_alternative<Sps>(policy);
}

bool is_bound(const Policy& policy) {
  return std::holds_alternative<Oracle>(policy) || std::holds_alternative<OracleConfidence>(policy);
}

bool speculates(const Policy& policy) { return !std::holds_alternative<NoSpeculation>(policy); }

std::int32_t largest_named_length(const Policy& policy) {
  return std::visit(
      Overloaded{
          [](const NoSpeculation&) { return 0; },
          [](const FixedLength& fixed) { return fixed.length; },
          [](const Threshold& rule) { return std::max(rule.min_length, rule.max_length); },
          [](const Sps& sps) { return std::max(sps.min_length, sps.max_length); },
          [](const Oracle&) { return 0; },
          [](const OracleConfidence& oracle) {
            return largest_named_length(wrapped_policy(oracle));
          },
      },
      policy);
}

std::int32_t scheduled_length(const Policy& policy, const float* confidence, std::int32_t slots,
                              const LinearCost& cost) {
  return std::visit(
      Overloaded{
          [](const NoSpeculation&) { return 0; },
          [&](const FixedLength& fixed) { return fixed_length(slots, fixed.length); },
          [&](const Threshold& rule) { return length_of(rule, confidence, slots, cost); },
          [&](const Sps& sps) { return length_of(sps, confidence, slots, cost); },
          [&](const Oracle&) { return slots; },
          [&](const OracleConfidence& oracle) {
            return std::visit(
                [&](const auto& rule) { return length_of(rule, confidence, slots, cost); },
                oracle.wrapped);
          },
      },
      policy);
}

std::int32_t deciding_slots(const Policy& policy, const float* confidence, std::int32_t slots) {
  if (const auto* rule = std::get_if<Threshold>(&policy)) {
    // A threshold stops at the first slot that fails, and reads nothing behind it.
    Threshold unclamped = *rule;
    unclamped.min_length = 0;
    const std::int32_t passed = length_of(unclamped, confidence, slots, LinearCost{});
    const std::int32_t upper = length_limits(slots, 0, rule->max_length).upper;
    return passed < upper ? passed + 1 : upper;
  }
  return std::holds_alternative<Sps>(policy) || std::holds_alternative<OracleConfidence>(policy)
             ? slots
             : 0;
}

}  // namespace dspark
