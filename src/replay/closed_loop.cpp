#include "replay/closed_loop.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "replay/bounds.h"
#include "replay/worlds.h"

namespace dspark {
namespace {

constexpr std::size_t kMaxSlots = 64;

/// What the closed loop needs of one anchor.
struct Block {
  const double* beta;
  const float* confidence;  ///< or top probabilities: what the rule looks at
  std::int32_t slots;       ///< drafts the policy sees
  std::int64_t left;        ///< tokens still to emit
};

class Follower {
 public:
  Follower(const OutcomeTable& table, const Policy& policy, const RoundPrices& prices,
           RoundFlow& flow, LoopScratch& scratch, Acceptance acceptance)
      : table_(table),
        policy_(policy),
        prices_(prices),
        flow_(flow),
        scratch_(scratch),
        signal_(signal_of(policy, table)),
        confidence_(table.along_text(seen()).data()),
        worlds_(!table.greedy && signal_ && table.has_worlds(*signal_)),
        full_blocks_(worlds_ && acceptance == Acceptance::full_blocks) {
    if (std::holds_alternative<OracleConfidence>(policy)) {
      scratch.probability.resize(table.alpha.size());
      std::transform(table.alpha.begin(), table.alpha.end(), scratch.probability.begin(),
                     [](double alpha) { return static_cast<float>(alpha); });
      confidence_ = scratch.probability.data();
    }
  }

  /// Fills v over one sequence, and the lengths on the trajectory where v > 0.
  void start_rounds(std::int64_t first, std::int64_t end) {
    double* const v = scratch_.starts.data();
    std::int32_t* const length = scratch_.length.data();
    if (first == end) return;
    std::fill(v + first, v + end, 0.0);
    v[first] = 1.0;
    for (std::int64_t n = first; n < end; ++n) {
      length[n] = 0;
      if (v[n] == 0.0) continue;
      const Block block = block_at(n, end);
      const std::int32_t l = verified_length(block, block.confidence);
      length[n] = l;
      double reach = v[n];  // v(n) · Π β
      for (std::int32_t a = 0; a < l; ++a) {
        v[n + a + 1] += reach * (1.0 - block.beta[a]);
        reach *= block.beta[a];
      }
      if (n + l + 1 < end) v[n + l + 1] += reach;
    }
  }

  ClosedLoop follow() {
    if (full_blocks_) return follow_full_blocks();
    const std::int64_t total = table_.anchors();
    const auto size = static_cast<std::size_t>(total);
    scratch_.starts.resize(size);
    scratch_.length.resize(size);
    flow_.begin(table_.block_size, worlds_ ? table_.repeats : 0);
    ClosedLoop out;
    double on_trajectory = 0, verified = 0, interior_tokens = 0, interior_rounds = 0;
    for (std::size_t s = 0; s + 1 < table_.sequence_offsets.size(); ++s) {
      const std::int64_t end = table_.sequence_offsets[s + 1];
      start_rounds(table_.sequence_offsets[s], end);
      for (std::int64_t n = table_.sequence_offsets[s]; n < end; ++n) {
        const auto at = static_cast<std::size_t>(n);
        const double rounds = scratch_.starts[at];
        if (rounds == 0.0) continue;
        const Block block = block_at(n, end);
        const std::int32_t l = scratch_.length[at];
        out.rounds += rounds;
        on_trajectory += rounds * l;
        const double accepted = count_accepted(block, l, rounds);
        const double tokens = rounds * (1.0 + accepted);
        const bool interior = block.left > table_.block_size;
        if (interior) {
          interior_tokens += tokens;
          interior_rounds += rounds;
        }
        flow_.add_rounds(at, rounds, tokens, interior);
        verified += count_verified(n, block, l, rounds);
      }
    }
    out.tokens = static_cast<double>(total);
    out.tau = out.tokens / out.rounds;
    if (interior_rounds > 0) out.tau_interior = interior_tokens / interior_rounds;
    out.verified_on_trajectory = on_trajectory / out.rounds;
    out.exact = table_.greedy || !signal_;
    if (out.exact) {
      out.verified = out.verified_on_trajectory;
    } else if (worlds_) {
      out.verified = verified / out.rounds;
      out.verified_se = error_over_repeats(out.rounds);
    }
    return out;
  }

 private:
  /// What the rule is given; whatever it is where it does not look.
  [[nodiscard]] DraftSignal seen() const { return signal_.value_or(DraftSignal::confidence); }

  [[nodiscard]] Block block_at(std::int64_t n, std::int64_t end) const {
    const auto row = static_cast<std::size_t>(n) * static_cast<std::size_t>(table_.block_size);
    return {table_.beta.data() + row, confidence_ + row, table_.slots[static_cast<std::size_t>(n)],
            end - n};
  }

  ClosedLoop follow_full_blocks() {
    flow_.begin(table_.block_size, 0);
    std::vector<double>& v = scratch_.starts;
    v.assign(static_cast<std::size_t>(table_.anchors()), 0.0);
    for (std::size_t s = 0; s + 1 < table_.sequence_offsets.size(); ++s) {
      const std::int64_t end = table_.sequence_offsets[s + 1];
      for (std::int64_t n = table_.sequence_offsets[s]; n < end; ++n) {
        const auto at = static_cast<std::size_t>(n);
        if (n == table_.sequence_offsets[s]) v[at] = 1;
        if (v[at] == 0.0) continue;
        const double rounds = v[at];
        const Block block = block_at(n, end);
        double emitted = 0;
        BlockWorlds worlds(table_, n, seen());
        worlds.for_each_outcome(
            [&](std::int32_t accepted, const float* confidence, double probability) {
              const std::int32_t l = verified_length(block, confidence);
              const std::int32_t kept = std::min(accepted, l);
              count_length(n, block, l, rounds * probability);
              flow_.add_accepted(kept, rounds * probability);
              emitted += probability * (kept + 1);
              if (n + kept + 1 < end)
                v[at + static_cast<std::size_t>(kept) + 1] += rounds * probability;
            });
        flow_.add_rounds(at, rounds, rounds * emitted, block.left > table_.block_size);
      }
    }
    ClosedLoop out;
    out.rounds = flow_.total(RoundFlow::rounds);
    out.tokens = static_cast<double>(table_.anchors());
    out.tau = out.tokens / out.rounds;
    const double interior = flow_.total(RoundFlow::interior_rounds);
    if (interior > 0) out.tau_interior = flow_.total(RoundFlow::interior_tokens) / interior;
    double verified = 0;
    const std::vector<double> scheduled = flow_.scheduled_rounds();
    for (std::size_t l = 0; l < scheduled.size(); ++l) {
      verified += static_cast<double>(l) * scheduled[l];
    }
    out.verified = out.verified_on_trajectory = verified / out.rounds;
    return out;
  }

  /// Drafts verified when the rule schedules by `confidence`: the bonus token needs a place too.
  [[nodiscard]] std::int32_t verified_length(const Block& block, const float* confidence) const {
    const std::int32_t scheduled = scheduled_length(policy_, confidence, block.slots, prices_);
    return static_cast<std::int32_t>(std::min<std::int64_t>(scheduled, block.left - 1));
  }

  /// Counts accepted lengths; returns their mean, Σ_{k ≤ l} Π β.
  double count_accepted(const Block& block, std::int32_t l, double rounds) {
    double reach = 1, mean = 0;
    for (std::int32_t a = 0; a < l; ++a) {
      flow_.add_accepted(a, rounds * (reach * (1.0 - block.beta[a])));
      mean += reach *= block.beta[a];
    }
    flow_.add_accepted(l, rounds * reach);
    return mean;
  }

  void count_length(std::int64_t n, const Block& block, std::int32_t l, double rounds) {
    const bool could_verify = block.slots > 0 && block.left > 1 && speculates(policy_);
    flow_.add_length(static_cast<std::size_t>(n), l, rounds, could_verify);
  }

  /// Counts verified lengths over the worlds of anchor n; returns v(n) times their mean. Worlds
  /// rejected at the last slot, and the fully accepted one, see the confidences of the trajectory;
  /// so do, for all the rule can tell, those rejected at or behind the last slot that it looks at.
  double count_verified(std::int64_t n, const Block& block, std::int32_t l, double rounds) {
    double reach = 1;  // Π_{i<r} β_i: what is left for the trajectory's own length
    double sum = 0;    // of the lengths of the worlds before
    if (worlds_) {
      const std::int32_t deciding = deciding_slots(policy_, block.confidence, block.slots);
      const std::int32_t end = std::min(block.slots, deciding);
      std::array<float, kMaxSlots> confidence;
      if (end > 1) {
        std::copy(block.confidence, block.confidence + block.slots, confidence.begin());
      }
      for (std::int32_t r = 1; r < end; ++r) {
        const double weight = reach * (1.0 - block.beta[r - 1]);
        reach *= block.beta[r - 1];
        if (!(weight > 0)) continue;
        for (std::int32_t s = 0; s < table_.repeats; ++s) {
          const float* later = world(n, s) + world_offset(table_.block_size, r, r + 1);
          // A vanished excess (reduce.cpp) leaves no world: the trajectory stands in, with a weight
          // near 2^-40.
          std::int32_t drawn = l;
          if (!std::isnan(later[0])) {
            std::copy(later, later + (block.slots - r), confidence.begin() + r);
            drawn = verified_length(block, confidence.data());
          }
          const double share = weight / table_.repeats;
          count_length(n, block, drawn, rounds * share);
          sum += share * drawn;
          flow_.add_verified(s, rounds * weight * drawn);
        }
        std::copy(block.confidence + r, block.confidence + block.slots, confidence.begin() + r);
      }
      for (std::int32_t s = 0; s < table_.repeats; ++s) {
        flow_.add_verified(s, rounds * reach * l);
      }
    }
    count_length(n, block, l, rounds * reach);
    return rounds * (sum + reach * l);
  }

  [[nodiscard]] const float* world(std::int64_t n, std::int32_t repeat) const {
    const auto index = static_cast<std::size_t>(n) * static_cast<std::size_t>(table_.repeats) +
                       static_cast<std::size_t>(repeat);
    return table_.in_worlds(seen()).data() +
           index * static_cast<std::size_t>(worlds_per_repeat(table_.block_size));
  }

  std::optional<double> error_over_repeats(double rounds) {
    flow_.divide_verified_by(rounds);
    double mean = 0;  // its own: repeats that agree have no error, not one of rounding
    for (const double repeat : flow_.verified_by_repeat()) mean += repeat;
    mean /= table_.repeats;
    if (table_.repeats < 2) return std::nullopt;
    double squares = 0;
    for (const double repeat : flow_.verified_by_repeat()) {
      squares += (repeat - mean) * (repeat - mean);
    }
    return std::sqrt(squares / (table_.repeats - 1) / table_.repeats);
  }

  const OutcomeTable& table_;
  const Policy& policy_;
  const RoundPrices& prices_;
  RoundFlow& flow_;
  LoopScratch& scratch_;
  std::optional<DraftSignal> signal_;
  const float* confidence_;
  bool worlds_;
  bool full_blocks_;
};

}  // namespace

std::vector<double> round_starts(const OutcomeTable& table, const Policy& policy,
                                 const RoundPrices& prices) {
  RoundFlow flow;
  LoopScratch scratch;
  const auto anchors = static_cast<std::size_t>(table.anchors());
  scratch.starts.resize(anchors);
  scratch.length.resize(anchors);
  Follower follower(table, policy, prices, flow, scratch, Acceptance::along_text);
  for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
    follower.start_rounds(table.sequence_offsets[s], table.sequence_offsets[s + 1]);
  }
  return std::move(scratch.starts);
}

ClosedLoop closed_loop(const OutcomeTable& table, const Policy& policy, const RoundPrices& prices,
                       Acceptance acceptance) {
  RoundFlow flow;
  LoopScratch scratch;
  return closed_loop(table, policy, prices, flow, scratch, acceptance);
}

ClosedLoop closed_loop(const OutcomeTable& table, const Policy& policy, const RoundPrices& prices,
                       RoundFlow& flow, LoopScratch& scratch, Acceptance acceptance) {
  if (const auto* oracle = std::get_if<Oracle>(&policy)) {
    return follow_bound(table, *oracle, prices, flow, scratch);
  }
  return Follower(table, policy, prices, flow, scratch, acceptance).follow();
}

}  // namespace dspark
