// The validation behind `inspect`: reads all of a trace and says what is in it and what is wrong
// with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dspark {

enum class Severity { error, warning };

struct Problem {
  Severity severity = Severity::error;
  std::string where;  ///< dataset, attribute or row inside the file; empty: the file as a whole
  std::string what;   ///< one line, unescaped as far as it quotes the file
};

/// One dataset of the trace, as stored, and what reading all of it found.
struct DatasetReport {
  std::string name;  ///< e.g. "/anchors/draft_hidden"
  std::vector<std::int64_t> shape;
  std::string stored_as;           ///< "f16", "bf16", "f32", "f64", "i32", "u16", ...
  std::uint64_t stored_bytes = 0;  ///< in the file, after compression
  std::int64_t unwritten_chunks = 0;
  // Streamed datasets only; empty where the dataset could not be read.
  std::optional<std::int64_t> rows;
  std::optional<std::int64_t> invalid_rows;
  std::optional<std::int64_t> flat_rows;
  std::optional<std::int64_t>
      near_ties;  ///< rows of stored logits whose two largest are less than 1e-3 apart
};

/// Everything `inspect` shows. A size that the file does not have, or that could not be read, is
/// empty. Texts come from the file: escape them where they are shown.
struct TraceReport {
  std::string file;  ///< path as the user gave it
  std::string kind;  ///< "anchors", "rounds", "heads"; empty where it could not be read
  std::optional<std::int32_t> vocab_size, vocab_size_logical, block_size;
  std::optional<std::int32_t> hidden_size, target_hidden_size, markov_rank;
  std::optional<std::int64_t> anchors, sequences;  ///< anchors traces
  std::optional<std::int64_t> rounds, requests;    ///< rounds traces
  std::optional<double> temperature, top_p;
  std::optional<std::int64_t> top_k, seed;
  std::string model, domain, producer, created;
  std::string heads;  ///< file that the heads were read from; empty: none
  std::vector<DatasetReport> datasets;
  bool valid = true;              ///< no error among the problems
  std::int64_t invalid_rows = 0;  ///< rows with NaN, +inf or no finite value, all datasets together
  std::vector<Problem> problems;  ///< errors and warnings in the order found
};

/// Reads everything in `path` in bounded memory and reports; a bad trace is a report with `valid` =
/// false, not an exception. `heads_override`: --heads, may be empty. `memory_budget` in bytes; 0:
/// 80 % of the available memory. Invalid rows: a logit row (within the logical vocabulary) with
/// NaN, +inf or no finite value; a hidden state with any number that is not finite.
[[nodiscard]] TraceReport inspect_trace(const std::string& path, const std::string& heads_override,
                                        std::uint64_t memory_budget);

/// 4 where the trace is bad, else 6 where rows are invalid, else 0. Warnings do not count.
[[nodiscard]] int exit_code(const TraceReport& report);

}  // namespace dspark
