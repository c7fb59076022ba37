// The TRACE... arguments that run and inspect share.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace dspark {

/// Adds TRACE... to a command; `traces` must outlive `app`.
void add_trace_arguments(CLI::App& app, std::vector<std::string>& traces, const std::string& help);

/// Throws Error(usage) if there is no trace, if one is empty or "-" (HDF5 needs a file that it can
/// seek in), or if two are the same file by device and inode.
void check_trace_arguments(const std::string& command, const std::vector<std::string>& traces);

}  // namespace dspark
