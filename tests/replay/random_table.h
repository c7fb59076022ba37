// Outcome tables with keyed random numbers: any shape, the same for the same seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/random.h"
#include "replay/outcome_table.h"

namespace dspark {

/// Sequences of these lengths. β is 0, 1 or anything between; every α is the mean of its β.
inline OutcomeTable random_table(const std::vector<std::int64_t>& lengths, std::int32_t block_size,
                                 std::int32_t repeats, std::uint64_t seed) {
  OutcomeTable table;
  table.block_size = block_size;
  table.repeats = repeats;
  table.has_confidence = true;
  table.sequence_offsets = {0};
  std::uint32_t next = 0;
  const auto uniform = [&] {
    return static_cast<double>(random_uniform(
               {.seed = seed, .position = next++, .purpose = RandomPurpose::synth})) *
           0x1p-64;
  };
  for (const std::int64_t length : lengths) {
    for (std::int64_t left = length; left > 0; --left) {
      table.slots.push_back(static_cast<std::uint8_t>(std::min<std::int64_t>(block_size, left)));
      for (std::int32_t k = 0; k < block_size; ++k) {
        const double alpha = uniform();
        const double beta = std::clamp(2 * uniform() * alpha, 0.0, 1.0);
        table.alpha.push_back(alpha);
        table.beta.push_back(beta);
        table.confidence.push_back(static_cast<float>(0.7 * alpha + 0.3 * uniform()));
        table.agreement.push_back(uniform() < alpha);
      }
      for (std::int32_t i = 0; i < repeats * worlds_per_repeat(block_size); ++i) {
        table.world_confidence.push_back(static_cast<float>(uniform()));
      }
    }
    table.sequence_offsets.push_back(table.anchors());
  }
  const auto fill = [&](std::vector<float>& values, std::size_t count) {
    while (values.size() < count) values.push_back(static_cast<float>(uniform()));
  };
  fill(table.top_probability, table.confidence.size());
  fill(table.world_top_probability, table.world_confidence.size());
  return table;
}

/// The same numbers at every position of one sequence.
inline OutcomeTable uniform_table(std::int64_t length, std::int32_t block_size, double beta,
                                  float confidence) {
  OutcomeTable table = random_table({length}, block_size, 0, 0);
  std::fill(table.beta.begin(), table.beta.end(), beta);
  std::fill(table.alpha.begin(), table.alpha.end(), beta);
  std::fill(table.confidence.begin(), table.confidence.end(), confidence);
  return table;
}

}  // namespace dspark
