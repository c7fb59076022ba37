// The whole of a calibration: split, fit, judge.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibration/fit.h"
#include "calibration/reliability.h"
#include "calibration/samples.h"

namespace dspark {

struct CalibrateOptions {
  FitRule rule;
  double holdout = 0.5;  ///< share of the sequences to judge by, in (0, 1)
  std::uint64_t seed = 0;
  int threads = 1;
};

/// One position, of all inputs or of those of one domain, on one part of the sequences.
struct JudgedPosition {
  SamplePart part = SamplePart::held_out;
  std::optional<std::string> domain;  ///< empty: all
  std::int32_t position = 0;          ///< 1-based
  Reliability before, after;          ///< with temperature 1 everywhere, and with those fitted
};

/// The mean over the positions that have a calibration error; empty where none has.
struct MeanError {
  std::optional<double> before, after;
};

struct CalibrationReport {
  LabelKind labels = LabelKind::conditional;
  CalibrateOptions options;
  std::vector<SampleInput> inputs;
  std::int64_t sequences = 0, held_out = 0;
  std::int64_t fitted_blocks = 0;
  std::vector<FittedTemperature> temperatures;  ///< [P], from the part that is not held out
  /// First what was held out, if anything was, then what was fitted on; in each, all inputs and
  /// then, if there are several, each domain; in each, positions 1..P.
  std::vector<JudgedPosition> positions;
  MeanError held_out_error, fit_error;  ///< of all inputs
  std::vector<std::string> notes;       ///< what the user should know, one line each
};

/// Splits the samples by sequences (hold_out()), fits on one part and judges both. Where nothing
/// can be held out, as there is one sequence alone, nothing is judged and a note says so. Memory:
/// the samples' own bound (samples.h). Throws Error(trace) where there is not one sample.
[[nodiscard]] CalibrationReport calibrate(CalibrationSamples& samples,
                                          const CalibrateOptions& options);

/// True if the error on what was held out exists and is not above `most`.
[[nodiscard]] bool meets(const CalibrationReport& report, double most);

}  // namespace dspark
