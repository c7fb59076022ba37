#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cli/output.h"
#include "support/version.h"

namespace dspark {
namespace {

constexpr const char* kExitCodes =
    "Exit codes:\n"
    "  0  done\n"
    "  1  internal error, or writing failed\n"
    "  2  usage: flags and arguments\n"
    "  3  bad policy file, cost table or calibration file\n"
    "  4  bad trace or heads file\n"
    "  5  no usable device, out of memory, or a wrong result (bench)\n"
    "  6  done, but rows of a trace were invalid, rounds diverged (--strict), a gate\n"
    "     failed (--max-ece), or a case did not fit (bench)\n"
    "  128 + N  ended by signal N\n";

using Commands = std::vector<std::pair<std::string, std::unique_ptr<Command>>>;

std::string names_of(const Commands& commands) {
  std::string names;
  for (const auto& [name, command] : commands) names += (names.empty() ? "" : ", ") + name;
  return names;
}

Command* find_command(const Commands& commands, const std::string& name) {
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  return found == commands.end() ? nullptr : found->second.get();
}

bool is_answered_here(const std::string& flag) {
  return flag == "-h" || flag == "--help" || flag == "--version";
}

// The parser would take a command that is not there for a missing one.
void check_first_argument(const Commands& commands, int argc, const char* const* argv) {
  const std::string known = fmt::format("the commands are {}", names_of(commands));
  if (argc < 2) throw usage_error("", "no command given", known + "; see dspark-replay --help");
  const std::string first = argv[1];
  if (find_command(commands, first) != nullptr || is_answered_here(first)) return;
  if (!first.empty() && first.front() == '-') {
    throw usage_error(first, "the command comes before its flags", known);
  }
  throw usage_error(first.empty() ? "''" : first, "unknown command", known);
}

}  // namespace

ExitCode execute_command_line(int argc, const char* const* argv) {
  CLI::App app(
      "Replays recorded DSpark speculative-decoding traces and ranks verification policies.",
      "dspark-replay");
  app.set_version_flag("--version", fmt::format("dspark-replay {}", version()));
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.footer(kExitCodes);
  app.require_subcommand(1);

  Commands commands;
  commands.emplace_back("run", make_run_command(app));
  commands.emplace_back("inspect", make_inspect_command(app));
  commands.emplace_back("cost", make_cost_command(app));
  commands.emplace_back("synth", make_synth_command(app));
  commands.emplace_back("calibrate", make_calibrate_command(app));
  commands.emplace_back("bench", make_bench_command(app));
  for (const auto& [name, command] : commands) {
    CLI::App* const parser = app.get_subcommand(name);
    parser->set_help_flag("-h,--help", "Print this help and exit");
    parser->footer(kExitCodes);
    parser->allow_extras();  // reported below, by name
  }
  check_first_argument(commands, argc, argv);

  const std::string name = argv[1];
  const std::string advice = fmt::format("see dspark-replay {} --help", name);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    Output("-").write(app.help());
    return ExitCode::done;
  } catch (const CLI::CallForVersion& request) {
    Output("-").write(std::string(request.what()) + "\n");
    return ExitCode::done;
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string text = error.what();  // "<flag>: ..."; all flags here take one value
    throw usage_error(text.substr(0, text.find(':')), "its value is missing", advice);
  } catch (const CLI::ParseError& error) {
    throw usage_error("", error.what(), advice);
  }

  for (const std::string& argument : app.get_subcommand(name)->remaining()) {
    if (argument != "--") throw usage_error(argument, "unknown flag", advice);
  }
  return find_command(commands, name)->execute();
}

}  // namespace dspark
