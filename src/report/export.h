// The settings that a replay recommends, in each engine's own words.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cost/cost_model.h"
#include "replay/result.h"

namespace dspark {

/// A file to write: its name inside a folder, and all of its content.
struct ExportFile {
  std::string name;
  std::string content;
  friend bool operator==(const ExportFile&, const ExportFile&) = default;
};

/// For every trace, setting and number of requests in flight the best policy that each engine can
/// run, as files of that engine: flags of TensorRT-Edge-LLM, SGLang and DeepSpec for a shell,
/// arguments of TensorRT-LLM with its draft_len_schedule, the cost table and the calibration as
/// each engine reads them; README.md says what was assumed, what each choice is expected to be
/// worth, and what goes where. Where there are several traces or settings, their files are
/// numbered as in README.md.
///
/// `result` is ranked; `cost` is what its rows were charged; `temperatures` are those that were
/// applied to the confidences, one per draft position, or empty. Every number comes from a row of
/// the result, from the cost table or from the temperatures; bounds, off-policy rows and rows
/// without tokens per cost are left out. Where no policy beats decoding without speculation,
/// speculation is off. A linear cost makes no cost-table files, and a cost table that an engine's
/// format cannot hold is left out and named in README.md.
///
/// Sorted by name; the same bytes for the same input: no time, no path.
[[nodiscard]] std::vector<ExportFile> export_settings(const ReplayResult& result,
                                                      const CostModel& cost,
                                                      std::span<const double> temperatures);

/// The first line of README.md, by which an export is known.
inline constexpr std::string_view kExportTitle = "# Settings for the engines";

/// True for the names that export_settings() can give a file.
[[nodiscard]] bool is_export_name(std::string_view name);

}  // namespace dspark
