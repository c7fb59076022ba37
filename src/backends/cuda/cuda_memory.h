// Owners of CUDA objects: a stream, pinned staging memory, and a workspace that grows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dspark_ops.h"

namespace dspark::cuda {

/// A stream that does not wait for the legacy default stream.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }
  /// Waits for everything enqueued; throws Error(device) with what it failed with.
  void synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

/// Device memory of one stream, from the device's pool where it has one: allocation and release are
/// then in stream order and do not stop the device.
class DeviceMemory {
 public:
  DeviceMemory(int device, cudaStream_t stream);

  /// Null if there is not enough memory; throws Error(device) for any other failure.
  [[nodiscard]] void* allocate(std::size_t bytes) const;
  void release(void* data) const noexcept;
  /// Bytes that can still be allocated: free on the device, or kept by the pool but unused.
  [[nodiscard]] std::size_t free_bytes() const;

 private:
  cudaStream_t stream_;
  cudaMemPool_t pool_ = nullptr;  // null: the device has no pools
};

/// Page-locked host memory, given back with cudaFreeHost() once no copy uses it; null if there is
/// not enough.
[[nodiscard]] void* allocate_page_locked(std::size_t bytes);

/// Two pinned buffers through which pageable memory goes to the device: while one is filled, the
/// other is on its way.
class Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Copies host memory to the device in stream order; the host memory may be reused on return.
  void upload(void* target, const void* source, std::size_t bytes, cudaStream_t stream);

 private:
  struct Half {
    void* data = nullptr;
    cudaEvent_t sent = nullptr;
  };
  void prepare();
  Half halves_[2];
  int next_ = 0;
};

/// Temporary memory of operations that bring none along. It grows and is kept; in stream order, so
/// that growing waits for nothing.
class Workspace {
 public:
  explicit Workspace(const DeviceMemory& memory) : memory_(memory) {}
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// At least `bytes`; the contents of earlier calls are lost. Throws Error(device) naming the size
  /// if there is not enough, and Error(internal) where it would have to grow while work is
  /// recorded.
  [[nodiscard]] Scratch get(std::size_t bytes);

  /// Between begin and end, calls are recorded into a graph and memory cannot be had.
  void begin_recording() { recording_ = true; }
  void end_recording() { recording_ = false; }
  /// A graph remembers where the workspace lay: what it grows out of is kept until no graph is
  /// left.
  void pin() { ++pins_; }
  void unpin() noexcept;

 private:
  void retire();
  const DeviceMemory& memory_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool recording_ = false;
  int pins_ = 0;
  std::vector<void*> retired_;
};

/// Words of device memory that are 0 between operations: those that count in them put them back.
class ZeroedWords {
 public:
  /// Enqueues the first filling; throws Error(device) if there is not enough memory.
  ZeroedWords(const DeviceMemory& memory, std::size_t count, cudaStream_t stream);
  ~ZeroedWords();
  ZeroedWords(const ZeroedWords&) = delete;
  ZeroedWords& operator=(const ZeroedWords&) = delete;

  [[nodiscard]] std::uint32_t* get() const noexcept { return data_; }

 private:
  const DeviceMemory& memory_;
  std::uint32_t* data_ = nullptr;
};

/// The capture of a stream's work into a graph; abandoned where it is not finished.
class Capture {
 public:
  explicit Capture(cudaStream_t stream);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Ends the capture and makes the graph runnable; the caller owns it.
  [[nodiscard]] cudaGraphExec_t finish();

 private:
  cudaStream_t stream_;
  bool active_ = true;
};

/// An event that keeps the time.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) const;
  /// Waits for this event, which was recorded after `begin`.
  [[nodiscard]] double milliseconds_since(const Event& begin) const;

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace dspark::cuda
