// Printers of what `calibrate` found, in the five formats.
#pragma once

#include <cstdint>
#include <string>

#include "calibration/calibrate.h"
#include "report/render.h"

namespace dspark {

/// How a calibration was made, beside what its report says.
struct CalibrationRun {
  std::string version;
  std::string backend, device;     ///< empty where no trace was replayed
  std::int32_t repeats = 0;        ///< sampled worlds per anchor
  std::string products = "exact";  ///< "tensor" where some were accumulated on tensor cores
  std::string preset;              ///< "sglang" or "deepspec": where the rule starts from
};

/// The report as one text that ends in a newline. JSON is `dspark-calibration-report`, version 1;
/// what does not exist is null. jsonl has a header line, then inputs, temperatures and positions,
/// told apart by their "type"; csv one row per part, domain, position and state (before, after),
/// without the bins. table and md show the part that was held out, or the fitted one where there is
/// no other. Texts from files are escaped.
[[nodiscard]] std::string render_calibration(const CalibrationReport& report,
                                             const CalibrationRun& run, OutputFormat format);

}  // namespace dspark
