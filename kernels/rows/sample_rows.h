// Tokens drawn from rows, and from the excess of draft rows over target rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "core/dspark_ops.h"
#include "core/row_ops.h"

namespace dspark::kernels {

/// Bytes of `workspace` that sample_rows needs.
[[nodiscard]] std::size_t sample_rows_workspace(const SampleRowsArgs& args);
/// See SampleRowsArgs. Samples of one row share its sums where there are at least as many samples
/// as rows. Enqueued; no samples does nothing.
void sample_rows(const SampleRowsArgs& args, const Scratch& workspace, cudaStream_t stream);

/// Bytes of `workspace` that sample_excess needs.
[[nodiscard]] std::size_t sample_excess_workspace(const SampleExcessArgs& args);
/// See SampleExcessArgs; as sample_rows, with pairs for rows.
void sample_excess(const SampleExcessArgs& args, const Scratch& workspace, cudaStream_t stream);

}  // namespace dspark::kernels
