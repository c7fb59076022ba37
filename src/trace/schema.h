// What a trace says about itself: trace format version 1 (traces/README.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/views.h"

namespace dspark {

enum class TraceKind { anchors, rounds, heads };

/// Bounds that keep every product of sizes inside 64 bits and every mass sum inside its integer.
inline constexpr std::int64_t kMaxVocab = std::int64_t{1} << 22;
inline constexpr std::int64_t kMaxHidden = std::int64_t{1} << 17;
inline constexpr std::int64_t kMaxBlock = 64;
inline constexpr std::int64_t kMaxRows = std::int64_t{1} << 40;

/// Root attributes of a trace, validated.
struct TraceHeader {
  std::string file;  ///< path as the user gave it
  TraceKind kind = TraceKind::anchors;
  std::int32_t vocab_size = 0;          ///< V
  std::int32_t vocab_size_logical = 0;  ///< ids at or above are padding; V where absent
  std::int32_t hidden_size = 0;         ///< H, 0 where no draft hidden states are stored
  std::int32_t target_hidden_size = 0;  ///< Ht, 0 where no target hidden states are stored
  std::int32_t block_size = 0;          ///< P, 1..64
  double temperature = 0;
  std::int64_t top_k = 0;  ///< 0 = off
  double top_p = 1;        ///< 1 = off
  std::optional<std::int64_t> seed;
  std::string model, domain, producer, created;
  std::string heads_file;  ///< plain file name beside the trace, or empty
  bool has_heads = false;  ///< the trace has a group /heads

  /// T < 1e-3: recorded greedily.
  [[nodiscard]] bool greedy() const { return !(temperature >= 1e-3); }
};

/// Row-wise datasets that are streamed, never held whole.
enum class RowData { draft_hidden, draft_logits, target_hidden, target_logits };
[[nodiscard]] const char* dataset_name(RowData data);

/// Shape and stored type of one streamed dataset: `rows` blocks of `rows_per_block` rows of `width`
/// numbers.
struct RowDataInfo {
  DType type = DType::f32;          ///< as delivered by read(): f64 is narrowed to f32
  std::string stored_as;            ///< "f16", "bf16", "f32" or "f64"
  std::int64_t blocks = 0;          ///< N or M
  std::int32_t rows_per_block = 1;  ///< P, P+1 or 1
  std::int32_t width = 0;           ///< H, Ht or V
};

/// A small matrix or vector held in host memory as it is stored.
struct HostMatrix {
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<std::byte> bytes;
  [[nodiscard]] bool empty() const { return rows == 0; }
};

/// The head weights. Missing ones are empty.
struct Heads {
  std::string file;                      ///< where they came from
  HostMatrix markov_w1;                  ///< [V, R]
  HostMatrix markov_w2;                  ///< [V, R]
  std::vector<float> confidence_weight;  ///< [H] or [H+R]
  float confidence_bias = 0;
  bool confidence_with_markov = false;
  HostMatrix lm_head;        ///< [V, Ht]
  HostMatrix draft_lm_head;  ///< [V, H]; empty: lm_head serves

  [[nodiscard]] bool has_markov() const { return !markov_w1.empty(); }
  [[nodiscard]] bool has_confidence() const { return !confidence_weight.empty(); }
};

/// What is recorded per position of an anchors trace, besides the streamed rows.
struct AnchorTokens {
  std::vector<std::int64_t> sequence_offsets;  ///< [S+1]
  std::vector<std::int32_t> tokens;            ///< [N]
  std::vector<std::int32_t> last_tokens;       ///< [S]; -1 may stand for an empty sequence
};

/// What is recorded per round of a rounds trace, besides the streamed rows. P = block size.
struct RoundRecords {
  std::vector<std::int32_t> request, round, anchor_token;  ///< [M]
  std::vector<std::int32_t> draft_tokens;                  ///< [M, P]
  std::vector<std::int32_t> proposal_length;               ///< [M]
  std::vector<std::int32_t> accept_length;                 ///< [M]
  std::vector<std::int32_t> accepted_tokens;               ///< [M, P+1], padded with -1
  std::vector<float> proposal_uniforms;                    ///< [M, P] or empty
  std::vector<float> accept_uniforms;                      ///< [M, 2P+1] or empty
};

}  // namespace dspark
