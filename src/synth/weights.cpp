#include "synth/weights.h"

#include <algorithm>
#include <cmath>

#include "synth/keyed.h"

namespace dspark::synth {
namespace {

/// Levels of `lm_head`: 7 bits of a hash each.
constexpr std::int32_t kHeadLevels = 128;
/// Sums and differences of two values stay below 256 units: exact in bfloat16, the narrowest type.
constexpr double kUnits = 256;
/// Standard deviation of an even spread over [-1, 1].
constexpr double kEvenStd = 0.57735026918962576;

/// Smallest power of two that covers ±`half_width` with `units` units.
float unit_for(double half_width, double units) {
  return static_cast<float>(std::exp2(std::ceil(std::log2(half_width / units))));
}

/// The grid of that unit whose standard deviation comes closest to `std` (two levels at least).
Grid grid_for(double std, float unit, std::int32_t max_levels) {
  const double levels = 2 * std::round(std / kEvenStd / unit / 2);
  return {static_cast<std::int32_t>(std::clamp(levels, 2.0, double(max_levels))), unit};
}

/// Fills out[0, count) with values of `grid`, four to a hash.
void fill(HashStream stream, const Grid& grid, std::int64_t count, float* out) {
  std::uint64_t bits = 0;
  for (std::int64_t j = 0; j < count; ++j) {
    if (j % 4 == 0) bits = stream.next();
    out[j] = grid.pick(static_cast<std::uint32_t>(bits & 0xFFFFu));
    bits >>= 16;
  }
}

}  // namespace

Weights::Weights(const SynthOptions& options)
    : seed_(options.seed),
      vocab_(options.vocab_size),
      hidden_(options.hidden_size),
      rank_(options.markov_rank),
      head_{kHeadLevels, 1.0f / kHeadLevels},
      head_key_(draw(options.seed, Draw::lm_head)),
      w1_key_(draw(options.seed, Draw::markov_w1)) {
  for (std::int32_t i = 0; i < kHeadLevels; ++i) head_values_[i] = to_float16(head_.value(i));

  // The variance of a logit is (columns) · (variance of a column) · (variance of a weight).
  const double context_std = options.logit_std / kEvenStd / std::sqrt(double(context()));
  const double context_width = context_std / kEvenStd;
  other_context_ = grid_for(context_std, unit_for(context_width, kUnits / 2), 128);
  if (rank_ > 0) {
    const double w1_std = options.markov_std / kEvenStd / std::sqrt(double(rank_));
    const double w1_width = w1_std / kEvenStd;
    const float unit = unit_for(context_width + w1_width, kUnits - 8);
    markov_context_ = grid_for(context_std, unit, 254);
    w1_ = grid_for(w1_std, unit, 254);
  }

  // Half B must round to mass 0 beside the best token of A (e^-28.5 does), with room for what the
  // halves' best differ by.
  const double wall = 32 * std::max(1.0, options.temperature) + 16 * options.logit_std;
  wall_ = static_cast<float>(std::exp2(std::ceil(std::log2(wall))));

  // Of each two neighbours one goes to either half: balanced, and unrelated to the id.
  half_b_.resize(static_cast<std::size_t>(vocab_));
  const std::uint64_t half_key = draw(options.seed, Draw::half);
  for (std::int64_t v = 0; v < vocab_; ++v) {
    const std::uint64_t flip = HashStream(half_key, v / 2).next() >> 63;
    half_b_[static_cast<std::size_t>(v)] = static_cast<std::uint8_t>((v & 1) ^ int(flip));
  }
}

void Weights::lm_head_row(std::int64_t id, Float16* out) const {
  HashStream stream(head_key_, id);
  const std::int64_t count = context();
  std::int64_t j = 0;
  for (; j + 8 <= count; j += 8) {
    std::uint64_t bits = stream.next();
    for (int i = 0; i < 8; ++i, bits >>= 8) out[j + i] = head_values_[(bits & 0xFFu) >> 1];
  }
  for (std::uint64_t bits = stream.next(); j < count; ++j, bits >>= 8) {
    out[j] = head_values_[(bits & 0xFFu) >> 1];
  }
  const Float16 gap = to_float16(half_b_[static_cast<std::size_t>(id)] ? -1.0f : 0.0f);
  out[count] = gap;
  out[count + 1] = gap;
  out[count + 2] = to_float16(0.0f);
}

void Weights::markov_w2_row(std::int64_t id, float* out) const {
  HashStream stream(head_key_, id);
  std::uint64_t bits = 0;
  for (std::int64_t j = 0; j < rank_; ++j, bits >>= 8) {
    if (j % 8 == 0) bits = stream.next();
    out[j] = to_float(head_values_[(bits & 0xFFu) >> 1]);
  }
}

void Weights::markov_w1_row(std::int64_t id, float* out) const {
  fill(HashStream(w1_key_, id), w1_, rank_, out);
}

void Weights::target_hidden(std::uint64_t key, float* out) const {
  fill(HashStream(key, 0), markov_context_, rank_, out);
  fill(HashStream(key, 1), other_context_, context() - rank_, out + rank_);
  out[context()] = wall_;
  out[context() + 1] = 0;
  out[context() + 2] = 0;
}

std::vector<float> Weights::confidence_weight() const {
  // The channel says what the acceptance is; the other weights see the context and the previous
  // token, and blur it.
  constexpr double kHiddenNoise = 0.3;
  constexpr double kMarkovNoise = 0.15;
  const auto variance = [](const Grid& grid) {
    return (double(grid.levels) * grid.levels - 1) / 3 * grid.unit * grid.unit;
  };
  const double hidden_variance = double(rank_) * (variance(markov_context_) + variance(w1_)) +
                                 double(context() - rank_) * variance(other_context_);
  const auto grid = [](double std) {
    const float unit = unit_for(std / kEvenStd, kUnits / 2);
    return grid_for(std, unit, 128);
  };
  std::vector<float> weight(static_cast<std::size_t>(hidden_ + rank_));
  const std::uint64_t key = draw(seed_, Draw::confidence);
  fill(HashStream(key, 0), grid(kHiddenNoise / std::sqrt(hidden_variance)), context(),
       weight.data());
  weight[static_cast<std::size_t>(context() + 2)] = 1;
  if (rank_ > 0) {
    fill(HashStream(key, 1), grid(kMarkovNoise / std::sqrt(double(rank_) * variance(w1_))), rank_,
         weight.data() + hidden_);
  }
  return weight;
}

float round_to(StoredType type, float value) {
  switch (type) {
    case StoredType::f16:
      return to_float(to_float16(value));
    case StoredType::bf16:
      return to_float(to_bfloat16(value));
    case StoredType::f32:
    case StoredType::f64:
      break;
  }
  return value;
}

void round_to(StoredType type, std::span<float> values, int threads) {
  if (type == StoredType::f32 || type == StoredType::f64) return;
  const auto count = static_cast<std::int64_t>(values.size());
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t i = 0; i < count; ++i) {
    float& value = values[static_cast<std::size_t>(i)];
    value = round_to(type, value);
  }
}

}  // namespace dspark::synth
