#include "kernels/sampling/probabilities.h"

#include "kernels/common/inverse_cdf.cuh"
#include "kernels/rows/row_cluster.cuh"
#include "kernels/rows/row_laws.h"

namespace dspark::kernels {
namespace {

/// A slice of a row: probabilities out, and the sum of their weights.
__global__ void __launch_bounds__(kThreads)
    probabilities_kernel(LogitsToProbabilitiesArgs args, std::uint64_t* slice_sums) {
  using Reduce = cub::BlockReduce<std::uint64_t, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const std::int32_t slices = slice_count(args.logits.vocab);
  const std::int64_t row = blockIdx.x / slices;
  const std::int32_t slice = static_cast<std::int32_t>(blockIdx.x % slices);
  const std::int32_t begin = slice * kSlice;
  const std::int32_t end = min(args.logits.vocab, begin + kSlice);
  const RowLaw law = args.laws[row];
  float* out = args.probabilities.data + row * args.probabilities.stride;
  std::uint64_t sum = 0;
  if (law.status != kRowValid) {
    if (slice == 0 && threadIdx.x == 0) report(args.status, kOpInvalidRow);
    for (std::int32_t id = begin + static_cast<std::int32_t>(threadIdx.x); id < end;
         id += kThreads) {
      out[id] = 0.0f;
    }
  } else {
    const double total = static_cast<double>(law.total);
    transform_row(args.logits.data + row * args.logits.stride, out, begin, end,
                  [&](std::int32_t id, float logit) {
                    const std::uint64_t mass = law_mass(law, logit, id);
                    if (mass == 0) return 0.0f;
                    const float p = static_cast<float>(static_cast<double>(mass) / total);
                    sum += probability_weight(p);
                    return p;
                  });
  }
  if (slice_sums == nullptr) return;
  sum = Reduce(storage).Sum(sum);
  if (threadIdx.x == 0) slice_sums[row * slices + slice] = sum;
}

}  // namespace

void logits_to_probabilities(const LogitsToProbabilitiesArgs& args, const Scratch& workspace,
                             std::uint64_t* slice_sums, cudaStream_t stream) {
  if (args.logits.rows <= 0 || args.logits.vocab <= 0) return;
  const SamplingRule rule = effective_rule(args.rule, args.logits.vocab);
  const ClusterShape shape = cluster_shape(args.logits, rule);
  if (shape.blocks > 0 && slice_sums == nullptr) {
    launch_row_clusters(args.logits, rule, shape, ProbabilitySink{args.probabilities, args.status},
                        stream);
    return;
  }
  row_laws({args.logits, args.rule, {args.laws, args.logits.rows}}, workspace, stream);
  DSPARK_LAUNCH(probabilities_kernel, grid_of(args.logits.rows * slice_count(args.logits.vocab)),
                kThreads, 0, stream, args, slice_sums);
}

}  // namespace dspark::kernels
