#include "kernels/rows/project.h"

#include "kernels/common/gemm.cuh"
#include "kernels/tensor/tensor_product.h"

namespace dspark::kernels {
namespace {

struct ProjectEpilogue {
  Rows out;
  bool aligned;

  __device__ void report(std::int64_t) const {}
  __device__ bool wanted(std::int64_t) const { return true; }
  __device__ void store(std::int64_t m, std::int64_t n, float value) const {
    out.data[m * out.stride + n] = value;
  }
  __device__ void store4(std::int64_t m, std::int64_t n, float4 values) const {
    float* place = out.data + m * out.stride + n;
    if (aligned) {
      *reinterpret_cast<float4*>(place) = values;
    } else {
      place[0] = values.x;
      place[1] = values.y;
      place[2] = values.z;
      place[3] = values.w;
    }
  }
};

}  // namespace

void project(const ProjectArgs& args, cudaStream_t stream) {
  if (tensor_products_apply(args)) {
    if (const std::optional<TensorKernel> kernel = tensor_kernel()) {
      tensor_product({args.a, args.b, {}, {}, args.out}, *kernel, stream);
      return;
    }
  }
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(args.out.data) % 16 == 0 && args.out.stride % 4 == 0;
  gemm(gemm_operand(args.a), gemm_operand(args.b), args.a.rows, args.b.rows, args.a.cols,
       ProjectEpilogue{args.out, aligned}, stream);
}

}  // namespace dspark::kernels
