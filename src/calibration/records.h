// DeepSpec's confidence_records.jsonl: what an engine saw of its own confidences.
#pragma once

#include <string>

#include "calibration/samples.h"

namespace dspark {

/// Records do not say which of them belong together; those of one text follow each other. So this
/// many consecutive lines count as one sequence, which is fitted on or judged on as a whole.
inline constexpr int kRecordsPerSequence = 64;

/// True if the file's first byte that is no white space is '{': not an HDF5 file. False where it
/// cannot be read.
[[nodiscard]] bool looks_like_records(const std::string& file);

/// Adds the records as one input, whose domain is the file's name. One JSON object per line:
/// `logits`, the raw confidence logits of a proposal, and `labels`, as many 0 or 1: whether all
/// drafts up to there were accepted. Lengths may differ between lines; empty lines and empty
/// proposals are passed over, other keys too. Streamed: a line at a time, of at most 1 MiB. Every
/// record weighs 1; for conditional labels a slot counts where all before it were accepted.
///
/// Throws Error(trace) with file and line where a line is too long, no such object, has more than
/// kMaxCalibratedSlots numbers, a logit that is not finite, or labels that rise again; and where
/// there is no record, or more than the samples' memory budget holds.
void read_records(const std::string& file, CalibrationSamples& samples);

}  // namespace dspark
