// The command line: which command, with which flags.
#pragma once

#include <memory>

#include "support/error.h"

namespace CLI {
class App;
}  // namespace CLI

namespace dspark {

/// A command of the tool: owns its flags, does its work.
class Command {
 public:
  Command() = default;
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;
  /// Does the work the flags ask for. Errors are thrown: usage, then policy, then trace, the first
  /// one found.
  virtual ExitCode execute() = 0;
};

/// One per command; each adds itself and its flags to the command line (x_command.cpp).
[[nodiscard]] std::unique_ptr<Command> make_run_command(CLI::App& app);
[[nodiscard]] std::unique_ptr<Command> make_inspect_command(CLI::App& app);
[[nodiscard]] std::unique_ptr<Command> make_cost_command(CLI::App& app);
[[nodiscard]] std::unique_ptr<Command> make_synth_command(CLI::App& app);
[[nodiscard]] std::unique_ptr<Command> make_calibrate_command(CLI::App& app);
[[nodiscard]] std::unique_ptr<Command> make_bench_command(CLI::App& app);

/// Parses the command line and executes its command. --help and --version are answered here.
/// Throws Error(usage) for a command line that makes no sense.
ExitCode execute_command_line(int argc, const char* const* argv);

}  // namespace dspark
