// The TRACE... arguments that run and inspect share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "replay/cache.h"

namespace CLI {
class App;
}  // namespace CLI

namespace dspark {

/// Adds TRACE... to a command; `traces` must outlive `app`.
void add_trace_arguments(CLI::App& app, std::vector<std::string>& traces, const std::string& help);

/// Throws Error(usage) if there is no trace, if one is empty or "-" (HDF5 needs a file that it can
/// seek in), or if two are the same file by device and inode.
void check_trace_arguments(const std::string& command, const std::vector<std::string>& traces);

/// The folder of --cache, if there is one. A signal removes what it may leave unfinished. Throws
/// Error(usage) if it cannot be used.
[[nodiscard]] std::optional<TableCache> open_cache(const std::optional<std::string>& folder);

}  // namespace dspark
