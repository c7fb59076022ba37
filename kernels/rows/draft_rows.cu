#include "kernels/rows/draft_rows.h"

#include "kernels/common/gemm.cuh"
#include "kernels/common/visit.cuh"

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

}  // namespace

void draft_rows(const DraftRowsArgs& args, cudaStream_t stream) {
  if (args.out.rows <= 0 || args.out.vocab <= 0) return;
  gemm(gemm_operand(args.hidden, args.hidden_row.data), gemm_operand(args.head), args.out.rows,
       args.out.vocab, args.hidden.cols, draft_epilogue<false>(args), stream);
  if (args.w1.data == nullptr) return;
  // An output is read and written by one thread, so the first chain may wait in its place.
  gemm(gemm_operand(args.w1, args.previous.data), gemm_operand(args.w2), args.out.rows,
       args.out.vocab, args.w1.cols, draft_epilogue<true>(args), stream);
}

}  // namespace dspark::kernels
