// What is exported: for each trace and setting the rows that the engines are to run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replay/result.h"
#include "report/export_engines.h"

namespace dspark {

/// The best row that an engine can run.
struct EngineChoice {
  Engine engine = Engine::edge_llm;
  const PolicyResult* row = nullptr;
  EngineSetting setting;
};

/// A length of TensorRT-LLM's draft_len_schedule.
struct ScheduledLength {
  std::int64_t length = 0;            ///< 0: no speculation
  const PolicyResult* row = nullptr;  ///< `fixed` of that length, or `none`
};

/// One number of requests in flight.
struct ExportColumn {
  std::int32_t requests = 1;
  const PolicyResult* best = nullptr;  ///< of all that can be exported
  const PolicyResult* full = nullptr;  ///< the full block, what engines do by default; or null
  std::vector<EngineChoice> engines;   ///< those that can run anything, in their order
  std::optional<ScheduledLength> scheduled;
};

/// One trace under one setting. Rows point into the result.
struct ExportSetting {
  std::string title;   ///< trace without its folder, verification and setting
  std::string suffix;  ///< of file names: "", or "_2" where there are several
  std::int32_t block_size = 0;
  bool is_off_policy = false;         ///< all its rows are estimates of another setting: no columns
  std::vector<ExportColumn> columns;  ///< by requests, ascending
};

/// The choices for all traces and settings of a result, in the order of its traces. `context`
/// without block size.
///
/// A schedule is never longer than at its fewest requests, as TensorRT-LLM asks for; within that
/// each length is the best.
[[nodiscard]] std::vector<ExportSetting> choose_export(const ReplayResult& result,
                                                       const EngineContext& context);

/// The choice of an engine; null where it can run nothing.
[[nodiscard]] const EngineChoice* choice_of(const ExportColumn& column, Engine engine);

/// The last part of a path, safe to show.
[[nodiscard]] std::string shown_file(const std::string& path);

}  // namespace dspark
