// Small helpers that keep host data and its copy in a backend's memory together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "replay/backend.h"
#include "trace/trace.h"

namespace dspark {

/// A host vector's counterpart in backend memory with a fixed capacity.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(Backend& backend, std::int64_t capacity)
      : backend_(&backend),
        buffer_(backend.allocate(static_cast<std::size_t>(capacity) * sizeof(T))) {}

  /// Copies `host` (at most the capacity) to the backend and returns a view of it.
  Array<const T> upload(const std::vector<T>& host) {
    backend_->upload(buffer_.data(), host.data(), host.size() * sizeof(T));
    return {static_cast<const T*>(buffer_.data()), static_cast<std::int64_t>(host.size())};
  }
  /// The first `count` elements in backend memory.
  [[nodiscard]] Array<T> view(std::int64_t count) const { return buffer_.template as<T>(count); }
  [[nodiscard]] Array<const T> const_view(std::int64_t count) const {
    return {static_cast<const T*>(buffer_.data()), count};
  }
  [[nodiscard]] T* data() const { return static_cast<T*>(buffer_.data()); }
  /// Waits, and copies the first `count` elements to `host` (resized).
  void download(std::vector<T>& host, std::int64_t count) const {
    host.resize(static_cast<std::size_t>(count));
    backend_->download(host.data(), buffer_.data(), host.size() * sizeof(T));
  }

 private:
  Backend* backend_ = nullptr;
  Buffer buffer_;
};

/// f32 rows over a vocabulary (or a hidden size) in backend memory.
class DeviceRows {
 public:
  DeviceRows() = default;
  DeviceRows(Backend& backend, std::int64_t rows, std::int32_t width)
      : buffer_(backend.allocate(static_cast<std::size_t>(rows) * static_cast<std::size_t>(width) *
                                 sizeof(float))),
        width_(width) {}

  [[nodiscard]] Rows rows(std::int64_t count) const {
    return {static_cast<float*>(buffer_.data()), count, width_, width_};
  }
  [[nodiscard]] Matrix matrix(std::int64_t count) const {
    return {buffer_.data(), DType::f32, count, width_, width_};
  }

 private:
  Buffer buffer_;
  std::int32_t width_ = 0;
};

/// Head weights in backend memory. Where the backend shares host memory these are views of `heads`,
/// which must outlive it.
struct DeviceHeads {
  Matrix markov_w1, markov_w2;    ///< null data: no Markov head
  Matrix lm_head, draft_lm_head;  ///< cut to the logical vocabulary; null where not loaded
  Array<const float> confidence_weight;
  float confidence_bias = 0;

  /// Uploads what `heads` has; `vocab` is the logical vocabulary.
  DeviceHeads(Backend& backend, const Heads& heads, std::int32_t vocab);

 private:
  Matrix place(Backend& backend, const HostMatrix& matrix, std::int64_t rows);
  std::vector<Buffer> buffers_;
};

/// Streams blocks of a trace into backend memory as f32 rows: logits as stored, or hidden states
/// times a vocabulary matrix.
class RowStream {
 public:
  RowStream() = default;
  /// Buffers for up to `capacity` blocks of `data`. `vocab`: leading columns that are kept (logical
  /// vocabulary, or the width).
  RowStream(Backend& backend, TraceFile& trace, RowData data, std::int64_t capacity,
            std::int32_t vocab);

  /// Reads blocks [first, first + count) and widens them; the view is valid until the next call.
  Rows load(std::int64_t first, std::int64_t count);
  /// The first `blocks` blocks loaded last.
  [[nodiscard]] Matrix matrix(std::int64_t blocks) const {
    return rows_.matrix(blocks * info_.rows_per_block);
  }
  [[nodiscard]] std::int32_t rows_per_block() const { return info_.rows_per_block; }

 private:
  Backend* backend_ = nullptr;
  TraceFile* trace_ = nullptr;
  RowData data_ = RowData::draft_hidden;
  RowDataInfo info_;
  std::vector<std::byte> host_;
  Buffer stored_;
  DeviceRows rows_;
  std::int32_t keep_ = 0;
};

/// Streams blocks of logits: as they are stored, or stored hidden states times a vocabulary matrix.
class LogitStream {
 public:
  /// Buffers for up to `capacity` blocks. The trace's `logits` win over its `hidden`, which are
  /// then read only if `keep_hidden` (the confidence head needs them). `head` [vocab, H] may be
  /// null where logits are stored.
  LogitStream(Backend& backend, TraceFile& trace, RowData logits, RowData hidden,
              const Matrix& head, std::int64_t capacity, std::int32_t vocab, Products products,
              bool keep_hidden = false);

  /// Logits of blocks [first, first + count); the view is valid until the next call.
  Rows load(std::int64_t first, std::int64_t count);
  /// Hidden states of the first `count` blocks loaded last, where they are read.
  [[nodiscard]] Matrix hidden(std::int64_t count) const { return hidden_->matrix(count); }
  /// True if the logits are read as they are stored.
  [[nodiscard]] bool stored() const { return stored_.has_value(); }

 private:
  Backend* backend_;
  Matrix head_;
  Products products_;
  std::optional<RowStream> stored_, hidden_;
  DeviceRows projected_;
};

}  // namespace dspark
