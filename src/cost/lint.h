// What is suspicious about a cost table, though it can be read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "cost/cost_table.h"

namespace dspark {

/// `refuse`: a policy that optimises over this table is refused, unless the user allows it
/// (--allow-flat-cost); for the others it is a warning.
enum class CostSeverity { warning, refuse };
/// "warning", "refuse".
[[nodiscard]] const char* cost_severity_name(CostSeverity severity);

struct CostProblem {
  CostSeverity severity = CostSeverity::warning;
  std::string where;  ///< key path inside the file
  std::string what;   ///< one line
  friend bool operator==(const CostProblem&, const CostProblem&) = default;
};

/// In this order, each at most once: one probe, or flat within 2 % (refuse); times that fall while
/// the tokens rise; times within 2 % over four times the tokens; what the engine would read
/// differently; no draft time.
[[nodiscard]] std::vector<CostProblem> lint(const CostTable& table);

/// Warns where steps of up to `max_requests` requests and `max_tokens` tokens in all go beyond what
/// was measured.
[[nodiscard]] std::vector<CostProblem> lint_range(const CostTable& table, std::int64_t max_requests,
                                                  std::int64_t max_tokens);

/// Of any model, as set by the policy file: nothing to optimise over (refuse), drafts that cost
/// nothing.
[[nodiscard]] std::vector<CostProblem> lint(const CostModel& model);

}  // namespace dspark
