// Printers of what `cost` read, in the five formats.
#pragma once

#include <string>
#include <vector>

#include "cost/cost_table.h"
#include "cost/lint.h"
#include "report/render.h"

namespace dspark {

struct CostReport {
  CostTable table;
  bool flat = false;  ///< CostModel::is_flat()
  std::vector<CostProblem> problems;
};

/// The reports as one text that ends in a newline. JSON is `dspark-cost`, version 1: an object with
/// `tables`; what does not exist is null. jsonl has a header line and one line per table; csv one
/// row per probe. Texts from files are escaped.
[[nodiscard]] std::string render_costs(const std::vector<CostReport>& reports, OutputFormat format);

}  // namespace dspark
