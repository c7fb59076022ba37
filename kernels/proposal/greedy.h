// The greedy proposal: product, bias and argmax of a step in one kernel.
#pragma once

#include <cuda_runtime_api.h>

#include "core/greedy_proposal.h"

namespace dspark::kernels {

/// `dsparkMarkovGreedyFusedStep…`, see MarkovGreedyStepArgs. `w2` is read once for the whole
/// batch; with tensor products as greedy_tensor_step says. Enqueued: a launch that looks up the
/// previous tokens, and the step.
void markov_greedy_step(const MarkovGreedyStepArgs& args, cudaStream_t stream);

/// `dsparkFinalizeGreedyDraftTokens`, see FinalizeGreedyDraftTokensArgs. Enqueued.
void finalize_greedy_draft_tokens(const FinalizeGreedyDraftTokensArgs& args, cudaStream_t stream);

/// A whole greedy proposal, see GreedyProposeArgs. Enqueued: one launch where
/// greedy_resident applies; else one for each step, whose last block writes the tokens and hands
/// them to the next, and one before.
void greedy_propose(const GreedyProposeArgs& args, cudaStream_t stream);

}  // namespace dspark::kernels
