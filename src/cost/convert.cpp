#include "cost/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "cost/cost_model.h"
#include "cost/lines.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

bool has_one_dimension(CostFormat format) {
  return format == CostFormat::sglang_1d || format == CostFormat::vllm_ascend;
}

bool depends_on_requests(const CostTable& table) {
  if (has_one_dimension(table.format)) return false;
  if (is_sum(table.format)) return table.requests.size() > 1;
  return table.format == CostFormat::trtllm_exact || curve_over_tokens(table.rows).empty();
}

// --- the cells of a table ---

struct Cell {
  std::int64_t requests = 1;
  std::int64_t tokens = 1;
};

// The probes of a table as steps that can be run (tokens ≥ requests ≥ 1).
std::vector<Cell> cells_of(const CostTable& table) {
  std::vector<Cell> cells;
  if (!table.rows.empty()) {
    for (const CostRow& row : table.rows) {
      for (std::int64_t tokens : row.curve.at) {
        if (tokens == 0) tokens = row.requests * (table.max_draft_len + 1);
        cells.push_back({row.requests, tokens});
      }
    }
    return cells;
  }
  const std::vector<std::int64_t> one = {1};
  for (const std::int64_t requests : table.requests.empty() ? one : table.requests.at) {
    for (const std::int64_t tokens : table.tokens.at) {
      if (tokens >= requests) cells.push_back({requests, tokens});
    }
    if (cells.size() > kMaxCostProbes) break;
  }
  return cells;
}

// --- to one dimension ---

CostTable to_one_dimension(const CostTable& table, CostFormat to, std::int64_t per_request) {
  CostTable out;
  out.format = to;
  if (has_one_dimension(table.format)) {
    out.tokens = table.tokens;
    out.rates = table.rates;
  } else {
    const CostModel model(table);
    std::set<std::int64_t> places;
    for (const Cell& cell : cells_of(table)) {
      if (per_request == 0) {
        places.insert(cell.tokens);
        continue;
      }
      if (cell.requests <= kMaxCostTokens / per_request) {
        places.insert(cell.requests * per_request);
      }
      if (cell.tokens % per_request == 0) places.insert(cell.tokens);
    }
    for (const std::int64_t tokens : places) {
      const double ms = model.verify(per_request == 0 ? 1 : tokens / per_request, tokens);
      if (std::isnan(ms)) continue;  // no such cell
      out.tokens.at.push_back(tokens);
      out.tokens.value.push_back(ms);
    }
    if (out.tokens.empty()) {
      throw policy_error(table.file, fmt::format("no time for {} tokens per request", per_request),
                         "choose another number of tokens per request");
    }
  }
  if (to == CostFormat::sglang_1d) {
    if (!out.rates) {
      for (double& value : out.tokens.value) value = 1000.0 / value;
    }
    out.rates = true;
    out.max_batch_tokens = out.tokens.at.back();
  }
  return out;
}

// --- to a sum of parts ---

// Times in ms: constant + by requests + by tokens.
struct Parts {
  double constant = 0;
  CostCurve requests;
  CostCurve tokens;
};

// The slope of the times along the tokens, where one is measured between `from` and `to`: the mean
// over the request counts.
std::optional<double> measured_slope(const std::vector<CostLine>& lines, std::int64_t from,
                                     std::int64_t to) {
  double sum = 0;
  int count = 0;
  for (const CostLine& line : lines) {
    const CostCurve& curve = line.ms;
    if (curve.at.front() > from || curve.at.back() < to) continue;
    const auto next = std::upper_bound(curve.at.begin(), curve.at.end(), from);
    const auto i = static_cast<std::size_t>(next - curve.at.begin()) - 1;
    sum +=
        (curve.value[i + 1] - curve.value[i]) / static_cast<double>(curve.at[i + 1] - curve.at[i]);
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

// Slopes where none is measured: the mean of the two beside them.
std::vector<double> fill_slopes(const std::vector<std::optional<double>>& slopes) {
  std::vector<double> filled(slopes.size(), 0);
  for (std::size_t i = 0; i < slopes.size(); ++i) {
    if (slopes[i]) {
      filled[i] = *slopes[i];
      continue;
    }
    const auto is_known = [](const std::optional<double>& slope) { return slope.has_value(); };
    const auto here = slopes.begin() + static_cast<std::ptrdiff_t>(i);
    const auto after = std::find_if(here, slopes.end(), is_known);
    const auto before = std::find_if(std::make_reverse_iterator(here), slopes.rend(), is_known);
    const double left = before == slopes.rend() ? 0 : **before;
    const double right = after == slopes.end() ? 0 : **after;
    filled[i] = before == slopes.rend() ? right : after == slopes.end() ? left : (left + right) / 2;
  }
  return filled;
}

Parts parts_of_lines(const std::vector<CostLine>& lines) {
  std::set<std::int64_t> places;
  for (const CostLine& line : lines) places.insert(line.ms.at.begin(), line.ms.at.end());
  Parts parts;
  parts.tokens.at.assign(places.begin(), places.end());
  std::vector<std::optional<double>> slopes;
  for (std::size_t i = 1; i < parts.tokens.size(); ++i) {
    slopes.push_back(measured_slope(lines, parts.tokens.at[i - 1], parts.tokens.at[i]));
  }
  const std::vector<double> filled = fill_slopes(slopes);
  parts.tokens.value.push_back(0);
  for (std::size_t i = 1; i < parts.tokens.at.size(); ++i) {
    parts.tokens.value.push_back(
        parts.tokens.value.back() +
        filled[i - 1] * static_cast<double>(parts.tokens.at[i] - parts.tokens.at[i - 1]));
  }
  for (const CostLine& line : lines) {
    double left = 0;
    for (std::size_t i = 0; i < line.ms.size(); ++i) {
      const auto at =
          std::lower_bound(parts.tokens.at.begin(), parts.tokens.at.end(), line.ms.at[i]);
      left += line.ms.value[i] -
              parts.tokens.value[static_cast<std::size_t>(at - parts.tokens.at.begin())];
    }
    parts.requests.at.push_back(*line.requests);  // as there are several lines
    parts.requests.value.push_back(left / static_cast<double>(line.ms.size()));
  }
  return parts;
}

Parts parts_of(const CostTable& table) {
  if (!is_sum(table.format)) {
    const std::vector<CostLine> lines = cost_lines(table);
    if (lines.size() == 1) return {0, {}, lines.front().ms};
    return parts_of_lines(lines);
  }
  const double unit = table.format == CostFormat::sglang_2d ? 1000 : 1;
  Parts parts = {table.constant * unit, table.requests, table.tokens};
  for (double& value : parts.requests.value) value *= unit;
  for (double& value : parts.tokens.value) value *= unit;
  return parts;
}

// Takes the least value out of a part.
double take_least(CostCurve& curve) {
  if (curve.empty()) return 0;
  const double least = *std::min_element(curve.value.begin(), curve.value.end());
  for (double& value : curve.value) value -= least;
  return least;
}

CostTable to_sum(const CostTable& table, CostFormat to) {
  CostTable out;
  out.format = to;
  Parts parts = parts_of(table);
  // All that is there at any count goes into the part by tokens.
  const double always = parts.constant + take_least(parts.requests);
  for (double& value : parts.tokens.value) value += always;
  const auto& times = parts.tokens.value;
  if (!(*std::min_element(times.begin(), times.end()) > 0)) {
    throw policy_error(table.file,
                       "as a sum of a part by requests and one by tokens it has times below 0",
                       "choose another format, or measure more token counts at each request count");
  }
  if (to == CostFormat::trtllm) {
    out.min_predicted_gain = table.min_predicted_gain;
    // One request count has nothing of its own left.
    if (parts.requests.size() == 1) parts.requests = {};
  } else {
    out.constant = take_least(parts.tokens) / 1000;
    for (double& value : parts.requests.value) value /= 1000;
    for (double& value : parts.tokens.value) value /= 1000;
    if (parts.requests.empty()) parts.requests = {{1}, {0.0}};
  }
  out.requests = std::move(parts.requests);
  out.tokens = std::move(parts.tokens);
  return out;
}

// --- to rows ---

CostTable to_rows(const CostTable& table) {
  CostTable out;
  out.format = CostFormat::rows;
  out.draft = table.draft;
  out.overhead = table.overhead;
  const std::vector<Cell> cells = cells_of(table);
  if (cells.size() > kMaxCostProbes) {
    throw policy_error(table.file, "its probes make too many rows",
                       fmt::format("leave at most {} combinations of them", kMaxCostProbes));
  }
  const CostModel model(table);
  std::map<std::int64_t, std::map<std::int64_t, double>> rows;
  for (const Cell& cell : cells) {
    rows[cell.requests][cell.tokens] = model.verify(cell.requests, cell.tokens);
  }
  if (rows.empty()) {
    throw policy_error(table.file, "no probe has as many tokens as requests", "check the probes");
  }
  for (const auto& [requests, times] : rows) {
    CostRow row = {requests, {}};
    for (const auto& [tokens, ms] : times) {
      row.curve.at.push_back(tokens);
      row.curve.value.push_back(ms);
    }
    out.rows.push_back(std::move(row));
  }
  return out;
}

// --- what changes ---

constexpr double kRounding = 1e-9;
constexpr std::size_t kMostComparedProbes = 1000;  // of each axis

class Comparison {
 public:
  Comparison(const CostTable& before, const CostTable& after) : before_(before), after_(after) {}

  void add(CostDifference& difference, std::int64_t requests, std::int64_t tokens) const {
    if (tokens < requests) return;
    const double before = before_.verify(requests, tokens);
    const double after = after_.verify(requests, tokens);
    if (std::isnan(before)) return;  // an exact table has nothing there
    ++difference.compared;
    const double change = std::abs(after - before) / before;
    if (change > kRounding) ++difference.changed;
    if (difference.compared > 1 &&
        change <= std::abs(difference.after_ms - difference.before_ms) / difference.before_ms) {
      return;
    }
    difference.requests = requests;
    difference.tokens = tokens;
    difference.before_ms = before;
    difference.after_ms = after;
  }

 private:
  CostModel before_;
  CostModel after_;
};

// At most kMostComparedProbes of the values, evenly, the ends included.
std::vector<std::int64_t> thinned(const std::vector<std::int64_t>& values) {
  if (values.size() <= kMostComparedProbes) return values;
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < kMostComparedProbes; ++i) {
    out.push_back(values[i * (values.size() - 1) / (kMostComparedProbes - 1)]);
  }
  return out;
}

// Beside both ends of each gap and in its middle.
std::vector<std::int64_t> places_between(const std::vector<std::int64_t>& probes) {
  std::set<std::int64_t> places;
  for (std::size_t i = 1; i < probes.size(); ++i) {
    const std::int64_t low = probes[i - 1];
    const std::int64_t high = probes[i];
    if (high - low < 2) continue;
    places.insert({low + 1, low + (high - low) / 2, high - 1});
  }
  return {places.begin(), places.end()};
}

void compare(CostConversion& conversion, const CostTable& source) {
  const Comparison comparison(source, conversion.table);
  const auto along = [&](const std::vector<std::int64_t>& all_requests,
                         const std::vector<std::int64_t>& all_probes) {
    const std::vector<std::int64_t> probes = thinned(all_probes);
    const std::vector<std::int64_t> places = places_between(probes);
    for (const std::int64_t requests : thinned(all_requests)) {
      for (const std::int64_t tokens : probes) {
        comparison.add(conversion.at_probes, requests, tokens);
      }
      for (const std::int64_t tokens : places) {
        comparison.add(conversion.between_probes, requests, tokens);
      }
      comparison.add(conversion.beyond_probes, requests, 2 * probes.back());
    }
  };
  if (source.rows.empty()) {
    std::vector<std::int64_t> requests = source.requests.at;
    if (requests.empty()) requests.push_back(1);
    along(requests, source.tokens.at);
    return;
  }
  for (const CostLine& line : cost_lines(source)) along({line.requests.value_or(1)}, line.ms.at);
}

std::vector<std::string> losses(const CostTable& before, const CostTable& after) {
  std::vector<std::string> lost;
  if (!before.draft.empty() && after.draft.empty()) lost.emplace_back("the draft time");
  if (before.overhead && !after.overhead) lost.emplace_back("the overhead");
  if (before.min_predicted_gain && !after.min_predicted_gain) {
    lost.emplace_back("minimum_predicted_gain");
  }
  if (before.drain_guard) lost.emplace_back("the drain guard");
  for (const auto& [key, value] : before.carried) lost.push_back(fmt::format("'{}'", key));
  return lost;
}

}  // namespace

bool needs_tokens_per_request(const CostTable& table, CostFormat to) {
  return has_one_dimension(to) && depends_on_requests(table);
}

CostConversion convert_cost_table(const CostTable& table, CostFormat to,
                                  std::optional<std::int64_t> tokens_per_request) {
  CostConversion conversion;
  if (to == table.format) {
    conversion.table = table;
    return conversion;
  }
  if (to == CostFormat::trtllm_exact || to == CostFormat::mlx) {
    throw policy_error(
        table.file,
        fmt::format("a table in the format {} is made of no other", cost_format_name(to)),
        "its file belongs to the machine that made it");
  }
  const bool needed = needs_tokens_per_request(table, to);
  if (needed && !tokens_per_request) {
    throw usage_error(table.file,
                      fmt::format("its times depend on the requests, and {} knows tokens alone",
                                  cost_format_name(to)),
                      "say how many tokens each request verifies: --tokens-per-request N");
  }
  if (has_one_dimension(to)) {
    conversion.table = to_one_dimension(table, to, needed ? *tokens_per_request : 0);
  } else if (is_sum(to)) {
    conversion.table = to_sum(table, to);
  } else {
    conversion.table = to_rows(table);
  }
  conversion.table.file = table.file;
  // Times near the bounds of what is read can leave them in another unit or as a sum.
  (void)parse_cost_table(write_cost_table(conversion.table),
                         fmt::format("{} as {}", table.file, cost_format_name(to)));
  compare(conversion, table);
  conversion.lost = losses(table, conversion.table);
  return conversion;
}

}  // namespace dspark
