#include "report/grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "support/text.h"

namespace dspark {
namespace {

constexpr const char* kMissing = "-";

using Numbers = std::vector<std::optional<double>>;

bool exists(const std::optional<double>& number) { return number && std::isfinite(*number); }

// Takes the values of one column from all rows.
template <class Row, class Get>
auto collect(const std::vector<const Row*>& rows, const Get& get) {
  std::vector<decltype(get(*rows.front()))> out;
  out.reserve(rows.size());
  for (const Row* row : rows) out.push_back(get(*row));
  return out;
}

// A column is shown only where some row has a value.
void add_text(Grid& grid, const std::string& header, std::vector<std::string> cells,
              bool is_number = false) {
  const bool all_missing = std::all_of(cells.begin(), cells.end(), [](const std::string& cell) {
    return cell.empty() || cell == kMissing;
  });
  if (all_missing) return;
  grid.columns.push_back({header, is_number, std::move(cells)});
}

void add_fixed(Grid& grid, const std::string& header, const Numbers& numbers, int decimals) {
  std::vector<std::string> cells;
  for (const auto& number : numbers) {
    cells.push_back(exists(number) ? fmt::format("{:.{}f}", *number, decimals) : kMissing);
  }
  add_text(grid, header, std::move(cells), true);
}

// For quantities in units that only the user knows: as many decimals as give the largest value of
// the column four significant digits.
void add_scaled(Grid& grid, const std::string& header, const Numbers& numbers) {
  double largest = 0;
  for (const auto& number : numbers) {
    if (exists(number)) largest = std::max(largest, std::abs(*number));
  }
  if (largest < 1e7 && (largest == 0 || largest >= 1e-5)) {
    int decimals = 3;
    for (double bound = 10; decimals > 0 && largest >= bound; bound *= 10) --decimals;
    for (double bound = 1; largest > 0 && largest < bound; bound /= 10) ++decimals;
    add_fixed(grid, header, numbers, decimals);
    return;
  }
  std::vector<std::string> cells;
  for (const auto& number : numbers) {
    cells.push_back(exists(number) ? fmt::format("{:.4g}", *number) : kMissing);
  }
  add_text(grid, header, std::move(cells), true);
}

std::string parameter_text(const ParameterValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) {
    return std::isfinite(*number) ? shortest(*number) : kMissing;
  }
  return escape_text(std::get<std::string>(value));
}

// The policy in the words of a policy file.
std::string policy_text(const PolicyResult& row) {
  std::string out = escape_text(row.policy);
  for (const auto& [name, value] : row.parameters) {
    out += fmt::format(" {}={}", escape_text(name), parameter_text(value));
  }
  return out;
}

// Only the fields of the sampling setting that differ between the rows.
template <class Row>
void add_sampling(Grid& grid, const std::vector<const Row*>& rows) {
  const SamplingLabel& first = rows.front()->sampling;
  const auto all_same = [&](const auto& get) {
    return std::all_of(rows.begin(), rows.end(),
                       [&](const Row* row) { return get(row->sampling) == get(first); });
  };
  const auto add = [&](const char* header, const auto& get, const auto& print, bool is_number) {
    if (all_same(get)) return;
    add_text(grid, header, collect(rows, [&](const Row& row) { return print(get(row.sampling)); }),
             is_number);
  };
  add(
      "temperature", [](const SamplingLabel& s) { return s.temperature; },
      [](double t) { return std::isfinite(t) ? shortest(t) : std::string(kMissing); }, true);
  add(
      "top_k", [](const SamplingLabel& s) { return s.top_k; },
      [](std::int64_t k) { return std::to_string(k); }, true);
  add(
      "top_p", [](const SamplingLabel& s) { return s.top_p; },
      [](double p) { return std::isfinite(p) ? shortest(p) : std::string(kMissing); }, true);
  add(
      "top_p_rule", [](const SamplingLabel& s) { return s.top_p_rule; },
      [](const std::string& rule) { return escape_text(rule); }, false);
}

Grid positions_grid(const std::vector<const PositionResult*>& rows) {
  Grid grid;
  if (rows.empty()) return grid;
  const auto numbers = [&](std::optional<double> PositionResult::*field) {
    return collect(rows, [field](const PositionResult& row) { return row.*field; });
  };
  add_sampling(grid, rows);
  add_text(grid, "k",
           collect(rows, [](const PositionResult& row) { return std::to_string(row.position); }),
           true);
  add_fixed(grid, "survival", numbers(&PositionResult::survival), 3);
  add_fixed(grid, "predicted", numbers(&PositionResult::predicted), 3);
  add_fixed(grid, "predicted se", numbers(&PositionResult::predicted_se), 4);
  add_fixed(grid, "conditional", numbers(&PositionResult::conditional), 3);
  add_fixed(grid, "predicted conditional", numbers(&PositionResult::predicted_conditional), 3);
  add_fixed(grid, "ece", numbers(&PositionResult::conditional_ece), 3);
  add_fixed(grid, "top-1", numbers(&PositionResult::top1_agreement), 3);
  return grid;
}

Grid policies_grid(const std::vector<const PolicyResult*>& rows) {
  Grid grid;
  if (rows.empty()) return grid;
  const auto numbers = [&](std::optional<double> PolicyResult::*field) {
    return collect(rows, [field](const PolicyResult& row) { return row.*field; });
  };
  int rank = 0;
  add_text(grid, "rank",
           collect(rows,
                   [&rank](const PolicyResult& row) {
                     return exists(row.tokens_per_cost) ? std::to_string(++rank)
                                                        : std::string(kMissing);
                   }),
           true);
  add_text(grid, "policy", collect(rows, policy_text));
  add_sampling(grid, rows);
  if (std::any_of(rows.begin(), rows.end(),
                  [](const PolicyResult* row) { return row->concurrency != 1; })) {
    add_text(grid, "requests",
             collect(rows, [](const PolicyResult& row) { return std::to_string(row.concurrency); }),
             true);
  }
  add_fixed(grid, "tau", numbers(&PolicyResult::tau), 3);
  add_fixed(grid, "tau lo", numbers(&PolicyResult::tau_lo), 3);
  add_fixed(grid, "tau hi", numbers(&PolicyResult::tau_hi), 3);
  add_text(grid, "censored",
           collect(rows,
                   [](const PolicyResult& row) {
                     return row.censored_rounds ? std::to_string(*row.censored_rounds)
                                                : std::string(kMissing);
                   }),
           true);
  add_fixed(grid, "verified", numbers(&PolicyResult::verified_per_round), 3);
  add_fixed(grid, "verified se", numbers(&PolicyResult::verified_per_round_se), 4);
  add_fixed(grid, "acceptance %",
            collect(rows,
                    [](const PolicyResult& row) -> std::optional<double> {
                      if (!row.acceptance_rate) return std::nullopt;
                      return 100.0 * *row.acceptance_rate;
                    }),
            1);
  add_scaled(grid, "cost/round", numbers(&PolicyResult::cost_per_round));
  add_scaled(grid, "tokens/cost", numbers(&PolicyResult::tokens_per_cost));
  add_fixed(grid, "speedup", numbers(&PolicyResult::speedup), 3);
  add_text(grid, "notes", collect(rows, [](const PolicyResult& row) {
             return std::string(row.lossless ? "" : "not lossless");
           }));
  return grid;
}

std::string about_trace(const TraceSummary& trace) {
  std::string out = escape_text(trace.kind);
  const auto add = [&out](const std::string& text) { out += ", " + text; };
  if (trace.anchors) {
    std::string text = counted(*trace.anchors, "position");
    if (trace.sequences) text += " in " + counted(*trace.sequences, "sequence");
    add(text);
  }
  if (trace.rounds) {
    add(counted(*trace.rounds, "round"));
    if (trace.reproduced) add(fmt::format("{} reproduced", *trace.reproduced));
    if (trace.diverged) add(fmt::format("{} diverged", *trace.diverged));
    if (trace.censored) add(fmt::format("{} censored", *trace.censored));
  }
  add(fmt::format("vocabulary {}", trace.vocab_size));
  add(fmt::format("block size {}", trace.block_size));
  if (std::isfinite(trace.temperature)) {
    add(fmt::format("temperature {}", shortest(trace.temperature)));
  }
  if (!trace.domain.empty()) add(escape_text(trace.domain));
  if (trace.invalid_rows > 0) add(counted(trace.invalid_rows, "invalid row"));
  if (trace.impossible_tokens > 0) add(counted(trace.impossible_tokens, "impossible token"));
  if (trace.near_ties > 0) add(counted(trace.near_ties, "near tie"));
  return out;
}

// The rows of one section.
struct Group {
  std::string trace;
  std::string verification;
  std::vector<const PositionResult*> positions;
  std::vector<const PolicyResult*> policies;
};

class Groups {
 public:
  Group& of(const std::string& trace, const std::string& verification) {
    const auto [found, is_new] = index_.try_emplace({trace, verification}, groups_.size());
    if (is_new) groups_.push_back({trace, verification, {}, {}});
    return groups_[found->second];
  }
  [[nodiscard]] const std::vector<Group>& all() const { return groups_; }

 private:
  std::vector<Group> groups_;
  std::map<std::pair<std::string, std::string>, std::size_t> index_;
};

Section make_section(const Group& group, const TraceSummary* trace) {
  Section section;
  section.title = escape_text(group.trace);
  if (!group.verification.empty()) section.title += ", " + escape_text(group.verification);
  if (trace != nullptr) section.about = about_trace(*trace);
  section.positions = positions_grid(group.positions);
  section.policies = policies_grid(group.policies);
  return section;
}

}  // namespace

std::vector<std::string> preamble(const ReplayResult& result) {
  std::string first =
      fmt::format("dspark-replay {}, {}", escape_text(result.version), escape_text(result.backend));
  if (!result.device.empty()) first += fmt::format(" ({})", escape_text(result.device));
  first += fmt::format(", seed {}, {} repeats", result.seed, result.repeats);
  return {first, fmt::format("cost per round: draft {}, verify_base {}, verify_token {}, accept {}",
                             shortest(result.cost.draft), shortest(result.cost.verify_base),
                             shortest(result.cost.verify_token), shortest(result.cost.accept))};
}

std::vector<Section> make_sections(const ReplayResult& result) {
  Groups groups;
  for (const PositionResult& row : result.positions) {
    groups.of(row.trace, row.verification).positions.push_back(&row);
  }
  for (const PolicyResult& row : result.results) {
    groups.of(row.trace, row.verification).policies.push_back(&row);
  }
  std::vector<Section> sections;
  std::vector<bool> done(groups.all().size(), false);
  for (const TraceSummary& trace : result.traces) {
    bool has_rows = false;
    for (std::size_t i = 0; i < done.size(); ++i) {
      const Group& group = groups.all()[i];
      if (done[i] || group.trace != trace.file) continue;
      sections.push_back(make_section(group, &trace));
      done[i] = has_rows = true;
    }
    if (!has_rows) sections.push_back(make_section({trace.file, "", {}, {}}, &trace));
  }
  for (std::size_t i = 0; i < done.size(); ++i) {
    if (!done[i]) sections.push_back(make_section(groups.all()[i], nullptr));
  }
  return sections;
}

}  // namespace dspark
