#include "kernels/proposal/proposal.h"

#include "kernels/common/launch.cuh"
#include "kernels/common/visit.cuh"
#include "kernels/proposal/resident_sample.h"
#include "kernels/rows/markov_rows.h"
#include "kernels/rows/markov_tensor.h"
#include "kernels/rows/row_cluster.cuh"
#include "kernels/rows/row_laws.h"
#include "kernels/sampling/probabilities.h"
#include "kernels/sampling/sample_probability_rows.h"

namespace dspark::kernels {
namespace {

/// The indices of a step's rows; the corrected row of a bad id becomes NaN.
__global__ void __launch_bounds__(kThreads)
    index_kernel(BuildMarkovLogitsArgs args, std::int32_t* previous, std::int32_t* backbone_row,
                 RowSplit split) {
  const std::int64_t b = blockIdx.x / split.slices;
  const std::int32_t slice = static_cast<std::int32_t>(blockIdx.x % split.slices);
  const std::int64_t stride = args.logits_stride > 0 ? args.logits_stride : args.block_size;
  const std::int64_t row = b * stride + args.step + args.logits_offset;
  std::int32_t id = 0;
  std::uint32_t problems = kOpOk;
  if (args.w1.data != nullptr) {
    id = args.step == 0 ? args.first_previous[b] : args.draft[b * args.block_size + args.step - 1];
    if (id < 0 || id >= args.w1.rows) problems |= kOpBadToken;
  }
  if (row < 0 || row >= args.backbone.rows || row > 0x7FFFFFFF) problems |= kOpBadRow;
  if (slice == 0 && threadIdx.x == 0) {
    report(args.status, problems);
    previous[b] = problems == kOpOk ? id : -1;
    backbone_row[b] = problems == kOpOk ? static_cast<std::int32_t>(row) : 0;
  }
  if (problems == kOpOk) return;
  float* out = args.corrected.data + b * args.corrected.stride;
  const std::int32_t begin = slice * split.length;
  const std::int32_t end = min(args.corrected.vocab, begin + split.length);
  for (std::int32_t v = begin + static_cast<std::int32_t>(threadIdx.x); v < end; v += kThreads) {
    out[v] = __uint_as_float(0x7FC00000u);
  }
}

__global__ void __launch_bounds__(kThreads)
    store_kernel(StoreDraftStepProbabilitiesArgs args, RowSplit split) {
  const std::int64_t b = blockIdx.x / split.slices;
  const std::int32_t begin = static_cast<std::int32_t>(blockIdx.x % split.slices) * split.length;
  const std::int32_t end = min(args.source.vocab, begin + split.length);
  transform_row(args.source.data + b * args.source.stride,
                args.destination.data + (b * args.block_size + args.step) * args.destination.stride,
                begin, end, [](std::int32_t, float p) { return p; });
}

/// The top-2 margin of each row of a step.
__global__ void __launch_bounds__(kThreads)
    margin_kernel(std::int32_t batch, std::int32_t block_size, std::int32_t step,
                  const RowLaw* laws, float* distance) {
  const std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (b >= batch) return;
  const RowLaw& law = laws[b];
  distance[b * block_size + step] = law.argmax < 0 ? 0.0f : law.max_logit - law.second_logit;
}

/// A step on tensor cores. `early`: the kernel enqueued just before does not write w2.
void build_on_tensor_cores(const BuildMarkovLogitsArgs& args, bool early, cudaStream_t stream) {
  MarkovTensorArgs tensor;
  tensor.backbone = args.backbone;
  tensor.index.first_previous = args.first_previous;
  tensor.index.draft = args.draft;
  tensor.index.block_size = args.block_size;
  tensor.index.step = args.step;
  tensor.index.logits_stride = args.logits_stride > 0 ? args.logits_stride : args.block_size;
  tensor.index.logits_offset = args.logits_offset;
  tensor.w1 = args.w1;
  tensor.w2 = args.w2;
  tensor.out = args.corrected;
  tensor.status = args.status;
  tensor.early = early;
  tensor.reverse = args.step % 2 != 0;
  markov_tensor(tensor, stream);
}

bool on_tensor_cores(Products products, const Matrix& w1, const Matrix& w2) {
  return products == Products::tensor && markov_tensor_applies(w1, w2);
}

}  // namespace

void build_markov_logits(const BuildMarkovLogitsArgs& args, cudaStream_t stream) {
  if (args.batch <= 0 || args.corrected.vocab <= 0) return;
  if (on_tensor_cores(args.products, args.w1, args.w2)) {
    build_on_tensor_cores(args, false, stream);
    return;
  }
  ScratchCutter scratch(args.scratch);
  const std::size_t bytes = static_cast<std::size_t>(args.batch) * sizeof(std::int32_t);
  auto* previous = static_cast<std::int32_t*>(scratch.take(bytes).data);
  auto* backbone_row = static_cast<std::int32_t*>(scratch.take(bytes).data);
  // Few blocks: all but one per row have something to do only where an id is bad.
  const RowSplit split = split_rows(args.batch * 32LL, args.corrected.vocab, 4096);
  DSPARK_LAUNCH(index_kernel, grid_of(static_cast<std::int64_t>(args.batch) * split.slices),
                kThreads, 0, stream, args, previous, backbone_row, split);
  MarkovRowsArgs rows;
  rows.backbone = args.backbone;
  rows.backbone_row = {backbone_row, args.batch};
  rows.previous = {previous, args.batch};
  rows.w1 = args.w1;
  rows.w2 = args.w2;
  rows.out = args.corrected;
  rows.products = args.products;
  rows.status = args.status;
  markov_rows(rows, stream);
}

void store_draft_step_probabilities(const StoreDraftStepProbabilitiesArgs& args,
                                    cudaStream_t stream) {
  if (args.batch <= 0 || args.source.vocab <= 0) return;
  const RowSplit split = split_rows(args.batch, args.source.vocab, 1024);
  DSPARK_LAUNCH(store_kernel, grid_of(static_cast<std::int64_t>(args.batch) * split.slices),
                kThreads, 0, stream, args, split);
}

void vanilla_markov_sample(const VanillaMarkovSampleArgs& args, const Scratch& workspace,
                           cudaStream_t stream) {
  const std::int32_t vocab = args.backbone.vocab;
  if (args.batch <= 0 || vocab <= 0) return;
  const SamplingRule rule = effective_rule(args.rule, vocab);
  if (resident_sample_applies(args, rule)) {
    resident_sample(args, stream);
    return;
  }
  const std::size_t row_bytes =
      static_cast<std::size_t>(args.batch) * static_cast<std::size_t>(vocab) * sizeof(float);
  ScratchCutter scratch(args.scratch);
  const Rows corrected = {static_cast<float*>(scratch.take(row_bytes).data), args.batch, vocab,
                          vocab};
  auto* laws = static_cast<RowLaw*>(
      scratch.take(static_cast<std::size_t>(args.batch) * sizeof(RowLaw)).data);
  const Scratch markov_scratch = scratch.take(build_markov_logits_scratch(args.batch));
  const Scratch scan_scratch = scratch.take(row_scan_scratch(args.batch, vocab));

  const ClusterShape shape = cluster_shape(corrected, rule);

  for (std::int32_t step = 0; step < args.block_size; ++step) {
    BuildMarkovLogitsArgs markov;
    markov.batch = args.batch;
    markov.block_size = args.block_size;
    markov.step = step;
    markov.backbone = args.backbone;
    markov.logits_stride = args.logits_stride;
    markov.logits_offset = args.logits_offset;
    markov.w1 = args.w1;
    markov.w2 = args.w2;
    markov.first_previous = args.first_previous;
    markov.draft = args.tokens;
    markov.corrected = corrected;
    markov.products = args.products;
    markov.scratch = markov_scratch;
    markov.status = args.status;
    // Kernels of a step start before the one before has ended, and wait for it by themselves.
    const bool chained = shape.blocks > 0 && on_tensor_cores(args.products, args.w1, args.w2);
    if (chained) {
      build_on_tensor_cores(markov, step > 0, stream);
    } else {
      build_markov_logits(markov, stream);
    }

    // Row b of this view is the place of (b, step).
    const Rows& all = args.draft_probabilities;
    const Rows probabilities = {all.data + step * all.stride, args.batch, vocab,
                                args.block_size * all.stride};
    if (shape.blocks > 0) {
      const SampleSink sink = {{probabilities, args.status},
                               args.block_size,
                               step,
                               args.uniforms,
                               args.tokens,
                               args.distance,
                               args.rule.greedy};
      launch_row_clusters(corrected, rule, shape, sink, stream, chained);
      continue;
    }
    LogitsToProbabilitiesArgs law;
    law.logits = corrected;
    law.rule = args.rule;
    law.probabilities = probabilities;
    law.laws = laws;
    law.status = args.status;
    logits_to_probabilities(law, workspace, static_cast<std::uint64_t*>(scan_scratch.data), stream);

    SampleProbabilityRowsArgs sample;
    sample.batch = args.batch;
    sample.block_size = args.block_size;
    sample.step = step;
    sample.probabilities = probabilities;
    sample.uniforms = args.uniforms;
    sample.tokens = args.tokens;
    sample.distance = args.rule.greedy ? nullptr : args.distance;
    sample.scratch = scan_scratch;
    sample.status = args.status;
    pick_probability_rows(sample, stream);

    if (args.rule.greedy && args.distance != nullptr) {
      DSPARK_LAUNCH(margin_kernel, grid_for_items(args.batch), kThreads, 0, stream, args.batch,
                    args.block_size, step, laws, args.distance);
    }
  }
}

}  // namespace dspark::kernels
