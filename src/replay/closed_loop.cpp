#include "replay/closed_loop.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace dspark {
namespace {

constexpr std::size_t kMaxSlots = 64;

/// What the closed loop needs of one anchor.
struct Block {
  const double* beta;
  const float* confidence;
  std::int32_t slots;  ///< drafts the policy sees
  std::int64_t left;   ///< tokens still to emit
};

Block block_at(const OutcomeTable& table, std::int64_t n, std::int64_t end) {
  const auto row = static_cast<std::size_t>(n) * static_cast<std::size_t>(table.block_size);
  return {table.beta.data() + row, table.confidence.data() + row,
          table.slots[static_cast<std::size_t>(n)], end - n};
}

/// Drafts verified when the rule schedules by `confidence`: the bonus token needs a place too.
std::int32_t verified_length(const Policy& policy, const LinearCost& cost, const Block& block,
                             const float* confidence) {
  const std::int32_t scheduled = scheduled_length(policy, confidence, block.slots, cost);
  return static_cast<std::int32_t>(std::min<std::int64_t>(scheduled, block.left - 1));
}

template <class Visit>
void walk_sequences(const OutcomeTable& table, Visit&& visit) {
  for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
    visit(table.sequence_offsets[s], table.sequence_offsets[s + 1]);
  }
}

/// Fills v over one sequence; `length` receives ℓ on the trajectory where v > 0.
void start_rounds(const OutcomeTable& table, const Policy& policy, const LinearCost& cost,
                  std::int64_t first, std::int64_t end, double* v, std::int32_t* length) {
  if (first == end) return;
  std::fill(v + first, v + end, 0.0);
  v[first] = 1.0;
  for (std::int64_t n = first; n < end; ++n) {
    length[n] = 0;
    if (v[n] == 0.0) continue;
    const Block block = block_at(table, n, end);
    const std::int32_t l = verified_length(policy, cost, block, block.confidence);
    length[n] = l;
    double reach = v[n];  // v(n) · Π β
    for (std::int32_t a = 0; a < l; ++a) {
      v[n + a + 1] += reach * (1.0 - block.beta[a]);
      reach *= block.beta[a];
    }
    if (n + l + 1 < end) v[n + l + 1] += reach;
  }
}

/// Σ over worlds of one repeat of Pr(world) · verified length at anchor n. Worlds rejected at the
/// last slot, and the fully accepted one, see the confidences of the trajectory.
double verified_in_worlds(const OutcomeTable& table, const Policy& policy, const LinearCost& cost,
                          std::int64_t n, const Block& block, std::int32_t repeat,
                          std::int32_t trajectory_length) {
  const auto per_repeat = static_cast<std::size_t>(worlds_per_repeat(table.block_size));
  const float* world = table.world_confidence.data() +
                       (static_cast<std::size_t>(n) * static_cast<std::size_t>(table.repeats) +
                        static_cast<std::size_t>(repeat)) *
                           per_repeat;
  std::array<float, kMaxSlots> confidence;
  std::copy(block.confidence, block.confidence + block.slots, confidence.begin());
  double sum = 0;
  double reach = 1;  // Π_{i<r} β_i
  for (std::int32_t r = 1; r < block.slots; ++r) {
    const double weight = reach * (1.0 - block.beta[r - 1]);
    if (weight > 0) {
      const float* later = world + world_offset(table.block_size, r, r + 1);
      // A vanished excess (reduce.cpp) leaves no world: the trajectory stands in, with a weight
      // near 2^-40.
      const bool drawn = !std::isnan(later[0]);
      std::int32_t l = trajectory_length;
      if (drawn) {
        std::copy(later, later + (block.slots - r), confidence.begin() + r);
        l = verified_length(policy, cost, block, confidence.data());
        std::copy(block.confidence + r, block.confidence + block.slots, confidence.begin() + r);
      }
      sum += weight * l;
    }
    reach *= block.beta[r - 1];
  }
  return sum + reach * trajectory_length;
}

}  // namespace

std::vector<double> round_starts(const OutcomeTable& table, const Policy& policy,
                                 const LinearCost& cost) {
  const auto n = static_cast<std::size_t>(table.anchors());
  std::vector<double> v(n);
  std::vector<std::int32_t> length(n);
  walk_sequences(table, [&](std::int64_t first, std::int64_t end) {
    start_rounds(table, policy, cost, first, end, v.data(), length.data());
  });
  return v;
}

ClosedLoop closed_loop(const OutcomeTable& table, const Policy& policy, const LinearCost& cost) {
  const auto anchors = static_cast<std::size_t>(table.anchors());
  std::vector<double> v(anchors);
  std::vector<std::int32_t> length(anchors);
  ClosedLoop out;
  double verified = 0, interior_tokens = 0, interior_rounds = 0;
  walk_sequences(table, [&](std::int64_t first, std::int64_t end) {
    start_rounds(table, policy, cost, first, end, v.data(), length.data());
    for (std::int64_t n = first; n < end; ++n) {
      if (v[static_cast<std::size_t>(n)] == 0.0) continue;
      const Block block = block_at(table, n, end);
      const double rounds = v[static_cast<std::size_t>(n)];
      const std::int32_t l = length[static_cast<std::size_t>(n)];
      out.rounds += rounds;
      verified += rounds * l;
      if (block.left > table.block_size) {
        double reach = 1, accepted = 0;
        for (std::int32_t a = 0; a < l; ++a) accepted += reach *= block.beta[a];
        interior_tokens += rounds * (1.0 + accepted);
        interior_rounds += rounds;
      }
    }
    out.tokens += static_cast<double>(end - first);
  });
  out.tau = out.tokens / out.rounds;
  if (interior_rounds > 0) out.tau_interior = interior_tokens / interior_rounds;
  out.verified_on_trajectory = verified / out.rounds;
  if (table.greedy || !uses_confidence(policy)) {
    out.exact = true;
    out.verified = out.verified_on_trajectory;
    return out;
  }
  if (table.repeats == 0) return out;

  std::vector<double> per_repeat(static_cast<std::size_t>(table.repeats), 0.0);
  walk_sequences(table, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t n = first; n < end; ++n) {
      const double rounds = v[static_cast<std::size_t>(n)];
      if (rounds == 0.0) continue;
      const Block block = block_at(table, n, end);
      for (std::int32_t s = 0; s < table.repeats; ++s) {
        per_repeat[static_cast<std::size_t>(s)] +=
            rounds * verified_in_worlds(table, policy, cost, n, block, s,
                                        length[static_cast<std::size_t>(n)]);
      }
    }
  });
  double mean = 0;
  for (double& sum : per_repeat) mean += sum /= out.rounds;
  mean /= table.repeats;
  out.verified = mean;
  if (table.repeats > 1) {
    double squares = 0;
    for (const double sample : per_repeat) squares += (sample - mean) * (sample - mean);
    out.verified_se = std::sqrt(squares / (table.repeats - 1) / table.repeats);
  }
  return out;
}

}  // namespace dspark
