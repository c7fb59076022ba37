#include "synth/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "support/error.h"
#include "support/text.h"
#include "support/version.h"
#include "synth/generator.h"

namespace dspark {
namespace synth {
namespace {

constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();
constexpr double kMaxTemperature = 100;

void check_range(const char* flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw usage_error(flag, fmt::format("{} is not in {}..{}", value, least, most));
}

void check_range(const char* flag, double value, double least, double most) {
  if (value >= least && value <= most) return;  // NaN fails
  throw usage_error(flag, fmt::format("{} is not in {}..{}", value, least, most));
}

std::int64_t size_of(StoredType type) {
  switch (type) {
    case StoredType::f16:
    case StoredType::bf16:
      return 2;
    case StoredType::f32:
      return 4;
    case StoredType::f64:
      break;
  }
  return 8;
}

/// Bytes of everything that is vocabulary- or hidden-wide. The options are in range, so a double
/// holds it.
double file_bytes(const SynthOptions& options) {
  const double vocab = double(options.vocab_size);
  const double hidden = double(options.hidden_size);
  const double blocks = double(options.sequences) * double(options.length);
  const double draft_rows = blocks * double(options.block_size);
  const double target_rows = options.kind == TraceKind::rounds ? draft_rows + blocks : blocks;
  double numbers = 2 * vocab * double(options.markov_rank);
  if (options.store != StoredRows::logits) numbers += vocab * hidden + target_rows * hidden;
  if (options.store != StoredRows::hidden) numbers += (draft_rows + target_rows) * vocab;
  if (options.store != StoredRows::logits || options.confidence) numbers += draft_rows * hidden;
  return numbers * double(size_of(options.type));
}

/// Better now than after an hour of writing.
void check_space(const SynthOptions& options, const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(path, error).parent_path();
  if (error) return;  // opening the file will say what is wrong
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || file_bytes(options) <= double(space.available)) return;
  throw internal_error(path,
                       fmt::format("the trace takes about {}, and {} are free",
                                   human_bytes(static_cast<std::uint64_t>(file_bytes(options))),
                                   human_bytes(space.available)),
                       "free some space, or make a smaller trace");
}

TraceHeader trace_header(const SynthOptions& options) {
  TraceHeader header;
  header.kind = options.kind;
  header.vocab_size = static_cast<std::int32_t>(options.vocab_size);
  header.vocab_size_logical = header.vocab_size;
  header.block_size = static_cast<std::int32_t>(options.block_size);
  const auto hidden = static_cast<std::int32_t>(options.hidden_size);
  if (options.store != StoredRows::logits) header.target_hidden_size = hidden;
  if (options.store != StoredRows::logits || options.confidence) header.hidden_size = hidden;
  header.temperature = options.temperature;
  header.top_k = options.top_k;
  header.top_p = options.top_p;
  header.seed = static_cast<std::int64_t>(options.seed);
  header.model = "synthetic";
  header.domain = "synthetic";
  header.producer = fmt::format("dspark-replay synth {}", version());
  header.heads_file = options.heads_file;
  return header;
}

std::filesystem::path heads_path(const SynthOptions& options, const std::string& path) {
  return std::filesystem::path(path).parent_path() / options.heads_file;
}

/// Names differ, and still one can be a link to the other.
bool is_one_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code error;
  const std::filesystem::path first = std::filesystem::weakly_canonical(a, error);
  if (error) return false;  // opening the file will say what is wrong
  return first == std::filesystem::weakly_canonical(b, error) && !error;
}

}  // namespace

Output::Output(const SynthOptions& options, const std::string& path) {
  const TraceHeader header = trace_header(options);
  trace_.emplace(path, header, options.sequences * options.length);
  if (options.heads_file.empty()) return;
  TraceHeader heads_header = header;
  heads_header.kind = TraceKind::heads;
  heads_header.heads_file.clear();
  heads_.emplace(heads_path(options, path).string(), heads_header, 0);
}

std::vector<std::string> Output::temporary_paths() const {
  std::vector<std::string> paths = {trace_->temporary_path()};
  if (heads_) paths.push_back(heads_->temporary_path());
  return paths;
}

void Output::commit() {
  if (heads_) heads_->commit();  // first: a trace without its heads is of no use
  trace_->commit();
}

}  // namespace synth

void validate(const SynthOptions& options) {
  using synth::check_range;
  if (options.kind != TraceKind::anchors && options.kind != TraceKind::rounds) {
    throw usage_error("--kind", "only anchors and rounds can be synthesised");
  }
  check_range("--sequences", options.sequences, 1, synth::kMaxCount);
  check_range("--length", options.length, 1, synth::kMaxCount - kMaxBlock);
  if (options.sequences > kMaxRows / options.length) {
    throw usage_error("synth", fmt::format("{} x {} blocks are more than a trace can hold ({})",
                                           options.sequences, options.length, kMaxRows));
  }
  check_range("--vocab", options.vocab_size, 2, kMaxVocab);
  check_range("--rank", options.markov_rank, 0, kMaxHidden - 3);
  const std::int64_t least = std::max<std::int64_t>(options.markov_rank, 1) + 3;
  if (options.hidden_size < least) {
    throw usage_error("--hidden",
                      fmt::format("{} is too small for a Markov head of rank {}",
                                  options.hidden_size, options.markov_rank),
                      fmt::format("choose at least {} (the rank, at least 1, and 3)", least));
  }
  check_range("--hidden", options.hidden_size, least, kMaxHidden);
  check_range("--block", options.block_size, 1, kMaxBlock);
  if (options.acceptance.empty()) {
    throw usage_error("--acceptance", "no value given", "give 1 to block-size numbers in 0..1");
  }
  if (static_cast<std::int64_t>(options.acceptance.size()) > options.block_size) {
    throw usage_error("--acceptance", fmt::format("{} values for a block of {} slots",
                                                  options.acceptance.size(), options.block_size));
  }
  for (const double value : options.acceptance) check_range("--acceptance", value, 0.0, 1.0);
  check_range("--spread", options.spread, 0.0, 1.0);
  check_range("--temperature", options.temperature, 0.0, synth::kMaxTemperature);
  check_range("--top-k", options.top_k, 0, std::numeric_limits<std::int32_t>::max());
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    throw usage_error("--top-p", fmt::format("{} is not above 0 and at most 1", options.top_p));
  }
  if (options.seed > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    throw usage_error("--seed", fmt::format("{} is not below 2^63", options.seed));
  }
  check_range("--logit-std", options.logit_std, 0.1, 20.0);
  check_range("--markov-std", options.markov_std, 0.1, 20.0);
  check_range("--threads", std::int64_t{options.threads}, 1, 1024);
  const std::string& heads = options.heads_file;
  if (heads == "." || heads == ".." || heads.find('/') != std::string::npos ||
      heads.find('\0') != std::string::npos) {
    throw usage_error("--heads-file", fmt::format("'{}' is not a plain file name", heads),
                      "name a file beside the trace, without a path");
  }
}

void write_synthetic_trace(Backend& backend, const SynthOptions& options, const std::string& path,
                           const SynthProgress& progress, const SynthCreated& created) {
  validate(options);
  if (!options.heads_file.empty() && synth::is_one_file(path, synth::heads_path(options, path))) {
    throw usage_error("--heads-file", "the trace and its heads file are the same file",
                      "choose another name");
  }
  synth::check_space(options, path);
  synth::Output output(options, path);
  if (created) created(output.temporary_paths());
  synth::Generator generator(backend, options);
  generator.write_heads(output.heads());
  if (options.kind == TraceKind::anchors) {
    synth::write_anchors(generator, output.trace(), progress);
  } else {
    synth::write_rounds(generator, output.trace(), progress);
  }
  output.commit();
}

}  // namespace dspark
