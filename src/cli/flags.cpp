#include "cli/flags.h"

#include <fmt/format.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <thread>

#include "support/error.h"

namespace dspark {
namespace {

constexpr std::uint64_t kMaxThreads = 1024;

// The cores this process may run on, which can be fewer than the machine has.
int available_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  const unsigned count = std::thread::hardware_concurrency();
  return count > 0 ? static_cast<int>(count) : 1;
}

std::string long_name(const std::string& names) {
  const std::size_t comma = names.rfind(',');
  return comma == std::string::npos ? names : names.substr(comma + 1);
}

}  // namespace

ValueFlag::ValueFlag(CLI::App& app, const std::string& names, const std::string& placeholder,
                     const std::string& help)
    : name_(long_name(names)),
      option_(app.add_option(names, text_, help)
                  ->type_name(placeholder)
                  // Repetitions are ours to report: text() counts them.
                  ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)) {}

std::optional<std::string> ValueFlag::text() const {
  if (option_->count() == 0) return std::nullopt;
  if (option_->count() > 1) throw usage_error(name_, "given more than once", "give it once");
  return text_;
}

std::optional<std::uint64_t> ValueFlag::whole_number(std::uint64_t smallest,
                                                     std::uint64_t largest) const {
  const std::optional<std::string> text = this->text();
  if (!text) return std::nullopt;
  std::uint64_t value = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (stop != end || error != std::errc() || value < smallest || value > largest) {
    throw usage_error(name_, fmt::format("'{}' is not a value it takes", *text),
                      fmt::format("give a whole number from {} to {}", smallest, largest));
  }
  return value;
}

std::optional<double> ValueFlag::number_between(double above, double below) const {
  const std::optional<std::string> text = this->text();
  if (!text) return std::nullopt;
  double value = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (stop != end || error != std::errc() || !(value > above && value < below)) {
    throw usage_error(name_, fmt::format("'{}' is not a value it takes", *text),
                      fmt::format("give a number between {} and {}", above, below));
  }
  return value;
}

std::optional<std::uint64_t> ValueFlag::byte_count() const {
  const std::optional<std::string> text = this->text();
  if (!text) return std::nullopt;
  std::uint64_t value = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  const std::string_view suffix(stop, static_cast<std::size_t>(end - stop));
  const std::uint64_t unit = suffix.empty()  ? 1
                             : suffix == "k" ? 1'000
                             : suffix == "M" ? 1'000'000
                             : suffix == "G" ? 1'000'000'000
                                             : 0;
  if (error != std::errc() || value == 0 || unit == 0 ||
      value > std::numeric_limits<std::uint64_t>::max() / unit) {
    throw usage_error(name_, fmt::format("'{}' is not a number of bytes", *text),
                      "give a whole number from 1, with k, M or G after it where that helps: 8G");
  }
  return value * unit;
}

ProductsFlag::ProductsFlag(CLI::App& app)
    : flag_(app, "--products", "exact|tensor",
            "How products of hidden states and Markov rows are accumulated: the same bits on every "
            "backend (exact, the default), or on the GPU's tensor cores, which is faster and "
            "differs in the last bits") {}

Products ProductsFlag::value() const {
  constexpr std::array<std::pair<std::string_view, Products>, 2> words = {
      {{"exact", Products::exact}, {"tensor", Products::tensor}}};
  return one_of(flag_, words, Products::exact);
}

CommonFlags::CommonFlags(CLI::App& app)
    : backend_(app, "--backend", "auto|cpu|cuda",
               "What computes; auto (the default) takes the GPU where one can be used"),
      format_(app, "--format", "table|md|csv|json|jsonl", "How the result is written (table)"),
      output_(app, "-o,--output", "FILE",
              "Write to FILE, whole or not at all; - is standard output (the default)"),
      threads_(app, "--threads", "N", "Threads on the host (the cores there are)"),
      seed_(app, "--seed", "N", "Seed of the sampled worlds (0)"),
      heads_(app, "--heads", "FILE", "Heads file to use instead of the one in or beside the trace"),
      memory_budget_(app, "--memory-budget", "BYTES",
                     "Host memory to stay within; k, M, G are powers of 1000 (what is free)") {
  app.add_flag("-q,--quiet", quiet_, "No notes and no progress");
}

CommonOptions CommonFlags::values() const {
  constexpr std::array<std::pair<std::string_view, BackendRequest>, 3> backends = {
      {{"auto", BackendRequest::automatic},
       {"cpu", BackendRequest::cpu},
       {"cuda", BackendRequest::cuda}}};
  constexpr std::array<std::pair<std::string_view, OutputFormat>, 5> formats = {
      {{"table", OutputFormat::table},
       {"md", OutputFormat::md},
       {"csv", OutputFormat::csv},
       {"json", OutputFormat::json},
       {"jsonl", OutputFormat::jsonl}}};

  CommonOptions options;
  options.backend = one_of(backend_, backends, options.backend);
  options.format = one_of(format_, formats, options.format);
  options.output = output_.text().value_or(options.output);
  options.quiet = quiet_;
  const std::optional<std::uint64_t> threads = threads_.whole_number(1, kMaxThreads);
  options.threads = threads ? static_cast<int>(*threads) : available_cores();
  options.seed = seed_.whole_number(0, std::numeric_limits<std::uint64_t>::max()).value_or(0);
  options.heads = heads_.text().value_or("");
  if (heads_.text() && options.heads.empty()) {
    throw usage_error(heads_.name(), "the path is empty", "give a heads file");
  }
  options.memory_budget = memory_budget_.byte_count().value_or(0);
  return options;
}

}  // namespace dspark
