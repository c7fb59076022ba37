#include "cli/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/law.h"
#include "replay/off_policy.h"
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

bool same_setting(const Setting& a, const Setting& b) {
  return a.verification == b.verification && a.sampling.drafts == b.sampling.drafts &&
         a.sampling.temperature == b.sampling.temperature && a.sampling.top_k == b.sampling.top_k &&
         a.sampling.top_p == b.sampling.top_p && a.sampling.top_p_rule == b.sampling.top_p_rule;
}

bool contains(const std::vector<Verification>& list, Verification value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// What one choice of the sampling axes asks of one trace. The recorded value stands for every value
// that is the same setting.
class Request {
 public:
  Request(const Plan& plan, const SamplingChoice& choice, const TraceHeader& trace)
      : plan_(plan), choice_(choice), trace_(trace) {
    label_ = {trace.temperature, trace.top_k, trace.top_p, rule_name(choice.top_p_rule)};
    label_.drafts = choice.greedy_drafts ? "greedy" : "sampled";
    if (choice.temperature && !same_temperature(*choice.temperature, trace.temperature)) {
      label_.temperature = *choice.temperature;
      differ("temperature", shortest(*choice.temperature), shortest(trace.temperature));
    }
    if (choice.top_k && !same_top_k(*choice.top_k, trace.top_k, trace.vocab_size)) {
      label_.top_k = *choice.top_k;
      differ("top_k", std::to_string(*choice.top_k), std::to_string(trace.top_k));
    }
    if (choice.top_p && !same_top_p(*choice.top_p, trace.top_p)) {
      label_.top_p = *choice.top_p;
      differ("top_p", shortest(*choice.top_p), shortest(trace.top_p));
    }
  }

  /// What the temperature asked for says about verification.
  [[nodiscard]] Verification natural_verification() const {
    return label_.temperature >= kGreedyTemperature ? Verification::probabilistic
                                                    : Verification::greedy;
  }

  /// Null where the trace cannot answer this verification at all.
  [[nodiscard]] std::optional<Setting> setting(Verification verification) const {
    if (verification == Verification::greedy) return greedy_setting();
    if (natural_verification() == Verification::greedy) return std::nullopt;
    if (trace_.greedy()) return std::nullopt;
    if (trace_.kind == TraceKind::rounds) {
      if (difference_) refuse(*difference_);
      if (choice_.greedy_drafts) refuse({"drafts", "greedy", "sampled"});
    }
    if (difference_ && !is_covered(trace_, label_, verification)) refuse_uncovered();
    return Setting{verification, label_, difference_.has_value()};
  }

  [[noreturn]] void refuse_temperature() const {
    refuse({"temperature", shortest(label_.temperature), shortest(trace_.temperature)});
  }

 private:
  struct Difference {
    std::string name, asked, recorded;
  };

  void differ(const char* name, const std::string& asked, const std::string& recorded) {
    if (!difference_) difference_ = Difference{name, asked, recorded};
  }

  // Argmax drafts against the target's argmax: temperature and filters change neither.
  [[nodiscard]] std::optional<Setting> greedy_setting() const {
    if (trace_.kind == TraceKind::rounds && !trace_.greedy()) {
      if (choice_.temperature && natural_verification() == Verification::greedy) {
        refuse_temperature();
      }
      return std::nullopt;
    }
    SamplingLabel label{trace_.greedy() ? trace_.temperature : 0.0, trace_.top_k, trace_.top_p,
                        label_.top_p_rule};
    label.drafts = "greedy";
    return Setting{Verification::greedy, label, !trace_.greedy()};
  }

  [[noreturn]] void refuse(const Difference& difference) const {
    const auto& [name, asked, recorded] = difference;
    const char* why = trace_.kind == TraceKind::rounds
                          ? "a trace of rounds is replayed in its own setting only"
                          : "nothing but greedy verification can be estimated from a greedy trace";
    throw policy_error(place_in_plan(plan_, choice_.position),
                       fmt::format("{} {} is not what {} was recorded with ({})", name, asked,
                                   trace_.file, recorded),
                       fmt::format("leave {} out or give {}; {}", name, recorded, why));
  }

  [[noreturn]] void refuse_uncovered() const {
    throw policy_error(
        place_in_plan(plan_, choice_.position),
        fmt::format("{} {} can draw tokens that {} never shows (recorded at temperature {}, top_k "
                    "{}, top_p {})",
                    difference_->name, difference_->asked, trace_.file,
                    shortest(trace_.temperature), trace_.top_k, shortest(trace_.top_p)),
        "keep the recorded filters or narrower ones, with top_p at no higher temperature");
  }

  const Plan& plan_;
  const SamplingChoice& choice_;
  const TraceHeader& trace_;
  SamplingLabel label_;
  std::optional<Difference> difference_;  // the first one
};

void add_once(std::vector<Setting>& settings, const Setting& setting) {
  const bool known = std::any_of(settings.begin(), settings.end(), [&](const Setting& other) {
    return same_setting(other, setting);
  });
  if (!known) settings.push_back(setting);
}

// True if `verification` is better answered by another trace, exactly: the one of the same domain
// that was recorded so, where this one is the only one that was not.
bool answered_by_partner(const TraceHeader& trace, Verification verification,
                         const std::vector<TraceHeader>& traces) {
  const auto recorded = [&](Verification how) {
    return std::count_if(traces.begin(), traces.end(), [&](const TraceHeader& other) {
      return recorded_verification(other) == how && other.domain == trace.domain;
    });
  };
  const Verification own = recorded_verification(trace);
  return own != verification && !trace.domain.empty() && recorded(own) == 1 &&
         recorded(verification) == 1;
}

// Settings of one trace; `unanswered` gets the verifications asked for that it does not answer.
std::vector<Setting> settings_for(const Plan& plan, const TraceHeader& trace,
                                  const std::vector<TraceHeader>& traces,
                                  std::vector<Verification>& unanswered) {
  std::vector<Setting> settings;
  std::vector<Verification> answered;
  for (const SamplingChoice& choice : plan.sampling) {
    const Request request(plan, choice, trace);
    if (plan.verification.empty()) {
      const std::optional<Setting> setting = request.setting(request.natural_verification());
      if (!setting) request.refuse_temperature();
      add_once(settings, *setting);
      continue;
    }
    for (const Verification asked : plan.verification) {
      // A temperature of 0 asks for the estimate by name, whatever other traces say.
      const bool by_name = choice.temperature && *choice.temperature < kGreedyTemperature;
      if (!by_name && answered_by_partner(trace, asked, traces)) continue;
      const std::optional<Setting> setting = request.setting(asked);
      if (!setting) continue;
      add_once(settings, *setting);
      answered.push_back(asked);
    }
  }
  for (const Verification asked : plan.verification) {
    if (!contains(answered, asked)) unanswered.push_back(asked);
  }
  return settings;
}

void require_some_trace(const Plan& plan,
                        const std::vector<std::vector<Verification>>& unanswered) {
  for (const Verification asked : plan.verification) {
    const bool by_none = std::all_of(unanswered.begin(), unanswered.end(),
                                     [&](const auto& list) { return contains(list, asked); });
    if (by_none) {
      throw policy_error(
          place_in_plan(plan, plan.verification_position),
          fmt::format("no trace can answer {} verification", verification_name(asked)),
          asked == Verification::greedy
              ? "give a trace recorded at temperature 0 or an anchors trace, or leave 'greedy' out"
              : "give a trace recorded at a temperature above 0, or leave 'probabilistic' out");
    }
  }
}

}  // namespace

SettingChoice choose_settings(const Plan& plan, const std::vector<TraceHeader>& traces) {
  SettingChoice out;
  std::vector<std::vector<Verification>> unanswered(traces.size());
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const TraceHeader& trace = traces[i];
    out.by_trace.push_back(settings_for(plan, trace, traces, unanswered[i]));
    for (const Verification asked : unanswered[i]) {
      out.notes.push_back(
          fmt::format("{}: recorded at temperature {}, so {} verification is left out for it",
                      trace.file, shortest(trace.temperature), verification_name(asked)));
    }
    for (const Setting& setting : out.by_trace.back()) {
      if (!setting.off_policy) continue;
      out.notes.push_back(fmt::format(
          "{}: {} verification at temperature {}, top_k {}, top_p {} was not recorded; it is "
          "estimated from the recording (off_policy)",
          trace.file, verification_name(setting.verification),
          shortest(setting.sampling.temperature), setting.sampling.top_k,
          shortest(setting.sampling.top_p)));
    }
  }
  require_some_trace(plan, unanswered);
  return out;
}

std::string place_in_plan(const Plan& plan, const SourcePosition& position) {
  if (position.line <= 0) return plan.file;
  return fmt::format("{}:{}:{}", plan.file, position.line, position.column);
}

}  // namespace dspark
