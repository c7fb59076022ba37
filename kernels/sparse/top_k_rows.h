// Laws over the K best tokens of a row.
#pragma once

#include <cuda_runtime_api.h>

#include "core/sparse_proposal.h"

namespace dspark::kernels {

/// `dsparkNormalizeTopKRows`, see NormalizeTopKRowsArgs. One warp per row. Enqueued.
void normalize_top_k_rows(const NormalizeTopKRowsArgs& args, cudaStream_t stream);

/// `dsparkStoreDraftStepTop1`, see StoreDraftStepTop1Args. Enqueued.
void store_draft_step_top1(const StoreDraftStepTop1Args& args, cudaStream_t stream);

/// `dsparkSampleTopKRowsAndStore`, see SampleTopKRowsArgs. One warp per row. Enqueued.
void sample_top_k_rows(const SampleTopKRowsArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
