#include "synth/gap.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/exp.h"
#include "synth/weights.h"

namespace dspark::synth {

Gap split_gap(StoredType type, double gap) {
  Gap out;
  out.high = round_to(type, static_cast<float>(gap));
  out.low = round_to(type, static_cast<float>(gap - double(out.high)));
  return out;
}

void RowHalves::load(std::span<const float> logits, std::span<const std::uint8_t> half_b) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  float best[2] = {lowest, lowest};
  float second[2] = {lowest, lowest};
  for (std::size_t v = 0; v < logits.size(); ++v) {
    const int half = half_b[v];
    const float logit = logits[v];
    second[half] = std::max(second[half], std::min(logit, best[half]));
    best[half] = std::max(best[half], logit);
  }
  a_.best = best[0];
  b_.best = best[1] + setting_.wall;
  lead_ = std::min(best[0] - second[0], best[1] - second[1]);
  if (setting_.rule.greedy) return;

  const float inverse_temperature = setting_.rule.inverse_temperature;
  if (!filtered()) {
    double total[2] = {0, 0};
    for (std::size_t v = 0; v < logits.size(); ++v) {
      const int half = half_b[v];
      total[half] += double(exp_float((logits[v] - best[half]) * inverse_temperature));
    }
    a_.total = total[0];
    b_.total = total[1];
    return;
  }

  a_.weight.clear();
  b_.weight.clear();
  for (std::size_t v = 0; v < logits.size(); ++v) {
    const int half = half_b[v];
    (half == 0 ? a_ : b_)
        .weight.push_back(double(exp_float((logits[v] - best[half]) * inverse_temperature)));
  }
  for (Half* half : {&a_, &b_}) {
    std::sort(half->weight.begin(), half->weight.end(), std::greater<>());
    half->sum.assign(1, 0.0);
    for (const double weight : half->weight) half->sum.push_back(half->sum.back() + weight);
    half->total = half->sum.back();
  }
}

double RowHalves::log_ratio(double gap) const {
  return (gap + double(a_.best) - double(b_.best)) / setting_.temperature;
}

double RowHalves::gap_of(double log_ratio) const {
  return setting_.temperature * log_ratio - double(a_.best) + double(b_.best);
}

/// The kept part of the law in which the weights of A and B are scaled as given (core/row_ops.h,
/// RowLawsArgs).
RowHalves::Kept RowHalves::kept(double scale_a, double scale_b) const {
  const std::int64_t all = a_.size() + b_.size();
  // How many of the `count` heaviest tokens belong to A.
  const auto among = [&](std::int64_t count) {
    std::int64_t low = std::max<std::int64_t>(0, count - b_.size());
    std::int64_t high = std::min(count, a_.size());
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      const double a = scale_a * a_.weight[static_cast<std::size_t>(middle)];
      const double b = scale_b * b_.weight[static_cast<std::size_t>(count - middle - 1)];
      if (a >= b) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  const auto mass = [&](std::int64_t count) {
    const std::int64_t in_a = among(count);
    return scale_a * a_.sum[static_cast<std::size_t>(in_a)] +
           scale_b * b_.sum[static_cast<std::size_t>(count - in_a)];
  };

  const std::int64_t count =
      setting_.rule.top_k > 0 ? std::min<std::int64_t>(setting_.rule.top_k, all) : all;
  Kept out;
  out.scale = scale_a;
  out.total = mass(count);
  out.whole = among(count);
  if (setting_.rule.top_p == 0) return out;

  // The crossing token is the first at which the running mass reaches the target.
  const double target = out.total * setting_.top_p;
  std::int64_t low = 1;
  std::int64_t high = count;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (mass(middle) >= target) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  out.total = target;
  out.whole = among(low - 1);
  if (among(low) > out.whole) out.boundary = target - mass(low - 1);
  return out;
}

double RowHalves::overlap_of(double log_ratio) const {
  if (!filtered()) {
    const double odds = std::exp(log_ratio) * a_.total / b_.total;
    return std::isinf(odds) ? 1.0 : odds / (1 + odds);
  }
  const double scale_a = std::exp(std::min(log_ratio, 0.0));
  const double scale_b = std::exp(-std::max(log_ratio, 0.0));
  const Kept p = kept(1, 0);
  const Kept q = kept(scale_a, scale_b);
  const std::int64_t common = std::min(p.whole, q.whole);
  double overlap =
      a_.sum[static_cast<std::size_t>(common)] * std::min(1 / p.total, q.scale / q.total);
  if (common < a_.size()) {  // the token after the common ones may be whole on one side; later ones
                             // are on no more than one
    const double weight = a_.weight[static_cast<std::size_t>(common)];
    const auto probability = [&](const Kept& law) {
      return (law.whole > common ? law.scale * weight : law.boundary) / law.total;
    };
    overlap += std::min(probability(p), probability(q));
  }
  return overlap;
}

double RowHalves::overlap(double gap) const { return overlap_of(log_ratio(gap)); }

Gap RowHalves::gap(double acceptance, double choice) const {
  const double wall = double(setting_.wall);
  const auto stored = [&](double gap) {
    return split_gap(setting_.type, std::clamp(gap, -wall, wall));
  };
  if (setting_.rule.greedy) {
    const double level = double(b_.best) - double(a_.best);
    return stored(choice < acceptance ? level + double(setting_.margin)
                                      : level - double(setting_.margin));
  }
  if (acceptance <= 0) return stored(-wall);
  if (acceptance >= 1) return stored(wall);
  if (!filtered()) {
    const double odds = std::log(acceptance) - std::log1p(-acceptance);
    return stored(gap_of(odds + std::log(b_.total) - std::log(a_.total)));
  }

  // Bisection, down to where the step may lie; then one point on either side of it, out of the
  // reach of rounding (and of ties: logits lie on a grid). As they are stored, the two share the
  // row's chances so that the mean comes out exactly.
  const double resolution =
      setting_.type == StoredType::bf16 ? 0x1p-15 : 0x1p-21;  // of a split gap
  const double width = std::max(1e-3, 128 * resolution / setting_.temperature);
  const double reach = std::max(width, double(setting_.margin) / setting_.temperature);
  double low = log_ratio(-wall);
  double high = log_ratio(wall);
  while (high - low > width) {
    const double middle = low + (high - low) / 2;
    (overlap_of(middle) < acceptance ? low : high) = middle;
  }
  const Gap below = stored(gap_of(low - reach));
  const Gap above = stored(gap_of(high + reach));
  const double least = overlap(below.sum());
  const double most = overlap(above.sum());
  if (!(most > least)) return above;
  return choice * (most - least) < acceptance - least ? above : below;
}

}  // namespace dspark::synth
