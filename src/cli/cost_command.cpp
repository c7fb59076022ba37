// cost: reads, checks and converts the engines' cost tables.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command_line.h"
#include "cli/cost_report.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "cli/messages.h"
#include "cli/output.h"
#include "cost/convert.h"
#include "cost/cost_model.h"
#include "cost/lint.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

constexpr std::array kWritten = {CostFormat::sglang_1d,   CostFormat::sglang_2d, CostFormat::trtllm,
                                 CostFormat::vllm_ascend, CostFormat::rows,      CostFormat::mlx,
                                 CostFormat::trtllm_exact};

std::optional<CostFormat> format_of(const ValueFlag& flag) {
  const std::optional<std::string> text = flag.text();
  if (!text) return std::nullopt;
  std::string known;
  for (const CostFormat format : kWritten) {
    if (*text == cost_format_name(format)) return format;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", cost_format_name(format));
  }
  throw usage_error(flag.name(), fmt::format("'{}' is not a choice", *text),
                    fmt::format("give one of {}", known));
}

// "12 of 40 places change, most at 8 requests, 60 tokens: 6.468 to 6.465 ms (-0.1 %)".
std::string difference_text(const CostDifference& difference) {
  if (difference.changed == 0)
    return fmt::format("nothing changes ({})", counted(difference.compared, "place"));
  return fmt::format("{} of {} places change, most at {}, {}: {:.4g} to {:.4g} ms ({:+.1f} %)",
                     difference.changed, difference.compared,
                     counted(difference.requests, "request"), counted(difference.tokens, "token"),
                     difference.before_ms, difference.after_ms,
                     100 * (difference.after_ms / difference.before_ms - 1));
}

class CostCommand : public Command {
 public:
  explicit CostCommand(CLI::App& app)
      : common_(app),
        to_(app, "--to", "FORMAT",
            "Convert: sglang-1d, sglang-2d, trtllm, vllm-ascend, rows; mlx and trtllm-exact from "
            "themselves alone. What changes is told on standard error"),
        per_request_(app, "--tokens-per-request", "N",
                     "Tokens that each request verifies, its anchor included: needed where a table "
                     "knows the requests and the format of --to does not"),
        requests_(app, "--requests", "R",
                  "Warn where steps of R requests (with --tokens-per-request: of N tokens each) go "
                  "beyond the table"),
        entry_(app, "--entry", "NAME", "Of an mlx file with several entries, the one to read") {
    app.add_option("TABLE", files_, "Cost tables to read (JSON); - is standard input")
        ->type_name("FILE");
    // Accepted as everywhere, but nothing is computed that they could change.
    for (const char* name : {"--backend", "--threads", "--seed", "--memory-budget", "--heads"}) {
      app.get_option(name)->group("");
    }
  }

  ExitCode execute() override {
    const CommonOptions common = checked_common();
    const std::optional<CostFormat> to = format_of(to_);
    check_files(to.has_value());
    const auto per_request = count_of(per_request_);
    const auto requests = count_of(requests_);
    const std::string entry = checked_entry();
    if (to && common.format != OutputFormat::table) {
      throw usage_error("--format", "with --to a table is written in the engine's format",
                        "leave one of the two out");
    }
    const Output output(common.output);
    output.refuse_inputs(inputs());

    std::vector<CostReport> reports;
    for (const std::string& file : files_) {
      reports.push_back(report_of(read_cost_table(file, entry), requests, per_request));
    }
    output.write(to ? convert(reports.front(), *to, per_request, common.quiet)
                    : render_costs(reports, common.format));
    return ExitCode::done;
  }

 private:
  CommonOptions checked_common() const {
    const CommonOptions common = common_.values();
    if (!common.heads.empty()) {
      throw usage_error("--heads", "a cost table has no heads", "leave the flag out");
    }
    return common;
  }

  static std::optional<std::int64_t> count_of(const ValueFlag& flag) {
    const auto number = flag.whole_number(1, 1'000'000);
    if (!number) return std::nullopt;
    return static_cast<std::int64_t>(*number);
  }

  std::string checked_entry() const {
    const std::optional<std::string> entry = entry_.text();
    if (entry && entry->empty()) {
      throw usage_error(entry_.name(), "the name is empty", "give a part of an entry's name");
    }
    return entry.value_or("");
  }

  void check_files(bool converts) const {
    if (files_.empty()) {
      throw usage_error("", "no cost table given", "give one or more: dspark-replay cost FILE...");
    }
    for (const std::string& file : files_) {
      if (file.empty()) throw usage_error("TABLE", "the path is empty", "give a cost table");
    }
    if (converts && files_.size() > 1) {
      throw usage_error("--to", "one file is written, and several tables are given",
                        "convert them one by one");
    }
    check_distinct_files(files_, "table");
  }

  std::vector<std::string> inputs() const {
    std::vector<std::string> inputs;
    for (const std::string& file : files_) {
      if (file != "-") inputs.push_back(file);
    }
    return inputs;
  }

  static CostReport report_of(CostTable table, std::optional<std::int64_t> requests,
                              std::optional<std::int64_t> per_request) {
    CostReport report;
    report.problems = lint(table);
    if (requests) {
      for (CostProblem& problem :
           lint_range(table, *requests, *requests * per_request.value_or(1))) {
        report.problems.push_back(std::move(problem));
      }
    }
    report.flat = CostModel(table).is_flat();
    report.table = std::move(table);
    return report;
  }

  static std::string convert(const CostReport& report, CostFormat to,
                             std::optional<std::int64_t> per_request, bool quiet) {
    const CostConversion conversion = convert_cost_table(report.table, to, per_request);
    Messages messages(quiet);
    const std::string& file = report.table.file;
    for (const CostProblem& problem : report.problems) {
      messages.note(fmt::format("{}: {}: {}: {}", file, cost_severity_name(problem.severity),
                                problem.where, problem.what));
    }
    const auto note_difference = [&](const char* where, const CostDifference& difference) {
      if (difference.compared == 0) return;
      messages.note(fmt::format("{}: {} {}", file, where, difference_text(difference)));
    };
    note_difference("at the probes", conversion.at_probes);
    note_difference("between the probes", conversion.between_probes);
    note_difference("beyond the probes", conversion.beyond_probes);
    std::string lost;
    for (const std::string& part : conversion.lost) {
      lost += fmt::format("{}{}", lost.empty() ? "" : ", ", part);
    }
    if (!lost.empty()) {
      messages.note(fmt::format("{}: left out, as {} has no place for it: {}", file,
                                cost_format_name(to), lost));
    }
    return write_cost_table(conversion.table);
  }

  CommonFlags common_;
  ValueFlag to_, per_request_, requests_, entry_;
  std::vector<std::string> files_;
};

}  // namespace

std::unique_ptr<Command> make_cost_command(CLI::App& app) {
  return std::make_unique<CostCommand>(
      *app.add_subcommand("cost", "Read, lint and convert the engines' cost tables"));
}

}  // namespace dspark
