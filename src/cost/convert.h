// From one engine's cost table to another's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost/cost_table.h"

namespace dspark {

/// Where a converted table differs from its source, at no more than 1000 probes of each axis.
struct CostDifference {
  std::int64_t compared = 0;  ///< places
  std::int64_t changed = 0;   ///< of these, by more than rounding (one part in 10^9)
  std::int64_t requests = 0;  ///< of the largest difference
  std::int64_t tokens = 0;
  double before_ms = 0;
  double after_ms = 0;
};

struct CostConversion {
  CostTable table;
  CostDifference at_probes;       ///< at the probes of the source
  CostDifference between_probes;  ///< beside both ends of each gap between them and in its middle
  CostDifference beyond_probes;   ///< at twice the last one
  std::vector<std::string> lost;  ///< what the format has no place for
};

/// True where `table` depends on the requests and `to` does not, so that a number of tokens per
/// request has to be chosen.
[[nodiscard]] bool needs_tokens_per_request(const CostTable& table, CostFormat to);

/// The table in another format, with probes at the union of the source's probes; in its own format
/// the table itself.
///
/// - To one dimension (sglang_1d, vllm_ascend): the times at `tokens_per_request` tokens of each
///   request, at the request counts of the source and at those that its token probes make.
/// - To a sum of parts (sglang_2d, trtllm): the source's parts, or, of measured rows and cells, a
///   part by tokens whose slope is the mean of the slopes measured there (where none is measured,
///   of the gaps between the request counts), and a part by requests that takes up the mean of what
///   is left.
/// - To rows: the cells of the source; all combinations of the probes of a sum. A table that does
///   not depend on the requests is written with one request.
///
/// Throws Error(usage) where `tokens_per_request` is needed and missing; Error(policy) where the
/// format cannot hold the table or its times would leave the bounds of what is read, and for the
/// formats that are only read.
[[nodiscard]] CostConversion convert_cost_table(const CostTable& table, CostFormat to,
                                                std::optional<std::int64_t> tokens_per_request);

}  // namespace dspark
