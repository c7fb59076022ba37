#include "replay/apply_calibration.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>

#include "calibration/logit.h"
#include "support/error.h"

namespace dspark {
namespace {

void check(std::int32_t block_size, const std::vector<double>& temperatures) {
  if (temperatures.size() != static_cast<std::size_t>(block_size)) {
    throw policy_error(
        "calibration",
        fmt::format("has {} temperatures for blocks of {} drafts", temperatures.size(), block_size),
        "give the calibration of this drafter");
  }
  for (std::size_t k = 0; k < temperatures.size(); ++k) {
    if (std::isfinite(temperatures[k]) && temperatures[k] > 0) continue;
    throw policy_error("calibration",
                       fmt::format("the temperature of position {} is {}", k + 1, temperatures[k]),
                       "a temperature is finite and above 0");
  }
}

void recalibrate(float& confidence, double temperature) {
  if (temperature == 1) return;
  confidence = static_cast<float>(tempered(logit_of(confidence), temperature));
}

/// [blocks, slots]
void recalibrate_rows(std::vector<float>& confidences, const std::vector<double>& temperatures) {
  for (std::size_t i = 0; i < confidences.size(); ++i) {
    recalibrate(confidences[i], temperatures[i % temperatures.size()]);
  }
}

}  // namespace

void apply_calibration(OutcomeTable& table, const std::vector<double>& temperatures) {
  check(table.block_size, temperatures);
  recalibrate_rows(table.confidence, temperatures);
  // The slots of one repeat's worlds, in the order of world_offset().
  std::vector<double> of_worlds(static_cast<std::size_t>(worlds_per_repeat(table.block_size)));
  for (std::int32_t r = 1; r <= table.block_size; ++r) {
    for (std::int32_t k = r + 1; k <= table.block_size; ++k) {
      of_worlds[static_cast<std::size_t>(world_offset(table.block_size, r, k))] =
          temperatures[static_cast<std::size_t>(k) - 1];
    }
  }
  recalibrate_rows(table.world_confidence, of_worlds);
}

void apply_calibration(RoundTable& table, const std::vector<double>& temperatures) {
  check(table.block_size, temperatures);
  recalibrate_rows(table.confidence, temperatures);
}

}  // namespace dspark
