#include "calibration/holdout.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/random.h"

namespace dspark {

void hold_out(CalibrationSamples& samples, double fraction, std::uint64_t seed) {
  // By input: (random number, sequence).
  std::vector<std::vector<std::pair<std::uint64_t, std::size_t>>> drawn(samples.inputs().size());
  for (std::size_t s = 0; s < samples.sequences().size(); ++s) {
    const SampleSequence& sequence = samples.sequences()[s];
    const std::uint64_t number =
        random_uniform({.seed = seed,
                        .sequence = static_cast<std::uint64_t>(sequence.index),
                        .purpose = RandomPurpose::hold_out});
    drawn[static_cast<std::size_t>(sequence.input)].emplace_back(number, s);
  }
  for (auto& sequences : drawn) {
    if (sequences.size() < 2) continue;
    const auto count = static_cast<std::ptrdiff_t>(sequences.size());
    // A half goes to the fit, which needs the text more.
    const auto held = std::clamp<std::ptrdiff_t>(
        static_cast<std::ptrdiff_t>(std::ceil(fraction * static_cast<double>(count) - 0.5)), 1,
        count - 1);
    std::sort(sequences.begin(), sequences.end());
    for (std::ptrdiff_t i = 0; i < held; ++i) {
      samples.set_held_out(sequences[static_cast<std::size_t>(i)].second);
    }
  }
}

}  // namespace dspark
