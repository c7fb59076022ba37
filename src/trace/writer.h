// Writing traces: whole or not at all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trace/schema.h"

namespace dspark {

/// How numbers are stored. bf16 is stored as uint16 with the tag `dtype` = "bfloat16".
enum class StoredType : std::uint8_t { f16, bf16, f32, f64 };

/// Datasets of /heads that this version writes.
enum class HeadData : std::uint8_t {
  markov_w1,          ///< [V, R]
  markov_w2,          ///< [V, R]
  confidence_weight,  ///< [H] or [H + R]
  confidence_bias,    ///< [1]
  lm_head,            ///< [V, Ht]
  draft_lm_head,      ///< [V, H]
};
[[nodiscard]] const char* dataset_name(HeadData data);

struct WriteOptions {
  int deflate = 0;  ///< 0 (contiguous, fastest to read) or 1..9 (chunked, deflate with shuffle)
  std::int64_t chunk_bytes = std::int64_t{1} << 20;  ///< about the size of a chunk, where chunked
};

/// Writes one trace. The file is made under a temporary name beside `path` and appears under its
/// own name on commit(); without a commit() it is removed. Numbers come as f32 and are stored in
/// the type asked for, rounded to nearest even. Same calls, same bytes.
///
/// Throws Error(usage) where `path` cannot be created, Error(internal) where writing fails later
/// (disk full) and where the caller breaks the contract (sizes that disagree, rows left out, a
/// dataset created twice). After an Error only destruction is allowed. The values themselves are
/// not validated: tests write bad ones on purpose.
class TraceWriter {
 public:
  /// `header`: what stands in the root attributes; sizes that are 0 and texts that are empty are
  /// left out, `file` and `has_heads` are not looked at. `blocks`: N positions or M rounds; 0 for
  /// kind heads.
  TraceWriter(const std::string& path, const TraceHeader& header, std::int64_t blocks,
              const WriteOptions& options = {});
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  /// The tokens of an anchors trace: `tokens` has `blocks` entries, `sequence_offsets` one more
  /// than `last_tokens`.
  void write(const AnchorTokens& tokens);
  /// The records of a rounds trace; empty uniforms are left out.
  void write(const RoundRecords& records);

  /// Declares a streamed dataset; its shape follows from the header.
  void create(RowData data, StoredType type);
  /// Appends `count` blocks of rows: count · rows_per_block · width numbers.
  void append(RowData data, const float* values, std::int64_t count);

  /// Declares a dataset of /heads with `rows` × `cols` numbers; vectors are [rows] with cols = 1.
  void create(HeadData data, StoredType type, std::int64_t rows, std::int64_t cols);
  /// Appends `count` rows of `cols` numbers each.
  void append(HeadData data, const float* values, std::int64_t count);

  /// Finishes: every declared row must have been appended. Flushes to the disk and gives the file
  /// its name.
  void commit();

  /// Name of the temporary file, for clean-up on a signal.
  [[nodiscard]] const std::string& temporary_path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dspark
