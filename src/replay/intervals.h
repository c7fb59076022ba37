// How sure are we: confidence intervals by resampling the recorded text, and paired comparisons.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "replay/result.h"

namespace dspark {

/// Draws of the bootstrap; the same draws serve every number and row, so that differences are
/// paired.
struct ResamplingPlan {
  /// One resample: how often each unit counts. Units are whole sequences where there are at least
  /// kFewSequences, else blocks of positions within them (moving blocks, wrapped at the sequence's
  /// end).
  struct Unit {
    std::int64_t first = 0, count = 0;  ///< positions [first, first + count) of the trace
  };
  std::vector<std::vector<Unit>> draws;
  std::vector<std::vector<std::int32_t>>
      repeats;  ///< per draw: the worlds' repeats, resampled; empty without worlds
};

/// Below this many sequences blocks of positions are resampled instead.
inline constexpr std::int64_t kFewSequences = 8;
/// Fewer rounds than this give a warning.
inline constexpr double kFewRounds = 200;
/// Draws of a bootstrap.
inline constexpr std::int32_t kBootstrapDraws = 400;

/// A plan for a trace with these sequences; keyed by `seed`, a pure function of its arguments.
/// `repeats` 0: no worlds.
[[nodiscard]] ResamplingPlan make_resampling_plan(const std::vector<std::int64_t>& sequence_offsets,
                                                  std::int32_t block_size, std::int32_t repeats,
                                                  std::uint64_t seed);

/// The central `confidence` range of resampled values (linear interpolation of order statistics);
/// empty for fewer than 2 finite ones.
[[nodiscard]] std::optional<Range> percentile_range(std::vector<double> values, double confidence);

}  // namespace dspark
