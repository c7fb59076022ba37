#include "kernels/rows/markov_rows.h"

#include "kernels/common/gemm.cuh"
#include "kernels/common/visit.cuh"
#include "kernels/rows/markov_tensor.h"

namespace dspark::kernels {
namespace {

/// Adds the backbone row once, and knows which rows are written.
struct MarkovEpilogue {
  Rows backbone;
  const std::int32_t* backbone_row;
  const std::int32_t* previous;
  std::int64_t vocab;  // rows of w1; < 0: no Markov head, any id is good
  Rows out;
  bool aligned;
  std::uint32_t* status;

  __device__ std::uint32_t problems(std::int64_t m) const {
    std::uint32_t bits = kOpOk;
    if (vocab >= 0 && previous[m] >= vocab) bits |= kOpBadToken;
    if (backbone_row[m] < 0 || backbone_row[m] >= backbone.rows) bits |= kOpBadRow;
    return bits;
  }
  __device__ void report(std::int64_t m) const {
    if (previous[m] >= 0) kernels::report(status, problems(m));
  }
  __device__ bool wanted(std::int64_t m) const { return previous[m] >= 0 && problems(m) == kOpOk; }
  __device__ void store(std::int64_t m, std::int64_t n, float value) const {
    out.data[m * out.stride + n] = backbone.data[backbone_row[m] * backbone.stride + n] + value;
  }
  __device__ void store4(std::int64_t m, std::int64_t n, float4 values) const {
    if (!aligned) {
      store(m, n, values.x);
      store(m, n + 1, values.y);
      store(m, n + 2, values.z);
      store(m, n + 3, values.w);
      return;
    }
    const float4 base =
        *reinterpret_cast<const float4*>(backbone.data + backbone_row[m] * backbone.stride + n);
    *reinterpret_cast<float4*>(out.data + m * out.stride + n) =
        float4{base.x + values.x, base.y + values.y, base.z + values.z, base.w + values.w};
  }
};

/// Without a Markov head: the backbone rows as they are.
__global__ void __launch_bounds__(kThreads) copy_rows_kernel(MarkovEpilogue rows, RowSplit split) {
  const std::int64_t row = blockIdx.x / split.slices;
  const std::int32_t slice = static_cast<std::int32_t>(blockIdx.x % split.slices);
  if (slice == 0 && threadIdx.x == 0) rows.report(row);
  if (!rows.wanted(row)) return;
  const std::int32_t begin = slice * split.length;
  const std::int32_t end = min(rows.out.vocab, begin + split.length);
  const float* source = rows.backbone.data + rows.backbone_row[row] * rows.backbone.stride;
  float* target = rows.out.data + row * rows.out.stride;
  transform_row(source, target, begin, end, [](std::int32_t, float value) { return value; });
}

}  // namespace

void markov_rows(const MarkovRowsArgs& args, cudaStream_t stream) {
  if (args.out.rows <= 0 || args.out.vocab <= 0) return;
  if (args.products == Products::tensor && markov_tensor_applies(args.w1, args.w2)) {
    MarkovTensorArgs tensor;
    tensor.backbone = args.backbone;
    tensor.index.previous = args.previous.data;
    tensor.index.backbone_row = args.backbone_row.data;
    tensor.w1 = args.w1;
    tensor.w2 = args.w2;
    tensor.out = args.out;
    tensor.status = args.status;
    markov_tensor(tensor, stream);
    return;
  }
  const auto quad_rows = [](const Rows& rows) {
    return reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && rows.stride % 4 == 0;
  };
  const bool head = args.w1.data != nullptr;
  const MarkovEpilogue epilogue = {
      args.backbone,      args.backbone_row.data,
      args.previous.data, head ? args.w1.rows : -1,
      args.out,           quad_rows(args.backbone) && quad_rows(args.out),
      args.status};
  if (head) {
    gemm(gemm_operand(args.w1, args.previous.data), gemm_operand(args.w2), args.out.rows,
         args.out.vocab, args.w1.cols, epilogue, stream);
    return;
  }
  const RowSplit split = split_rows(args.out.rows, args.out.vocab, 1024);
  DSPARK_LAUNCH(copy_rows_kernel, grid_of(args.out.rows * split.slices), kThreads, 0, stream,
                epilogue, split);
}

}  // namespace dspark::kernels
