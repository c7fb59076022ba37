// inspect: what is in a trace, and whether it can be believed.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "cli/inspect_report.h"
#include "cli/output.h"
#include "trace/lint.h"

namespace dspark {
namespace {

// A bad trace outweighs invalid rows, whatever the order of the files.
ExitCode exit_code_for(const std::vector<TraceReport>& reports) {
  bool incomplete = false;
  for (const TraceReport& report : reports) {
    const auto code = static_cast<ExitCode>(exit_code(report));
    if (code == ExitCode::trace) return code;
    incomplete = incomplete || code == ExitCode::incomplete;
  }
  return incomplete ? ExitCode::incomplete : ExitCode::done;
}

class InspectCommand : public Command {
 public:
  explicit InspectCommand(CLI::App& app) : common_(app) {
    add_trace_arguments(app, traces_, "Traces and heads files to read (HDF5)");
    // Accepted as everywhere, but nothing is computed that they could change.
    for (const char* name : {"--backend", "--threads", "--seed"}) app.get_option(name)->group("");
  }

  ExitCode execute() override {
    const CommonOptions options = common_.values();
    check_trace_arguments("inspect", traces_);
    const Output output(options.output);
    std::vector<std::string> inputs = traces_;
    if (!options.heads.empty()) inputs.push_back(options.heads);
    output.refuse_inputs(inputs);

    std::vector<TraceReport> reports;
    for (const std::string& trace : traces_) {
      reports.push_back(inspect_trace(trace, options.heads, options.memory_budget));
      output.refuse_inputs({reports.back().heads});
    }
    output.write(render_inspection(reports, options.format));
    return exit_code_for(reports);
  }

 private:
  CommonFlags common_;
  std::vector<std::string> traces_;
};

}  // namespace

std::unique_ptr<Command> make_inspect_command(CLI::App& app) {
  return std::make_unique<InspectCommand>(
      *app.add_subcommand("inspect", "Say what is in traces, validate and lint them"));
}

}  // namespace dspark
