// A sampling law over a vocabulary row as integers. The probability mass of token v is m_v =
// round(e^{(l_v - max)/T} 2^40): sums and prefix sums of integers do not depend on the order of
// summation, so any grid, tile, batch or thread count gives the same bits, and decisions (sample,
// accept, residual) compare integers. (Design: replay.md, Numerics.)
//
// Temperature, top-k, top-p and greedy are all one shape: tokens ranked above a boundary token keep
// their whole mass, the boundary token keeps `boundary_mass`, tokens below it have none. So a law
// is a few words per row, and probabilities need not be written out.
#pragma once

#include <cstdint>

#include "core/exp.h"
#include "core/half.h"
#include "core/host_device.h"

namespace dspark {

using uint128 = unsigned __int128;

/// Mass of the most likely token: 2^40.
inline constexpr int kMassBits = 40;
inline constexpr std::uint64_t kUnitMass = std::uint64_t{1} << kMassBits;
/// Probabilities that are compared across rows are multiples of 2^-61.
inline constexpr int kProbabilityBits = 61;
inline constexpr std::uint64_t kUnitProbability = std::uint64_t{1} << kProbabilityBits;
/// Below this temperature every function is greedy (one-hot on the argmax).
inline constexpr double kGreedyTemperature = 1e-3;
/// A margin or distance below this is a near tie (replay.md).
inline constexpr double kNearTie = 1e-3;

/// What top-p does with the token that crosses the threshold.
enum class TopPRule : std::uint8_t {
  water_filling,     ///< it keeps the mass that is left (DSpark's rule, the default)
  include_crossing,  ///< it is kept whole and the rest renormalised (most samplers)
};

/// How a row of logits becomes a law. Plain data, passed by value to kernels.
struct SamplingRule {
  float inverse_temperature = 1.0f;  ///< 1/T; unused when greedy
  bool greedy = false;               ///< T < 1e-3
  TopPRule top_p_rule = TopPRule::water_filling;
  std::int32_t top_k = 0;   ///< 0 = off
  std::uint64_t top_p = 0;  ///< top-p · 2^32, rounded; 0 = off (top-p ≥ 1 - 1e-6)
};

/// The rule for `temperature` (≥ 0), `top_k` (0 or less, or ≥ `vocab_size`: off) and `top_p` (in
/// (0, 1]).
DSPARK_HD SamplingRule make_sampling_rule(double temperature, std::int64_t top_k, double top_p,
                                          TopPRule rule, std::int32_t vocab_size) {
  SamplingRule out;
  out.greedy = !(temperature >= kGreedyTemperature);
  out.inverse_temperature = out.greedy ? 1.0f : static_cast<float>(1.0 / temperature);
  out.top_p_rule = rule;
  out.top_k = (top_k > 0 && top_k < vocab_size) ? static_cast<std::int32_t>(top_k) : 0;
  if (top_p < 1.0 - 1e-6) {
    const double scaled = top_p * 4294967296.0;
    out.top_p = scaled < 1.0 ? 1 : static_cast<std::uint64_t>(scaled + 0.5);
  }
  return out;
}

/// Bits of RowLaw::status; 0 means a valid row. (Design: decisions.md, Rows and rounds.)
enum RowStatus : std::uint32_t {
  kRowValid = 0,
  kRowNaN = 1,           ///< a NaN logit
  kRowPlusInfinity = 2,  ///< a +inf logit
  kRowNoFinite = 4,      ///< no finite logit
};

/// The law of one row. Default values describe "nothing seen yet".
struct RowLaw {
  std::uint64_t boundary_key =
      0;  ///< token_key of the boundary token; 0: no boundary, all keep their mass
  std::uint64_t boundary_mass = 0;  ///< mass the boundary token keeps
  std::uint64_t total = 0;          ///< sum of all kept masses; 0 only for invalid rows
  std::uint64_t scale = 0;          ///< floor(2^102 / total): turns a mass into a probability
  float max_logit = 0;              ///< largest logit
  float second_logit = 0;           ///< largest logit of any other token (-inf where there is none)
  float inverse_temperature = 1;    ///< copied from the rule
  std::int32_t argmax = -1;         ///< lowest id with the largest logit; -1 for invalid rows
  std::uint32_t status = kRowValid;  ///< RowStatus bits
  std::uint32_t reserved = 0;
};

/// A 32-bit code that orders like the float: larger floats have larger codes, +0 and -0 are equal,
/// NaN is 0 (below -inf).
DSPARK_HD std::uint32_t order_code(float value) {
  const std::uint32_t bits = bits_from_float(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return 0;
  if (magnitude == 0) return 0x80000000u;
  return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}

/// Inverse of order_code for codes that are not NaN's.
DSPARK_HD float float_from_order_code(std::uint32_t code) {
  return float_from_bits((code & 0x80000000u) ? code & 0x7FFFFFFFu : ~code);
}

/// Ranks tokens: larger logit first, then lower id. 0 is below every token.
DSPARK_HD std::uint64_t token_key(float logit, std::int32_t id) {
  return (static_cast<std::uint64_t>(order_code(logit)) << 32) |
         (0xFFFFFFFFu - static_cast<std::uint32_t>(id));
}

/// The token a key stands for.
DSPARK_HD std::int32_t token_of_key(std::uint64_t key) {
  return static_cast<std::int32_t>(0xFFFFFFFFu - static_cast<std::uint32_t>(key));
}

/// `value` in [0, 2^51] rounded to an integer, ties to even.
DSPARK_HD std::uint64_t round_to_integer(float value) {
#if defined(__CUDA_ARCH__)
  return __float2ull_rn(value);
#else
  // Adding 1.5 · 2^52 makes the double adder round to an integer; the loop that calls this
  // vectorises.
  const double shifted = static_cast<double>(value) + 6755399441055744.0;
  std::uint64_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  return bits - 0x4338000000000000ull;
#endif
}

/// e^x 2^40 for `x` in [-40, 0].
DSPARK_HD float mass_of_exponent(float x) {
  const ScaledExp e = scaled_exp(x);
  return e.significand *
         float_from_bits(static_cast<std::uint32_t>(e.exponent + kMassBits + 127) << 23);
}

/// unfiltered_mass before it is rounded.
DSPARK_HD float unrounded_mass(float logit, float max_logit, float inverse_temperature) {
  float x = (logit - max_logit) * inverse_temperature;
  // e^-40 · 2^40 rounds to 0; also takes NaN and -inf.
#if defined(__CUDA_ARCH__)
  x = fminf(fmaxf(x, -40.0f), 0.0f);
#else
  x = x > -40.0f ? x : -40.0f;
  x = x < 0.0f ? x : 0.0f;
#endif
  return mass_of_exponent(x);
}

/// Mass before any filter: round(e^{(logit - max) / T} 2^40), ties to even; NaN and -inf have none.
DSPARK_HD std::uint64_t unfiltered_mass(float logit, float max_logit, float inverse_temperature) {
  return round_to_integer(unrounded_mass(logit, max_logit, inverse_temperature));
}

/// The mass that top-p keeps of `mass`, with `top_p` as SamplingRule has it; at least 1, so that
/// some token reaches it.
DSPARK_HD std::uint64_t top_p_target(std::uint64_t mass, std::uint64_t top_p) {
  const auto target = static_cast<std::uint64_t>((static_cast<uint128>(mass) * top_p) >> 32);
  return target > 0 ? target : 1;
}

/// A stored probability as a weight in units of 2^-40: `p` clamped to [0, 1], ties to even; NaN has
/// none.
DSPARK_HD std::uint64_t probability_weight(float p) {
  p = p > 0.0f ? p : 0.0f;
  p = p < 1.0f ? p : 1.0f;
  return round_to_integer(p * 1099511627776.0f);
}

/// Mass of token `id` under `law`.
DSPARK_HD std::uint64_t law_mass(const RowLaw& law, float logit, std::int32_t id) {
  if (law.boundary_key != 0) {
    const std::uint64_t key = token_key(logit, id);
    if (key < law.boundary_key) return 0;
    if (key == law.boundary_key) return law.boundary_mass;
  }
  return unfiltered_mass(logit, law.max_logit, law.inverse_temperature);
}

/// Upper 64 bits of a · b.
DSPARK_HD std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  return static_cast<std::uint64_t>((static_cast<uint128>(a) * b) >> 64);
#endif
}

/// floor(2^102 / total) for total in [2^40, 2^62].
DSPARK_HD std::uint64_t law_scale(std::uint64_t total) {
  return static_cast<std::uint64_t>((static_cast<uint128>(1) << 102) / total);
}

/// mass_to_probability of a mass of one word: two products instead of four.
DSPARK_HD std::uint64_t word_to_probability(std::uint32_t mass, std::uint64_t scale) {
  const std::uint64_t low = static_cast<std::uint64_t>(mass) * static_cast<std::uint32_t>(scale);
  return (static_cast<std::uint64_t>(mass) * static_cast<std::uint32_t>(scale >> 32) +
          (low >> 32)) >>
         9;
}

/// A mass of a row with that `scale` as a probability in units of 2^-61, from below: short of the
/// exact one by less than a unit (rounding) and 2^-40 of it (the scale's rounding).
DSPARK_HD std::uint64_t mass_to_probability(std::uint64_t mass, std::uint64_t scale) {
#if defined(__CUDA_ARCH__)
  if (mass >> 32 == 0) return word_to_probability(static_cast<std::uint32_t>(mass), scale);
#endif
  return multiply_high(mass << 23, scale);
}

/// Probability of token `id` in units of 2^-61.
DSPARK_HD std::uint64_t law_probability(const RowLaw& law, float logit, std::int32_t id) {
  return mass_to_probability(law_mass(law, logit, id), law.scale);
}

/// The point of the inverse CDF for a uniform in units of 2^-64: floor(u · total). The sample is
/// the first token (ascending id) whose running mass is greater.
DSPARK_HD std::uint64_t cdf_target(std::uint64_t uniform, std::uint64_t total) {
  return multiply_high(uniform, total);
}

/// Accept test of rejection sampling in integers: p > 0 and u ≤ p / q (q = 0 counts as ratio 1).
/// `p`, `q` in units of 2^-61. Never stricter than the exact test, and laxer by less than one unit
/// of p.
DSPARK_HD bool accepts(std::uint64_t p, std::uint64_t q, std::uint64_t uniform) {
  return p > 0 && multiply_high(uniform, q) <= p;
}

}  // namespace dspark
