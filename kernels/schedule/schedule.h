// Proposal lengths from confidences.
#pragma once

#include <cuda_runtime_api.h>

#include "core/dspark_ops.h"

namespace dspark::kernels {

/// `dsparkFillProposalLengths`, see FillProposalLengthsArgs. Enqueued.
void fill_proposal_lengths(const FillProposalLengthsArgs& args, cudaStream_t stream);

/// `dsparkComputeConfidenceAndProposalLengths`, see ThresholdLengthsArgs. Enqueued; scores and
/// lengths in one launch.
void threshold_lengths(const ThresholdLengthsArgs& args, cudaStream_t stream);

/// `dsparkComputeConfidenceAndSPSProposalLengths`, see SpsLengthsArgs. Enqueued; scores and lengths
/// in one launch.
void sps_lengths(const SpsLengthsArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
