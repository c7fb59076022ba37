#include "cli/inputs.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <map>
#include <utility>

#include "support/error.h"

namespace dspark {

void add_trace_arguments(CLI::App& app, std::vector<std::string>& traces, const std::string& help) {
  app.add_option("TRACE", traces, help)->type_name("FILE");
}

void check_trace_arguments(const std::string& command, const std::vector<std::string>& traces) {
  if (traces.empty()) {
    throw usage_error("", "no trace given",
                      fmt::format("give one or more: dspark-replay {} TRACE...", command));
  }
  std::map<std::pair<dev_t, ino_t>, std::string> seen;
  for (const std::string& trace : traces) {
    if (trace.empty()) throw usage_error("TRACE", "the path is empty", "give an HDF5 file");
    if (trace == "-") {
      throw usage_error("-", "a trace cannot be read from standard input", "give an HDF5 file");
    }
    struct stat status {};
    if (stat(trace.c_str(), &status) != 0) continue;  // the reader says what is wrong with it
    const auto [first, is_new] = seen.emplace(std::pair(status.st_dev, status.st_ino), trace);
    if (!is_new) {
      throw usage_error(trace, fmt::format("this is the same file as {}", first->second),
                        "give each trace once");
    }
  }
}

}  // namespace dspark
