#include "cost/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cost/lines.h"
#include "support/text.h"

namespace dspark {
namespace {

constexpr double kPlateauSpan = 4;  // times the tokens

std::string ms_text(double ms) { return fmt::format("{:.4g} ms", ms); }

constexpr const char* kNothingToOptimise = "verifying everything always looks best";

void add_flat(std::vector<CostProblem>& problems, const std::vector<CostLine>& lines) {
  if (!is_flat(lines)) return;
  const bool one_probe = std::all_of(lines.begin(), lines.end(),
                                     [](const CostLine& line) { return line.ms.size() == 1; });
  std::string what = "one probe";
  if (!one_probe) {
    what = "flat: the times at different tokens lie within 2 %";
    if (lines.size() == 1) {
      const auto& times = lines.front().ms.value;
      const auto [least, most] = std::minmax_element(times.begin(), times.end());
      what += fmt::format(" ({} to {})", ms_text(*least), ms_text(*most));
    }
  }
  problems.push_back({CostSeverity::refuse, lines.front().where,
                      fmt::format("{}, so {}", what, kNothingToOptimise)});
}

void add_falling(std::vector<CostProblem>& problems, const std::vector<CostLine>& lines) {
  std::optional<CostProblem> first;
  std::int64_t count = 0;
  for (const CostLine& line : lines) {
    for (std::size_t i = 1; i < line.ms.size(); ++i) {
      if (line.ms.value[i] >= line.ms.value[i - 1]) continue;
      ++count;
      if (first) continue;
      first = {CostSeverity::warning, line.where,
               fmt::format("not monotone: {} tokens take {}, fewer than the {} of {} tokens",
                           line.ms.at[i], ms_text(line.ms.value[i]), ms_text(line.ms.value[i - 1]),
                           line.ms.at[i - 1])};
    }
  }
  if (!first) return;
  if (count > 1) first->what += fmt::format(" (and {} more)", counted(count - 1, "fall"));
  problems.push_back(*first);
}

struct Plateau {
  std::size_t first = 0;
  std::size_t last = 0;
  double span = 0;
};

// The widest part of a line, by the ratio of its tokens, whose times lie within 2 %.
Plateau widest_plateau(const CostCurve& curve) {
  Plateau widest;
  std::multiset<double> window;
  std::size_t begin = 0;
  for (std::size_t end = 0; end < curve.size(); ++end) {
    window.insert(curve.value[end]);
    while (*window.rbegin() > kFlatRatio * *window.begin()) {
      window.erase(window.find(curve.value[begin++]));
    }
    // A probe at 0 tokens stands for those below the next one.
    const auto from = static_cast<double>(std::max<std::int64_t>(curve.at[begin], 1));
    const double span = static_cast<double>(curve.at[end]) / from;
    if (span > widest.span) widest = {begin, end, span};
  }
  return widest;
}

void add_plateau(std::vector<CostProblem>& problems, const std::vector<CostLine>& lines) {
  if (is_flat(lines)) return;
  const CostLine* line = nullptr;
  Plateau widest;
  for (const CostLine& candidate : lines) {
    const Plateau plateau = widest_plateau(candidate.ms);
    if (plateau.span <= widest.span) continue;
    widest = plateau;
    line = &candidate;
  }
  if (line == nullptr || widest.span < kPlateauSpan) return;
  problems.push_back(
      {CostSeverity::warning, line->where,
       fmt::format(
           "from {} to {} tokens the time stays within 2 % ({}): a plateau of the hardware, "
           "or the budgets of the profile were not honoured",
           line->ms.at[widest.first], line->ms.at[widest.last],
           ms_text(line->ms.value[widest.first]))});
}

void add_single_measurements(std::vector<CostProblem>& problems,
                             const std::vector<CostLine>& lines) {
  if (lines.size() < 2 || is_flat(lines)) return;
  for (const CostLine& line : lines) {
    if (line.ms.size() > 1) continue;
    problems.push_back({CostSeverity::warning, line.where,
                        "one measurement at this request count: its time is taken whatever the "
                        "tokens"});
    return;
  }
}

// SGLang tells its two shapes apart by this text, wherever it stands in the file.
void add_mistakable_text(std::vector<CostProblem>& problems, const CostTable& table) {
  if (table.format != CostFormat::sglang_1d) return;
  for (const auto& [key, value] : table.carried) {
    if ((key + value).find("bias_seconds") == std::string::npos) continue;
    problems.push_back({CostSeverity::warning, key,
                        "SGLang takes a file with the text 'bias_seconds' for a 2-D table"});
    return;
  }
}

void add_other_lookup(std::vector<CostProblem>& problems, const CostTable& table) {
  if (table.format != CostFormat::trtllm) return;
  for (const auto& [key, value] : table.carried) {
    if (key != "_meta") continue;
    const nlohmann::json meta = nlohmann::json::parse(value);
    if (meta.is_object() && meta.value("lookup", nlohmann::json("interp")) != "interp") {
      problems.push_back({CostSeverity::warning, "_meta.lookup",
                          "not \"interp\", and it is interpolated nevertheless"});
    }
  }
}

constexpr const char* kNoDraft =
    "no draft time: drafting is free, unless the times are those of whole steps";

void add_missing_draft(std::vector<CostProblem>& problems, bool has_draft) {
  if (!has_draft) problems.push_back({CostSeverity::warning, "draft", kNoDraft});
}

// How the engine's rule finds a time beyond the last probe.
const char* beyond_text(CostFormat format) {
  switch (format) {
    case CostFormat::trtllm_exact:
      return "have no time";
    case CostFormat::mlx:
    case CostFormat::rows:
      return "continue the last slope";
    default:
      return "cost what the last probe does";
  }
}

}  // namespace

const char* cost_severity_name(CostSeverity severity) {
  return severity == CostSeverity::refuse ? "refuse" : "warning";
}

std::vector<CostProblem> lint(const CostTable& table) {
  std::vector<CostProblem> problems;
  const std::vector<CostLine> lines = cost_lines(table);
  add_flat(problems, lines);
  add_falling(problems, lines);
  add_plateau(problems, lines);
  add_single_measurements(problems, lines);
  add_mistakable_text(problems, table);
  add_other_lookup(problems, table);
  add_missing_draft(problems, !table.draft.empty());
  return problems;
}

std::vector<CostProblem> lint_range(const CostTable& table, std::int64_t max_requests,
                                    std::int64_t max_tokens) {
  std::vector<CostProblem> problems;
  const std::vector<CostLine> lines = cost_lines(table);
  std::int64_t tokens = 0;
  std::int64_t requests = table.requests.empty() ? 0 : table.requests.at.back();
  for (const CostLine& line : lines) {
    tokens = std::max(tokens, line.ms.at.back());
    requests = std::max(requests, line.requests.value_or(0));
  }
  if (requests > 0 && max_requests > requests) {
    problems.push_back({CostSeverity::warning, lines.front().where,
                        fmt::format("narrower than asked for: steps above {} {}",
                                    counted(requests, "request"), beyond_text(table.format))});
  }
  if (max_tokens > tokens) {
    problems.push_back({CostSeverity::warning, lines.front().where,
                        fmt::format("narrower than asked for: steps above {} {}",
                                    counted(tokens, "token"), beyond_text(table.format))});
  }
  return problems;
}

std::vector<CostProblem> lint(const CostModel& model) {
  std::vector<CostProblem> problems;
  if (const CostTable* table = model.table()) {
    problems = lint(*table);
    if (table->draft.empty() && model.has_draft()) problems.pop_back();  // given elsewhere
  } else if (model.is_flat()) {
    problems.push_back({CostSeverity::refuse, "cost.linear",
                        fmt::format("verify_token and accept are 0, so {}", kNothingToOptimise)});
  }
  return problems;
}

}  // namespace dspark
