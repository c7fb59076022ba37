#include "report/export_tables.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "cost/convert.h"
#include "support/error.h"

namespace dspark {
namespace {

constexpr std::int64_t kMostComparedTotals = 1000;

// What a speculative step costs besides its verify forward.
double besides(const CostModel& cost, std::int64_t requests) {
  return cost.draft(requests) + cost.overhead();
}

bool has_besides(const CostModel& cost, const TableRange& range) {
  return std::any_of(range.concurrency.begin(), range.concurrency.end(),
                     [&](std::int32_t requests) { return besides(cost, requests) > 0; });
}

// Linear between the probes, clamped; 0 without any.
double part_at(const CostCurve& curve, std::int64_t x) {
  if (curve.empty()) return 0;
  const auto next = std::upper_bound(curve.at.begin(), curve.at.end(), x);
  if (next == curve.at.begin()) return curve.value.front();
  const auto i = static_cast<std::size_t>(next - curve.at.begin()) - 1;
  if (i + 1 == curve.size() || curve.at[i] == x) return curve.value[i];
  return std::lerp(
      curve.value[i], curve.value[i + 1],
      static_cast<double>(x - curve.at[i]) / static_cast<double>(curve.at[i + 1] - curve.at[i]));
}

// Into the part by requests, at its own probes, at those of the draft times and at the requests of
// the run.
void add_by_requests(CostTable& table, const CostModel& cost, const TableRange& range) {
  const double unit = table.format == CostFormat::sglang_2d ? 1e-3 : 1;
  std::set<std::int64_t> places(table.requests.at.begin(), table.requests.at.end());
  places.insert(range.concurrency.begin(), range.concurrency.end());
  const CostCurve& draft = cost.table()->draft;
  places.insert(draft.at.begin(), draft.at.end());
  CostCurve sum;
  for (const std::int64_t requests : places) {
    sum.at.push_back(requests);
    sum.value.push_back(part_at(table.requests, requests) + unit * besides(cost, requests));
  }
  table.requests = std::move(sum);
}

// Tokens say how many requests there are where all verify full blocks.
void add_by_tokens(CostTable& table, const CostModel& cost, std::int32_t block_size) {
  for (std::size_t i = 0; i < table.tokens.size(); ++i) {
    const std::int64_t requests = (table.tokens.at[i] + block_size) / (block_size + 1);
    double& value = table.tokens.value[i];
    const double extra = besides(cost, std::max<std::int64_t>(1, requests));
    value = table.rates ? 1000 / (1000 / value + extra) : value + extra;
  }
}

void compare(EngineTable& out, const CostModel& cost, const TableRange& range) {
  const CostModel after(out.table);
  double largest = -1;
  for (const std::int64_t requests : range.concurrency) {
    const std::int64_t most = requests * range.block_size;
    const std::int64_t count = std::min(most, kMostComparedTotals - 1);
    for (std::int64_t i = 0; i <= count; ++i) {
      const std::int64_t drafts = count == 0 ? 0 : most * i / count;
      const double before_ms = cost.verify(requests, requests + drafts) + besides(cost, requests);
      const double after_ms = after.verify(requests, requests + drafts);
      if (!(before_ms > 0)) continue;  // an exact table has no such cell
      const double change = std::abs(after_ms - before_ms) / before_ms;
      if (change <= largest) continue;
      largest = change;
      out.requests = requests;
      out.tokens = requests + drafts;
      out.before_ms = before_ms;
      out.after_ms = after_ms;
    }
  }
}

}  // namespace

CostFormat sglang_format(const CostModel& cost, const TableRange& range) {
  const bool by_tokens = cost.table()->format == CostFormat::sglang_1d && !has_besides(cost, range);
  return by_tokens ? CostFormat::sglang_1d : CostFormat::sglang_2d;
}

EngineTable make_engine_table(const CostModel& cost, CostFormat format, const TableRange& range) {
  CostTable source = *cost.table();
  if (source.format != format) source.carried.clear();  // no part of the cost
  CostConversion conversion = convert_cost_table(source, format, range.block_size + 1);
  EngineTable out;
  out.table = std::move(conversion.table);
  out.lost = std::move(conversion.lost);
  if (has_besides(cost, range)) {
    out.table.carried.clear();  // it describes the table that was measured
    if (is_sum(format)) {
      add_by_requests(out.table, cost, range);
    } else {
      add_by_tokens(out.table, cost, range.block_size);
    }
    // As converting checks it: times near the bounds of what is read could leave them.
    (void)parse_cost_table(write_cost_table(out.table), source.file);
    std::erase(out.lost, "the draft time");
    std::erase(out.lost, "the overhead");
  }
  compare(out, cost, range);
  return out;
}

}  // namespace dspark
