// Whether there is a device to run on.
#include <cuda_runtime_api.h>

#include <exception>
#include <string>

#include "backends/cuda/cuda_backend.h"
#include "kernels/sampling/uniforms.h"

namespace dspark {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string describe(cudaError_t error) {
  return std::string(cudaGetErrorName(error)) + " (" + cudaGetErrorString(error) + ")";
}

std::string no_devices_reason(cudaError_t error) {
  int driver = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaGetLastError());
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice) {
    if (driver == 0) return "no NVIDIA driver is installed";
    if (error == cudaErrorInsufficientDriver) {
      return "the NVIDIA driver supports CUDA " + version_text(driver) +
             " at most, this program needs " + version_text(CUDART_VERSION);
    }
    return "no CUDA device is visible to this process";
  }
  return "CUDA could not be started: " + describe(error);
}

std::string find_reason() {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess) return no_devices_reason(counted);
  if (count == 0) return no_devices_reason(cudaErrorNoDevice);

  cudaDeviceProp properties;
  const cudaError_t known = cudaGetDeviceProperties(&properties, 0);
  const cudaError_t chosen = known == cudaSuccess ? cudaSetDevice(0) : known;
  if (chosen != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return "CUDA device 0 cannot be used: " + describe(chosen);
  }
  const std::string device = "CUDA device 0 (" + std::string(properties.name) + ")";
  const cudaError_t runnable = kernels::kernels_runnable();
  if (runnable == cudaErrorNoKernelImageForDevice || runnable == cudaErrorInvalidDeviceFunction) {
    return device + " has compute capability " + std::to_string(properties.major) + "." +
           std::to_string(properties.minor) + ", which this program was not built for";
  }
  if (runnable != cudaSuccess) return device + " cannot be used: " + describe(runnable);
  return {};
}

}  // namespace

std::string cuda_unavailable_reason() {
  try {
    return find_reason();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace dspark
