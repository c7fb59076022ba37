#include "cli/cost_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cli/json_documents.h"
#include "report/layout.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

using Json = JsonObject;

// One number of a table.
struct Probe {
  const char* part;  ///< verify, draft, overhead; of a sum its constant, requests and tokens
  std::optional<std::int64_t> requests, tokens;
  double value = 0;  ///< in the file's unit
  double ms = 0;
};

const char* unit_of(const CostTable& table) {
  if (table.rates) return "steps/s";
  return table.format == CostFormat::sglang_2d ? "s" : "ms";
}

double in_ms(const CostTable& table, double value) {
  if (table.rates) return 1000.0 / value;
  return table.format == CostFormat::sglang_2d ? 1000.0 * value : value;
}

std::vector<Probe> probes_of(const CostTable& table) {
  std::vector<Probe> probes;
  const bool summed = is_sum(table.format);
  if (summed) {
    probes.push_back({"constant", {}, {}, table.constant, in_ms(table, table.constant)});
  }
  for (std::size_t i = 0; i < table.requests.size(); ++i) {
    const double value = table.requests.value[i];
    probes.push_back({"requests", table.requests.at[i], {}, value, in_ms(table, value)});
  }
  for (std::size_t i = 0; i < table.tokens.size(); ++i) {
    const double value = table.tokens.value[i];
    probes.push_back(
        {summed ? "tokens" : "verify", {}, table.tokens.at[i], value, in_ms(table, value)});
  }
  for (const CostRow& row : table.rows) {
    for (std::size_t i = 0; i < row.curve.size(); ++i) {
      const double ms = row.curve.value[i];
      probes.push_back({"verify", row.requests, row.curve.at[i], ms, ms});
    }
  }
  for (std::size_t i = 0; i < table.draft.size(); ++i) {
    const double ms = table.draft.value[i];
    probes.push_back({"draft", table.draft.at[i], {}, ms, ms});
  }
  if (table.overhead) probes.push_back({"overhead", {}, {}, *table.overhead, *table.overhead});
  return probes;
}

std::string problem_text(const CostProblem& problem) {
  return escape_text(fmt::format("{}: {}", problem.where, problem.what));
}

// --- JSON ---

Json json_count(const std::optional<std::int64_t>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json json_guard(const std::optional<CostDrainGuard>& guard) {
  if (!guard) return nullptr;
  Json out;
  out["loss_multiplier"] = guard->loss_multiplier;
  out["mean_output_tokens_per_request_iteration"] = guard->mean_output_tokens_per_request_iteration;
  out["minimum_group_value_ms"] = guard->minimum_group_value_ms;
  out["tail_graph_batch_size"] = guard->tail_graph_batch_size;
  return out;
}

// Adds the report's fields to `out`.
void add_report(Json& out, const CostReport& report) {
  const CostTable& table = report.table;
  out["file"] = escape_text(table.file);
  out["table"] = cost_format_name(table.format);
  out["unit"] = unit_of(table);
  out["lookup"] = cost_lookup_rule(table.format);
  out["flat"] = report.flat;
  out["minimum_predicted_gain"] =
      table.min_predicted_gain ? Json(*table.min_predicted_gain) : Json(nullptr);
  out["drain_guard"] = json_guard(table.drain_guard);
  out["notes"] = Json::array();
  for (const std::string& note : table.notes) out["notes"].push_back(escape_text(note));
  out["probes"] = Json::array();
  for (const Probe& probe : probes_of(table)) {
    Json entry;
    entry["part"] = probe.part;
    entry["requests"] = json_count(probe.requests);
    entry["tokens"] = json_count(probe.tokens);
    entry["value"] = probe.value;
    entry["ms"] = probe.ms;
    out["probes"].push_back(std::move(entry));
  }
  out["problems"] = Json::array();
  for (const CostProblem& problem : report.problems) {
    Json entry;
    entry["severity"] = cost_severity_name(problem.severity);
    entry["where"] = escape_text(problem.where);
    entry["what"] = escape_text(problem.what);
    out["problems"].push_back(std::move(entry));
  }
}

// --- CSV: one row per probe ---

std::string csv_count(const std::optional<std::int64_t>& value) {
  return value ? fmt::format("{}", *value) : std::string();
}

std::string as_csv(const std::vector<CostReport>& reports) {
  std::string text = "file,table,part,requests,tokens,value,unit,ms\n";
  for (const CostReport& report : reports) {
    const CostTable& table = report.table;
    for (const Probe& probe : probes_of(table)) {
      text += fmt::format("{},{},{},{},{},{},{},{}\n", csv_text(table.file),
                          cost_format_name(table.format), probe.part, csv_count(probe.requests),
                          csv_count(probe.tokens), shortest(probe.value), unit_of(table),
                          shortest(probe.ms));
    }
  }
  return text;
}

// --- What people read: table and md have the same content ---

struct Fact {
  const char* label;
  std::string text;
};

std::string probes_text(const CostTable& table) {
  const std::vector<Probe> probes = probes_of(table);
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> requests;
  for (const Probe& probe : probes) {
    if (probe.part == std::string_view("draft")) continue;
    if (probe.tokens) tokens.push_back(*probe.tokens);
    if (probe.requests) requests.push_back(*probe.requests);
  }
  const auto range = [](const std::vector<std::int64_t>& values, const char* noun) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return *least == *most ? fmt::format("{} {}", noun, *least)
                           : fmt::format("{} {} to {}", noun, *least, *most);
  };
  std::string text = counted(static_cast<std::int64_t>(tokens.size()), "token probe");
  if (!tokens.empty()) text += ", " + range(tokens, "tokens");
  if (!requests.empty()) text += ", " + range(requests, "requests");
  return text;
}

std::vector<Fact> facts_of(const CostReport& report) {
  const CostTable& table = report.table;
  std::vector<Fact> facts = {{"unit", unit_of(table)},
                             {"lookup", std::string(cost_lookup_rule(table.format))},
                             {"probes", probes_text(table)}};
  if (table.min_predicted_gain) {
    facts.push_back({"min gain", shortest(*table.min_predicted_gain)});
  }
  if (const auto& guard = table.drain_guard) {
    facts.push_back(
        {"guard",
         fmt::format("drain loss times {}, {} tokens per request, at least {} ms, tail batch {}",
                     shortest(guard->loss_multiplier),
                     shortest(guard->mean_output_tokens_per_request_iteration),
                     shortest(guard->minimum_group_value_ms), guard->tail_graph_batch_size)});
  }
  for (const std::string& note : table.notes) facts.push_back({"read", escape_text(note)});
  return facts;
}

std::string title_of(const CostReport& report) {
  return fmt::format("{} ({})", escape_text(report.table.file),
                     cost_format_name(report.table.format));
}

constexpr const char* kMissing = "-";

Grid grid_of(const CostTable& table) {
  const bool is_ms = unit_of(table) == std::string_view("ms");
  Grid grid;
  grid.columns = {{"part", false, {}}, {"requests", true, {}}, {"tokens", true, {}}};
  if (!is_ms) grid.columns.push_back({unit_of(table), true, {}});
  grid.columns.push_back({"ms", true, {}});
  const auto count_text = [](const std::optional<std::int64_t>& value) {
    return value ? fmt::format("{}", *value) : std::string(kMissing);
  };
  for (const Probe& probe : probes_of(table)) {
    std::vector<std::string> cells = {probe.part, count_text(probe.requests),
                                      count_text(probe.tokens)};
    if (!is_ms) cells.push_back(shortest(probe.value));
    cells.push_back(fmt::format("{:.4f}", probe.ms));
    grid.add_row(std::move(cells));
  }
  // Columns that say nothing.
  std::erase_if(grid.columns, [](const GridColumn& column) {
    return std::all_of(column.cells.begin(), column.cells.end(),
                       [](const std::string& cell) { return cell == kMissing; });
  });
  return grid;
}

std::string as_table(const CostReport& report) {
  std::string text = title_of(report) + "\n";
  for (const Fact& fact : facts_of(report)) {
    text += fmt::format("  {:<8} {}\n", fact.label, fact.text);
  }
  append_aligned(text, grid_of(report.table));
  if (!report.problems.empty()) text += "\n";
  for (const CostProblem& problem : report.problems) {
    text += fmt::format("  {}: {}\n", cost_severity_name(problem.severity), problem_text(problem));
  }
  return text;
}

std::string as_markdown(const CostReport& report) {
  std::string text = fmt::format("## {}\n\n", markdown_text(title_of(report)));
  for (const Fact& fact : facts_of(report)) {
    text += fmt::format("- {}: {}\n", fact.label, markdown_text(fact.text));
  }
  append_markdown(text, grid_of(report.table));
  if (!report.problems.empty()) text += "\n";
  for (const CostProblem& problem : report.problems) {
    text += fmt::format("- {}: {}\n", cost_severity_name(problem.severity),
                        markdown_text(problem_text(problem)));
  }
  return text;
}

std::string one_after_another(const std::vector<CostReport>& reports,
                              std::string (*print)(const CostReport&)) {
  std::string text;
  for (const CostReport& report : reports) {
    text += fmt::format("{}{}", text.empty() ? "" : "\n", print(report));
  }
  return text;
}

}  // namespace

std::string render_costs(const std::vector<CostReport>& reports, OutputFormat format) {
  switch (format) {
    case OutputFormat::table:
      return one_after_another(reports, as_table);
    case OutputFormat::md:
      return one_after_another(reports, as_markdown);
    case OutputFormat::csv:
      return as_csv(reports);
    case OutputFormat::json:
      return json_document("dspark-cost", "tables", reports, add_report);
    case OutputFormat::jsonl:
      return json_lines("dspark-cost", "table", reports, add_report);
  }
  throw internal_error("render_costs", "unknown format");
}

}  // namespace dspark
