// A policy file, resolved: what to replay.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/law.h"
#include "cost/cost_model.h"
#include "policy/policy.h"
#include "policy/width.h"

namespace dspark {

/// A place in a policy file, 1-based; line 0: not from a file.
struct SourcePosition {
  std::int32_t line = 0;
  std::int32_t column = 0;
};

/// One combination of the sampling axes; an empty field means the trace's own value.
struct SamplingChoice {
  std::optional<double> temperature;
  std::optional<std::int64_t> top_k;
  std::optional<double> top_p;
  TopPRule top_p_rule = TopPRule::water_filling;
  bool greedy_drafts = false;  ///< drafts are the draft argmax, however they are verified
  SourcePosition position;     ///< of the `sampling` map
};

/// One policy with the place it came from.
struct PlanRow {
  Policy policy;
  SourcePosition position;  ///< of the policy's entry
  SourcePosition
      length_position{};  ///< of the largest length that it names; line 0 where the file names none
};

/// What the policy file says of costs. Without a table: the linear model.
struct PlanCost {
  LinearCost linear;
  std::string table;                                               ///< path; empty: linear
  std::string entry;                                               ///< of an mlx file
  std::optional<double> draft;                                     ///< per step; with a table
  std::vector<std::pair<std::int64_t, double>> draft_by_requests;  ///< the same by requests
  std::optional<double> overhead;                                  ///< per speculative step
  std::vector<std::int64_t> buckets;                               ///< captured sizes, tokens
};

struct Plan {
  std::string file;                        ///< policy file, or empty for the default sweep
  std::vector<Verification> verification;  ///< empty: what each trace was recorded with
  SourcePosition verification_position;
  std::vector<SamplingChoice> sampling;  ///< at least one
  PlanCost cost;
  CostModel model;                        ///< what `cost` says
  std::vector<std::int32_t> concurrency;  ///< ascending, each once
  Width width = Width::ragged;
  std::vector<PlanRow> rows;   ///< empty if default_sweep
  bool default_sweep = false;  ///< rows depend on the trace's block size: default_rows()
};

/// At most this many rows come out of a policy file.
inline constexpr std::int64_t kMaxPlanRows = 100000;

/// Reads and validates a policy file ("-": standard input), and the cost table it names.
/// `cost_table`: a file in place of all that the policy file says of costs, which is then not
/// looked at. Throws Error(policy) with file:line:column.
[[nodiscard]] Plan read_plan(const std::string& path,
                             const std::optional<std::string>& cost_table = {});
/// The same from text; `name` stands in messages.
[[nodiscard]] Plan parse_plan(const std::string& text, const std::string& name,
                              const std::optional<std::string>& cost_table = {});
/// The cost model that a policy file describes; reads the table. Throws Error(policy).
[[nodiscard]] CostModel model_of(const PlanCost& cost);
/// The plan without a policy file.
[[nodiscard]] Plan default_plan(const std::optional<std::string>& cost_table = {});

/// The default sweep for a block size: none, every fixed length 0..P, cumulative thresholds, sps,
/// and last the bounds. Without confidences (`with_confidence` false) only the rows that need none.
[[nodiscard]] std::vector<PlanRow> default_rows(std::int32_t block_size, bool with_confidence);

/// The rows to replay on a trace: `none` and every fixed length, always, then the plan's own (or
/// the default sweep) in their order; equal rows once. `with_confidence` false thins out the
/// default sweep only: a policy that was asked for stays, and the caller, who knows what is
/// missing, refuses it. Throws Error(policy) with line:column where a row names a length above
/// `block_size`.
[[nodiscard]] std::vector<PlanRow> rows_for_block_size(const Plan& plan, std::int32_t block_size,
                                                       bool with_confidence);

/// The plan as a policy file that reads back to the same plan, positions aside (`run
/// --print-policy`).
[[nodiscard]] std::string print_plan(const Plan& plan);

}  // namespace dspark
