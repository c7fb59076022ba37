#include "replay/backend.h"

#include "support/error.h"
#include "support/text.h"

namespace dspark {

Buffer::~Buffer() {
  if (data_ != nullptr) backend_->free_bytes(data_);
}

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
