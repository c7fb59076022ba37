// The engines' cost tables: what they hold, in the unit of their file. What a table says about a
// step: cost_model.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dspark {

/// Whose file it is, which is also how it is looked up.
enum class CostFormat {
  sglang_1d,     ///< steps/s by tokens; the largest probe at or below
  sglang_2d,     ///< seconds: bias + by requests + by tokens, each linear, clamped
  trtllm,        ///< ms: overhead + by requests + by tokens, each linear, clamped
  trtllm_exact,  ///< ms of measured cells (graph batch, tokens), nothing between them
  vllm_ascend,   ///< ms or steps/s by tokens; the next larger probe, else the largest
  mlx,           ///< ms by tokens per request, for one or more request counts; linear
  rows,          ///< measured (requests, tokens, ms); linear
};

/// "sglang-1d", ...: as `cost --to` calls it.
[[nodiscard]] std::string_view cost_format_name(CostFormat format);
/// The rule by which the engine finds a time between and beyond the probes, in a few words.
[[nodiscard]] std::string_view cost_lookup_rule(CostFormat format);

/// True where a time is constant + a part by requests + a part by tokens.
[[nodiscard]] bool is_sum(CostFormat format);

/// Values at strictly increasing places; equally many of both.
struct CostCurve {
  std::vector<std::int64_t> at;
  std::vector<double> value;

  [[nodiscard]] std::size_t size() const { return at.size(); }
  [[nodiscard]] bool empty() const { return at.empty(); }
  friend bool operator==(const CostCurve&, const CostCurve&) = default;
};

/// What was measured at one request count, ms by tokens in all.
struct CostRow {
  std::int64_t requests = 0;
  CostCurve curve;
  friend bool operator==(const CostRow&, const CostRow&) = default;
};

/// TensorRT-LLM's guard of the exact table: trimming is worth what it saves less what a longer
/// drain of the batch costs.
struct CostDrainGuard {
  double loss_multiplier = 0;                           ///< above 0
  double mean_output_tokens_per_request_iteration = 0;  ///< above 0
  double minimum_group_value_ms = 0;                    ///< 0 or more
  std::int64_t tail_graph_batch_size = 0;               ///< a request count of `rows`
  friend bool operator==(const CostDrainGuard&, const CostDrainGuard&) = default;
};

/// A cost table that was read and validated: sizes within the bounds below, every time it can give
/// finite and above 0.
struct CostTable {
  CostFormat format = CostFormat::rows;
  std::string file;  ///< for messages

  // One-dimensional and additive formats, in the file's unit.
  double constant = 0;  ///< bias_seconds, fixed_overhead_ms
  CostCurve requests;   ///< the part that depends on the requests; may be empty
  CostCurve tokens;     ///< the part that depends on the tokens
  bool rates = false;   ///< `tokens` are steps per second, not times

  // rows, mlx, trtllm_exact, in ms, by increasing requests. Of trtllm_exact the entry at 0 tokens
  // is the native path: the full block of every request.
  std::vector<CostRow> rows;
  bool clamps_below = false;  ///< `rows`: no continuation below the fewest tokens of a row

  CostCurve draft;  ///< rows, mlx: ms of drafting a block, by requests; may be empty
  /// rows: the drafted tokens of each entry of `draft`, where they are stated; no part of the cost.
  std::vector<std::optional<std::int64_t>> draft_tokens;
  std::optional<double> overhead;  ///< mlx, rows: ms per speculative step besides

  std::int64_t max_batch_tokens = 0;          ///< sglang_1d; no part of the lookup
  std::int64_t max_draft_len = 0;             ///< trtllm_exact: drafts of a full block
  std::optional<double> min_predicted_gain;   ///< trtllm, trtllm_exact: a setting of the policy
  std::optional<CostDrainGuard> drain_guard;  ///< trtllm_exact
  std::vector<std::string> notes;             ///< what was chosen when reading
  /// mlx, trtllm_exact: the whole file as it was read. It belongs to the machine that made it, so
  /// it is written back as it is and made from nothing else.
  std::string document;
  /// Top-level entries that have no part in the cost (key, JSON): written back in the same format.
  std::vector<std::pair<std::string, std::string>> carried;
};

/// Bounds on a table.
inline constexpr std::size_t kMaxCostProbes = 100'000;
inline constexpr std::int64_t kMaxCostTokens = 1'000'000'000;

/// Reads a table and recognises its format by its keys ("-": standard input). `entry`: of an mlx
/// file, the entry to read (a part of its key that no other has); may be empty where there is one.
/// Throws Error(policy) that names the file and the key for anything that the format does not
/// allow: unknown format or version, probes that do not increase, lists of different lengths,
/// times that are not above 0, a fingerprint that is not the stated one.
[[nodiscard]] CostTable read_cost_table(const std::string& path, const std::string& entry = {});
/// The same from text; `name` stands in messages.
[[nodiscard]] CostTable parse_cost_table(std::string_view text, const std::string& name,
                                         const std::string& entry = {});

/// The table as a file of its own format that reads back to the same numbers. Throws
/// Error(internal) for trtllm_exact and mlx where the table is not one that was read.
[[nodiscard]] std::string write_cost_table(const CostTable& table);

}  // namespace dspark
