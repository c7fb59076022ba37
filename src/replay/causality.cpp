#include "replay/causality.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "core/random.h"
#include "replay/worlds.h"
#include "support/error.h"

namespace dspark {
namespace {

constexpr std::size_t kMaxSlots = 64;
using Confidences = std::array<float, kMaxSlots>;

// No 0 and no 1, and few weak drafts in a block: where a survival of almost nothing is added, a
// rule that compares rounded scores may turn on the last bit, which says nothing about where it
// looks.
constexpr float kLow = 0.003f;
constexpr float kWeak = 0.03f;
constexpr float kStrong = 0.9f;
constexpr float kHigh = 0.997f;
constexpr std::size_t kWeakSlots = 8;
constexpr std::size_t kLevels = 16;
constexpr std::size_t kRandomVectors = 32;

float random_between(float low, float high, std::size_t vector, std::size_t slot) {
  const std::uint64_t bits = random_uniform(
      {.position = static_cast<std::uint32_t>(vector), .slot = static_cast<std::uint32_t>(slot)});
  return low + (high - low) * static_cast<float>(bits >> 40) * 0x1p-24f;
}

/// Vectors whose later confidences are replaced: levels and dips first, random ones last.
std::vector<Confidences> make_family() {
  std::vector<Confidences> out;
  for (std::size_t level = 0; level < kLevels; ++level) {
    const float c = (static_cast<float>(level) + 0.53f) / kLevels;
    Confidences& flat = out.emplace_back();
    flat.fill(kHigh);
    std::fill_n(flat.begin(), kWeakSlots, c);
    // One weak draft early on, between strong ones: where an argmax may step over it.
    Confidences& dip = out.emplace_back();
    dip.fill(kHigh);
    dip[level % kWeakSlots] = c;
  }
  for (std::size_t i = 0; i < kRandomVectors; ++i) {
    // Every other vector is weak at its start; the others somewhere in the longest block.
    const std::size_t weak = i % 2 == 0 ? 0 : i / 2 % kWeakSlots * kWeakSlots;
    Confidences& random = out.emplace_back();
    for (std::size_t k = 0; k < kMaxSlots; ++k) {
      const bool is_weak = k >= weak && k < weak + kWeakSlots;
      random[k] = random_between(is_weak ? kWeak : kStrong, kHigh, i, k);
    }
  }
  return out;
}

}  // namespace

LengthRule length_rule(const Policy& policy, const RoundPrices& prices) {
  return [policy, prices](const float* confidence, std::int32_t slots) {
    return scheduled_length(policy, confidence, slots, prices);
  };
}

bool is_causal(const LengthRule& rule, std::int32_t slots) {
  if (slots < 1 || slots > static_cast<std::int32_t>(kMaxSlots)) {
    throw internal_error("is_causal", "a block has 1 to 64 slots");
  }
  static const std::vector<Confidences> vectors = make_family();
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    const std::int32_t length = rule(vectors[i].data(), slots);
    for (std::int32_t k = 1; k < slots; ++k) {
      // Three continuations after slot k; the admission of slots 1..k must stay what it was.
      const Confidences& other = vectors[vectors.size() - 1 - i % (kRandomVectors - 1)];
      Confidences low = vectors[i], high = vectors[i], random = vectors[i];
      std::fill(low.begin() + k, low.begin() + slots, kLow);
      std::fill(high.begin() + k, high.begin() + slots, kHigh);
      std::copy(other.begin() + k, other.begin() + slots, random.begin() + k);
      for (const Confidences* replaced : {&low, &high, &random}) {
        if (std::min(rule(replaced->data(), slots), k) != std::min(length, k)) return false;
      }
    }
  }
  return true;
}

bool is_causal(const Policy& policy, const RoundPrices& prices, std::int32_t slots) {
  return !signal_of(policy) || is_causal(length_rule(policy, prices), slots);
}

std::int32_t early_stopped_length(const LengthRule& rule, const float* confidence,
                                  std::int32_t slots) {
  std::int32_t length = 0;
  while (length < slots && rule(confidence, length + 1) == length + 1) ++length;
  return length;
}

bool is_lossless(const Policy& policy, const RoundPrices& prices, Verification verification,
                 bool deterministic_drafts, std::int32_t slots) {
  return verification == Verification::greedy || deterministic_drafts ||
         is_causal(policy, prices, slots);
}

namespace {

/// True where no price lies above the line between its neighbours, but for rounding.
bool is_convex(std::span<const double> price) {
  for (std::size_t n = 1; n + 1 < price.size(); ++n) {
    const double rounding = 1e-12 * std::abs(price[n]);
    if (!(2 * price[n] <= price[n - 1] + price[n + 1] + rounding)) return false;
  }
  return true;
}

}  // namespace

bool is_lossless_in_steps(const Policy& policy, const StepPrices& prices, const CostModel& model,
                          Verification verification, bool deterministic_drafts) {
  if (verification == Verification::greedy || deterministic_drafts) return true;
  const RoundPrices of_round(round_prices(model, prices.block_size()));
  if (std::holds_alternative<Gate>(policy)) {
    const Policy inside = *inner_policy(policy);  // the gate itself looks back
    return is_per_request(inside)
               ? is_lossless(at_concurrency(inside, prices.requests()), of_round, verification,
                             deterministic_drafts, prices.block_size())
               : is_lossless_in_steps(inside, prices, model, verification, deterministic_drafts);
  }
  // The best cell is chosen by all of a step's survivals.
  if (std::holds_alternative<ExactTable>(policy)) return false;
  const auto* global = std::get_if<GlobalBudget>(&policy);
  if (global == nullptr || global->lag > 0) return true;  // admission one by one; an old capacity
  // Expected tokens are concave along the ranking. Over a convex price their rate rises to its
  // maximum and falls from there, so the best total is where the early stop would be.
  if (global->min_gain > 0 || !global->tiers.empty() || global->fill_buckets) return false;
  return is_convex(prices.by_total());
}

std::optional<double> early_stop_difference(const OutcomeTable& table,
                                            const std::vector<double>& starts,
                                            const LengthRule& rule) {
  if (table.off_policy()) {
    throw internal_error("early_stop_difference", "the table is of another setting");
  }
  if (!table.has_confidence || (!table.greedy && table.repeats == 0)) return std::nullopt;
  double rounds = 0, different = 0;
  for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
    const std::int64_t end = table.sequence_offsets[s + 1];
    for (std::int64_t n = table.sequence_offsets[s]; n < end; ++n) {
      const double started = starts[static_cast<std::size_t>(n)];
      if (started == 0.0) continue;
      rounds += started;
      BlockWorlds worlds(table, n);
      const std::int32_t slots = worlds.slots();
      const auto differs = [&](const float* confidence) {
        // The bonus token needs a place too.
        const std::int64_t most = end - n - 1;
        const std::int64_t a = rule(confidence, slots);
        const std::int64_t b = early_stopped_length(rule, confidence, slots);
        return std::min(a, most) != std::min(b, most) ? 1.0 : 0.0;
      };
      if (table.greedy) {
        different += started * differs(worlds.text());
        continue;
      }
      const double reach =
          worlds.for_each_rejected([&](std::int32_t, const float* confidence, double probability) {
            different += started * probability * differs(confidence);
          });
      different += started * reach * differs(worlds.text());
    }
  }
  if (!(rounds > 0)) return std::nullopt;
  return different / rounds;
}

}  // namespace dspark
