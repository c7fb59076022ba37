// Which policies of a plan are replayed on a trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/messages.h"
#include "config/plan.h"
#include "policy/policy.h"
#include "trace/trace.h"

namespace dspark {

struct Heads;  // trace/heads.h

/// Tells what is suspicious about the plan's cost table, and refuses a flat one (Error(policy)) for
/// policies that were asked for and look for the best tokens per cost: over a flat table verifying
/// everything always looks best. `allow_flat`: a note instead. Also refuses `exact_table` without
/// such a table.
void check_cost(const Plan& plan, bool allow_flat, Messages& messages);

/// The policies to replay on a trace. Those of the default sweep that it (or a flat cost table)
/// cannot answer are left out, with a note; one that was asked for is Error(policy) that says what
/// is missing.
[[nodiscard]] std::vector<Policy> policies_for(const Plan& plan, const TraceFile& trace,
                                               const Heads& heads, bool allow_flat,
                                               Messages& messages);

/// Before any work: a rank that cannot exist is Error(usage). (Rows that turn out to have no tokens
/// per cost have no rank either; the replay finds those.)
void check_reference(std::int64_t rank, const std::vector<Policy>& policies,
                     const std::string& file);

}  // namespace dspark
