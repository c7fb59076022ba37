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

}  // namespace

const char* verification_name(Verification verification) {
  return verification == Verification::greedy ? "greedy" : "probabilistic";
}

const char* threshold_rule_name(ThresholdRule rule) {
  return rule == ThresholdRule::cumulative ? "cumulative" : "per_position";
}

std::string policy_name(const Policy& policy) {
  return std::visit(Overloaded{
                        [](const NoSpeculation&) { return "none"; },
                        [](const FixedLength&) { return "fixed"; },
                        [](const Threshold&) { return "threshold"; },
                        [](const Sps&) { return "sps"; },
                    },
                    policy);
}

std::vector<std::pair<std::string, ParameterValue>> policy_parameters(const Policy& policy) {
  Parameters out;
  std::visit(
      Overloaded{
          [](const NoSpeculation&) {},
          [&](const FixedLength& fixed) { out.emplace_back("length", std::int64_t{fixed.length}); },
          [&](const Threshold& rule) {
            out.emplace_back("rule", std::string(threshold_rule_name(rule.rule)));
            out.emplace_back("threshold", rule.threshold);
            append_limits(out, rule.min_length, rule.max_length);
          },
          [&](const Sps& sps) {
            out.emplace_back("survival_floor", sps.survival_floor);
            append_limits(out, sps.min_length, sps.max_length);
          },
      },
      policy);
  return out;
}

bool uses_confidence(const Policy& policy) {
  return std::holds_alternative<Threshold>(policy) || std::holds_alternative<Sps>(policy);
}

std::int32_t largest_named_length(const Policy& policy) {
  return std::visit(
      Overloaded{
          [](const NoSpeculation&) { return 0; },
          [](const FixedLength& fixed) { return fixed.length; },
          [](const Threshold& rule) { return std::max(rule.min_length, rule.max_length); },
          [](const Sps& sps) { return std::max(sps.min_length, sps.max_length); },
      },
      policy);
}

std::int32_t scheduled_length(const Policy& policy, const float* confidence, std::int32_t slots,
                              const LinearCost& cost) {
  return std::visit(Overloaded{
                        [](const NoSpeculation&) { return 0; },
                        [&](const FixedLength& fixed) { return fixed_length(slots, fixed.length); },
                        [&](const Threshold& rule) {
                          return rule.rule == ThresholdRule::cumulative
                                     ? cumulative_threshold_length(confidence, slots,
                                                                   rule.threshold, rule.min_length,
                                                                   rule.max_length)
                                     : position_threshold_length(confidence, slots, rule.threshold,
                                                                 rule.min_length, rule.max_length);
                        },
                        [&](const Sps& sps) {
                          return sps_length(confidence, slots, sps.survival_floor, sps.min_length,
                                            sps.max_length, cost);
                        },
                    },
                    policy);
}

}  // namespace dspark
