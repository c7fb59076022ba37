// Printers of what `inspect` found, in the five formats.
#pragma once

#include <string>
#include <vector>

#include "report/render.h"
#include "trace/lint.h"

namespace dspark {

/// The reports as one text that ends in a newline. JSON is `dspark-inspect`, version 1: an object
/// with `traces`; what does not exist is null. jsonl has a header line and one line per trace; csv
/// one row per trace. Texts from files are escaped.
[[nodiscard]] std::string render_inspection(const std::vector<TraceReport>& reports,
                                            OutputFormat format);

}  // namespace dspark
