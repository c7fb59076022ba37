// Reading traces: everything is validated before it is believed, and nothing is allocated on an
// unchecked number.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trace/schema.h"

namespace dspark {

struct OpenTrace;  // impl.h

/// An open trace. Every member throws Error(trace) with file, dataset and row where the file is
/// bad. Not thread-safe (HDF5 is not); read from one thread at a time.
class TraceFile {
 public:
  /// Opens `path` read-only and validates attributes, shapes, types, filters, storage (no external
  /// links, external storage, virtual datasets or filters other than deflate, shuffle, fletcher32)
  /// and sizes against the file. Reads no bulk data. A heads file opens too (kind heads), so that
  /// `inspect` can show it.
  [[nodiscard]] static std::unique_ptr<TraceFile> open(const std::string& path);
  ~TraceFile();

  [[nodiscard]] const TraceHeader& header() const;
  /// Blocks of the trace: N positions or M rounds; 0 for heads files.
  [[nodiscard]] std::int64_t blocks() const;
  /// The open file, to read its bytes (pread) and its state (fstat) from: the very file that read()
  /// reads, also where another one has taken its path. Owned by this object.
  [[nodiscard]] int descriptor() const;
  /// Shape and type of a streamed dataset, or nothing if the trace does not have it.
  [[nodiscard]] std::optional<RowDataInfo> row_data(RowData data) const;
  /// Reads blocks [first, first + count) of a streamed dataset in RowDataInfo::type to `out`
  /// (count · rows_per_block · width elements, host memory). f64 is narrowed to f32.
  void read(RowData data, std::int64_t first, std::int64_t count, void* out);

  /// Reads and validates the tokens of an anchors trace (offsets ascending from 0 to N, ids in
  /// range of the logical vocabulary). `memory_budget` in bytes bounds what is allocated.
  [[nodiscard]] AnchorTokens read_anchor_tokens(std::uint64_t memory_budget);
  /// Reads and validates the records of a rounds trace (ids, lengths, uniforms in [0, 1], unique
  /// (request, round)).
  [[nodiscard]] RoundRecords read_round_records(std::uint64_t memory_budget);

 private:
  explicit TraceFile(std::unique_ptr<OpenTrace> impl);
  std::unique_ptr<OpenTrace> impl_;
  friend struct TraceAccess;  // the rest of this folder (impl.h)
};

/// Loads the heads for a trace: `heads_override` (--heads) wins over /heads in the trace, which
/// wins over its `heads_file` (beside the trace). Validates shapes against the trace (V, H, Ht) and
/// that weights are finite as f32. Loads lm_head only where hidden states stand in for logits.
/// Throws Error(trace) where a needed head is missing or bad, or where the heads would not fit
/// `memory_budget`. Head types of later parts (gated, rnn, reduced vocabularies) are refused by
/// name.
[[nodiscard]] Heads load_heads(TraceFile& trace, const std::string& heads_override,
                               std::uint64_t memory_budget);

}  // namespace dspark
