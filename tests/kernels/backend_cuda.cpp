#include "tests/kernels/kernel_test.h"

#if defined(DSPARK_CUDA)
#include "backends/cuda/cuda_backend.h"
#else
#include "support/error.h"
#endif

namespace dspark::test {

#if defined(DSPARK_CUDA)

std::string backend_unavailable_reason() { return cuda_unavailable_reason(); }

Backend& backend() {
  static const std::unique_ptr<Backend> instance = make_cuda_backend();
  return *instance;
}

#else

std::string backend_unavailable_reason() { return "this build has no CUDA backend"; }

Backend& backend() { throw internal_error("test", "this build has no CUDA backend"); }

#endif

}  // namespace dspark::test
