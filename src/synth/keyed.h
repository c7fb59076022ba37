// Keyed random numbers of the generator. Single draws go through random_uniform (core/random.h);
// the many small weights of a row come from a cheaper hash in counter mode, keyed by one such draw.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace dspark::synth {

/// What a draw of RandomPurpose::synth is for; the `branch` of its key.
enum class Draw : std::uint32_t {
  context = 1,      ///< the random part of a target hidden state
  token = 2,        ///< a recorded token
  first_token = 3,  ///< the token a sequence or request starts with
  spread = 4,       ///< the acceptance of a single row
  choice = 5,       ///< between two attainable acceptances; the outcome at T = 0
  length = 6,       ///< a proposal length
  propose = 7,      ///< a recorded proposal uniform
  accept = 8,       ///< a recorded accept, residual or bonus uniform
  lm_head = 9,      ///< weights
  markov_w1 = 10,
  half = 11,
  confidence = 12,
};

/// A uniform in units of 2^-64. `repeat`: which attempt.
inline std::uint64_t draw(std::uint64_t seed, Draw what, std::int64_t sequence = 0,
                          std::int64_t position = 0, std::int64_t slot = 0,
                          std::uint32_t repeat = 0) {
  RandomKey key;
  key.seed = seed;
  key.sequence = static_cast<std::uint64_t>(sequence);
  key.position = static_cast<std::uint32_t>(position);
  key.slot = static_cast<std::uint32_t>(slot);
  key.branch = static_cast<std::uint32_t>(what);
  key.repeat = repeat;
  key.purpose = RandomPurpose::synth;
  return random_uniform(key);
}

/// The uniform as a double in [0, 1), on a 2^-53 grid.
inline double as_double(std::uint64_t uniform) {
  return static_cast<double>(uniform >> 11) * 0x1p-53;
}

/// The uniform as a recorded float: a multiple of 2^-24 in [0, 1).
inline float as_recorded(std::uint64_t uniform) {
  return static_cast<float>(uniform >> 40) * 0x1p-24f;
}

/// An index in [0, count); `count` ≤ 2^32.
inline std::int64_t as_index(std::uint64_t uniform, std::int64_t count) {
  return static_cast<std::int64_t>(multiply_high(uniform, static_cast<std::uint64_t>(count)));
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA'14) in counter mode: 64 bits per call.
class HashStream {
 public:
  explicit HashStream(std::uint64_t key) : state_(key) {}
  /// The stream of row `row` of a family of streams.
  HashStream(std::uint64_t key, std::int64_t row)
      : state_(mix(key ^ mix(static_cast<std::uint64_t>(row) + 0x632BE59BD9B4E019ull))) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ull;
    return mix(state_);
  }

  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
  }

 private:
  std::uint64_t state_;
};

}  // namespace dspark::synth
