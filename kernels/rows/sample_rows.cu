#include "kernels/rows/sample_rows.h"

#include "kernels/common/inverse_cdf.cuh"

namespace dspark::kernels {
namespace {

/// Sampling from rows. A source is a row; samples name their source.
struct RowSource {
  using Weights = LawWeights;
  SampleRowsArgs args;

  __host__ __device__ std::int64_t sources() const { return args.logits.rows; }
  __host__ __device__ std::int64_t samples() const { return args.token.size; }
  __host__ __device__ std::int32_t vocab() const { return args.logits.vocab; }
  __device__ std::int64_t source_of(std::int64_t sample) const { return args.row.data[sample]; }
  __device__ std::uint64_t uniform(std::int64_t sample) const { return args.uniform.data[sample]; }
  __device__ std::int32_t* token(std::int64_t sample) const { return args.token.data + sample; }
  __device__ bool valid(std::int64_t source) const {
    return source >= 0 && source < args.logits.rows && args.laws.data[source].status == kRowValid;
  }
  __device__ Weights weights(std::int64_t source) const {
    return {args.logits.data + source * args.logits.stride, args.laws.data[source]};
  }
};

/// Sampling from the excess of draft over target. A source is a pair.
struct PairSource {
  using Weights = ExcessWeights;
  SampleExcessArgs args;

  __host__ __device__ std::int64_t sources() const { return args.pairs.size; }
  __host__ __device__ std::int64_t samples() const { return args.token.size; }
  __host__ __device__ std::int32_t vocab() const { return args.target.vocab; }
  __device__ std::int64_t source_of(std::int64_t sample) const { return args.pair.data[sample]; }
  __device__ std::uint64_t uniform(std::int64_t sample) const { return args.uniform.data[sample]; }
  __device__ std::int32_t* token(std::int64_t sample) const { return args.token.data + sample; }
  __device__ bool valid(std::int64_t source) const {
    if (source < 0 || source >= args.pairs.size) return false;
    const RowPair pair = args.pairs.data[source];
    return pair.target_row >= 0 && pair.target_row < args.target.rows && pair.draft_row >= 0 &&
           pair.draft_row < args.draft.rows &&
           args.target_laws.data[pair.target_row].status == kRowValid &&
           args.draft_laws.data[pair.draft_row].status == kRowValid;
  }
  __device__ Weights weights(std::int64_t source) const {
    const RowPair pair = args.pairs.data[source];
    return {args.target.data + pair.target_row * args.target.stride,
            args.draft.data + pair.draft_row * args.draft.stride,
            args.target_laws.data[pair.target_row], args.draft_laws.data[pair.draft_row]};
  }
};

/// Slice sums per source (`shared_sums`) or per sample.
template <class Source>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(Source source, bool shared_sums, std::uint64_t* sums) {
  const std::int32_t slices = slice_count(source.vocab());
  const std::int64_t job = blockIdx.x / slices;
  const std::int32_t slice = static_cast<std::int32_t>(blockIdx.x % slices);
  const std::int64_t from = shared_sums ? job : source.source_of(job);
  if (!source.valid(from)) return;
  const std::uint64_t sum = sum_slice(source.weights(from), slice, source.vocab());
  if (threadIdx.x == 0) sums[job * slices + slice] = sum;
}

template <class Source>
__global__ void __launch_bounds__(kThreads)
    pick_kernel(Source source, bool shared_sums, const std::uint64_t* sums) {
  __shared__ CdfStorage storage;
  const std::int64_t sample = blockIdx.x;
  const std::int64_t from = source.source_of(sample);
  std::int32_t token = -1;
  if (source.valid(from)) {
    const std::int32_t slices = slice_count(source.vocab());
    const std::uint64_t* mine = sums + (shared_sums ? from : sample) * slices;
    const std::uint64_t total = sum_of_slices(mine, slices, storage);
    if (total != 0) {
      const std::uint64_t target = cdf_target(source.uniform(sample), total);
      token = find_token(source.weights(from), source.vocab(), mine, target, storage).token;
    }
  }
  if (threadIdx.x == 0) *source.token(sample) = token;
}

/// True if there are sums per source.
template <class Source>
bool sums_are_shared(const Source& source) {
  return source.samples() >= source.sources();
}

template <class Source>
std::size_t sums_bytes(const Source& source) {
  if (source.samples() <= 0 || source.vocab() <= 0) return 0;
  const std::int64_t jobs = sums_are_shared(source) ? source.sources() : source.samples();
  return static_cast<std::size_t>(jobs) * static_cast<std::size_t>(slice_count(source.vocab())) *
         sizeof(std::uint64_t);
}

template <class Source>
void sample(const Source& source, const Scratch& workspace, const char* name, cudaStream_t stream) {
  if (source.samples() <= 0) return;
  if (workspace.bytes < sums_bytes(source)) {
    throw_launch_error(name, "the workspace is too small");
  }
  auto* sums = static_cast<std::uint64_t*>(workspace.data);
  const bool shared_sums = sums_are_shared(source);
  const std::int64_t jobs = shared_sums ? source.sources() : source.samples();
  if (jobs > 0 && source.vocab() > 0) {
    DSPARK_LAUNCH((sum_kernel<Source>), grid_of(jobs * slice_count(source.vocab())), kThreads, 0,
                  stream, source, shared_sums, sums);
  }
  DSPARK_LAUNCH((pick_kernel<Source>), grid_of(source.samples()), kThreads, 0, stream, source,
                shared_sums, sums);
}

}  // namespace

std::size_t sample_rows_workspace(const SampleRowsArgs& args) {
  return sums_bytes(RowSource{args});
}

void sample_rows(const SampleRowsArgs& args, const Scratch& workspace, cudaStream_t stream) {
  sample(RowSource{args}, workspace, "sample_rows", stream);
}

std::size_t sample_excess_workspace(const SampleExcessArgs& args) {
  return sums_bytes(PairSource{args});
}

void sample_excess(const SampleExcessArgs& args, const Scratch& workspace, cudaStream_t stream) {
  sample(PairSource{args}, workspace, "sample_excess", stream);
}

}  // namespace dspark::kernels
