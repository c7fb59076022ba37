#include "backends/cpu/top_k.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "core/sparse_proposal.h"

namespace dspark::cpu {
namespace {

constexpr std::int32_t kBlock = 256;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Whether any of `count` logits is at least `least`; vectorises.
bool any_reaches(const float* logits, std::int32_t count, float least) {
  std::int32_t found = 0;
  for (std::int32_t i = 0; i < count; ++i) found |= logits[i] >= least ? 1 : 0;
  return found != 0;
}

}  // namespace

void select_top_k(const float* logits, std::int32_t vocab, std::int32_t k, std::uint64_t* keys,
                  float* values, std::int32_t* ids) {
  // A heap whose front is the worst of the best k so far. Few tokens of a long row get into it, so
  // most blocks are only compared with it.
  const auto worst_first = std::greater<>();
  for (std::int32_t v = 0; v < k; ++v) keys[v] = token_key(logits[v], v);
  std::make_heap(keys, keys + k, worst_first);
  for (std::int32_t first = k; first < vocab; first += kBlock) {
    const std::int32_t count = std::min(kBlock, vocab - first);
    const float least = float_from_order_code(static_cast<std::uint32_t>(keys[0] >> 32));
    if (!any_reaches(logits + first, count, least)) continue;
    for (std::int32_t v = first; v < first + count; ++v) {
      const std::uint64_t key = token_key(logits[v], v);
      if (key <= keys[0]) continue;
      std::pop_heap(keys, keys + k, worst_first);
      keys[k - 1] = key;
      std::push_heap(keys, keys + k, worst_first);
    }
  }
  std::sort_heap(keys, keys + k, worst_first);  // descending
  for (std::int32_t i = 0; i < k; ++i) {
    values[i] = float_from_order_code(static_cast<std::uint32_t>(keys[i] >> 32));
    ids[i] = token_of_key(keys[i]);
  }
}

TopKLaw normalize_top_k(const TopKRow& row, const SamplingRule& rule, float* probabilities) {
  const auto value = [&](std::int32_t i) {
    const bool usable = row.vocab < 0 || (row.ids[i] >= 0 && row.ids[i] < row.vocab);
    return usable ? row.values[i] : -kInfinity;
  };
  bool bad = false;
  std::uint64_t best = 0;
  std::uint32_t second = 0;
  std::int32_t winner = 0;
  for (std::int32_t i = 0; i < row.k; ++i) {
    const float x = value(i);
    bad = bad || x != x || x == kInfinity;
    const std::uint64_t key = token_key(x, row.ids == nullptr ? i : row.ids[i]);
    second = std::max(second, static_cast<std::uint32_t>(std::min(best, key) >> 32));
    if (key > best) {
      best = key;
      winner = i;
    }
  }
  TopKLaw law = {false, float_from_order_code(static_cast<std::uint32_t>(best >> 32)), -kInfinity};
  if (bad || !(law.largest > -kInfinity)) {
    std::fill_n(probabilities, row.k, 0.0f);
    return law;
  }
  law.valid = true;
  if (second != 0) law.second = float_from_order_code(second);
  if (rule.greedy) {
    for (std::int32_t i = 0; i < row.k; ++i) probabilities[i] = i == winner ? 1.0f : 0.0f;
    return law;
  }
  std::uint64_t masses[kMaxTopK];
  std::uint64_t total = 0;
  for (std::int32_t i = 0; i < row.k; ++i) {
    masses[i] = unfiltered_mass(value(i), law.largest, rule.inverse_temperature);
    total += masses[i];
  }
  for (std::int32_t i = 0; i < row.k; ++i) {
    probabilities[i] =
        static_cast<float>(static_cast<double>(masses[i]) / static_cast<double>(total));
  }
  return law;
}

}  // namespace dspark::cpu
