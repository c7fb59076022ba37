#include "backends/cpu/cpu_backend.h"
#include "tests/kernels/kernel_test.h"

namespace dspark::test {

std::string backend_unavailable_reason() { return {}; }

Backend& backend() {
  static const std::unique_ptr<Backend> instance = make_cpu_backend(2);
  return *instance;
}

}  // namespace dspark::test
