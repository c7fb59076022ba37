// bench: times the kernels and whole rounds.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.h"
#include "cli/backend_choice.h"
#include "cli/bench_report.h"
#include "cli/command_line.h"
#include "cli/flags.h"
#include "cli/messages.h"
#include "cli/output.h"
#include "support/error.h"

namespace dspark {
namespace {

/// The parts of "a,b,c"; one empty part for an empty text.
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

void check_distinct(const ValueFlag& flag, const std::vector<std::string>& parts) {
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    if (std::find(parts.begin(), part, *part) != part) {
      throw usage_error(flag.name(), fmt::format("'{}' is given twice", *part), "give it once");
    }
  }
}

/// Leaves `values` as they are where the flag was not given.
void set_sizes(const ValueFlag& flag, std::int32_t smallest, std::int32_t largest,
               std::vector<std::int32_t>& values) {
  const auto given = flag.text();
  if (!given) return;
  values.clear();
  for (const std::string& part : parts_of(*given)) {
    std::int32_t value = 0;
    const char* const end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data(), end, value);
    if (stop != end || error != std::errc() || value < smallest || value > largest) {
      throw usage_error(
          flag.name(), fmt::format("'{}' is not a value it takes", part),
          fmt::format("give whole numbers from {} to {}, such as {}", smallest, largest,
                      fmt::format("{},{}", smallest, std::min(largest, 8 * smallest))));
    }
    if (std::find(values.begin(), values.end(), value) != values.end()) {
      throw usage_error(flag.name(), fmt::format("{} is given twice", value), "give it once");
    }
    values.push_back(value);
  }
}

class BenchCommand : public Command {
 public:
  explicit BenchCommand(CLI::App& app)
      : common_(app),
        only_(app, "--only", "NAME[,NAME...]", "Families to time (all; --list tells their names)"),
        batch_(app, "--batch", "B1,B2,...", "Requests of a batch (1,64)"),
        vocab_(app, "--vocab", "V1,V2,...", "Vocabulary sizes (151936)"),
        rank_(app, "--rank", "R1,R2,...", "Ranks of the Markov head (256)"),
        block_(app, "--block-size", "P1,P2,...", "Draft slots of a block (7)"),
        hidden_(app, "--hidden", "H1,H2,...", "Hidden sizes (4096)"),
        top_k_(app, "--top-k", "K1,K2,...", "Top-k of the cases that have one (50)"),
        anchors_(app, "--anchors", "A1,A2,...",
                 "Anchors that reduce at once (250: with P = 7 their target rows fill a tile)"),
        products_(app, "--products", "exact|tensor,...",
                  "How products are accumulated: in one order on every device, or on tensor cores "
                  "(exact, and tensor where the device has them)"),
        samples_(app, "--samples", "N",
                 "Samples of each case (50); fewer where they take more than a second, but 5"),
        json_(app, "--json", "FILE", "Write the numbers to FILE as JSON too") {
    app.add_flag("--list", list_, "Tell the families and stop");
    app.get_option("--seed")->description("Seed of the inputs (0)");
    app.get_option("--memory-budget")
        ->description(
            "Device memory that a case may take; a larger case is refused, with exit "
            "code 6 (16 GiB)");
    app.get_option("--heads")->group("");  // refused by name, so not offered
  }

  ExitCode execute() override {
    const CommonOptions common = checked_common();
    const BenchOptions options = checked_options(common);
    // A name that is none is told before any work.
    static_cast<void>(make_cases(options.only, options.axes));
    const Output output = table_output(common.output);
    const std::optional<Output> json = json_output(common.output);
    if (list_) {
      output.write(render_bench_families(common.format));
      return ExitCode::done;
    }

    Messages messages(common.quiet);
    const std::unique_ptr<Backend> device = choose_backend(common.backend, common.threads);
    const ReferenceBackend reference =
        make_reference_backend(device->name() == "cpu", common.threads);
    BenchResult result =
        run_bench(*device, *reference.backend, options,
                  [&](const std::string& what, std::int64_t done, std::int64_t total) {
                    messages.progress(what, done, total);
                  });
    result.reference = reference.text;
    for (const RefusedCase& refused : result.refused) {
      messages.insist(fmt::format("{}: {}", case_text(refused.what), refused.why));
    }
    write_result(result, common, output, json);
    return result.refused.empty() ? ExitCode::done : ExitCode::incomplete;
  }

 private:
  /// Writes both, whichever fails: what was measured took long. Throws what failed.
  static void write_result(const BenchResult& result, const CommonOptions& common,
                           const Output& output, const std::optional<Output>& json) {
    std::exception_ptr failure;
    std::string failed;
    try {
      output.write(render_bench(result, common.format));
    } catch (const Error& error) {
      failure = std::current_exception();
      failed = error.what();
    } catch (const ReaderGone&) {  // the numbers still have a file to go to
      failure = std::current_exception();
    }
    if (json) {
      try {
        json->write(render_bench(result, OutputFormat::json));
      } catch (const Error& error) {
        if (failed.empty()) throw;
        throw Error(error.code(), "", failed, error.what());
      }
    }
    if (failure) std::rethrow_exception(failure);
  }

  static Output table_output(const std::string& path) {
    // Renaming a file over the one that is open would leave whatever else writes there behind.
    if (path != "-" && as_standard_output(path) == Stream::regular_file) {
      throw usage_error("-o " + path, "standard output goes to that file already",
                        "leave one of them out");
    }
    return Output(path);
  }

  CommonOptions checked_common() const {
    const CommonOptions common = common_.values();
    if (!common.heads.empty()) {
      throw usage_error("--heads", "bench makes its own weights", "leave the flag out");
    }
    return common;
  }

  std::optional<Output> json_output(const std::string& output) const {
    const std::optional<std::string> path = json_.text();
    if (!path) return std::nullopt;
    if (list_) throw usage_error(json_.name(), "--list times nothing", "leave one of them out");
    const Stream shared = as_standard_output(*path);
    const bool shares_stdout = shared != Stream::other && shared != Stream::terminal_or_device;
    if (path->empty() || *path == "-" || shares_stdout ||
        (output != "-" && same_destination(*path, output))) {
      throw usage_error(json_.name(), "the numbers need a file of their own",
                        "give another name, or --format json alone");
    }
    return Output(*path, json_.name());
  }

  BenchOptions checked_options(const CommonOptions& common) const {
    BenchOptions options;
    if (const auto only = only_.text()) {
      options.only = parts_of(*only);
      check_distinct(only_, options.only);
    }
    set_sizes(batch_, 1, 1 << 14, options.axes.batch);
    set_sizes(vocab_, 2, kMaxMassVocab, options.axes.vocab);
    set_sizes(rank_, 1, 1 << 14, options.axes.rank);
    set_sizes(block_, 1, kMaxScheduledPositions, options.axes.block_size);
    set_sizes(hidden_, 1, 1 << 17, options.axes.hidden);
    set_sizes(top_k_, 1, kMaxMassVocab, options.axes.top_k);
    set_sizes(anchors_, 1, 1 << 16, options.axes.anchors);
    if (const auto products = products_.text()) {
      const std::vector<std::string> parts = parts_of(*products);
      check_distinct(products_, parts);
      options.axes.products.clear();
      for (const std::string& part : parts) {
        if (part != "exact" && part != "tensor") {
          throw usage_error(products_.name(), fmt::format("'{}' is not a choice", part),
                            "give exact, tensor, or both with a comma");
        }
        options.axes.products.push_back(part == "exact" ? Products::exact : Products::tensor);
      }
    }
    if (const auto samples = samples_.whole_number(1, 100'000)) {
      options.samples = static_cast<int>(*samples);
    }
    if (common.memory_budget > 0) options.budget = common.memory_budget;
    options.seed = common.seed;
    options.threads = common.threads;
    options.tensor_where_possible = !products_.text();
    return options;
  }

  CommonFlags common_;
  ValueFlag only_, batch_, vocab_, rank_, block_, hidden_, top_k_, anchors_, products_, samples_,
      json_;
  bool list_ = false;
};

}  // namespace

std::unique_ptr<Command> make_bench_command(CLI::App& app) {
  return std::make_unique<BenchCommand>(
      *app.add_subcommand("bench", "Time the kernels and whole rounds beside their floors"));
}

}  // namespace dspark
