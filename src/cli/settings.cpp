#include "cli/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/law.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

const char* rule_name(TopPRule rule) {
  return rule == TopPRule::water_filling ? "water_filling" : "include_crossing";
}

Verification recorded_verification(const TraceHeader& trace) {
  return trace.greedy() ? Verification::greedy : Verification::probabilistic;
}

// Recorders store numbers as f32 or f64; a policy file has decimals.
bool same_number(double a, double b) { return static_cast<float>(a) == static_cast<float>(b); }

bool same_temperature(double a, double b) {
  const bool both_greedy = !(a >= kGreedyTemperature) && !(b >= kGreedyTemperature);
  return both_greedy || same_number(a, b);
}

bool same_top_k(std::int64_t a, std::int64_t b, std::int32_t vocab_size) {
  const auto effective = [&](std::int64_t k) { return k <= 0 || k >= vocab_size ? 0 : k; };
  return effective(a) == effective(b);
}

bool same_top_p(double a, double b) {
  const bool both_off = !(a < 1.0 - 1e-6) && !(b < 1.0 - 1e-6);
  return both_off || same_number(a, b);
}

[[noreturn]] void refuse_setting(const Plan& plan, const SamplingChoice& choice,
                                 const TraceHeader& trace, const char* name,
                                 const std::string& asked, const std::string& recorded) {
  throw policy_error(
      place_in_plan(plan, choice.position),
      fmt::format("{} {} is not what {} was recorded with ({})", name, asked, trace.file, recorded),
      fmt::format("leave {} out or give {}; estimates for other settings are not supported in this "
                  "version",
                  name, recorded));
}

SamplingLabel label_for(const Plan& plan, const SamplingChoice& choice, const TraceHeader& trace) {
  if (choice.temperature && !same_temperature(*choice.temperature, trace.temperature)) {
    refuse_setting(plan, choice, trace, "temperature", shortest(*choice.temperature),
                   shortest(trace.temperature));
  }
  if (choice.top_k && !same_top_k(*choice.top_k, trace.top_k, trace.vocab_size)) {
    refuse_setting(plan, choice, trace, "top_k", std::to_string(*choice.top_k),
                   std::to_string(trace.top_k));
  }
  if (choice.top_p && !same_top_p(*choice.top_p, trace.top_p)) {
    refuse_setting(plan, choice, trace, "top_p", shortest(*choice.top_p), shortest(trace.top_p));
  }
  return {trace.temperature, trace.top_k, trace.top_p, rule_name(choice.top_p_rule)};
}

// Choices that differ only in how they name the recorded setting are one setting.
std::vector<Setting> settings_for(const Plan& plan, const TraceHeader& trace) {
  std::vector<Setting> settings;
  for (const SamplingChoice& choice : plan.sampling) {
    const SamplingLabel label = label_for(plan, choice, trace);
    const bool known = std::any_of(settings.begin(), settings.end(), [&](const Setting& setting) {
      return setting.sampling.top_p_rule == label.top_p_rule;
    });
    if (!known) settings.push_back({recorded_verification(trace), label});
  }
  return settings;
}

bool contains(const std::vector<Verification>& list, Verification value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

void require_some_trace(const Plan& plan, const std::vector<TraceHeader>& traces) {
  for (const Verification asked : plan.verification) {
    const bool answered = std::any_of(traces.begin(), traces.end(), [&](const TraceHeader& trace) {
      return recorded_verification(trace) == asked;
    });
    if (!answered) {
      throw policy_error(
          place_in_plan(plan, plan.verification_position),
          fmt::format("no trace was recorded with {} verification", verification_name(asked)),
          asked == Verification::greedy
              ? "give a trace recorded at temperature 0, or leave 'greedy' out"
              : "give a trace recorded at a temperature above 0, or leave 'probabilistic' out");
    }
  }
}

}  // namespace

SettingChoice choose_settings(const Plan& plan, const std::vector<TraceHeader>& traces) {
  require_some_trace(plan, traces);
  SettingChoice out;
  for (const TraceHeader& trace : traces) {
    const Verification recorded = recorded_verification(trace);
    const bool answers = plan.verification.empty() || contains(plan.verification, recorded);
    out.by_trace.push_back(answers ? settings_for(plan, trace) : std::vector<Setting>{});
    for (const Verification asked : plan.verification) {
      if (asked == recorded) continue;
      out.notes.push_back(
          fmt::format("{}: recorded at temperature {}, so {} verification is left out for it",
                      trace.file, shortest(trace.temperature), verification_name(asked)));
    }
  }
  return out;
}

std::string place_in_plan(const Plan& plan, const SourcePosition& position) {
  if (position.line <= 0) return plan.file;
  return fmt::format("{}:{}:{}", plan.file, position.line, position.column);
}

}  // namespace dspark
