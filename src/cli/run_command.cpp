// run: replays traces under policies and prints one row per policy.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "calibration/calibration.h"
#include "cli/cache_folder.h"
#include "cli/command_line.h"
#include "cli/export_folder.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "cli/messages.h"
#include "cli/output.h"
#include "cli/policies.h"
#include "cli/settings.h"
#include "config/plan.h"
#include "replay/cache.h"
#include "replay/outcomes.h"
#include "replay/pairs.h"
#include "replay/products.h"
#include "replay/replay.h"
#include "replay/strata.h"
#include "report/render.h"
#include "support/version.h"
#include "trace/trace.h"

namespace dspark {
namespace {

constexpr std::uint64_t kMaxRepeats = 1000;
constexpr std::uint64_t kMaxChunk = std::uint64_t{1} << 30;
// Excluded, both: beyond the upper one 400 draws have no quantiles.
constexpr double kLeastConfidence = 0.5;
constexpr double kMostConfidence = 0.995;

struct RunOptions {
  CommonOptions common;
  std::vector<std::string> traces;
  std::optional<std::string> policy;
  std::optional<std::string> cache;
  bool print_policy = false;
  bool strict = false;
  std::int32_t repeats = 4;
  std::int64_t chunk = 0;
  Products products = Products::exact;
  double confidence = 0.95;
  std::int64_t reference = 1;
  bool ledger = false;
  std::optional<std::string> cost;
  std::optional<std::string> calibration;
  std::optional<std::string> export_to;
  bool allow_flat_cost = false;
};

/// A trace that is open, and the settings it is replayed under.
struct Recording {
  std::unique_ptr<TraceFile> trace;
  std::vector<Setting> settings;
};

std::unique_ptr<TraceFile> open_recording(const std::string& path) {
  std::unique_ptr<TraceFile> trace = TraceFile::open(path);
  if (trace->header().kind == TraceKind::heads) {
    throw trace_error(path, "this is a heads file, with nothing recorded to replay",
                      "give a trace, and this file with --heads if it is not found beside it");
  }
  return trace;
}

/// Opens every trace, and checks what the plan asks of them as far as that shows without their
/// heads.
std::vector<Recording> open_recordings(const std::vector<std::string>& paths, const Plan& plan,
                                       Messages& messages) {
  std::vector<Recording> recordings;
  std::vector<TraceHeader> headers;
  for (const std::string& path : paths) {
    recordings.push_back({open_recording(path), {}});
    headers.push_back(recordings.back().trace->header());
  }
  for (const TraceHeader& header : headers) {
    static_cast<void>(rows_for_block_size(plan, header.block_size, true));  // lengths fit the block
  }
  SettingChoice choice = choose_settings(plan, headers);
  for (std::size_t i = 0; i < recordings.size(); ++i) {
    recordings[i].settings = std::move(choice.by_trace[i]);
  }
  for (const std::string& note : choice.notes) messages.note(note);
  return recordings;
}

TraceSummary summary_of(const TraceFile& trace) {
  const TraceHeader& header = trace.header();
  TraceSummary summary;
  summary.file = header.file;
  summary.vocab_size = header.vocab_size;
  summary.block_size = header.block_size;
  summary.temperature = header.temperature;
  summary.domain = header.domain;
  if (header.kind == TraceKind::anchors) {
    summary.kind = "anchors";
    summary.anchors = trace.blocks();
  } else {
    summary.kind = "rounds";
    summary.rounds = trace.blocks();
  }
  return summary;
}

CostSummary summary_of(const Plan& plan) {
  CostSummary summary;
  if (const CostTable* table = plan.model.table()) {
    summary.linear.reset();
    summary.file = table->file;
    summary.format = cost_format_name(table->format);
  } else {
    summary.linear = plan.cost.linear;
  }
  summary.unit = plan.model.unit();
  summary.overhead = plan.model.overhead();
  summary.buckets = plan.model.buckets();
  summary.width = width_name(plan.width);
  return summary;
}

/// Before any work on a trace: one temperature per draft.
void check_calibration(const std::string& file, const std::vector<double>& temperatures,
                       const TraceHeader& trace) {
  const auto block_size = static_cast<std::size_t>(trace.block_size);
  if (temperatures.empty() || temperatures.size() == block_size) return;
  throw policy_error(file,
                     fmt::format("there are {} temperatures, and {} has blocks of {} drafts",
                                 temperatures.size(), trace.file, block_size),
                     "calibrate on traces of this drafter");
}

/// A trace under several settings is one trace: what they count are the same rows, not more of
/// them.
void merge_counts(TraceSummary& into, const TraceSummary& from) {
  const auto larger = [](auto& a, const auto& b) { a = std::max(a, b); };
  larger(into.sequences, from.sequences);
  larger(into.reproduced, from.reproduced);
  larger(into.diverged, from.diverged);
  larger(into.censored, from.censored);
  larger(into.invalid_rows, from.invalid_rows);
  larger(into.impossible_tokens, from.impossible_tokens);
  larger(into.near_ties, from.near_ties);
}

ReplayResult replay_recordings(std::vector<Recording>& recordings, const Plan& plan,
                               const RunOptions& options, const Output& output,
                               const std::vector<double>& temperatures,
                               const std::optional<ExportFolder>& folder, TableCache* cache,
                               Messages& messages) {
  ReplayResult result;
  result.version = version();
  result.seed = options.common.seed;
  result.repeats = options.repeats;
  result.confidence = options.confidence;
  result.reference = options.reference;
  result.cost = summary_of(plan);
  result.calibration = options.calibration.value_or("");

  ReplayOptions replay_options;
  replay_options.seed = options.common.seed;
  replay_options.repeats = options.repeats;
  replay_options.chunk = options.chunk;
  replay_options.products = options.products;
  replay_options.memory_budget = options.common.memory_budget;
  replay_options.threads = options.common.threads;
  replay_options.cache = cache;
  replay_options.confidence = options.confidence;
  replay_options.reference = options.reference;
  replay_options.note = [&](const std::string& line) { messages.note(line); };
  replay_options.notice = [&](const std::string& line) { messages.tell(line); };

  std::unique_ptr<Backend> backend;
  replay_options.plan = [&](const std::string& line) { tell_plan(*backend, line, messages); };
  for (const Recording& recording : recordings) {
    check_calibration(result.calibration, temperatures, recording.trace->header());
  }
  for (Recording& recording : recordings) {
    if (recording.settings.empty()) continue;
    TraceFile& trace = *recording.trace;
    // Heads are large and held for one trace at a time.
    const Heads heads = load_heads(trace, options.common.heads, options.common.memory_budget);
    output.refuse_inputs({heads.file});
    if (folder) folder->refuse_inputs({heads.file});
    const std::vector<Policy> policies =
        policies_for(plan, trace, heads, options.allow_flat_cost, messages);
    if (const std::string missing = missing_for_confidences(trace, heads);
        !missing.empty() && !temperatures.empty()) {
      throw policy_error(
          result.calibration,
          fmt::format("{} has {}, so there is nothing to calibrate", trace.header().file, missing),
          "leave --calibration out, or record what is missing");
    }
    check_reference(options.reference, policies, trace.header().file);
    // Last of all checks: what is wrong with the files is reported before what is wrong with the
    // machine.
    if (!backend) backend = choose_backend(options.common.backend, options.common.threads);

    if (products_of(*backend, trace, heads, options.products) == Products::tensor) {
      result.products = products_name(Products::tensor);
    }
    replay_options.progress = [&](std::int64_t done, std::int64_t total) {
      messages.progress(trace.header().file, done, total);
    };
    TraceSummary summary = summary_of(trace);
    for (const Setting& setting : recording.settings) {
      TraceSummary counted = summary_of(trace);
      replay_trace(*backend,
                   {.trace = trace,
                    .heads = heads,
                    .verification = setting.verification,
                    .sampling = setting.sampling,
                    .policies = policies,
                    .cost = plan.model,
                    .concurrency = plan.concurrency,
                    .width = plan.width,
                    .calibration = temperatures,
                    .off_policy = setting.off_policy},
                   replay_options, counted, result);
      merge_counts(summary, counted);
    }
    result.traces.push_back(std::move(summary));
    recording.trace.reset();
  }
  result.backend = backend->name();
  result.device = backend->device();
  if (cache) result.cached = cache->made() == 0;
  rank_results(result.results);
  find_best_policies(result);
  for (const std::string& line : pair_verifications(result)) messages.note(line);
  finish_strata(result);
  result.notes = messages.notes();
  return result;
}

ExitCode exit_code_for(const ReplayResult& result, bool strict) {
  const bool incomplete =
      std::any_of(result.traces.begin(), result.traces.end(), [&](const TraceSummary& trace) {
        return trace.invalid_rows > 0 || trace.impossible_tokens > 0 ||
               (strict && trace.diverged.value_or(0) > 0);
      });
  return incomplete ? ExitCode::incomplete : ExitCode::done;
}

class RunCommand : public Command {
 public:
  explicit RunCommand(CLI::App& app)
      : common_(app),
        policy_(
            app, "-p,--policy", "POLICY.yaml",
            "Policies to replay; - is standard input (a sweep of every fixed length, thresholds "
            "and sps)"),
        repeats_(app, "--repeats", "N", "Sampled worlds per anchor, 1 to 1000 (4)"),
        chunk_(
            app, "--chunk", "N",
            "Anchors or rounds per step; changes memory and speed, never results (0: what fits)"),
        products_(app),
        cache_(app, "--cache", "DIR",
               "Keep what is computed from the rows of a trace in DIR, and use what is kept there: "
               "the next run with other policies or costs reads no rows. Several runs may share "
               "DIR; its files may be deleted at any time"),
        confidence_(app, "--confidence", "X",
                    "Level of the intervals, between 0.5 and 0.995 (0.95)"),
        reference_(app, "--reference", "RANK",
                   "Rank of the row that the others are compared with (1, the best)"),
        cost_(app, "--cost", "FILE",
              "Cost table of an engine, in place of the policy file's cost (see 'cost')"),
        calibration_(app, "--calibration", "FILE",
                     "Temperatures of the confidences (see 'calibrate'); also tells what they are "
                     "worth"),
        export_(app, "--export", "DIR",
                "Write the best policies as settings of each engine to DIR; README.md says what "
                "they are worth and what goes where") {
    add_trace_arguments(app, traces_, "Traces to replay (HDF5)");
    app.add_flag("--print-policy", print_policy_,
                 "Print the resolved policy file and exit; needs no trace");
    app.add_flag("--ledger", ledger_,
                 "Show where the cost of the best row and of the reference goes (JSON always has "
                 "it)");
    app.add_flag("--allow-flat-cost", allow_flat_cost_,
                 "Let policies optimise over a cost table whose times do not depend on the tokens");
    app.add_flag("--strict", strict_, "Exit 6 also if rounds of a rounds trace diverge");
  }

  ExitCode execute() override {
    const auto started = std::chrono::steady_clock::now();
    const RunOptions options = checked_options();
    const Output output(options.common.output);
    output.refuse_inputs(inputs_of(options));
    std::optional<ExportFolder> folder;
    if (options.export_to && !options.print_policy) {
      folder.emplace(*options.export_to);
      folder->refuse_inputs(inputs_of(options));
      folder->refuse_output(options.common.output);
    }
    const std::unique_ptr<TableCache> cache =
        open_cache(options.print_policy ? std::nullopt : options.cache);

    const Plan plan =
        options.policy ? read_plan(*options.policy, options.cost) : default_plan(options.cost);
    output.refuse_inputs({plan.cost.table});
    if (folder) folder->refuse_inputs({plan.cost.table});
    if (options.print_policy) {
      output.write(print_plan(plan));
      return ExitCode::done;
    }

    Messages messages(options.common.quiet);
    check_cost(plan, options.allow_flat_cost, messages);
    const std::vector<double> temperatures =
        options.calibration ? read_calibration(*options.calibration).temperatures
                            : std::vector<double>();
    std::vector<Recording> recordings = open_recordings(options.traces, plan, messages);
    ReplayResult result = replay_recordings(recordings, plan, options, output, temperatures, folder,
                                            cache.get(), messages);
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    if (folder) {
      folder->write(export_settings(result, plan.model, temperatures));
    }
    output.write(render(result, options.common.format, {.ledger = options.ledger}));
    return exit_code_for(result, options.strict);
  }

 private:
  /// Everything that can be wrong with the command line itself.
  RunOptions checked_options() const {
    RunOptions options;
    options.common = common_.values();
    options.traces = traces_;
    options.policy = policy_.text();
    options.cache = cache_.text();
    options.print_policy = print_policy_;
    options.strict = strict_;
    options.repeats =
        static_cast<std::int32_t>(repeats_.whole_number(1, kMaxRepeats)
                                      .value_or(static_cast<std::uint64_t>(options.repeats)));
    options.chunk = static_cast<std::int64_t>(chunk_.whole_number(0, kMaxChunk).value_or(0));
    options.products = products_.value();
    options.confidence =
        confidence_.number_between(kLeastConfidence, kMostConfidence).value_or(options.confidence);
    options.reference = static_cast<std::int64_t>(
        reference_.whole_number(1, static_cast<std::uint64_t>(kMaxPlanRows))
            .value_or(static_cast<std::uint64_t>(options.reference)));
    options.ledger = ledger_;
    options.cost = cost_.text();
    options.calibration = calibration_.text();
    options.export_to = export_.text();
    options.allow_flat_cost = allow_flat_cost_;
    for (const auto& [flag, path] :
         {std::pair(&cost_, &options.cost), std::pair(&calibration_, &options.calibration),
          std::pair(&export_, &options.export_to)}) {
      if (*path && ((*path)->empty() || (*path)->starts_with("--"))) {
        throw usage_error(flag->name(), "it has no path", "give one");
      }
    }
    const auto from_input = [](const std::optional<std::string>& path) { return path == "-"; };
    if (from_input(options.policy) + from_input(options.cost) + from_input(options.calibration) >
        1) {
      throw usage_error("-", "standard input can be read only once",
                        "give '-' to one of -p, --cost and --calibration");
    }
    if (from_input(options.export_to)) {
      throw usage_error(export_.name(), "it writes a folder, not standard output", "give a folder");
    }
    if (options.policy && options.policy->empty()) {
      throw usage_error(policy_.name(), "the path is empty",
                        "give a policy file, or - for standard input");
    }
    if (!options.print_policy) check_trace_arguments("run", options.traces);
    return options;
  }

  static std::vector<std::string> inputs_of(const RunOptions& options) {
    std::vector<std::string> inputs = options.traces;
    if (!options.common.heads.empty()) inputs.push_back(options.common.heads);
    for (const auto* path : {&options.policy, &options.cost, &options.calibration}) {
      if (*path && **path != "-") inputs.push_back(**path);
    }
    return inputs;
  }

  CommonFlags common_;
  ValueFlag policy_, repeats_, chunk_;
  ProductsFlag products_;
  ValueFlag cache_, confidence_, reference_, cost_, calibration_, export_;
  std::vector<std::string> traces_;
  bool print_policy_ = false;
  bool strict_ = false;
  bool ledger_ = false;
  bool allow_flat_cost_ = false;
};

}  // namespace

std::unique_ptr<Command> make_run_command(CLI::App& app) {
  return std::make_unique<RunCommand>(
      *app.add_subcommand("run", "Replay traces, one row per policy (the main job)"));
}

}  // namespace dspark
