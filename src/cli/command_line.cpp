#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>
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
    "  3  bad policy file\n"
    "  4  bad trace or heads file\n"
    "  5  no usable device, or out of memory\n"
    "  6  done, but some rows of a trace were invalid (--strict: or rounds diverged)\n"
    "  128 + N  ended by signal N\n";

std::string names_of(const std::map<std::string, std::unique_ptr<Command>>& commands) {
  std::string names;
  for (const auto& [name, command] : commands) names += (names.empty() ? "" : ", ") + name;
  return names;
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

  std::map<std::string, std::unique_ptr<Command>> commands;
  commands.emplace("run", make_run_command(app));
  commands.emplace("inspect", make_inspect_command(app));
  for (const auto& [name, command] : commands) {
    CLI::App* const parser = app.get_subcommand(name);
    parser->set_help_flag("-h,--help", "Print this help and exit");
    parser->footer(kExitCodes);
    parser->allow_extras();  // reported below, by name
  }

  const std::string first = argc > 1 ? argv[1] : "";
  if (argc < 2) {
    throw usage_error(
        "", "no command given",
        fmt::format("the commands are {}; see dspark-replay --help", names_of(commands)));
  }
  if ((first.empty() || first.front() != '-') && commands.count(first) == 0) {
    throw usage_error(first, "unknown command",
                      fmt::format("the commands are {}", names_of(commands)));
  }

  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    Output("-").write(app.help());
    return ExitCode::done;
  } catch (const CLI::CallForVersion& request) {
    Output("-").write(std::string(request.what()) + "\n");
    return ExitCode::done;
  } catch (const CLI::ParseError& error) {
    throw usage_error("", error.what(),
                      commands.count(first) != 0
                          ? fmt::format("see dspark-replay {} --help", first)
                          : "the command comes first; see dspark-replay --help");
  }

  const std::vector<std::string> unknown = app.get_subcommand(first)->remaining();
  if (!unknown.empty()) {
    throw usage_error(unknown.front(), "unknown flag",
                      fmt::format("see dspark-replay {} --help", first));
  }
  return commands.at(first)->execute();
}

}  // namespace dspark
