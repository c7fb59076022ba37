// The confidence head.
#pragma once

#include <cuda_runtime_api.h>

#include "core/dspark_ops.h"
#include "core/row_ops.h"

namespace dspark::kernels {

/// See ConfidenceRowsArgs. Enqueued; no outputs does nothing.
void confidence_rows(const ConfidenceRowsArgs& args, cudaStream_t stream);

/// `dsparkComputeConfidenceScores`, see ConfidenceScoresArgs. Enqueued; one launch.
void confidence_scores(const ConfidenceScoresArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
