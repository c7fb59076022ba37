// Random numbers are keyed, never sequential: each is a function of what it is for.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/law.h"

#include <Random123/philox.h>

namespace dspark {

/// What a number is drawn for; part of the key, so that no two uses share one.
enum class RandomPurpose : std::uint32_t {
  draft = 1,      ///< a drafted token
  accept = 2,     ///< the accept test of a drafted token
  residual = 3,   ///< the correction token after a rejection
  bonus = 4,      ///< the token after a fully accepted block
  rejected = 5,   ///< the drafted token at a slot known to be rejected (worlds, replay.md)
  resample = 6,   ///< a draw of the bootstrap (replay/intervals.h)
  walk = 7,       ///< a round of a lockstep walk (replay/lockstep.h)
  synth = 16,     ///< synthetic traces
  hold_out = 32,  ///< which sequences judge a calibration
  bench = 48,     ///< inputs of the bench
};

/// Everything a replay's random number depends on (replay.md, "What needs sampled worlds").
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t sequence = 0;  ///< sequence, or request; below 2^32
  std::uint32_t position = 0;  ///< position in the sequence, or round
  std::uint32_t slot = 0;      ///< draft slot, 1-based; below 2^8
  std::uint32_t branch = 0;    ///< rejection slot of a world, 0 elsewhere; below 2^8
  std::uint32_t repeat = 0;    ///< below 2^16
  RandomPurpose purpose = RandomPurpose::draft;
};

/// A uniform in units of 2^-64: Philox4x32-10 (Random123; Salmon et al., SC'11) of the key.
DSPARK_HD std::uint64_t random_uniform(const RandomKey& key) {
  r123::Philox4x32::ctr_type counter = {{
      key.position,
      static_cast<std::uint32_t>(key.sequence),
      (key.slot & 0xFFu) | ((key.branch & 0xFFu) << 8) | ((key.repeat & 0xFFFFu) << 16),
      static_cast<std::uint32_t>(key.purpose),
  }};
  r123::Philox4x32::key_type philox_key = {
      {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)}};
  const r123::Philox4x32::ctr_type out = r123::Philox4x32{}(counter, philox_key);
  return (static_cast<std::uint64_t>(out[1]) << 32) | out[0];
}

/// A recorded float uniform in units of 2^-64; 1.0 is clamped to 1 - 2^-24, NaN and negatives count
/// as 0. Exact for uniforms on a 2^-24 grid (and for any float ≥ 2^-40).
DSPARK_HD std::uint64_t uniform_from_float(float u) {
  constexpr float below_one = 0.99999994f;  // 1 - 2^-24
  u = u > 0.0f ? u : 0.0f;
  u = u < below_one ? u : below_one;
  const double scaled = static_cast<double>(u) * 18446744073709551616.0;
  return static_cast<std::uint64_t>(scaled);
}

/// Uniform number `counter` of TensorRT-Edge-LLM's `dsparkFillUniforms` for (seed, offset):
/// SplitMix64's finaliser, upper 24 bits (its API page calls it philox; research: kernels.md
/// section 0). In [0, 1 - 2^-24].
DSPARK_HD float edge_llm_uniform(std::uint64_t seed, std::uint64_t offset, std::uint64_t counter) {
  std::uint64_t x = seed ^ (offset + 0xD1B54A32D192ED03ull * (counter + 1));
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  return static_cast<float>(x >> 40) * 5.9604644775390625e-8f;
}

}  // namespace dspark
