#include "backends/cuda/cuda_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/common/check.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark::cuda {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{8} << 20;

}  // namespace

Stream::Stream() { DSPARK_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }

Stream::~Stream() {
  if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
}

void Stream::synchronize() const { DSPARK_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

DeviceMemory::DeviceMemory(int device, cudaStream_t stream) : stream_(stream) {
  int has_pools = 0;
  DSPARK_CUDA_CHECK(cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, device));
  if (has_pools == 0) return;
  DSPARK_CUDA_CHECK(cudaDeviceGetDefaultMemPool(&pool_, device));
  // What is freed stays with the pool, so that the next buffer of the same size costs nothing.
  std::uint64_t threshold = std::numeric_limits<std::uint64_t>::max();
  DSPARK_CUDA_CHECK(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold));
}

void* DeviceMemory::allocate(std::size_t bytes) const {
  void* data = nullptr;
  const auto attempt = [&] {
    const cudaError_t error = pool_ != nullptr
                                  ? cudaMallocFromPoolAsync(&data, bytes, pool_, stream_)
                                  : cudaMalloc(&data, bytes);
    if (error == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      data = nullptr;
      return;
    }
    DSPARK_CUDA_CHECK(error);
  };
  attempt();
  if (data == nullptr && pool_ != nullptr) {
    // Memory freed in stream order may still be in use, and the pool may hold blocks that do not
    // fit.
    DSPARK_CUDA_CHECK(cudaStreamSynchronize(stream_));
    DSPARK_CUDA_CHECK(cudaMemPoolTrimTo(pool_, 0));
    attempt();
  }
  return data;
}

void DeviceMemory::release(void* data) const noexcept {
  if (data == nullptr) return;
  static_cast<void>(pool_ != nullptr ? cudaFreeAsync(data, stream_) : cudaFree(data));
}

std::size_t DeviceMemory::free_bytes() const {
  std::size_t free = 0;
  std::size_t total = 0;
  DSPARK_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  if (pool_ != nullptr) {
    std::uint64_t reserved = 0;
    std::uint64_t used = 0;
    DSPARK_CUDA_CHECK(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved));
    DSPARK_CUDA_CHECK(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used));
    if (reserved > used) free += static_cast<std::size_t>(reserved - used);
  }
  return free;
}

void* allocate_page_locked(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMallocHost(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  DSPARK_CUDA_CHECK(error);
  return data;
}

Staging::~Staging() {
  for (Half& half : halves_) {
    if (half.sent != nullptr) {
      static_cast<void>(cudaEventSynchronize(half.sent));
      static_cast<void>(cudaEventDestroy(half.sent));
    }
    if (half.data != nullptr) static_cast<void>(cudaFreeHost(half.data));
  }
}

void Staging::prepare() {
  for (Half& half : halves_) {
    if (half.sent == nullptr) {
      DSPARK_CUDA_CHECK(cudaEventCreateWithFlags(&half.sent, cudaEventDisableTiming));
    }
    if (half.data == nullptr) DSPARK_CUDA_CHECK(cudaMallocHost(&half.data, kStagingBytes));
  }
}

void Staging::upload(void* target, const void* source, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return;
  prepare();
  auto* to = static_cast<unsigned char*>(target);
  const auto* from = static_cast<const unsigned char*>(source);
  while (bytes > 0) {
    Half& half = halves_[next_];
    next_ ^= 1;
    const std::size_t part = std::min(bytes, kStagingBytes);
    DSPARK_CUDA_CHECK(cudaEventSynchronize(half.sent));
    std::memcpy(half.data, from, part);
    DSPARK_CUDA_CHECK(cudaMemcpyAsync(to, half.data, part, cudaMemcpyHostToDevice, stream));
    DSPARK_CUDA_CHECK(cudaEventRecord(half.sent, stream));
    to += part;
    from += part;
    bytes -= part;
  }
}

Workspace::~Workspace() {
  memory_.release(data_);
  for (void* data : retired_) memory_.release(data);
}

void Workspace::unpin() noexcept {
  if (--pins_ > 0) return;
  for (void* data : retired_) memory_.release(data);
  retired_.clear();
}

void Workspace::retire() {
  if (pins_ > 0 && data_ != nullptr) {
    retired_.push_back(data_);
  } else {
    memory_.release(data_);
  }
  data_ = nullptr;
  bytes_ = 0;
}

Scratch Workspace::get(std::size_t bytes) {
  if (bytes > bytes_) {
    if (recording_) {
      throw internal_error("cuda backend",
                           "an operation that is recorded needs a larger workspace than the calls "
                           "before it",
                           "this is a mistake in the program, report it");
    }
    retire();
    // Half as much again, so that a workload that creeps up does not grow it every time.
    const std::size_t wanted = bytes + bytes / 2;
    data_ = memory_.allocate(wanted);
    bytes_ = wanted;
    if (data_ == nullptr) {
      data_ = memory_.allocate(bytes);
      bytes_ = bytes;
    }
    if (data_ == nullptr) {
      bytes_ = 0;
      throw device_error("cuda backend",
                         "cannot allocate " + human_bytes(bytes) + " of workspace, " +
                             human_bytes(memory_.free_bytes()) + " are free",
                         "end other programs or give a smaller memory budget");
    }
  }
  return {data_, bytes};
}

ZeroedWords::ZeroedWords(const DeviceMemory& memory, std::size_t count, cudaStream_t stream)
    : memory_(memory) {
  const std::size_t bytes = count * sizeof(std::uint32_t);
  data_ = static_cast<std::uint32_t*>(memory_.allocate(bytes));
  if (data_ == nullptr) {
    throw device_error("cuda backend",
                       "cannot allocate " + human_bytes(bytes) + ", " +
                           human_bytes(memory_.free_bytes()) + " are free",
                       "end other programs that use the device");
  }
  const cudaError_t filled = cudaMemsetAsync(data_, 0, bytes, stream);
  if (filled != cudaSuccess) memory_.release(data_);
  DSPARK_CUDA_CHECK(filled);
}

ZeroedWords::~ZeroedWords() { memory_.release(data_); }

Capture::Capture(cudaStream_t stream) : stream_(stream) {
  // Relaxed: what other streams and threads do is no part of it.
  DSPARK_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
}

Capture::~Capture() {
  if (!active_) return;
  cudaGraph_t graph = nullptr;
  static_cast<void>(cudaStreamEndCapture(stream_, &graph));
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  static_cast<void>(cudaGetLastError());
}

cudaGraphExec_t Capture::finish() {
  active_ = false;
  cudaGraph_t graph = nullptr;
  DSPARK_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
  cudaGraphExec_t runnable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&runnable, graph, 0);
  static_cast<void>(cudaGraphDestroy(graph));
  DSPARK_CUDA_CHECK(error);
  return runnable;
}

Event::Event() { DSPARK_CUDA_CHECK(cudaEventCreate(&event_)); }

Event::~Event() {
  if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
}

void Event::record(cudaStream_t stream) const {
  DSPARK_CUDA_CHECK(cudaEventRecord(event_, stream));
}

double Event::milliseconds_since(const Event& begin) const {
  DSPARK_CUDA_CHECK(cudaEventSynchronize(event_));
  float milliseconds = 0;
  DSPARK_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin.event_, event_));
  return milliseconds;
}

}  // namespace dspark::cuda
