#include "cli/inspect_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/json_documents.h"
#include "report/layout.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

using Json = JsonObject;
using Cells = std::vector<std::string>;

const char* severity_name(Severity severity) {
  return severity == Severity::error ? "error" : "warning";
}

std::int64_t count_problems(const TraceReport& report, Severity severity) {
  return std::count_if(report.problems.begin(), report.problems.end(),
                       [&](const Problem& problem) { return problem.severity == severity; });
}

std::string number_text(double value) { return shortest(value); }
template <class Integer>
std::string number_text(Integer value) {
  return fmt::format("{}", value);
}
template <class Number>
std::string or_empty(const std::optional<Number>& value) {
  return value ? number_text(*value) : std::string();
}

std::string problem_text(const Problem& problem) {
  const std::string where = problem.where.empty() ? "" : problem.where + ": ";
  return escape_text(where + problem.what);
}

// --- JSON ---

template <class Number>
Json json_number(const std::optional<Number>& value) {
  return value ? Json(*value) : Json(nullptr);
}
Json json_text(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(escape_text(text));
}

Json json_dataset(const DatasetReport& dataset) {
  Json out;
  out["name"] = escape_text(dataset.name);
  out["shape"] = dataset.shape;
  out["stored_as"] = dataset.stored_as;
  out["stored_bytes"] = dataset.stored_bytes;
  out["unwritten_chunks"] = dataset.unwritten_chunks;
  out["rows"] = json_number(dataset.rows);
  out["invalid_rows"] = json_number(dataset.invalid_rows);
  out["flat_rows"] = json_number(dataset.flat_rows);
  out["near_ties"] = json_number(dataset.near_ties);
  return out;
}

Json json_problem(const Problem& problem) {
  Json out;
  out["severity"] = severity_name(problem.severity);
  out["where"] = escape_text(problem.where);
  out["what"] = escape_text(problem.what);
  return out;
}

// Adds the report's fields to `out`.
void add_report(Json& out, const TraceReport& report) {
  out["file"] = escape_text(report.file);
  out["kind"] = json_text(report.kind);
  out["vocab_size"] = json_number(report.vocab_size);
  out["vocab_size_logical"] = json_number(report.vocab_size_logical);
  out["block_size"] = json_number(report.block_size);
  out["hidden_size"] = json_number(report.hidden_size);
  out["target_hidden_size"] = json_number(report.target_hidden_size);
  out["markov_rank"] = json_number(report.markov_rank);
  out["anchors"] = json_number(report.anchors);
  out["sequences"] = json_number(report.sequences);
  out["rounds"] = json_number(report.rounds);
  out["requests"] = json_number(report.requests);
  out["temperature"] = json_number(report.temperature);
  out["top_k"] = json_number(report.top_k);
  out["top_p"] = json_number(report.top_p);
  out["seed"] = json_number(report.seed);
  out["model"] = json_text(report.model);
  out["domain"] = json_text(report.domain);
  out["producer"] = json_text(report.producer);
  out["created"] = json_text(report.created);
  out["heads"] = json_text(report.heads);
  out["valid"] = report.valid;
  out["invalid_rows"] = report.invalid_rows;
  out["datasets"] = Json::array();
  for (const DatasetReport& dataset : report.datasets) {
    out["datasets"].push_back(json_dataset(dataset));
  }
  out["problems"] = Json::array();
  for (const Problem& problem : report.problems) out["problems"].push_back(json_problem(problem));
}

// --- CSV: one row per trace ---

std::string as_csv(const std::vector<TraceReport>& reports) {
  std::string text =
      csv_line({"file", "kind", "vocab_size", "block_size", "hidden_size", "target_hidden_size",
                "anchors", "sequences", "rounds", "requests", "temperature", "top_k", "top_p",
                "valid", "errors", "warnings", "invalid_rows", "first_problem"});
  for (const TraceReport& report : reports) {
    text += csv_line(
        {csv_text(report.file), csv_text(report.kind), or_empty(report.vocab_size),
         or_empty(report.block_size), or_empty(report.hidden_size),
         or_empty(report.target_hidden_size), or_empty(report.anchors), or_empty(report.sequences),
         or_empty(report.rounds), or_empty(report.requests), or_empty(report.temperature),
         or_empty(report.top_k), or_empty(report.top_p), report.valid ? "true" : "false",
         number_text(count_problems(report, Severity::error)),
         number_text(count_problems(report, Severity::warning)), number_text(report.invalid_rows),
         report.problems.empty() ? "" : csv_text(problem_text(report.problems.front()))});
  }
  return text;
}

// --- What people read: table and md have the same content ---

struct Fact {
  const char* label;
  std::string text;
};

std::string joined(const Cells& parts) {
  std::string text;
  for (const std::string& part : parts) text += fmt::format("{}{}", text.empty() ? "" : ", ", part);
  return text;
}

template <class Number>
void add_size(Cells& parts, const char* label, const std::optional<Number>& value) {
  if (value && *value > 0) parts.push_back(fmt::format("{} {}", label, *value));
}
void add_count(Cells& parts, const char* noun, const std::optional<std::int64_t>& value) {
  if (value) parts.push_back(counted(*value, noun));
}

std::string recorded_text(const TraceReport& report) {
  Cells parts;
  if (report.temperature) {
    // Recorded as f32 more often than not: shown as it was meant.
    parts.push_back(fmt::format("temperature {}", *report.temperature));
  }
  if (report.top_k && *report.top_k > 0) parts.push_back(fmt::format("top_k {}", *report.top_k));
  if (report.top_p && *report.top_p < 1) {
    parts.push_back(fmt::format("top_p {}", static_cast<float>(*report.top_p)));
  }
  if (report.seed) parts.push_back(fmt::format("seed {}", *report.seed));
  return joined(parts);
}

// Facts that are there, in reading order.
std::vector<Fact> facts_of(const TraceReport& report) {
  Cells content;
  add_count(content, "anchor", report.anchors);
  add_count(content, "sequence", report.sequences);
  add_count(content, "round", report.rounds);
  add_count(content, "request", report.requests);
  Cells sizes;
  add_size(sizes, "vocabulary", report.vocab_size);
  if (report.vocab_size_logical != report.vocab_size) {
    add_size(sizes, "logical vocabulary", report.vocab_size_logical);
  }
  add_size(sizes, "block", report.block_size);
  add_size(sizes, "draft hidden", report.hidden_size);
  add_size(sizes, "target hidden", report.target_hidden_size);
  add_size(sizes, "Markov rank", report.markov_rank);

  std::vector<Fact> facts = {{"content", joined(content)},
                             {"sizes", joined(sizes)},
                             {"recorded", recorded_text(report)},
                             {"model", escape_text(report.model)},
                             {"domain", escape_text(report.domain)},
                             {"producer", escape_text(report.producer)},
                             {"created", escape_text(report.created)},
                             {"heads", escape_text(report.heads)}};
  facts.erase(std::remove_if(facts.begin(), facts.end(),
                             [](const Fact& fact) { return fact.text.empty(); }),
              facts.end());
  return facts;
}

std::string title_of(const TraceReport& report) {
  const std::int64_t errors = count_problems(report, Severity::error);
  const std::int64_t warnings = count_problems(report, Severity::warning);
  std::string verdict = report.valid ? "valid" : "not valid";
  if (errors > 0) verdict += fmt::format(", {}", counted(errors, "error"));
  if (report.invalid_rows > 0)
    verdict += fmt::format(", {}", counted(report.invalid_rows, "invalid row"));
  if (warnings > 0) verdict += fmt::format(", {}", counted(warnings, "warning"));
  return fmt::format("{}{}: {}", escape_text(report.file),
                     report.kind.empty() ? "" : fmt::format(" ({})", escape_text(report.kind)),
                     verdict);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape) {
    text += fmt::format("{}{}", text.empty() ? "" : " x ", extent);
  }
  return text.empty() ? "scalar" : text;
}

constexpr std::size_t kTextColumns = 3;  // dataset, shape, type; the rest are numbers

// Header and one row per dataset.
std::vector<Cells> dataset_rows(const TraceReport& report) {
  std::vector<Cells> rows = {
      {"dataset", "shape", "type", "stored", "rows", "invalid", "flat", "near ties"}};
  for (const DatasetReport& dataset : report.datasets) {
    rows.push_back({escape_text(dataset.name), shape_text(dataset.shape), dataset.stored_as,
                    human_bytes(dataset.stored_bytes), or_empty(dataset.rows),
                    or_empty(dataset.invalid_rows), or_empty(dataset.flat_rows),
                    or_empty(dataset.near_ties)});
  }
  return rows;
}

// Characters, not bytes: names may be any UTF-8.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string aligned(const std::vector<Cells>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Cells& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (const Cells& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - width_of(row[i]), ' ');
      line += fmt::format(" {} ", i < kTextColumns ? row[i] + padding : padding + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string as_table(const TraceReport& report) {
  std::string text = title_of(report) + "\n";
  for (const Fact& fact : facts_of(report)) {
    text += fmt::format("  {:<9} {}\n", fact.label, fact.text);
  }
  if (!report.datasets.empty()) text += fmt::format("\n{}", aligned(dataset_rows(report)));
  if (!report.problems.empty()) text += "\n";
  for (const Problem& problem : report.problems) {
    text += fmt::format("  {}: {}\n", severity_name(problem.severity), problem_text(problem));
  }
  return text;
}

std::string md_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\`*_<>|[]#").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string md_line(const Cells& cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += fmt::format(" {} |", md_text(cell));
  return line + "\n";
}

std::string as_md(const TraceReport& report) {
  std::string text = fmt::format("## {}\n", md_text(title_of(report)));
  const std::vector<Fact> facts = facts_of(report);
  if (!facts.empty()) text += "\n";
  for (const Fact& fact : facts) {
    text += fmt::format("- {}: {}\n", fact.label, md_text(fact.text));
  }
  if (!report.datasets.empty()) {
    const std::vector<Cells> rows = dataset_rows(report);
    text += fmt::format("\n{}|", md_line(rows.front()));
    for (std::size_t i = 0; i < rows.front().size(); ++i) {
      text += i < kTextColumns ? " --- |" : " ---: |";
    }
    text += "\n";
    for (std::size_t i = 1; i < rows.size(); ++i) text += md_line(rows[i]);
  }
  if (!report.problems.empty()) text += "\n";
  for (const Problem& problem : report.problems) {
    text +=
        fmt::format("- {}: {}\n", severity_name(problem.severity), md_text(problem_text(problem)));
  }
  return text;
}

std::string one_after_another(const std::vector<TraceReport>& reports,
                              std::string (*print)(const TraceReport&)) {
  std::string text;
  for (const TraceReport& report : reports)
    text += fmt::format("{}{}", text.empty() ? "" : "\n", print(report));
  return text;
}

}  // namespace

std::string render_inspection(const std::vector<TraceReport>& reports, OutputFormat format) {
  switch (format) {
    case OutputFormat::table:
      return one_after_another(reports, as_table);
    case OutputFormat::md:
      return one_after_another(reports, as_md);
    case OutputFormat::csv:
      return as_csv(reports);
    case OutputFormat::json:
      return json_document("dspark-inspect", "traces", reports, add_report);
    case OutputFormat::jsonl:
      return json_lines("dspark-inspect", "trace", reports, add_report);
  }
  throw internal_error("render_inspection", "unknown format");
}

}  // namespace dspark
