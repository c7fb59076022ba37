// Owners of CUDA objects: a stream, pinned staging memory, and a workspace that grows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

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
  /// if there is not enough.
  [[nodiscard]] Scratch get(std::size_t bytes);

 private:
  const DeviceMemory& memory_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace dspark::cuda
