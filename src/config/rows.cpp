// The rows that do not come from a policy file: the baselines of every table and the default sweep.
#include <fmt/format.h>

#include <algorithm>

#include "config/plan.h"
#include "config/yaml_tree.h"
#include "support/error.h"

namespace dspark {
namespace {

std::vector<PlanRow> baseline_rows(std::int32_t block_size) {
  std::vector<PlanRow> rows = {{NoSpeculation{}, {}}};
  for (std::int32_t length = 0; length <= block_size; ++length) {
    rows.push_back({FixedLength{length}, {}});
  }
  return rows;
}

}  // namespace

Plan default_plan(const std::optional<std::string>& cost_table) {
  Plan plan;
  if (cost_table) {
    plan.cost.table = *cost_table;
    plan.model = model_of(plan.cost);
  }
  plan.sampling = {SamplingChoice{}};
  plan.concurrency = {1};
  plan.default_sweep = true;
  return plan;
}

std::vector<PlanRow> default_rows(std::int32_t block_size, bool with_confidence) {
  std::vector<PlanRow> rows = baseline_rows(block_size);
  if (with_confidence) {
    for (int twentieths = 1; twentieths <= 19; ++twentieths) {
      rows.push_back({Threshold{.threshold = twentieths / 20.0}, {}});
    }
    for (const double floor : {0.0, 0.1, 0.3}) rows.push_back({Sps{.survival_floor = floor}, {}});
  }
  for (const OracleBound bound : {OracleBound::no_waste, OracleBound::shortest}) {
    rows.push_back({Oracle{bound}, {}});
  }
  rows.push_back({OracleConfidence{}, {}});
  return rows;
}

std::vector<PlanRow> rows_for_block_size(const Plan& plan, std::int32_t block_size,
                                         bool with_confidence) {
  if (plan.default_sweep) return default_rows(block_size, with_confidence);
  std::vector<PlanRow> rows = baseline_rows(block_size);
  const auto baselines = static_cast<std::ptrdiff_t>(rows.size());
  for (const PlanRow& row : plan.rows) {
    const std::int32_t length = largest_named_length(row.policy);
    if (length > block_size) {
      const SourcePosition at = row.length_position.line > 0 ? row.length_position : row.position;
      throw policy_error(
          place(plan.file, at),
          fmt::format("length {} is above the trace's block size {}", length, block_size),
          fmt::format("use lengths up to {}", block_size));
    }
    // The plan's rows are unique; only baselines can be there already, and they stand first.
    const auto end = rows.begin() + baselines;
    const auto same = std::find_if(
        rows.begin(), end, [&](const PlanRow& baseline) { return baseline.policy == row.policy; });
    if (same == end) {
      rows.push_back(row);
    } else {
      *same = row;
    }
  }
  return rows;
}

}  // namespace dspark
