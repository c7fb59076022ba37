// The policies as comma-separated values: for spreadsheets and data frames.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/formats.h"
#include "report/layout.h"
#include "support/text.h"

namespace dspark {
namespace {

std::string csv_number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? shortest(*value) : "";
}

std::string csv_integer(const std::optional<std::int64_t>& value) {
  return value ? std::to_string(*value) : "";
}

std::string csv_parameter(const ParameterValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return csv_number(*number);
  return csv_text(std::get<std::string>(value));
}

// The parameters of all policies become columns: always the same ones first, so that files of
// different runs can be joined, then any that this list does not know.
std::vector<std::string> parameter_columns(const ReplayResult& result) {
  std::vector<std::string> columns = {"rule",       "threshold",  "length", "survival_floor",
                                      "min_length", "max_length", "bound",  "wrap"};
  for (const PolicyResult& row : result.results) {
    for (const auto& parameter : row.parameters) {
      if (std::find(columns.begin(), columns.end(), parameter.first) == columns.end()) {
        columns.push_back(parameter.first);
      }
    }
  }
  return columns;
}

std::string parameter_cell(const PolicyResult& row, const std::string& name) {
  for (const auto& parameter : row.parameters) {
    if (parameter.first == name) return csv_parameter(parameter.second);
  }
  return "";
}

std::string csv_lo(const std::optional<Range>& range) { return range ? csv_number(range->lo) : ""; }

std::string csv_hi(const std::optional<Range>& range) { return range ? csv_number(range->hi) : ""; }

struct Column {
  const char* name;
  std::string (*cell)(const PolicyResult&);
};

// Before the parameters: what the row is.
const Column kIdentity[] = {
    {"trace", [](const PolicyResult& r) { return csv_text(r.trace); }},
    {"verification", [](const PolicyResult& r) { return csv_text(r.verification); }},
    {"temperature", [](const PolicyResult& r) { return csv_number(r.sampling.temperature); }},
    {"top_k", [](const PolicyResult& r) { return std::to_string(r.sampling.top_k); }},
    {"top_p", [](const PolicyResult& r) { return csv_number(r.sampling.top_p); }},
    {"top_p_rule", [](const PolicyResult& r) { return csv_text(r.sampling.top_p_rule); }},
    {"policy", [](const PolicyResult& r) { return csv_text(r.policy); }},
};

// After them: what was found.
const Column kFindings[] = {
    {"concurrency", [](const PolicyResult& r) { return std::to_string(r.concurrency); }},
    {"lossless", [](const PolicyResult& r) { return std::string(r.lossless ? "true" : "false"); }},
    {"tau", [](const PolicyResult& r) { return csv_number(r.tau); }},
    {"tau_interior", [](const PolicyResult& r) { return csv_number(r.tau_interior); }},
    {"tau_lo", [](const PolicyResult& r) { return csv_number(r.tau_lo); }},
    {"tau_hi", [](const PolicyResult& r) { return csv_number(r.tau_hi); }},
    {"censored_rounds", [](const PolicyResult& r) { return csv_integer(r.censored_rounds); }},
    {"rounds", [](const PolicyResult& r) { return csv_number(r.rounds); }},
    {"tokens", [](const PolicyResult& r) { return csv_number(r.tokens); }},
    {"accepted_per_round", [](const PolicyResult& r) { return csv_number(r.accepted_per_round); }},
    {"verified_per_round", [](const PolicyResult& r) { return csv_number(r.verified_per_round); }},
    {"verified_per_round_se",
     [](const PolicyResult& r) { return csv_number(r.verified_per_round_se); }},
    {"verified_per_round_on_trajectory",
     [](const PolicyResult& r) { return csv_number(r.verified_per_round_on_trajectory); }},
    {"acceptance_rate", [](const PolicyResult& r) { return csv_number(r.acceptance_rate); }},
    {"cost_per_round", [](const PolicyResult& r) { return csv_number(r.cost_per_round); }},
    {"tokens_per_cost", [](const PolicyResult& r) { return csv_number(r.tokens_per_cost); }},
    {"speedup", [](const PolicyResult& r) { return csv_number(r.speedup); }},
    {"tau_interval_lo", [](const PolicyResult& r) { return csv_lo(r.intervals.tau); }},
    {"tau_interval_hi", [](const PolicyResult& r) { return csv_hi(r.intervals.tau); }},
    {"verified_per_round_interval_lo",
     [](const PolicyResult& r) { return csv_lo(r.intervals.verified_per_round); }},
    {"verified_per_round_interval_hi",
     [](const PolicyResult& r) { return csv_hi(r.intervals.verified_per_round); }},
    {"tokens_per_cost_interval_lo",
     [](const PolicyResult& r) { return csv_lo(r.intervals.tokens_per_cost); }},
    {"tokens_per_cost_interval_hi",
     [](const PolicyResult& r) { return csv_hi(r.intervals.tokens_per_cost); }},
    {"speedup_interval_lo", [](const PolicyResult& r) { return csv_lo(r.intervals.speedup); }},
    {"speedup_interval_hi", [](const PolicyResult& r) { return csv_hi(r.intervals.speedup); }},
    {"versus_reference",
     [](const PolicyResult& r) { return r.versus ? csv_text(r.versus->verdict) : ""; }},
    {"drafts", [](const PolicyResult& r) { return csv_text(r.sampling.drafts); }},
    {"off_policy",
     [](const PolicyResult& r) { return std::string(r.off_policy ? "true" : "false"); }},
    {"effective_samples", [](const PolicyResult& r) { return csv_number(r.effective_samples); }},
    {"tau_se", [](const PolicyResult& r) { return csv_number(r.tau_se); }},
    {"cost_per_step", [](const PolicyResult& r) { return csv_number(r.cost_per_step); }},
    {"tokens_per_cost_per_user",
     [](const PolicyResult& r) { return csv_number(r.tokens_per_cost_per_user); }},
    {"budget", [](const PolicyResult& r) { return csv_number(r.budget); }},
    {"padded_tokens", [](const PolicyResult& r) { return csv_number(r.padded_tokens); }},
    {"pareto", [](const PolicyResult& r) { return std::string(r.pareto ? "true" : "false"); }},
    {"walked", [](const PolicyResult& r) { return std::string(r.walked ? "true" : "false"); }},
};

}  // namespace

std::string render_csv(const ReplayResult& result) {
  const std::vector<std::string> parameters = parameter_columns(result);
  std::vector<std::string> cells;
  for (const Column& column : kIdentity) cells.emplace_back(column.name);
  for (const std::string& name : parameters) cells.push_back(csv_text(name));
  for (const Column& column : kFindings) cells.emplace_back(column.name);
  std::string out = csv_line(cells);
  for (const PolicyResult& row : result.results) {
    cells.clear();
    for (const Column& column : kIdentity) cells.push_back(column.cell(row));
    for (const std::string& name : parameters) cells.push_back(parameter_cell(row, name));
    for (const Column& column : kFindings) cells.push_back(column.cell(row));
    out += csv_line(cells);
  }
  return out;
}

}  // namespace dspark
