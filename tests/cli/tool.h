// Runs the real binary, and what the tests of the command line share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace dspark::test {

struct Outcome {
  int exit_code = -1;  ///< 128 + signal where a signal ended the process
  std::string out;
  std::string err;
};

/// Where the standard output of a process goes.
enum class Stdout { captured, closed, broken_pipe, full_disk };

struct Invocation {
  std::vector<std::string> arguments;
  std::string input = {};  ///< standard input
  Stdout out = Stdout::captured;
  std::string folder = {};  ///< working folder; empty: the tests' own
};

/// Starts a program and leaves it running; finish() waits for it.
class Process {
 public:
  Process(const std::string& program, const Invocation& invocation);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  [[nodiscard]] pid_t id() const { return id_; }
  [[nodiscard]] Outcome finish();

 private:
  TemporaryFolder streams_;
  pid_t id_ = -1;
};

/// Runs dspark-replay to its end.
[[nodiscard]] Outcome run_tool(const Invocation& invocation);
[[nodiscard]] Outcome run_tool(const std::vector<std::string>& arguments);

/// A recorded trace that comes with the project.
[[nodiscard]] std::string bundled(const std::string& name);

[[nodiscard]] std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& text);
[[nodiscard]] std::vector<std::string> lines_of(const std::string& text);

/// Checks that the tool failed as every failure must: with this exit code, nothing on standard
/// output, and one line on standard error that starts with "dspark-replay: error: " and has all of
/// `parts`.
void expect_error(const Outcome& outcome, int exit_code, const std::vector<std::string>& parts);

}  // namespace dspark::test
