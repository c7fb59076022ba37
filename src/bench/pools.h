// Random numbers that the inputs of the bench are cut from: every row is a window of a pool at an
// offset of its own, so that gigabytes of inputs cost one upload and copies within the device.
#pragma once

#include <cstdint>
#include <vector>

#include "core/half.h"

namespace dspark {

/// What a random number of the bench is for; part of its key.
enum class BenchStream : std::uint32_t {
  pool_logits = 1,
  pool_hidden = 2,
  pool_weights = 3,
  target = 4,   ///< rows of the target
  draft = 5,    ///< rows of the draft that are not the target's
  hidden = 6,   ///< hidden states of the draft
  context = 7,  ///< hidden states of the target
  w1 = 8,
  w2 = 9,
  lm_head = 10,
  confidence_weight = 11,
  previous = 12,  ///< tokens before a block
  token = 13,     ///< drafted or recorded tokens
  propose = 14,   ///< uniforms of a proposal
  accept = 15,    ///< uniforms of accept tests
  confidence = 16,
};

/// 64 random bits for number `index` of `stream` in input set `set`; `index` below 2^40.
[[nodiscard]] std::uint64_t bench_bits(std::uint64_t seed, BenchStream stream, std::uint32_t set,
                                       std::uint64_t index);

/// The pools, in host memory.
struct Pools {
  std::uint64_t seed = 0;
  std::vector<float> logits;     ///< normal, deviation 2.5, one in 4096 a peak between 9 and 17
  std::vector<Float16> hidden;   ///< normal, deviation 1
  std::vector<Float16> weights;  ///< normal, deviation 0.04
};

/// Pools of `size` numbers each; a row may have `size` / 2 elements at most. `threads` of the host
/// make them; the numbers do not depend on it.
[[nodiscard]] Pools make_pools(std::uint64_t seed, std::int64_t size, int threads);

/// Numbers that a pool needs for rows of up to `longest` elements.
[[nodiscard]] std::int64_t pool_size(std::int64_t longest);

}  // namespace dspark
