// The TRACE... arguments that run and inspect share.
#pragma once

#include <string>
#include <vector>

namespace dspark {

/// Throws Error(usage) if there is no trace, if one is empty or "-" (HDF5 needs a file that it can
/// seek in), or if two are the same file by device and inode.
void check_trace_arguments(const std::string& command, const std::vector<std::string>& traces);

}  // namespace dspark
