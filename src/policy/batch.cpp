#include "policy/batch.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <utility>

#include "policy/survival.h"

namespace dspark {
namespace {

/// Fewer weights are sorted by comparison.
constexpr std::size_t kRadixSize = 64;
/// Digits of a weight, which is at most kTokenWeight = 2^40.
constexpr std::size_t kDigits = 6;
constexpr int kDigitBits = 7;
constexpr std::size_t kDigitValues = std::size_t{1} << kDigitBits;

/// A digit of a weight, as it sorts: the largest value first.
std::size_t falling_digit(std::uint64_t weight, std::size_t digit) {
  return kDigitValues - 1 - (weight >> (kDigitBits * static_cast<int>(digit)) & (kDigitValues - 1));
}

/// Sorts weights, largest first: by digits where there are many, since a step is scheduled
/// thousands of times a second and what its requests promise comes in no order.
void sort_falling(std::vector<std::uint64_t>& weights, std::vector<std::uint64_t>& other) {
  if (weights.size() < kRadixSize) {
    std::sort(weights.begin(), weights.end(), std::greater<>());
    return;
  }
  std::array<std::array<std::uint32_t, kDigitValues>, kDigits> place{};
  for (const std::uint64_t weight : weights) {
    for (std::size_t digit = 0; digit < kDigits; ++digit) {
      ++place[digit][falling_digit(weight, digit)];
    }
  }
  other.resize(weights.size());
  for (std::size_t digit = 0; digit < kDigits; ++digit) {
    std::uint32_t before = 0;
    for (std::uint32_t& count : place[digit]) before += std::exchange(count, before);
    for (const std::uint64_t weight : weights) {
      other[place[digit][falling_digit(weight, digit)]++] = weight;
    }
    weights.swap(other);
  }
}

template <class Float>
SurvivalPath path_of(const BatchStep& step, const BatchOptions& options,
                     BatchWorkspace& workspace) {
  SurvivalPath path;
  std::uint64_t tokens = static_cast<std::uint64_t>(step.requests) * kTokenWeight;
  std::vector<std::uint64_t>& weights = workspace.keys;
  weights.clear();
  for_each_draft<Float>(step, [&](std::int32_t, std::int32_t position, Float survival) {
    ++path.drafts;
    if (position < options.floor) {
      ++path.floor;
      tokens += survival_weight(survival);
    } else if (is_candidate(survival, options.survival_epsilon)) {
      weights.push_back(survival_weight(survival));
    }
  });
  path.last = path.floor + static_cast<std::int32_t>(weights.size());
  sort_falling(weights, workspace.other);
  // From the weights to what they add up to: entry i becomes the tokens before it.
  for (std::uint64_t& weight : weights) tokens += std::exchange(weight, tokens);
  weights.push_back(tokens);
  path.tokens = weights;
  return path;
}

/// Θ of `total` drafts.
double score_at(const SurvivalPath& path, std::span<const double> price, std::int32_t total) {
  return tokens_per_cost(path.at(total), price_at(price.data(), std::ssize(price), total));
}

}  // namespace

std::uint64_t SurvivalPath::at(std::int32_t total) const {
  return tokens[static_cast<std::size_t>(std::clamp(total, floor, last) - floor)];
}

SurvivalPath survival_path(const BatchStep& step, const BatchOptions& options,
                           SurvivalPrecision precision, BatchWorkspace& workspace) {
  return precision == SurvivalPrecision::f64 ? path_of<double>(step, options, workspace)
                                             : path_of<float>(step, options, workspace);
}

Capacity algorithm1_capacity(const BatchStep& step, std::span<const double> price,
                             const BatchOptions& options, BatchWorkspace& workspace) {
  const SurvivalPath path = survival_path(step, options, SurvivalPrecision::f32, workspace);
  Capacity best{path.floor, score_at(path, price, path.floor)};
  while (best.drafts < path.last) {
    const double next = score_at(path, price, best.drafts + 1);
    if (!(next > best.score)) break;
    best = {best.drafts + 1, next};
  }
  return best;
}

Capacity global_capacity(const BatchStep& step, std::span<const double> price,
                         const BatchOptions& options, BatchWorkspace& workspace,
                         std::span<const std::int32_t> tiers, SurvivalPrecision precision) {
  const SurvivalPath path = survival_path(step, options, precision, workspace);
  Capacity best{path.floor, -1};
  const auto consider = [&](std::int32_t total) {
    const Capacity offer{total, score_at(path, price, total)};
    best = better_capacity(best, offer, options.last_maximum);
  };
  if (tiers.empty()) {
    for (std::int32_t total = path.floor; total <= path.last; ++total) consider(total);
  }
  for (const std::int32_t tier : tiers) {
    const std::int64_t total = std::int64_t{step.requests} * tier;
    if (total < path.floor) continue;
    consider(static_cast<std::int32_t>(std::min<std::int64_t>(total, path.drafts)));
  }
  const Capacity all{path.drafts, score_at(path, price, path.drafts)};
  return guarded_capacity(best, all, options.min_gain);
}

void allocate(const BatchStep& step, std::int32_t capacity, const BatchOptions& options,
              std::span<std::int32_t> length, BatchWorkspace& workspace) {
  std::int64_t left = capacity;
  for (std::int32_t r = 0; r < step.requests; ++r) {
    const std::int32_t slots = slots_within(step.slots[r], step.positions);
    std::int32_t& own = length[static_cast<std::size_t>(r)];
    own = capacity == kEveryDraft ? slots : floor_within(options.floor, slots);
    left -= own;
  }
  if (capacity == kEveryDraft || left <= 0) return;
  std::vector<std::uint64_t>& keys = workspace.keys;
  keys.clear();
  for_each_draft<float>(step, [&](std::int32_t r, std::int32_t position, float survival) {
    if (position >= options.floor && is_candidate(survival, options.survival_epsilon)) {
      keys.push_back(admission_key(survival, r, position, options.ties));
    }
  });
  if (left < static_cast<std::int64_t>(keys.size())) {
    std::nth_element(keys.begin(), keys.begin() + left, keys.end());
    keys.resize(static_cast<std::size_t>(left));
  }
  for (const std::uint64_t key : keys) {
    ++length[static_cast<std::size_t>(request_of(key, options.ties))];
  }
}

Capacity batch_capacity(const BatchStep& step, std::span<const double> price,
                        const BatchOptions& options, BatchWorkspace& workspace) {
  return options.rule == BatchRule::algorithm1
             ? algorithm1_capacity(step, price, options, workspace)
             : global_capacity(step, price, options, workspace);
}

}  // namespace dspark
