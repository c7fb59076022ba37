#include "kernels/rows/widen.h"

#include "kernels/common/gemm.cuh"

namespace dspark::kernels {
namespace {

/// One quad of a row per thread.
__global__ void __launch_bounds__(kThreads)
    widen_kernel(Matrix in, bool in_aligned, Rows out, bool out_aligned, std::int64_t quads) {
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= quads * out.rows) return;
  const std::int64_t row = item / quads;
  const std::int64_t column = item % quads * 4;
  const int valid = out.vocab - column < 4 ? static_cast<int>(out.vocab - column) : 4;
  const float4 values =
      widen_quad(load_quad(in.data, in.type, row * in.stride + column, valid, in_aligned), in.type);
  float* place = out.data + row * out.stride + column;
  if (out_aligned && valid == 4) {
    *reinterpret_cast<float4*>(place) = values;
    return;
  }
  place[0] = values.x;
  if (valid > 1) place[1] = values.y;
  if (valid > 2) place[2] = values.z;
  if (valid > 3) place[3] = values.w;
}

}  // namespace

void widen(const WidenArgs& args, cudaStream_t stream) {
  if (args.out.rows <= 0 || args.out.vocab <= 0) return;
  const std::int64_t quads = (static_cast<std::int64_t>(args.out.vocab) + 3) / 4;
  const bool in_aligned = rows_aligned(gemm_operand(args.in), 4 * size_of(args.in.type));
  const bool out_aligned =
      reinterpret_cast<std::uintptr_t>(args.out.data) % 16 == 0 && args.out.stride % 4 == 0;
  DSPARK_LAUNCH(widen_kernel, grid_for_items(quads * args.out.rows), kThreads, 0, stream, args.in,
                in_aligned, args.out, out_aligned, quads);
}

}  // namespace dspark::kernels
