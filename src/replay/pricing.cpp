#include "replay/pricing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/error.h"

namespace dspark {
namespace {

// Less than this at an end of a distribution is no part of it.
constexpr double kNegligible = 1e-16;

/// A distribution over first, first + 1, ...
struct Distribution {
  std::int32_t first = 0;
  std::vector<double> mass = {1.0};

  void trim() {
    const auto counts = [](double m) { return std::abs(m) > kNegligible; };
    const auto begin = std::find_if(mass.begin(), mass.end(), counts);
    const auto end = std::find_if(mass.rbegin(), mass.rend(), counts).base();
    if (begin >= end) return;
    first += static_cast<std::int32_t>(begin - mass.begin());
    mass = std::vector<double>(begin, end);
  }
};

Distribution convolve(const Distribution& a, const Distribution& b) {
  Distribution out = {a.first + b.first, std::vector<double>(a.mass.size() + b.mass.size() - 1)};
  for (std::size_t i = 0; i < a.mass.size(); ++i) {
    for (std::size_t j = 0; j < b.mass.size(); ++j) out.mass[i + j] += a.mass[i] * b.mass[j];
  }
  out.trim();
  return out;
}

/// The sum of `count` independent ones.
Distribution sum_of(Distribution one, std::int32_t count) {
  Distribution out;
  for (; count > 0; count /= 2) {
    if (count % 2 == 1) out = convolve(out, one);
    if (count > 1) one = convolve(one, one);
  }
  return out;
}

/// The largest of `count` independent ones; of none: 0.
Distribution longest_of(std::span<const double> share, std::int32_t count) {
  Distribution out = {0, std::vector<double>(share.size(), 0.0)};
  if (count == 0) {
    out.mass.front() = 1;
    return out;
  }
  double below = 0, up_to = 0;
  for (std::size_t l = 0; l < share.size(); ++l) {
    up_to += share[l];
    const double power = std::pow(up_to, count);
    out.mass[l] = power - below;
    below = power;
  }
  return out;
}

/// Σ mass · value(n); values without mass do not matter, even if they do not exist.
template <class Value>
double mean_of(const Distribution& distribution, const Value& value) {
  double sum = 0;
  for (std::size_t i = 0; i < distribution.mass.size(); ++i) {
    if (distribution.mass[i] == 0.0) continue;
    sum += distribution.mass[i] * value(distribution.first + static_cast<std::int32_t>(i));
  }
  return sum;
}

}  // namespace

StepPrices::StepPrices(const CostModel& model, Width width, std::int32_t requests,
                       std::int32_t block_size)
    : requests_(requests),
      block_size_(block_size),
      width_(width),
      plain_(model.plain_step(requests)) {
  if (requests < 1 || requests > kMaxConcurrency || block_size < 1 || block_size > 64) {
    throw internal_error("StepPrices", "requests or block size out of range");
  }
  const std::int32_t most = requests * block_size;
  by_total_.reserve(static_cast<std::size_t>(most) + 1);
  padding_.reserve(by_total_.capacity());
  for (std::int32_t n = 0; n <= most; ++n) {
    by_total_.push_back(model.speculative_step(requests, n));
    const std::int64_t tokens = std::int64_t{requests} + n;
    padding_.push_back(static_cast<double>(model.charged_tokens(tokens) - tokens));
  }
}

ExpectedStep expected_step(const StepPrices& prices, std::span<const double> share) {
  const std::int32_t requests = prices.requests();
  const auto lengths = static_cast<std::int32_t>(share.size());
  ExpectedStep out;
  for (std::int32_t l = 0; l < lengths; ++l) {
    out.drafts += requests * share[static_cast<std::size_t>(l)] * l;
  }
  // One request verifies l drafts; what do the others do?
  const bool is_ragged = prices.width() == Width::ragged;
  Distribution one = {0, {share.begin(), share.end()}};
  one.trim();
  const Distribution others =
      is_ragged ? sum_of(std::move(one), requests - 1) : longest_of(share, requests - 1);
  const auto mean_with = [&](std::int32_t l, const auto& value) {
    return mean_of(others, [&](std::int32_t n) {
      return is_ragged ? value(n + l, 0) : value(0, std::max(n, l));
    });
  };
  for (std::int32_t l = 0; l < lengths; ++l) {
    const double mass = share[static_cast<std::size_t>(l)];
    const double with = mean_with(
        l, [&](std::int32_t total, std::int32_t longest) { return prices.of(total, longest); });
    out.by_length.push_back(with);
    if (mass == 0.0) continue;
    out.cost += mass * with;
    out.padding += mass * mean_with(l, [&](std::int32_t total, std::int32_t longest) {
                     return prices.padding(total, longest);
                   });
  }
  if (!is_ragged) out.padding -= out.drafts;  // the real drafts were not known above
  const double of_the_others = out.cost * (1.0 - 1.0 / requests);
  for (double& with : out.by_length) with -= of_the_others;
  return out;
}

}  // namespace dspark
