// Calibration samples with keyed random numbers: the same for the same seed.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "calibration/logit.h"
#include "calibration/samples.h"
#include "core/random.h"

namespace dspark {

inline constexpr std::uint64_t kPlenty = std::uint64_t{1} << 30;

/// A number in [0, 1).
inline double uniform(std::uint64_t seed, std::uint32_t index, std::uint32_t slot = 0) {
  return static_cast<double>(random_uniform(
             {.seed = seed, .position = index, .slot = slot, .purpose = RandomPurpose::synth})) *
         0x1p-64;
}

/// One input with `sequences` sequences of `blocks` blocks each of `slots` slots. The logits are
/// spread over (-3, 3); draft k is accepted with probability sigmoid(logit / truth[k]), so that
/// `truth` is what a fit should find. Labels are drawn (cumulative) or that probability itself
/// (conditional, each slot reached with probability 1).
inline void add_random_input(CalibrationSamples& samples, int sequences, int blocks,
                             const std::vector<double>& truth, std::uint64_t seed,
                             double logit_scale = 1, const std::string& name = "trace") {
  samples.add_input(name, name);
  std::uint32_t next = 0;
  std::vector<SampleSlot> slots(truth.size());
  for (int s = 0; s < sequences; ++s) {
    samples.add_sequence(s);
    for (int b = 0; b < blocks; ++b, ++next) {
      bool accepted = true;
      for (std::uint32_t k = 0; k < truth.size(); ++k) {
        const double logit = 6 * uniform(seed, next, 2 * k) - 3;
        const double probability = tempered(logit, truth[k]);
        accepted = accepted && uniform(seed, next, 2 * k + 1) < probability;
        slots[k] = {.logit = logit_scale * logit,
                    .label = samples.labels() == LabelKind::conditional ? probability
                             : accepted                                 ? 1.0
                                                                        : 0.0,
                    .weight = 1};
      }
      samples.add_block(slots);
    }
  }
}

}  // namespace dspark
