#include "kernels/common/check.h"

#include <string>

#include "support/error.h"

namespace dspark::kernels {

void throw_cuda_error(cudaError_t error, const char* call, const char* file, int line) {
  std::string place = file;
  const std::size_t slash = place.find_last_of('/');
  if (slash != std::string::npos) place.erase(0, slash + 1);
  const bool memory = error == cudaErrorMemoryAllocation;
  throw device_error("CUDA",
                     std::string(call) + " failed at " + place + ":" + std::to_string(line) +
                         " with " + cudaGetErrorName(error) + " (" + cudaGetErrorString(error) +
                         ")",
                     memory ? "free device memory, or use --backend cpu"
                            : "check the device and its driver, or use --backend cpu");
}

void throw_launch_error(const char* where, const char* what) { throw internal_error(where, what); }

}  // namespace dspark::kernels
