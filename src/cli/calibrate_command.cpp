// calibrate: fits one temperature per draft position to what was accepted, and judges the fit.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calibration/calibrate.h"
#include "calibration/calibration.h"
#include "calibration/records.h"
#include "cli/cache_folder.h"
#include "cli/calibrate_report.h"
#include "cli/command_line.h"
#include "cli/flags.h"
#include "cli/inputs.h"
#include "cli/messages.h"
#include "cli/output.h"
#include "cli/settings.h"
#include "config/plan.h"
#include "replay/cache.h"
#include "replay/calibration_samples.h"
#include "replay/outcomes.h"
#include "replay/products.h"
#include "support/version.h"
#include "trace/memory.h"
#include "trace/trace.h"

namespace dspark {
namespace {

constexpr std::uint64_t kMaxRepeats = 1000;
constexpr std::uint64_t kMaxChunk = std::uint64_t{1} << 30;

enum class Preset { sglang, deepspec };

struct CalibrateCommandOptions {
  CommonOptions common;
  std::vector<std::string> inputs;
  std::optional<std::string> cache;
  std::int32_t repeats = 4;
  std::int64_t chunk = 0;
  Products products = Products::exact;
  LabelKind labels = LabelKind::cumulative;
  CalibrationFormat to = CalibrationFormat::sglang;
  Preset preset = Preset::sglang;
  FitRule rule;
  double holdout = 0.5;
  std::optional<double> max_ece;
};

/// One input: an open trace, or null for a file of records.
struct Recording {
  std::string path;
  std::unique_ptr<TraceFile> trace;
};

std::vector<Recording> open_recordings(const std::vector<std::string>& paths) {
  std::vector<Recording> recordings;
  const TraceHeader* first = nullptr;
  for (const std::string& path : paths) {
    recordings.push_back({path, nullptr});
    if (looks_like_records(path)) continue;
    recordings.back().trace = TraceFile::open(path);
    const TraceHeader& header = recordings.back().trace->header();
    if (header.kind == TraceKind::heads) {
      throw trace_error(path, "this is a heads file, with nothing recorded to calibrate on",
                        "give a trace, and this file with --heads if it is not found beside it");
    }
    if (first != nullptr && first->block_size != header.block_size) {
      throw trace_error(path,
                        fmt::format("its block size is {}, and that of {} is {}", header.block_size,
                                    first->file, first->block_size),
                        "calibrate one drafter at a time");
    }
    first = &header;
  }
  return recordings;
}

class Collector {
 public:
  Collector(const CalibrateCommandOptions& options, const Output& output, Messages& messages)
      : options_(options),
        output_(output),
        messages_(messages),
        cache_(open_cache(options.cache)),
        samples_(options.labels, resolve_memory_budget(options.common.memory_budget)) {
    replay_.seed = options.common.seed;
    replay_.repeats = options.repeats;
    replay_.chunk = options.chunk;
    replay_.products = options.products;
    replay_.memory_budget = options.common.memory_budget;
    replay_.threads = options.common.threads;
    replay_.cache = cache_.get();
    replay_.notice = [this](const std::string& line) { messages_.note(line); };
    replay_.plan = [this](const std::string& line) { tell_plan(*backend_, line, messages_); };
  }

  void add(Recording& recording) {
    if (!recording.trace) {
      read_records(recording.path, samples_);
      return;
    }
    add_trace(*recording.trace);
    recording.trace.reset();
  }

  [[nodiscard]] CalibrationSamples& samples() { return samples_; }
  /// Rows of a trace were invalid.
  [[nodiscard]] bool incomplete() const { return incomplete_; }
  /// Tensor where some were accumulated on tensor cores.
  [[nodiscard]] Products products() const { return products_; }
  /// Null where no trace was replayed.
  [[nodiscard]] const Backend* backend() const { return backend_.get(); }

 private:
  void add_trace(TraceFile& trace) {
    const TraceHeader& header = trace.header();
    const Heads heads = load_heads(trace, options_.common.heads, options_.common.memory_budget);
    output_.refuse_inputs({heads.file});
    const std::string missing = missing_for_confidences(trace, heads);
    if (!missing.empty()) {
      throw trace_error(header.file,
                        fmt::format("has {}, so there are no confidences to calibrate", missing),
                        "record what is missing");
    }
    if (!backend_) backend_ = choose_backend(options_.common.backend, options_.common.threads);
    if (products_of(*backend_, trace, heads, options_.products) == Products::tensor) {
      products_ = Products::tensor;
    }
    replay_.progress = [&](std::int64_t done, std::int64_t total) {
      messages_.progress(header.file, done, total);
    };
    const Setting recorded = choose_settings(default_plan(), {header}).by_trace.front().front();
    const ReplayJob job = {trace, heads, recorded.verification, recorded.sampling, {}, {}};
    samples_.add_input(header.file, header.domain.empty() ? header.file : header.domain);
    if (header.kind == TraceKind::rounds) {
      add_table(rounds_of(*backend_, job, replay_));
    } else {
      const OutcomeTable table = outcomes_of(*backend_, job, replay_);
      incomplete_ = incomplete_ || table.impossible_tokens > 0;
      add_table(table);
    }
  }

  template <class Table>
  void add_table(const Table& table) {
    incomplete_ = incomplete_ || table.invalid_rows > 0;
    add_calibration_samples(table, samples_);
  }

  const CalibrateCommandOptions& options_;
  const Output& output_;
  Messages& messages_;
  std::unique_ptr<TableCache> cache_;
  CalibrationSamples samples_;
  ReplayOptions replay_;
  std::unique_ptr<Backend> backend_;
  Products products_ = Products::exact;
  bool incomplete_ = false;
};

/// The calibration errors of all inputs by position: of what was held out, or of what was fitted
/// where nothing was. Empty where a position has none, as the files have no word for that.
std::vector<double> errors_of(const CalibrationReport& report, bool after) {
  const SamplePart part = report.held_out > 0 ? SamplePart::held_out : SamplePart::fit;
  std::vector<double> errors;
  for (const JudgedPosition& at : report.positions) {
    if (at.part != part || at.domain) continue;
    const std::optional<double>& ece = after ? at.after.ece : at.before.ece;
    if (!ece) return {};
    errors.push_back(*ece);
  }
  return errors;
}

Calibration file_of(const CalibrationReport& report, CalibrationFormat format) {
  Calibration out;
  out.format = format;
  for (const FittedTemperature& fitted : report.temperatures) {
    out.temperatures.push_back(fitted.temperature);
  }
  for (const SampleInput& input : report.inputs) {
    out.origins.push_back(input.file);
    out.dataset += (out.dataset.empty() ? "" : ", ") + input.domain;
  }
  out.samples = report.fitted_blocks;
  const FitRule& rule = report.options.rule;
  out.bins = rule.bins;
  out.grid = CalibrationGrid{rule.grid_min, rule.grid_max, rule.grid_size};
  // DeepSpec's are errors of the cumulative product.
  if (format != CalibrationFormat::deepspec || report.labels == LabelKind::cumulative) {
    out.ece_before = errors_of(report, false);
    out.ece_after = errors_of(report, true);
  }
  return out;
}

class CalibrateCommand : public Command {
 public:
  explicit CalibrateCommand(CLI::App& app)
      : common_(app),
        labels_(app, "--labels", "cumulative|conditional",
                "What is calibrated: the running product against \"accepted up to here\", as the "
                "engines do (cumulative), or each confidence against \"accepted, as those before "
                "were\""),
        to_(app, "--to", "sglang|trtllm|deepspec", "Whose file is written (sglang)"),
        preset_(app, "--preset", "sglang|deepspec",
                "Bins and grid of the fit: 15 bins and 41 temperatures from 0.1 to 10, or 20 bins "
                "and 256 from 0.05 to 20 and 1 (deepspec with --to deepspec, else sglang)"),
        bins_(app, "--bins", "N", "Bins of the calibration error, instead of the preset's"),
        grid_min_(app, "--grid-min", "T", "Least temperature tried, instead of the preset's"),
        grid_max_(app, "--grid-max", "T", "Largest temperature tried, instead of the preset's"),
        grid_size_(app, "--grid-size", "N", "Temperatures tried, instead of the preset's"),
        holdout_(app, "--holdout", "X",
                 "Share of each input's sequences that are judged on and not fitted on, between 0 "
                 "and 1 (0.5)"),
        max_ece_(app, "--max-ece", "X",
                 "Exit 6 unless the mean calibration error after, on what was held out, is at "
                 "most X"),
        repeats_(app, "--repeats", "N", "Sampled worlds per anchor, 1 to 1000 (4)"),
        chunk_(app, "--chunk", "N",
               "Anchors per step; changes memory and speed, never results (0: what fits)"),
        products_(app),
        cache_(app, "--cache", "DIR",
               "Keep what is computed from the rows of a trace in DIR, as run does") {
    add_trace_arguments(app, inputs_, "Traces (HDF5), or DeepSpec's confidence_records.jsonl");
    app.get_option("--output")->description("The calibration file to write, whole or not at all");
    app.get_option("--seed")->description("Seed of the sampled worlds and of the hold-out (0)");
    app.get_option("--format")->description("How the report on standard output is written (table)");
  }

  ExitCode execute() override {
    const CalibrateCommandOptions options = checked_options();
    const Output output(options.common.output);
    std::vector<std::string> inputs = options.inputs;
    if (!options.common.heads.empty()) inputs.push_back(options.common.heads);
    output.refuse_inputs(inputs);
    const Output report_output("-");

    Messages messages(options.common.quiet);
    std::vector<Recording> recordings = open_recordings(options.inputs);
    Collector collector(options, output, messages);
    for (Recording& recording : recordings) collector.add(recording);
    const CalibrationReport report =
        calibrate(collector.samples(), {.rule = options.rule,
                                        .holdout = options.holdout,
                                        .seed = options.common.seed,
                                        .threads = options.common.threads});
    output.write(calibration_text(file_of(report, options.to)));
    report_output.write(
        render_calibration(report, run_of(options, collector), options.common.format));
    for (const std::string& note : report.notes) messages.note(note);
    const bool passes = judge(options, report, messages);
    return collector.incomplete() || !passes ? ExitCode::incomplete : ExitCode::done;
  }

 private:
  static CalibrationRun run_of(const CalibrateCommandOptions& options, const Collector& collector) {
    const Backend* backend = collector.backend();
    CalibrationRun run;
    run.version = version();
    if (backend != nullptr) {
      run.backend = backend->name();
      run.device = backend->device();
    }
    run.repeats = options.repeats;
    run.products = products_name(collector.products());
    run.preset = options.preset == Preset::sglang ? "sglang" : "deepspec";
    return run;
  }

  static bool judge(const CalibrateCommandOptions& options, const CalibrationReport& report,
                    Messages& messages) {
    if (!options.max_ece || meets(report, *options.max_ece)) return true;
    messages.note(
        report.held_out_error.after
            ? fmt::format("--max-ece: the mean calibration error after is {:.4f}, above {}",
                          *report.held_out_error.after, *options.max_ece)
            : fmt::format("--max-ece: nothing is held out that could be judged"));
    return false;
  }

  /// Everything that can be wrong with the command line itself.
  CalibrateCommandOptions checked_options() const {
    constexpr std::array<std::pair<std::string_view, LabelKind>, 2> labels = {
        {{"cumulative", LabelKind::cumulative}, {"conditional", LabelKind::conditional}}};
    constexpr std::array<std::pair<std::string_view, CalibrationFormat>, 3> formats = {
        {{"sglang", CalibrationFormat::sglang},
         {"trtllm", CalibrationFormat::trtllm},
         {"deepspec", CalibrationFormat::deepspec}}};
    constexpr std::array<std::pair<std::string_view, Preset>, 2> presets = {
        {{"sglang", Preset::sglang}, {"deepspec", Preset::deepspec}}};

    CalibrateCommandOptions options;
    options.common = common_.values();
    options.inputs = inputs_;
    options.cache = cache_.text();
    options.repeats =
        static_cast<std::int32_t>(repeats_.whole_number(1, kMaxRepeats)
                                      .value_or(static_cast<std::uint64_t>(options.repeats)));
    options.chunk = static_cast<std::int64_t>(chunk_.whole_number(0, kMaxChunk).value_or(0));
    options.products = products_.value();
    options.labels = one_of(labels_, labels, options.labels);
    options.to = one_of(to_, formats, options.to);
    options.preset =
        one_of(preset_, presets,
               options.to == CalibrationFormat::deepspec ? Preset::deepspec : Preset::sglang);
    options.rule = checked_rule(options.preset);
    options.holdout = holdout_.number_between(0, 1).value_or(options.holdout);
    options.max_ece = max_ece_.number_between(0, 1);
    check_trace_arguments("calibrate", options.inputs);
    if (options.common.output == "-") {
      throw usage_error("--output",
                        "the report goes to standard output, and the calibration to a "
                        "file of its own",
                        "give -o FILE");
    }
    return options;
  }

  FitRule checked_rule(Preset preset) const {
    FitRule rule = preset == Preset::sglang ? sglang_fit() : deepspec_fit();
    const auto count = [](const ValueFlag& flag, int least, int most, int otherwise) {
      return static_cast<int>(
          flag.whole_number(static_cast<std::uint64_t>(least), static_cast<std::uint64_t>(most))
              .value_or(static_cast<std::uint64_t>(otherwise)));
    };
    rule.bins = count(bins_, 1, kMaxCalibrationBins, rule.bins);
    rule.grid_size = count(grid_size_, 2, kMaxGridSize, rule.grid_size);
    const auto temperature = [](const ValueFlag& flag, double otherwise) {
      return flag.number_between(kMinGridTemperature, kMaxGridTemperature).value_or(otherwise);
    };
    rule.grid_min = temperature(grid_min_, rule.grid_min);
    rule.grid_max = temperature(grid_max_, rule.grid_max);
    if (!(rule.grid_min < rule.grid_max)) {
      throw usage_error(
          "--grid-min",
          fmt::format("{} is not below the largest temperature, {}", rule.grid_min, rule.grid_max),
          "give a range of temperatures");
    }
    return rule;
  }

  CommonFlags common_;
  ValueFlag labels_, to_, preset_, bins_, grid_min_, grid_max_, grid_size_, holdout_, max_ece_;
  ValueFlag repeats_, chunk_;
  ProductsFlag products_;
  ValueFlag cache_;
  std::vector<std::string> inputs_;
};

}  // namespace

std::unique_ptr<Command> make_calibrate_command(CLI::App& app) {
  return std::make_unique<CalibrateCommand>(*app.add_subcommand(
      "calibrate", "Fit one temperature per draft position to what was accepted"));
}

}  // namespace dspark
