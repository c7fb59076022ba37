#include "kernels/sampling/sample_probability_rows.h"

#include "kernels/common/inverse_cdf.cuh"

namespace dspark::kernels {
namespace {

__global__ void __launch_bounds__(kThreads) sum_kernel(SampleProbabilityRowsArgs args) {
  const std::int32_t vocab = args.probabilities.vocab;
  const std::int32_t slices = slice_count(vocab);
  const std::int64_t b = blockIdx.x / slices;
  const std::int32_t slice = static_cast<std::int32_t>(blockIdx.x % slices);
  const ProbabilityWeights weights = {args.probabilities.data + b * args.probabilities.stride,
                                      args.status};
  const std::uint64_t sum = sum_slice(weights, slice, vocab);
  if (threadIdx.x == 0) static_cast<std::uint64_t*>(args.scratch.data)[b * slices + slice] = sum;
}

__global__ void __launch_bounds__(kThreads) pick_kernel(SampleProbabilityRowsArgs args) {
  __shared__ CdfStorage storage;
  const std::int64_t b = blockIdx.x;
  const std::int64_t cell = b * args.block_size + args.step;
  const std::int32_t vocab = args.probabilities.vocab;
  const ProbabilityWeights weights = {args.probabilities.data + b * args.probabilities.stride,
                                      args.status};
  const std::uint64_t uniform = uniform_from_float(args.uniforms[cell]);
  const std::uint64_t* sums =
      static_cast<const std::uint64_t*>(args.scratch.data) + b * slice_count(vocab);
  const CdfHit hit = find_token(weights, vocab, sums, cdf_target(uniform, kUnitMass), storage);
  if (threadIdx.x == 0) {
    args.tokens[cell] = hit.token < 0 ? 0 : hit.token;
    if (args.distance != nullptr) {
      args.distance[cell] = static_cast<float>(cdf_distance(uniform, hit, kUnitMass));
    }
  }
}

}  // namespace

void sample_probability_rows(const SampleProbabilityRowsArgs& args, cudaStream_t stream) {
  if (args.batch <= 0 || args.probabilities.vocab <= 0) return;
  DSPARK_LAUNCH(
      sum_kernel,
      grid_of(static_cast<std::int64_t>(args.batch) * slice_count(args.probabilities.vocab)),
      kThreads, 0, stream, args);
  pick_probability_rows(args, stream);
}

void pick_probability_rows(const SampleProbabilityRowsArgs& args, cudaStream_t stream) {
  if (args.batch <= 0) return;
  DSPARK_LAUNCH(pick_kernel, grid_of(args.batch), kThreads, 0, stream, args);
}

}  // namespace dspark::kernels
