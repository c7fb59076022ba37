#include "cost/lines.h"

#include <fmt/format.h>

#include <algorithm>

namespace dspark {
namespace {

// One measurement at each request count, more tokens at more requests.
bool is_diagonal(const std::vector<CostRow>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].curve.size() != 1) return false;
    if (i > 0 && rows[i].curve.at.front() <= rows[i - 1].curve.at.front()) return false;
  }
  return true;
}

CostLine line_of_tokens(const CostTable& table, const std::string& where, double unit_ms) {
  CostLine line = {where, std::nullopt, table.tokens};
  const double rest = table.constant + least_or_zero(table.requests);
  for (double& value : line.ms.value) {
    value = table.rates ? 1000.0 / value : unit_ms * (rest + value);
  }
  return line;
}

std::vector<CostLine> lines_of_rows(const CostTable& table) {
  if (const CostCurve curve = curve_over_tokens(table.rows); !curve.empty()) {
    return {{"verify", std::nullopt, curve}};
  }
  std::vector<CostLine> lines;
  for (const CostRow& row : table.rows) {
    lines.push_back({fmt::format("verify, requests {}", row.requests), row.requests, row.curve});
  }
  return lines;
}

std::vector<CostLine> lines_of_cells(const CostTable& table) {
  std::vector<CostLine> lines;
  for (const CostRow& row : table.rows) {
    CostLine line = {fmt::format("cost_tables.{}", row.requests), row.requests, {}};
    const std::int64_t full = row.requests * (table.max_draft_len + 1);
    for (std::size_t i = 1; i < row.curve.size(); ++i) {
      if (row.curve.at[i] == full) continue;  // the engine runs the native path instead
      line.ms.at.push_back(row.curve.at[i]);
      line.ms.value.push_back(row.curve.value[i]);
    }
    line.ms.at.push_back(full);
    line.ms.value.push_back(row.curve.value.front());
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

double least_or_zero(const CostCurve& curve) {
  return curve.empty() ? 0.0 : *std::min_element(curve.value.begin(), curve.value.end());
}

CostCurve curve_over_tokens(const std::vector<CostRow>& rows) {
  if (rows.size() == 1) return rows.front().curve;
  CostCurve curve;
  if (!is_diagonal(rows)) return curve;
  for (const CostRow& row : rows) {
    curve.at.push_back(row.curve.at.front());
    curve.value.push_back(row.curve.value.front());
  }
  return curve;
}

std::vector<CostLine> cost_lines(const CostTable& table) {
  switch (table.format) {
    case CostFormat::sglang_1d:
      return {line_of_tokens(table, "sample_steps_per_sec", 1)};
    case CostFormat::sglang_2d:
      return {line_of_tokens(table, "theta_seconds", 1000)};
    case CostFormat::trtllm:
      return {line_of_tokens(table, "step_time_ms", 1)};
    case CostFormat::vllm_ascend:
      return {line_of_tokens(table, table.rates ? "sps" : "latency_ms", 1)};
    case CostFormat::trtllm_exact:
      return lines_of_cells(table);
    case CostFormat::mlx:
    case CostFormat::rows:
      break;
  }
  return lines_of_rows(table);
}

bool is_flat(const std::vector<CostLine>& lines) {
  return std::all_of(lines.begin(), lines.end(), [](const CostLine& line) {
    const auto [least, most] = std::minmax_element(line.ms.value.begin(), line.ms.value.end());
    return *most <= kFlatRatio * *least;
  });
}

}  // namespace dspark
