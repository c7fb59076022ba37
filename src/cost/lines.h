// A table seen along the tokens: what its lints and its lookups share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cost/cost_table.h"

namespace dspark {

/// Times by tokens, in ms, at one request count, or at any (`requests` empty): with the parts of a
/// sum that do not depend on the tokens at their least.
struct CostLine {
  std::string where;  ///< key path of the values
  std::optional<std::int64_t> requests;
  CostCurve ms;
};

/// All lines of a table; of trtllm_exact the native cell stands at the tokens of a full block.
[[nodiscard]] std::vector<CostLine> cost_lines(const CostTable& table);

/// Measured rows that are a function of the tokens alone: one request count, or one measurement at
/// each with more tokens at more requests. Empty where they are not.
[[nodiscard]] CostCurve curve_over_tokens(const std::vector<CostRow>& rows);

/// True where the times of every line lie within 2 %.
[[nodiscard]] bool is_flat(const std::vector<CostLine>& lines);

/// The least value of a part of a sum; 0 where there is no such part.
[[nodiscard]] double least_or_zero(const CostCurve& curve);

/// The largest ratio of two times that still count as the same.
inline constexpr double kFlatRatio = 1.02;

}  // namespace dspark
