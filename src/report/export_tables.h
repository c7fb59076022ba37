// The cost table of a run as the files that engines load.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "cost/cost_table.h"

namespace dspark {

/// A cost table in an engine's format, and how well it stands for what the run charged.
struct EngineTable {
  CostTable table;
  /// Of all steps that the run could make, the one whose time changes most (thinned out to 1000
  /// totals for each number of requests). Zero, all of them: the run has no step with a price.
  std::int64_t requests = 0, tokens = 0;
  double before_ms = 0, after_ms = 0;
  std::vector<std::string> lost;  ///< what the format has no place for
};

/// What the tables have to cover.
struct TableRange {
  std::vector<std::int32_t> concurrency;  ///< requests in flight, ascending
  std::int32_t block_size = 0;            ///< drafts of a block
};

/// `cost` (of a table) in `format` (sglang_2d, trtllm, vllm_ascend; sglang_1d for a table of that
/// format): whole steps, with drafting and overhead as the run charged them, since that is what the
/// engines profile and divide by. A format without requests has the steps of requests that verify
/// full blocks. Captured sizes are not in it: engines round up to their own.
///
/// A table that is in `format` already and has nothing to add stays as it is, with what else its
/// file says. Throws Error(policy) where the format cannot hold the table.
[[nodiscard]] EngineTable make_engine_table(const CostModel& cost, CostFormat format,
                                            const TableRange& range);

/// The format of SGLang that holds `cost` best: by tokens alone for a table that is so already and
/// to which nothing is added, by requests and tokens for the others.
[[nodiscard]] CostFormat sglang_format(const CostModel& cost, const TableRange& range);

}  // namespace dspark
