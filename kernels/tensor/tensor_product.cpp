#include "kernels/tensor/tensor_product.h"

#include "kernels/common/check.h"
#include "kernels/tensor/mma.h"
#include "kernels/tensor/wgmma.h"

namespace dspark::kernels {

std::optional<TensorKernel> tensor_kernel() {
  int device = 0;
  int major = 0;
  int minor = 0;
  DSPARK_CUDA_CHECK(cudaGetDevice(&device));
  DSPARK_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  DSPARK_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  if (kWgmmaBuilt && major == 9 && minor == 0) return TensorKernel::wgmma;
  if (major >= 8) return TensorKernel::mma;
  return std::nullopt;
}

void tensor_product(const TensorProduct& args, TensorKernel kernel, cudaStream_t stream) {
  if (args.out.rows <= 0 || args.out.vocab <= 0) return;
  if (kernel == TensorKernel::wgmma) {
    wgmma_product(args, stream);
  } else {
    mma_product(args, stream);
  }
}

}  // namespace dspark::kernels
