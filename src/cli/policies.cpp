#include "cli/policies.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/settings.h"
#include "cost/lint.h"
#include "replay/outcomes.h"
#include "support/error.h"

namespace dspark {
namespace {

bool is_flat_table(const Plan& plan) {
  return plan.model.table() != nullptr && plan.model.is_flat();
}

/// What keeps a trace from answering a policy, and what to do; `what` empty: nothing.
struct Obstacle {
  std::string what, remedy;
};

Obstacle obstacle_of(const Policy& policy, const TraceFile& trace, const std::string& missing) {
  const std::string& file = trace.header().file;
  if (!missing.empty() && uses_confidence(policy)) {
    return {fmt::format("policy '{}' needs confidences, and {} has {}", policy_name(policy), file,
                        missing),
            "leave the policy out, or record what is missing"};
  }
  if (trace.header().kind != TraceKind::rounds) return {};
  if (std::holds_alternative<OracleConfidence>(policy)) {
    return {fmt::format("policy 'oracle_confidence' needs acceptance probabilities at every "
                        "position, and {} is a trace of rounds",
                        file),
            "leave the policy out, or give an anchors trace"};
  }
  if (!is_per_request(policy)) {
    return {fmt::format("policy '{}' decides where its next rounds start, and {} is a trace of "
                        "rounds, which start where they were recorded",
                        policy_name(policy), file),
            "leave the policy out, or give an anchors trace"};
  }
  return {};
}

void note_problems(const CostTable& table, const std::vector<CostProblem>& problems,
                   Messages& messages) {
  for (const CostProblem& problem : problems) {
    messages.note(fmt::format("{}: {}: {}", table.file, problem.where, problem.what));
  }
}

}  // namespace

void check_cost(const Plan& plan, bool allow_flat, Messages& messages) {
  const CostTable* table = plan.model.table();
  for (const PlanRow& row : plan.rows) {
    const bool is_exact = table != nullptr && table->format == CostFormat::trtllm_exact;
    if (std::holds_alternative<ExactTable>(row.policy) && !is_exact) {
      throw policy_error(place_in_plan(plan, row.position),
                         "policy 'exact_table' needs an exact table of TensorRT-LLM as the cost",
                         "give one as cost.table, or use the policy 'global'");
    }
    if (!is_flat_table(plan) || allow_flat || !optimises(row.policy)) continue;
    throw policy_error(
        place_in_plan(plan, row.position),
        fmt::format("policy '{}' looks for the best tokens per cost, and {} is flat: its times do "
                    "not depend on the tokens, so verifying everything always looks best",
                    policy_name(row.policy), table->file),
        "measure the table anew, or say --allow-flat-cost");
  }
  if (table == nullptr) {
    const bool looks =
        plan.default_sweep || std::any_of(plan.rows.begin(), plan.rows.end(),
                                          [](const PlanRow& row) { return optimises(row.policy); });
    if (plan.model.is_flat() && looks) {
      messages.note(
          "cost.linear: a token costs nothing, so verifying everything always looks best");
    }
    return;
  }
  note_problems(*table, lint(plan.model), messages);
}

std::vector<Policy> policies_for(const Plan& plan, const TraceFile& trace, const Heads& heads,
                                 bool allow_flat, Messages& messages) {
  const std::string missing = missing_for_confidences(trace, heads);
  const std::int32_t block_size = trace.header().block_size;
  if (const CostTable* table = plan.model.table(); table != nullptr &&
                                                   table->format == CostFormat::trtllm_exact &&
                                                   table->max_draft_len != block_size) {
    throw policy_error(table->file,
                       fmt::format("it was measured with blocks of {} drafts, and {} has {}",
                                   table->max_draft_len, trace.header().file, block_size),
                       "give the table of an engine with this drafter");
  }
  std::vector<Policy> policies;
  bool left_out_flat = false;
  for (const PlanRow& row : rows_for_block_size(plan, block_size, missing.empty())) {
    const Obstacle obstacle = obstacle_of(row.policy, trace, missing);
    if (!obstacle.what.empty()) {
      if (plan.default_sweep) continue;
      throw policy_error(place_in_plan(plan, row.position), obstacle.what, obstacle.remedy);
    }
    // One that was asked for has been refused (check_cost()).
    if (plan.default_sweep && is_flat_table(plan) && !allow_flat && optimises(row.policy)) {
      left_out_flat = true;
      continue;
    }
    policies.push_back(row.policy);
  }
  if (!missing.empty() && plan.default_sweep) {
    messages.note(
        fmt::format("{}: {}, so thresholds and sps are left out", trace.header().file, missing));
  }
  if (left_out_flat) {
    messages.note(fmt::format("{}: flat, so sps is left out", plan.model.table()->file));
  }
  if (const CostTable* table = plan.model.table()) {
    const std::int64_t requests = plan.concurrency.back();
    note_problems(*table, lint_range(*table, requests, requests * (block_size + 1)), messages);
  }
  return policies;
}

void check_reference(std::int64_t rank, const std::vector<Policy>& policies,
                     const std::string& file) {
  const auto ranked = std::count_if(policies.begin(), policies.end(),
                                    [](const Policy& policy) { return !is_bound(policy); });
  if (rank <= ranked) return;
  throw usage_error("--reference", fmt::format("there is no rank {} on {}", rank, file),
                    fmt::format("give a rank from 1 to {}", ranked));
}

}  // namespace dspark
