// Sampling laws of logit rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "core/dspark_ops.h"
#include "core/row_ops.h"

namespace dspark::kernels {

/// The rule with filters that do nothing on rows of `vocab` switched off.
[[nodiscard]] SamplingRule effective_rule(SamplingRule rule, std::int32_t vocab);

/// Bytes of `workspace` that row_laws needs for `rows` rows under `rule`: 0 without top-k and
/// top-p.
[[nodiscard]] std::size_t row_laws_workspace(std::int64_t rows, const SamplingRule& rule);

/// See RowLawsArgs. Enqueued; no rows does nothing. The logits are read from memory once where a
/// row fits a cluster of blocks (row_cluster.cuh: on Hopper, but neither for top-p alone nor for
/// a top-k above 512). Elsewhere one pass when greedy, two without filters, three with (and more
/// for the rare row with over 2048 tokens in the 1/64 nat around the boundary).
void row_laws(const RowLawsArgs& args, const Scratch& workspace, cudaStream_t stream);

}  // namespace dspark::kernels
