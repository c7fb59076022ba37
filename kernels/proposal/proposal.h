// The sampled proposal: a draft block slot by slot.
#pragma once

#include <cuda_runtime_api.h>

#include "core/dspark_ops.h"

namespace dspark::kernels {

/// `dsparkBuildMarkovLogits`, see BuildMarkovLogitsArgs. `w2` is read once for the whole batch.
/// Enqueued.
void build_markov_logits(const BuildMarkovLogitsArgs& args, cudaStream_t stream);

/// `dsparkStoreDraftStepProbabilities`, see StoreDraftStepProbabilitiesArgs. Enqueued.
void store_draft_step_probabilities(const StoreDraftStepProbabilitiesArgs& args,
                                    cudaStream_t stream);

/// `dsparkVanillaMarkovSample`, see VanillaMarkovSampleArgs. `workspace`: row_laws_workspace(batch,
/// rule) bytes. Enqueued. Probabilities are written to their final place at once, and summed while
/// they are written.
void vanilla_markov_sample(const VanillaMarkovSampleArgs& args, const Scratch& workspace,
                           cudaStream_t stream);

}  // namespace dspark::kernels
