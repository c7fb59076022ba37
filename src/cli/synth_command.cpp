// synth: makes a synthetic trace of any size with a known acceptance.
#include "synth/synth.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/backend_choice.h"
#include "cli/command_line.h"
#include "cli/flags.h"
#include "cli/messages.h"
#include "cli/output.h"
#include "cli/process.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

double number_of(const ValueFlag& flag, std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (stop != end || error != std::errc()) {
    throw usage_error(flag.name(), fmt::format("'{}' is not a number", text),
                      "give a number such as 0.7");
  }
  return value;
}

// The setters leave the option's default where the flag was not given; validate() knows the ranges.

void set_count(const ValueFlag& flag, std::int64_t& value) {
  constexpr std::uint64_t kMany = std::uint64_t{1} << 62;
  if (const auto given = flag.whole_number(0, kMany)) value = static_cast<std::int64_t>(*given);
}

void set_number(const ValueFlag& flag, double& value) {
  if (const auto given = flag.text()) value = number_of(flag, *given);
}

void set_numbers(const ValueFlag& flag, std::vector<double>& values) {
  const auto given = flag.text();
  if (!given) return;
  values.clear();
  for (std::string_view left = *given;;) {
    const std::size_t comma = left.find(',');
    values.push_back(number_of(flag, left.substr(0, comma)));
    if (comma == std::string_view::npos) return;
    left.remove_prefix(comma + 1);
  }
}

/// Has the temporary files removed where a signal ends the process.
void watch_temporaries(const std::vector<std::string>& paths) {
  const std::lock_guard lock(temporary_files().mutex);
  temporary_files().others = paths;
}

class SynthCommand : public Command {
 public:
  explicit SynthCommand(CLI::App& app)
      : common_(app),
        kind_(app, "--kind", "anchors|rounds", "What to record (anchors)"),
        sequences_(app, "--sequences", "N", "Sequences, or requests of a rounds trace (4)"),
        length_(app, "--length", "N", "Positions of a sequence, or rounds of a request (256)"),
        vocab_(app, "--vocab", "V", "Vocabulary size (8192)"),
        hidden_(app, "--hidden", "H", "Hidden size of draft and target, at least R + 3 (512)"),
        rank_(app, "--rank", "R", "Rank of the Markov head; 0: none (64)"),
        block_(app, "--block", "P", "Draft slots of a block (7)"),
        dtype_(app, "--dtype", "f16|bf16|f32|f64", "How numbers are stored (f16)"),
        store_(app, "--store", "hidden|logits|both", "What is stored of each row (hidden)"),
        acceptance_(app, "--acceptance", "A1,A2,...",
                    "Probability that slot k is accepted if those before it were; the last value "
                    "serves the slots left (0.85,0.8,...,0.55). Holds in the mean, under top-k "
                    "and top-p too"),
        spread_(
            app, "--spread", "X",
            "How far the acceptance of single rows strays, as a part of the way to 0 or 1 (0.6)"),
        temperature_(app, "--temperature", "T", "Recorded temperature; 0: greedy (1)"),
        top_k_(app, "--top-k", "K", "Recorded top-k; 0: off (0)"),
        top_p_(app, "--top-p", "X", "Recorded top-p; 1: off (1)"),
        logit_std_(app, "--logit-std", "X",
                   "Spread of the target's logits: how peaked it is (2.5)"),
        markov_std_(app, "--markov-std", "X", "Spread of the Markov bias (1.5)"),
        heads_file_(app, "--heads-file", "NAME",
                    "Write the heads to a file of this name beside the trace (into the trace)") {
    app.add_flag("--no-confidence", no_confidence_, "No confidence head");
    app.add_flag("--random-lengths", random_lengths_,
                 "Rounds: draw proposal lengths from 1..P instead of P");
    app.get_option("--output")->description("The trace to write, whole or not at all");
    app.get_option("--seed")->description("Seed of all that is drawn (0)");
    // Refused by name (checked_common), so not offered.
    for (const char* name : {"--format", "--heads", "--memory-budget"}) {
      app.get_option(name)->group("");
    }
  }

  ExitCode execute() override {
    const CommonOptions common = checked_common();
    const SynthOptions options = checked_options(common);
    const Output check(common.output);  // before any work
    Messages messages(common.quiet);
    const std::unique_ptr<Backend> backend = choose_backend(common.backend, common.threads);
    write_synthetic_trace(
        *backend, options, common.output,
        [&](std::int64_t done, std::int64_t total) {
          messages.progress(common.output, done, total);
        },
        watch_temporaries);
    watch_temporaries({});
    std::error_code error;
    const auto bytes = std::filesystem::file_size(common.output, error);
    messages.note(fmt::format("{}: {} {}, {}", common.output, options.sequences * options.length,
                              options.kind == TraceKind::anchors ? "anchors" : "rounds",
                              error ? "size unknown" : human_bytes(bytes)));
    return ExitCode::done;
  }

 private:
  CommonOptions checked_common() const {
    const CommonOptions common = common_.values();
    if (common.output == "-" || common.output.empty()) {
      throw usage_error("--output", "a trace goes to a file of its own", "give -o TRACE");
    }
    if (!common.heads.empty()) {
      throw usage_error("--heads", "synth makes its own heads",
                        "say with --heads-file where they go");
    }
    if (common.format != OutputFormat::table) {
      throw usage_error("--format", "synth writes a trace and prints no result",
                        "leave the flag out");
    }
    if (common.memory_budget != 0) {
      throw usage_error("--memory-budget", "the memory of synth follows from --vocab and --hidden",
                        "leave the flag out");
    }
    return common;
  }

  SynthOptions checked_options(const CommonOptions& common) const {
    constexpr std::array<std::pair<std::string_view, TraceKind>, 2> kinds = {
        {{"anchors", TraceKind::anchors}, {"rounds", TraceKind::rounds}}};
    constexpr std::array<std::pair<std::string_view, StoredType>, 4> types = {
        {{"f16", StoredType::f16},
         {"bf16", StoredType::bf16},
         {"f32", StoredType::f32},
         {"f64", StoredType::f64}}};
    constexpr std::array<std::pair<std::string_view, StoredRows>, 3> stores = {
        {{"hidden", StoredRows::hidden},
         {"logits", StoredRows::logits},
         {"both", StoredRows::both}}};

    SynthOptions options;
    options.seed = common.seed;
    options.threads = common.threads;
    options.kind = one_of(kind_, kinds, options.kind);
    set_count(sequences_, options.sequences);
    set_count(length_, options.length);
    set_count(vocab_, options.vocab_size);
    set_count(hidden_, options.hidden_size);
    set_count(rank_, options.markov_rank);
    set_count(block_, options.block_size);
    options.type = one_of(dtype_, types, options.type);
    options.store = one_of(store_, stores, options.store);
    // The default profile has a value for each of 7 slots; a shorter block takes the first ones.
    if (options.block_size > 0 &&
        static_cast<std::int64_t>(options.acceptance.size()) > options.block_size) {
      options.acceptance.resize(static_cast<std::size_t>(options.block_size));
    }
    set_numbers(acceptance_, options.acceptance);
    set_number(spread_, options.spread);
    set_number(temperature_, options.temperature);
    set_count(top_k_, options.top_k);
    set_number(top_p_, options.top_p);
    set_number(logit_std_, options.logit_std);
    set_number(markov_std_, options.markov_std);
    options.confidence = !no_confidence_;
    options.random_lengths = random_lengths_;
    options.heads_file = heads_file_.text().value_or("");
    if (heads_file_.text() && options.heads_file.empty()) {
      throw usage_error(heads_file_.name(), "the name is empty", "give a file name");
    }
    if (random_lengths_ && options.kind != TraceKind::rounds) {
      throw usage_error("--random-lengths", "an anchors trace has no proposal lengths",
                        "add --kind rounds, or leave the flag out");
    }
    validate(options);
    return options;
  }

  CommonFlags common_;
  ValueFlag kind_, sequences_, length_, vocab_, hidden_, rank_, block_, dtype_, store_;
  ValueFlag acceptance_, spread_, temperature_, top_k_, top_p_, logit_std_, markov_std_,
      heads_file_;
  bool no_confidence_ = false;
  bool random_lengths_ = false;
};

}  // namespace

std::unique_ptr<Command> make_synth_command(CLI::App& app) {
  return std::make_unique<SynthCommand>(
      *app.add_subcommand("synth", "Make a synthetic trace with a known acceptance"));
}

}  // namespace dspark
