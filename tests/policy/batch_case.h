// Steps of a batch for the tests of the batch rules, and what the rules say by definition.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/dspark_ops.h"
#include "core/random.h"

namespace dspark::test {

/// Confidences of R requests, as rows of their own lengths.
struct BatchCase {
  BatchCase() = default;
  /// Every request may verify as many drafts as it has confidences.
  explicit BatchCase(const std::vector<std::vector<float>>& rows) {
    for (const std::vector<float>& row : rows) {
      positions = std::max(positions, static_cast<std::int32_t>(row.size()));
    }
    for (const std::vector<float>& row : rows) {
      slots.push_back(static_cast<std::int32_t>(row.size()));
      confidence.insert(confidence.end(), row.begin(), row.end());
      confidence.resize(slots.size() * static_cast<std::size_t>(positions), 1.0f);
    }
  }

  [[nodiscard]] BatchStep step() const {
    return {static_cast<std::int32_t>(slots.size()), positions, positions, confidence.data(),
            slots.data()};
  }
  [[nodiscard]] std::size_t requests() const { return slots.size(); }
  /// N = Σ slots.
  [[nodiscard]] std::size_t drafts() const {
    std::size_t sum = 0;
    for (const std::int32_t count : slots) sum += static_cast<std::size_t>(count);
    return sum;
  }
  /// Survival of a draft, positions counted from 0.
  [[nodiscard]] float survival(std::size_t request, std::int32_t position) const {
    float out = 1;
    for (std::int32_t k = 0; k <= position; ++k) {
      out *=
          confidence[request * static_cast<std::size_t>(positions) + static_cast<std::size_t>(k)];
    }
    return out;
  }

  std::int32_t positions = 0;
  std::vector<float> confidence;
  std::vector<std::int32_t> slots;
};

/// Uniform number `index` of case `number`, in [0, 1).
inline double keyed_uniform(std::uint64_t number, std::uint32_t index) {
  const RandomKey key{.seed = number, .position = index, .purpose = RandomPurpose::synth};
  return static_cast<double>(random_uniform(key) >> 11) * 0x1p-53;
}

/// A few requests with a few drafts each, some with none.
inline BatchCase random_case(std::uint64_t number) {
  std::uint32_t index = 1000;
  const auto below = [&](int bound) {
    return static_cast<int>(keyed_uniform(number, index++) * bound);
  };
  std::vector<std::vector<float>> rows(static_cast<std::size_t>(1 + below(3)));
  for (std::vector<float>& row : rows) {
    row.resize(static_cast<std::size_t>(below(5)));
    // A coarse grid makes ties of survivals frequent.
    for (float& c : row) c = 0.125f * static_cast<float>(1 + below(8));
  }
  return BatchCase(rows);
}

/// Prices of 0..N drafts that never fall: flat stretches, slopes and risers.
inline std::vector<double> random_steps(std::uint64_t number, std::size_t drafts) {
  std::vector<double> price = {0.5 + keyed_uniform(number, 0)};
  for (std::uint32_t n = 1; n <= drafts; ++n) {
    const double kind = keyed_uniform(number, 2 * n);
    const double size = keyed_uniform(number, 2 * n + 1);
    price.push_back(price.back() + (kind < 0.4 ? 0.0 : kind < 0.8 ? 0.3 * size : 1.5 * size));
  }
  return price;
}

/// visit(lengths) for every vector of lengths up to the slots.
inline void for_each_lengths(const BatchCase& batch,
                             const std::function<void(const std::vector<std::int32_t>&)>& visit) {
  std::vector<std::int32_t> lengths(batch.requests(), 0);
  while (true) {
    visit(lengths);
    std::size_t r = 0;
    while (r < lengths.size() && ++lengths[r] > batch.slots[r]) lengths[r++] = 0;
    if (r == lengths.size()) return;
  }
}

/// Expected tokens of a step with these lengths.
inline double tokens_of(const BatchCase& batch, const std::vector<std::int32_t>& lengths) {
  double tokens = static_cast<double>(batch.requests());
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    for (std::int32_t k = 0; k < lengths[r]; ++k) {
      tokens += static_cast<double>(batch.survival(r, k));
    }
  }
  return tokens;
}

inline std::int32_t total_of(const std::vector<std::int32_t>& lengths) {
  std::int32_t total = 0;
  for (const std::int32_t length : lengths) total += length;
  return total;
}

/// Θ of these lengths.
inline double theta_of(const BatchCase& batch, const std::vector<double>& price,
                       const std::vector<std::int32_t>& lengths) {
  return tokens_of(batch, lengths) / price[static_cast<std::size_t>(total_of(lengths))];
}

}  // namespace dspark::test
