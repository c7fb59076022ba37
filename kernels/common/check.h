// Turns a CUDA error code into the project's one exception type. The text is built out of line, by
// the host compiler.
#pragma once

#include <cuda_runtime_api.h>

namespace dspark::kernels {

/// Throws Error(device) that names the call, the place, and CUDA's name and description of `error`.
[[noreturn]] void throw_cuda_error(cudaError_t error, const char* call, const char* file, int line);

/// Throws Error(internal): a caller's mistake that would make a launch impossible.
[[noreturn]] void throw_launch_error(const char* where, const char* what);

}  // namespace dspark::kernels

/// Evaluates a CUDA runtime call and throws Error(device) where it fails. The error is also taken
/// off the runtime's own record, so that a later launch is not blamed for it.
#define DSPARK_CUDA_CHECK(call)                                                     \
  do {                                                                              \
    const cudaError_t dspark_error = (call);                                        \
    if (dspark_error != cudaSuccess) {                                              \
      static_cast<void>(cudaGetLastError());                                        \
      ::dspark::kernels::throw_cuda_error(dspark_error, #call, __FILE__, __LINE__); \
    }                                                                               \
  } while (false)
