// Printers: one result model, five formats.
#pragma once

#include <string>

#include "replay/result.h"

namespace dspark {

enum class OutputFormat { table, md, csv, json, jsonl };

/// What to show besides; JSON and CSV always have everything.
struct RenderOptions {
  bool ledger = false;  ///< where the cost of the best row and of the reference goes
};

/// Renders the result in a format: the whole text, ending in a newline. Everything but `run` (json,
/// jsonl) is a function of the result alone. Text that came from files is escaped.
[[nodiscard]] std::string render(const ReplayResult& result, OutputFormat format,
                                 const RenderOptions& options = {});

}  // namespace dspark
