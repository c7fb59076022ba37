// Calibration samples out of the tables of a trace.
#pragma once

#include "calibration/samples.h"
#include "replay/outcome_table.h"
#include "replay/rounds.h"

namespace dspark {

/// Adds the blocks of a table to the latest input of `samples`, sequence by sequence. As in the
/// open loop, an anchor with fewer than P positions left does not count, nor do slots behind the
/// first invalid row.
///
/// Conditional labels: one block per anchor, along the recorded text; slot k has the weight
/// Π_{i<k} β_i and the label α_k (replay.md, "Calibration compares like with like"). Exact.
/// Cumulative labels: the drafted chains; the recorded text as the chain that is accepted whole,
/// and the sampled worlds, each rejected at its slot, with their probabilities as weights (1 per
/// anchor in all, divided over the repeats); the label of slot k is 1 before the rejection and 0
/// from it on. Where drafts are deterministic the drafted chain is the only one.
///
/// Logits are those that the f32 confidences stand for (calibration/logit.h). Throws Error(trace)
/// where the samples would not fit their memory budget, before anything is added.
void add_calibration_samples(const OutcomeTable& table, CalibrationSamples& samples);

/// The same for a rounds trace: every round is a block of its drafted chain, every request a
/// sequence, and labels are 0 or 1. What a censored round would have done behind its last known
/// draft is left out. Rounds start where the recording engine's policy started them.
void add_calibration_samples(const RoundTable& table, CalibrationSamples& samples);

}  // namespace dspark
