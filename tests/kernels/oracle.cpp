#include "tests/kernels/oracle.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/kernel_test.h"

namespace dspark::test {

float chain(const float* a, const float* b, std::int64_t size) {
  float sum = 0;
  for (std::int64_t k = 0; k < size; ++k) sum = std::fma(a[k], b[k], sum);
  return sum;
}

RowLaw law_of(const float* logits, std::int32_t vocab, const SamplingRule& rule) {
  RowLaw law;
  law.inverse_temperature = rule.inverse_temperature;
  bool finite = false;
  for (std::int32_t v = 0; v < vocab; ++v) {
    if (std::isnan(logits[v])) law.status |= kRowNaN;
    if (std::isinf(logits[v]) && logits[v] > 0) law.status |= kRowPlusInfinity;
    if (std::isfinite(logits[v])) finite = true;
  }
  if (!finite) law.status |= kRowNoFinite;
  if (law.status != kRowValid) return law;

  std::vector<std::int32_t> ranked(static_cast<std::size_t>(vocab));
  std::iota(ranked.begin(), ranked.end(), 0);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  law.argmax = ranked[0];
  law.max_logit = logits[ranked[0]] == 0 ? 0.0f : logits[ranked[0]];
  law.second_logit = -std::numeric_limits<float>::infinity();
  if (vocab > 1) law.second_logit = logits[ranked[1]] == 0 ? 0.0f : logits[ranked[1]];

  const auto mass = [&](std::int32_t id) {
    return unfiltered_mass(logits[id], law.max_logit, rule.inverse_temperature);
  };
  const auto finish = [&](std::int32_t boundary, std::uint64_t boundary_mass, uint128 total) {
    law.boundary_key = boundary < 0 ? 0 : token_key(logits[boundary], boundary);
    law.boundary_mass = boundary_mass;
    law.total = static_cast<std::uint64_t>(total);
    law.scale = static_cast<std::uint64_t>((uint128{1} << 102) / total);
    return law;
  };
  if (rule.greedy) return finish(law.argmax, kUnitMass, kUnitMass);

  const bool top_k = rule.top_k > 0 && rule.top_k < vocab;
  if (top_k) ranked.resize(static_cast<std::size_t>(rule.top_k));
  uint128 kept = 0;
  for (const std::int32_t id : ranked) kept += mass(id);
  if (rule.top_p == 0) {
    return top_k ? finish(ranked.back(), mass(ranked.back()), kept) : finish(-1, 0, kept);
  }
  uint128 target = (kept * rule.top_p) >> 32;
  if (target == 0) target = 1;
  uint128 before = 0;
  std::size_t rank = 0;
  while (before + mass(ranked[rank]) < target) before += mass(ranked[rank++]);
  if (rank == 0) return finish(law.argmax, kUnitMass, kUnitMass);
  const std::uint64_t own = mass(ranked[rank]);
  if (rule.top_p_rule == TopPRule::include_crossing) {
    return finish(ranked[rank], own, before + own);
  }
  return finish(ranked[rank], static_cast<std::uint64_t>(target - before), target);
}

std::vector<std::uint64_t> masses_of(const float* logits, std::int32_t vocab, const RowLaw& law) {
  std::vector<std::uint64_t> masses;
  for (std::int32_t v = 0; v < vocab; ++v) masses.push_back(law_mass(law, logits[v], v));
  return masses;
}

std::vector<std::uint64_t> probabilities_of(const float* logits, std::int32_t vocab,
                                            const RowLaw& law) {
  std::vector<std::uint64_t> out = masses_of(logits, vocab, law);
  for (std::uint64_t& value : out) {
    value = static_cast<std::uint64_t>((uint128{value} * law.scale) >> 41);
  }
  return out;
}

std::int32_t pick_of(const std::vector<std::uint64_t>& weights, std::uint64_t uniform) {
  uint128 total = 0;
  for (const std::uint64_t weight : weights) total += weight;
  const uint128 target = (uint128{uniform} * total) >> 64;
  uint128 running = 0;
  for (std::size_t v = 0; v < weights.size(); ++v) {
    running += weights[v];
    if (running > target) return static_cast<std::int32_t>(v);
  }
  return -1;
}

float confidence_dot_of(const std::vector<float>& hidden, const std::vector<float>& embedding,
                        const std::vector<float>& weight) {
  std::array<float, 32> lanes = {};
  for (std::size_t j = 0; j < hidden.size(); ++j) {
    lanes[j % 32] = std::fma(hidden[j], weight[j], lanes[j % 32]);
  }
  for (std::size_t j = 0; j < embedding.size(); ++j) {
    lanes[j % 32] = std::fma(embedding[j], weight[hidden.size() + j], lanes[j % 32]);
  }
  for (std::size_t half = 16; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

void expect_equal(const RowLaw& got, const RowLaw& expected) {
  EXPECT_EQ(got.boundary_key, expected.boundary_key);
  EXPECT_EQ(got.boundary_mass, expected.boundary_mass);
  EXPECT_EQ(got.total, expected.total);
  EXPECT_EQ(got.scale, expected.scale);
  EXPECT_EQ(bits_from_float(got.max_logit), bits_from_float(expected.max_logit));
  EXPECT_EQ(bits_from_float(got.second_logit), bits_from_float(expected.second_logit));
  EXPECT_EQ(got.inverse_temperature, expected.inverse_temperature);
  EXPECT_EQ(got.argmax, expected.argmax);
  EXPECT_EQ(got.status, expected.status);
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  std::size_t different = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
    if (bits_from_float(got[i]) == bits_from_float(expected[i])) continue;
    if (different++ == 0) {
      ADD_FAILURE() << "element " << i << " is " << got[i] << ", expected " << expected[i];
    }
  }
  EXPECT_EQ(different, 0u);
}

std::uint64_t Random::bits() {
  std::uint64_t x = state_ += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

std::int32_t Random::integer(std::int32_t low, std::int32_t high) {
  const auto span = static_cast<std::uint64_t>(high - low) + 1;
  return low + static_cast<std::int32_t>(bits() % span);
}

float Random::normal(float deviation) {
  float sum = -6;
  for (int i = 0; i < 12; ++i) sum += uniform();
  return sum * deviation;
}

std::vector<float> Random::normals(std::size_t count, float deviation) {
  std::vector<float> out(count);
  for (float& value : out) value = normal(deviation);
  return out;
}

std::vector<float> Random::uniforms(std::size_t count) {
  std::vector<float> out(count);
  for (float& value : out) value = uniform();
  return out;
}

DeviceMatrix::DeviceMatrix(const std::vector<float>& dense, std::int64_t cols, DType type,
                           std::int64_t padding)
    : rows_(static_cast<std::int64_t>(dense.size()) / cols),
      cols_(cols),
      stride_(cols + padding),
      type_(type),
      dense_(dense),
      bytes_(stored(dense)) {}

std::vector<std::uint8_t> DeviceMatrix::stored(const std::vector<float>& dense) {
  const std::size_t width = size_of(type_);
  // The padding is all ones: a NaN in every type.
  std::vector<std::uint8_t> out(static_cast<std::size_t>(rows_ * stride_) * width, 0xFF);
  for (std::size_t i = 0; i < dense.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    std::uint8_t* const to =
        out.data() + static_cast<std::size_t>(index / cols_ * stride_ + index % cols_) * width;
    if (type_ == DType::f16) {
      const Float16 value = to_float16(dense[i]);
      std::memcpy(to, &value, sizeof value);
      dense_[i] = to_float(value);
    } else if (type_ == DType::bf16) {
      const BFloat16 value = to_bfloat16(dense[i]);
      std::memcpy(to, &value, sizeof value);
      dense_[i] = to_float(value);
    } else {
      std::memcpy(to, &dense[i], sizeof dense[i]);
    }
  }
  return out;
}

}  // namespace dspark::test
