#include "replay/backend.h"

#include <new>

#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

constexpr std::align_val_t kHostAlignment{256};

}  // namespace

template <Place kPlace>
OwnedMemory<kPlace>::~OwnedMemory() {
  if (data_ == nullptr) return;
  if constexpr (kPlace == Place::backend) {
    backend_->free_bytes(data_);
  } else {
    backend_->free_host_bytes(data_);
  }
}
template class OwnedMemory<Place::backend>;
template class OwnedMemory<Place::host>;

HostBuffer Backend::allocate_host(std::size_t bytes) {
  if (bytes == 0) return {};
  void* data = allocate_host_bytes(bytes);
  if (data == nullptr) {
    throw device_error(name() + " backend",
                       "cannot allocate " + human_bytes(bytes) + " of host memory for copies",
                       "end other programs or give a smaller --chunk");
  }
  return {*this, data, bytes};
}

void* Backend::allocate_host_bytes(std::size_t bytes) {
  return ::operator new(bytes, kHostAlignment, std::nothrow);
}

void Backend::free_host_bytes(void* data) noexcept { ::operator delete(data, kHostAlignment); }

void Backend::enqueue_upload(Queue /*queue*/, void* target, const void* source, std::size_t bytes) {
  upload(target, source, bytes);
}

void Backend::enqueue_download(void* target, const void* source, std::size_t bytes) {
  download(target, source, bytes);
}

std::unique_ptr<Fence> Backend::make_fence() { return std::make_unique<Fence>(); }
void Backend::mark(Queue /*queue*/, Fence& /*fence*/) {}
void Backend::hold(Queue /*queue*/, const Fence& /*fence*/) {}
void Backend::wait(const Fence& /*fence*/) {}

Buffer Backend::allocate(std::size_t bytes) {
  if (bytes == 0) return {};
  void* data = allocate_bytes(bytes);
  if (data == nullptr) {
    throw device_error(name() + " backend",
                       "cannot allocate " + human_bytes(bytes) + " of memory, " +
                           human_bytes(free_memory()) + " are free",
                       "end other programs or give a smaller memory budget");
  }
  return {*this, data, bytes};
}

}  // namespace dspark
