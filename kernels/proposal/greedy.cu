#include "kernels/proposal/greedy.h"

#include "kernels/common/gemm.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/common/visit.cuh"
#include "kernels/proposal/greedy_step.cuh"
#include "kernels/proposal/greedy_tensor.h"

namespace dspark::kernels {
namespace {

/// Empty rows, and the previous tokens of a step.
__global__ void __launch_bounds__(kThreads) start_kernel(GreedyStep step) {
  let_next_kernel_start();
  const std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= step.batch) return;
  if (item == 0) *step.arrived = 0;
  step.rows[item] = {0, 0, 0};
  std::int32_t token = 0;
  if (step.head) {
    if (step.step == 0) {
      token = step.first_previous[item];
    } else {
      const std::uint64_t slot = step.slots[item * step.block_size + step.step - 1];
      token = slot != 0 ? token_of_key(slot) : -1;
    }
  }
  step.set_previous(static_cast<std::int32_t>(item), token);
}

/// A step without a Markov head: the backbone rows as they are.
__global__ void __launch_bounds__(kThreads) rows_kernel(GreedyStep step, RowSplit split) {
  const std::int64_t b = blockIdx.x / split.slices;
  const std::int32_t begin = static_cast<std::int32_t>(blockIdx.x % split.slices) * split.length;
  const std::int32_t end = min(step.backbone.vocab, begin + split.length);
  const std::int64_t row = b * step.backbone_stride + step.backbone_first;
  GreedyStep::Part part = {};
  visit_row(step.backbone.data + row * step.backbone.stride, begin, end,
            [&](std::int32_t id, float logit) { step.add_logit(part, b, id, logit); });
  part = merge_block<GreedyStep, kThreads>(part);
  if (threadIdx.x == 0) step.commit(b, part);
  step.finish();
}

__global__ void __launch_bounds__(kThreads) finalize_kernel(FinalizeGreedyDraftTokensArgs args) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= args.slots.size) return;
  const std::uint64_t slot = args.slots.data[i];
  const std::int32_t token = slot != 0 ? token_of_key(slot) : -1;
  const bool good = token >= 0 && token < args.vocab;
  if (!good && slot != 0) report(args.status, kOpBadToken);
  args.tokens.data[i] = good ? token : -1;
}

/// What a step and a whole proposal have in common.
template <class Args>
GreedyStep greedy_step(const Args& args, ScratchCutter& scratch) {
  const auto batch = static_cast<std::size_t>(args.batch);
  GreedyStep out = {};
  out.batch = args.batch;
  out.block_size = args.block_size;
  out.head = args.w1.data != nullptr;
  out.ids = args.w1.rows;
  out.backbone = args.backbone;
  out.backbone_stride = args.logits_stride > 0 ? args.logits_stride : args.block_size;
  out.scale =
      args.w2.type == DType::e4m3 ? reinterpret_cast<const std::uint16_t*>(args.w2_scale) : nullptr;
  out.first_previous = args.first_previous;
  out.rows = static_cast<GreedyRow*>(scratch.take(batch * sizeof(GreedyRow)).data);
  out.previous = static_cast<std::int32_t*>(scratch.take(batch * sizeof(std::int32_t)).data);
  out.arrived = static_cast<std::uint32_t*>(scratch.take(sizeof(std::uint32_t)).data);
  out.margin = args.margin;
  out.status = args.status;
  return out;
}

/// Enqueues the step itself; its rows are empty and its previous tokens known.
void launch_step(const GreedyStep& step, const Matrix& w1, const Matrix& w2, Products products,
                 cudaStream_t stream) {
  if (step.head && products == Products::tensor && greedy_tensor_applies(w1, w2)) {
    // Steps in turn find the end of each other's walk in the cache.
    greedy_tensor_step(step, w1, w2, step.step % 2 != 0, stream);
    return;
  }
  if (step.head) {
    gemm(gemm_operand(w1, step.previous), gemm_operand(w2), step.batch, step.backbone.vocab,
         w1.cols, step, stream);
    return;
  }
  const RowSplit split = split_rows(step.batch, step.backbone.vocab, 1024);
  DSPARK_LAUNCH(rows_kernel, grid_of(static_cast<std::int64_t>(step.batch) * split.slices),
                kThreads, 0, stream, step, split);
}

}  // namespace

void markov_greedy_step(const MarkovGreedyStepArgs& args, cudaStream_t stream) {
  if (args.batch <= 0) return;
  ScratchCutter scratch(args.scratch);
  GreedyStep step = greedy_step(args, scratch);
  step.step = args.step;
  step.backbone_first = static_cast<std::int64_t>(args.step) + args.logits_offset;
  step.stacked = args.stacked;
  step.stacked_first = args.stacked_row < 0 ? args.step + 1 : args.stacked_row;
  step.slots = args.slots;
  DSPARK_LAUNCH(start_kernel, grid_for_items(args.batch), kThreads, 0, stream, step);
  launch_step(step, args.w1, args.w2, args.products, stream);
}

void finalize_greedy_draft_tokens(const FinalizeGreedyDraftTokensArgs& args, cudaStream_t stream) {
  if (args.slots.size <= 0) return;
  DSPARK_LAUNCH(finalize_kernel, grid_for_items(args.slots.size), kThreads, 0, stream, args);
}

void greedy_propose(const GreedyProposeArgs& args, cudaStream_t stream) {
  if (args.batch <= 0) return;
  ScratchCutter scratch(args.scratch);
  GreedyStep step = greedy_step(args, scratch);
  step.tokens = args.tokens;
  if (args.products == Products::tensor && greedy_resident_applies(step, args.w1, args.w2)) {
    step.backbone_first = args.logits_offset;
    greedy_resident(
        step, args.w1, args.w2,
        scratch.take(256 + static_cast<std::size_t>(args.batch) *
                               static_cast<std::size_t>(args.block_size) * sizeof(GreedyRow)),
        stream);
    return;
  }
  DSPARK_LAUNCH(start_kernel, grid_for_items(args.batch), kThreads, 0, stream, step);
  for (step.step = 0; step.step < args.block_size; ++step.step) {
    step.backbone_first = static_cast<std::int64_t>(step.step) + args.logits_offset;
    step.chained = step.step + 1 < args.block_size;
    launch_step(step, args.w1, args.w2, args.products, stream);
  }
}

}  // namespace dspark::kernels
