// Small helpers that keep host data and its copy in a backend's memory together.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// An array in backend memory with counterparts on the host that copies need not wait for: `lanes`
/// of them, so that one is filled or read while another one's copy is under way. Where the backend
/// shares host memory each lane is the array itself.
template <class T>
class StagedArray {
 public:
  StagedArray() = default;
  StagedArray(Backend& backend, std::int64_t capacity, int lanes)
      : backend_(&backend), shared_(backend.shares_host_memory()) {
    const std::size_t bytes = static_cast<std::size_t>(capacity) * sizeof(T);
    for (int lane = 0; lane < lanes; ++lane) host_.push_back(backend.allocate_host(bytes));
    if (!shared_) device_ = backend.allocate(bytes);
  }

  [[nodiscard]] T* host(int lane) const {
    return static_cast<T*>(host_[static_cast<std::size_t>(lane)].data());
  }
  /// Elements [first, first + count) in backend memory.
  [[nodiscard]] Array<T> view(int lane, std::int64_t count, std::int64_t first = 0) const {
    return {(shared_ ? host(lane) : static_cast<T*>(device_.data())) + first, count};
  }
  [[nodiscard]] Array<const T> const_view(int lane, std::int64_t count,
                                          std::int64_t first = 0) const {
    return {view(lane, count, first).data, count};
  }
  /// Enqueues the copy of the first `count` elements of host(lane) among the operations.
  Array<const T> upload(int lane, std::int64_t count) const {
    if (!shared_) {
      backend_->enqueue_upload(Queue::operations, device_.data(), host(lane), bytes(count));
    }
    return const_view(lane, count);
  }
  /// Enqueues the copy of the first `count` elements to host(lane) behind the operations so far.
  void download(int lane, std::int64_t count) const {
    if (!shared_) backend_->enqueue_download(host(lane), device_.data(), bytes(count));
  }

 private:
  static std::size_t bytes(std::int64_t count) {
    return static_cast<std::size_t>(count) * sizeof(T);
  }
  Backend* backend_ = nullptr;
  bool shared_ = false;
  std::vector<HostBuffer> host_;
  Buffer device_;
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
  [[nodiscard]] const Buffer& buffer() const { return buffer_; }

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
  std::uint64_t bytes = 0;  ///< what all of it takes

  /// Uploads what `heads` has; `vocab` is the logical vocabulary.
  DeviceHeads(Backend& backend, const Heads& heads, std::int32_t vocab);

 private:
  Matrix place(Backend& backend, const HostMatrix& matrix, std::int64_t rows);
  std::vector<Buffer> buffers_;
};

/// Logits of the chunks of a trace: as they are stored, or stored hidden states times a vocabulary
/// matrix.
class LogitSource {
 public:
  /// A trace's `logits` win over its `hidden`. `head` [vocab, H] may be null where logits are
  /// stored; `vocab`: their leading columns that are kept.
  LogitSource(Backend& backend, const TraceFile& trace, RowData logits, RowData hidden,
              const Matrix& head, std::int32_t vocab, Products products);

  /// The dataset that is read.
  [[nodiscard]] RowData data() const { return data_; }
  /// True if the logits are read as they are stored.
  [[nodiscard]] bool stored() const { return stored_; }
  /// Vocabulary-wide rows of its own that it needs for each row of the dataset: 0 or 1.
  [[nodiscard]] std::int32_t rows_needed() const { return rows_needed_; }

  /// Memory for the rows of up to `blocks` blocks.
  void allocate(std::int64_t blocks);
  /// Enqueues what makes logits of `rows` (of data(), as they are stored). The view is valid as
  /// long as `rows`, and until the next call.
  Rows make(const Matrix& rows);

 private:
  Backend* backend_;
  Matrix head_;
  Products products_;
  RowData data_;
  bool stored_;
  std::int32_t rows_needed_, rows_per_block_, vocab_;
  DeviceRows rows_;
};

}  // namespace dspark
