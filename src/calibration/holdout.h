// Which sequences are fitted on, and which are kept to judge by.
#pragma once

#include <cstdint>

#include "calibration/samples.h"

namespace dspark {

/// Holds out about `fraction`, in (0, 1), of the sequences of every input: at least one, and never
/// all. An input with a single sequence keeps it for the fit. Which ones depends on the seed and on
/// a sequence's index in its input, and on nothing else: recordings of the same prompts fall into
/// the same part, whatever the order in which they are given.
void hold_out(CalibrationSamples& samples, double fraction, std::uint64_t seed);

}  // namespace dspark
