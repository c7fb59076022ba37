#include "kernels/rows/draft_rows.h"

#include "kernels/common/gemm.cuh"
#include "kernels/common/visit.cuh"
#include "kernels/tensor/tensor_product.h"

namespace dspark::kernels {
namespace {

/// Knows which rows are written; the first product is stored, the second is added to it once.
template <bool kAdd>
struct DraftEpilogue {
  std::int64_t hidden_rows;
  const std::int32_t* hidden_row;  // null: row m
  const std::int32_t* previous;
  std::int64_t vocab;  // rows of w1; < 0: no Markov head, any id is good
  Rows out;
  bool aligned;
  std::uint32_t* status;

  __device__ std::uint32_t problems(std::int64_t m) const {
    std::uint32_t bits = kOpOk;
    if (vocab >= 0 && previous[m] >= vocab) bits |= kOpBadToken;
    if (hidden_row != nullptr && (hidden_row[m] < 0 || hidden_row[m] >= hidden_rows)) {
      bits |= kOpBadRow;
    }
    return bits;
  }
  __device__ void report(std::int64_t m) const {
    if (!kAdd && previous[m] >= 0) kernels::report(status, problems(m));
  }
  __device__ bool wanted(std::int64_t m) const { return previous[m] >= 0 && problems(m) == kOpOk; }
  __device__ void store(std::int64_t m, std::int64_t n, float value) const {
    float* const place = out.data + m * out.stride + n;
    *place = kAdd ? *place + value : value;
  }
  __device__ void store4(std::int64_t m, std::int64_t n, float4 values) const {
    if (!aligned) {
      store(m, n, values.x);
      store(m, n + 1, values.y);
      store(m, n + 2, values.z);
      store(m, n + 3, values.w);
      return;
    }
    float4* const place = reinterpret_cast<float4*>(out.data + m * out.stride + n);
    if constexpr (kAdd) {
      const float4 base = *place;
      values = {base.x + values.x, base.y + values.y, base.z + values.z, base.w + values.w};
    }
    *place = values;
  }
};

template <bool kAdd>
DraftEpilogue<kAdd> draft_epilogue(const DraftRowsArgs& args) {
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(args.out.data) % 16 == 0 && args.out.stride % 4 == 0;
  return {args.hidden.rows,   args.hidden_row.data,
          args.previous.data, args.w1.data != nullptr ? args.w1.rows : -1,
          args.out,           aligned,
          args.status};
}

// --- on tensor cores --------------------------------------------------------------------------

/// Whether a call runs on tensor cores here, and with which kernel.
std::optional<TensorKernel> kernel_of(const DraftRowsArgs& args) {
  if (args.out.rows <= 0 || args.out.vocab <= 0 || !tensor_products_apply(args)) {
    return std::nullopt;
  }
  return tensor_kernel();
}

/// 16-bit rows that are gathered: row m of `target` is row index[m] of `source`.
struct GatheredRows {
  const std::uint16_t* source;
  std::int64_t source_stride;
  const std::int32_t* index;
  std::int64_t cols;  // 0: nothing to gather
  std::uint16_t* target;
  std::int64_t target_stride;
};

std::int64_t gathered_stride(const Matrix& matrix) { return (matrix.cols + 7) / 8 * 8; }

std::size_t gathered_bytes(const Matrix& matrix, std::int64_t rows) {
  return static_cast<std::size_t>(rows * gathered_stride(matrix)) * sizeof(std::uint16_t);
}

GatheredRows gathered_rows(const Matrix& matrix, const std::int32_t* index,
                           const Scratch& scratch) {
  return {
      static_cast<const std::uint16_t*>(matrix.data), matrix.stride,          index, matrix.cols,
      static_cast<std::uint16_t*>(scratch.data),      gathered_stride(matrix)};
}

Matrix matrix_of(const GatheredRows& rows, DType type, std::int64_t count) {
  return {rows.target, type, count, rows.cols, rows.target_stride};
}

/// All threads of a block; both rows start at multiples of 16 bytes.
__device__ void gather_row(const GatheredRows& rows, std::int64_t m, bool wanted) {
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t quads = rows.cols / 8;
  std::uint16_t* const target = rows.target + m * rows.target_stride;
  const std::uint16_t* const source =
      wanted && rows.cols > 0 ? rows.source + rows.index[m] * rows.source_stride : nullptr;
  for (std::int64_t i = thread; i < quads; i += kThreads) {
    reinterpret_cast<uint4*>(target)[i] =
        wanted ? reinterpret_cast<const uint4*>(source)[i] : uint4{0, 0, 0, 0};
  }
  for (std::int64_t i = quads * 8 + thread; i < rows.cols; i += kThreads) {
    target[i] = wanted ? source[i] : std::uint16_t{0};
  }
}

/// One block per row: reports its ids, marks whether it is written, and gathers what it is made of.
__global__ void __launch_bounds__(kThreads)
    gather_kernel(DraftEpilogue<false> rows, GatheredRows hidden, GatheredRows w1,
                  std::uint8_t* wanted) {
  const std::int64_t m = blockIdx.x;
  const bool write = rows.wanted(m);
  if (threadIdx.x == 0) {
    rows.report(m);
    wanted[m] = write ? 1 : 0;
  }
  gather_row(hidden, m, write);
  gather_row(w1, m, write);
}

void draft_rows_tensor(const DraftRowsArgs& args, TensorKernel kernel, const Scratch& workspace,
                       cudaStream_t stream) {
  const std::int64_t rows = args.out.rows;
  const bool gather_hidden = args.hidden_row.data != nullptr;
  const bool head = args.w1.data != nullptr;
  ScratchCutter cutter(workspace);
  auto* const wanted = static_cast<std::uint8_t*>(cutter.take(static_cast<std::size_t>(rows)).data);
  GatheredRows hidden = {};
  GatheredRows w1 = {};
  if (gather_hidden) {
    hidden = gathered_rows(args.hidden, args.hidden_row.data,
                           cutter.take(gathered_bytes(args.hidden, rows)));
  }
  if (head) {
    w1 = gathered_rows(args.w1, args.previous.data, cutter.take(gathered_bytes(args.w1, rows)));
  }
  DSPARK_LAUNCH(gather_kernel, grid_of(rows), kThreads, 0, stream, draft_epilogue<false>(args),
                hidden, w1, wanted);
  TensorProduct product;
  product.a = gather_hidden ? matrix_of(hidden, args.hidden.type, rows) : args.hidden;
  product.b = args.head;
  if (head) {
    product.a2 = matrix_of(w1, args.w1.type, rows);
    product.b2 = args.w2;
  }
  product.out = args.out;
  product.wanted = wanted;
  tensor_product(product, kernel, stream);
}

}  // namespace

std::size_t draft_rows_workspace(const DraftRowsArgs& args) {
  if (!kernel_of(args).has_value()) return 0;
  std::size_t bytes = scratch_round_up(static_cast<std::size_t>(args.out.rows));
  if (args.hidden_row.data != nullptr) {
    bytes += scratch_round_up(gathered_bytes(args.hidden, args.out.rows));
  }
  if (args.w1.data != nullptr) bytes += scratch_round_up(gathered_bytes(args.w1, args.out.rows));
  return bytes;
}

void draft_rows(const DraftRowsArgs& args, const Scratch& workspace, cudaStream_t stream) {
  if (args.out.rows <= 0 || args.out.vocab <= 0) return;
  if (const std::optional<TensorKernel> kernel = kernel_of(args)) {
    draft_rows_tensor(args, *kernel, workspace, stream);
    return;
  }
  gemm(gemm_operand(args.hidden, args.hidden_row.data), gemm_operand(args.head), args.out.rows,
       args.out.vocab, args.hidden.cols, draft_epilogue<false>(args), stream);
  if (args.w1.data == nullptr) return;
  // An output is read and written by one thread, so the first chain may wait in its place.
  gemm(gemm_operand(args.w1, args.previous.data), gemm_operand(args.w2), args.out.rows,
       args.out.vocab, args.w1.cols, draft_epilogue<true>(args), stream);
}

}  // namespace dspark::kernels
