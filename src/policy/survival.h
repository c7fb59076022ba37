// What a batch rule does to one draft, shared by the host (policy/batch.h) and the kernel
// (kernels/schedule/batch_schedule.cu): survival, its weight in a sum, its place in the ranking.
#pragma once

#include <cstdint>

#include "core/dspark_ops.h"
#include "core/half.h"
#include "core/host_device.h"

namespace dspark {

/// Survival after one more draft, rounded to Float: f32 is what the engines rank. A confidence
/// counts as within [0, 1], NaN as 0: so survival never rises along a request, and what follows a
/// NaN is worth nothing.
template <class Float>
DSPARK_HD Float survival_after(Float survival, float confidence) {
  const float within = confidence > 0.0f ? (confidence < 1.0f ? confidence : 1.0f) : 0.0f;
  return survival * static_cast<Float>(within);
}

/// One token in units of a survival's weight.
inline constexpr std::uint64_t kTokenWeight = std::uint64_t{1} << 40;

/// A survival in units of 2^-40, rounded to the nearest: sums of integers do not depend on the
/// order of summation. Exact for every f32 of 2^-17 and more; below, off by at most 2^-41 (the
/// engines' float64 sums of float32 survivals round too, in an order of their own).
DSPARK_HD std::uint64_t survival_weight(double survival) {
  return static_cast<std::uint64_t>(survival * static_cast<double>(kTokenWeight) + 0.5);
}

/// Whether a draft above the floor may be verified at all.
DSPARK_HD bool is_candidate(double survival, double epsilon) {
  return survival > 0 && survival >= epsilon;
}

/// Θ: expected tokens (in weights) per cost; -1 for a total that cannot be chosen because its price
/// is not above 0 (NaN).
DSPARK_HD double tokens_per_cost(std::uint64_t weight, double price) {
  return price > 0 ? static_cast<double>(weight) / static_cast<double>(kTokenWeight) / price : -1;
}

/// The price of `total` drafts; behind the table there is none (-1).
DSPARK_HD double price_at(const double* price, std::int64_t size, std::int32_t total) {
  return total < size ? price[total] : -1;
}

/// The number of drafts that a step verifies in all.
struct Capacity {
  std::int32_t drafts = 0;  ///< kEveryDraft: all of them, whatever their survival
  double score = -1;        ///< Θ as chosen, in tokens per unit of price; -1: nothing had a price
  bool operator==(const Capacity&) const = default;
};

/// The one of larger Θ; of equal ones the smaller, or with `last` the larger total. Any order of
/// comparing many gives the same. Totals that cannot be chosen are none the better for being large.
DSPARK_HD Capacity better_capacity(const Capacity& a, const Capacity& b, bool last) {
  if (a.score != b.score) return a.score > b.score ? a : b;
  return (a.drafts > b.drafts) == (last && a.score >= 0) ? a : b;
}

/// The best capacity, or every draft where the best is not better than `all`, the capacity that
/// verifies N drafts, by `min_gain`; 0 and less: no guard. Without a price (-1) `all` guards
/// nothing.
DSPARK_HD Capacity guarded_capacity(const Capacity& best, const Capacity& all, double min_gain) {
  const bool kept =
      !(min_gain > 0) || best.drafts == all.drafts || best.score >= all.score * (1 + min_gain);
  return kept ? best : Capacity{kEveryDraft, all.score};
}

/// Bits of an admission_key() that carry something; the ones above are 0.
inline constexpr int kAdmissionKeyBits = 52;
/// After every admission key: no draft.
inline constexpr std::uint64_t kNoDraft = (std::uint64_t{1} << kAdmissionKeyBits) - 1;

/// The rank of a draft as a number: smaller is admitted first. The upper 30 bits fall with the
/// survival (whose bit pattern, as that of any f32 in [0, 1], grows with it), the lower 22 break
/// ties. `request` and `position` count from 0, below kMaxScheduledRequests and -Positions.
DSPARK_HD std::uint64_t admission_key(float survival, std::int32_t request, std::int32_t position,
                                      TieOrder ties) {
  constexpr std::uint32_t one = 0x3F800000u;
  const std::uint64_t falling = one - bits_from_float(survival);
  const auto r = static_cast<std::uint64_t>(request);
  const auto p = static_cast<std::uint64_t>(position);
  return falling << 22 | (ties == TieOrder::position_request ? p << 16 | r : r << 6 | p);
}

/// The request of an admission_key().
DSPARK_HD std::int32_t request_of(std::uint64_t key, TieOrder ties) {
  return static_cast<std::int32_t>(ties == TieOrder::position_request ? key & 0xFFFFu
                                                                      : key >> 6 & 0xFFFFu);
}

/// The survival of an admission_key().
DSPARK_HD float survival_of(std::uint64_t key) {
  return float_from_bits(0x3F800000u - static_cast<std::uint32_t>(key >> 22));
}

/// `slots` within [0, positions].
DSPARK_HD std::int32_t slots_within(std::int32_t slots, std::int32_t positions) {
  return slots < 0 ? 0 : slots < positions ? slots : positions;
}

/// Drafts of a request with `slots` that are verified whatever they promise.
DSPARK_HD std::int32_t floor_within(std::int32_t floor, std::int32_t slots) {
  return floor < 0 ? 0 : floor < slots ? floor : slots;
}

/// visit(request, position, survival) for every draft, positions from 0, `survival` the product so
/// far as a Float.
template <class Float, class Visit>
void for_each_draft(const BatchStep& step, Visit&& visit) {
  for (std::int32_t r = 0; r < step.requests; ++r) {
    const float* const confidence = step.confidence + r * step.stride;
    const std::int32_t slots = slots_within(step.slots[r], step.positions);
    Float survival = 1;
    for (std::int32_t k = 0; k < slots; ++k) {
      survival = survival_after(survival, confidence[k]);
      visit(r, k, survival);
    }
  }
}

}  // namespace dspark
