#include "replay/bounds.h"

#include <algorithm>
#include <vector>

namespace dspark {
namespace {

class Oracular {
 public:
  Oracular(const OutcomeTable& table, const Oracle& oracle, const RoundPrices& prices,
           RoundFlow& flow, LoopScratch& scratch)
      : table_(table),
        shortest_(oracle.bound == OracleBound::shortest),
        flow_(flow),
        starts_(scratch.starts) {
    for (std::int32_t l = 0; l <= table.block_size; ++l) {
      length_cost_.push_back(prices(l));
    }
  }

  ClosedLoop follow() {
    const std::int64_t total = table_.anchors();
    starts_.assign(static_cast<std::size_t>(total), 0.0);
    flow_.begin(table_.block_size, 0);
    for (std::size_t s = 0; s + 1 < table_.sequence_offsets.size(); ++s) {
      first_ = table_.sequence_offsets[s];
      end_ = table_.sequence_offsets[s + 1];
      if (first_ == end_) continue;
      if (shortest_) price_ways();
      walk();
    }
    ClosedLoop out;
    out.tokens = static_cast<double>(total);
    out.rounds = rounds_;
    out.tau = out.tokens / rounds_;
    if (interior_rounds_ > 0) out.tau_interior = interior_tokens_ / interior_rounds_;
    out.verified_on_trajectory = verified_ / rounds_;
    out.verified = out.verified_on_trajectory;
    out.exact = true;
    return out;
  }

 private:
  /// Calls visit(a, Pr(a accepted of the full block)) for a = 0 .. most.
  template <class Visit>
  void for_each_outcome(std::int64_t n, const Visit& visit) const {
    const auto at = static_cast<std::size_t>(n);
    const double* beta = table_.beta.data() + at * static_cast<std::size_t>(table_.block_size);
    const auto most = static_cast<std::int32_t>(
        std::min<std::int64_t>(table_.slots[at], end_ - n - 1));  // the bonus needs a place
    double reach = 1;
    for (std::int32_t a = 0; a < most; ++a) {
      visit(a, reach * (1.0 - beta[a]));
      reach *= beta[a];
    }
    visit(most, reach);
  }

  [[nodiscard]] double price(std::int64_t n, std::int32_t l) const {
    return length_cost_[static_cast<std::size_t>(l)] +
           way_[static_cast<std::size_t>(n + l + 1 - first_)];
  }

  /// The cheapest length up to a, given the cheapest up to a - 1; of equal ones the longest, which
  /// makes the fewest rounds.
  [[nodiscard]] std::int32_t cheapest(std::int64_t n, std::int32_t a, std::int32_t before) const {
    return a == 0 || price(n, a) <= price(n, before) ? a : before;
  }

  /// C(n) from the end to the start.
  void price_ways() {
    way_.assign(static_cast<std::size_t>(end_ - first_) + 1, 0.0);
    for (std::int64_t n = end_; n-- > first_;) {
      double mean = 0;
      std::int32_t best = 0;
      for_each_outcome(n, [&](std::int32_t a, double probability) {
        best = cheapest(n, a, best);
        mean += probability * price(n, best);
      });
      way_[static_cast<std::size_t>(n - first_)] = mean;
    }
  }

  void walk() {
    double* const v = starts_.data();
    v[first_] = 1.0;
    for (std::int64_t n = first_; n < end_; ++n) {
      if (v[n] == 0.0) continue;
      const double rounds = v[n];
      const bool could_verify = table_.slots[static_cast<std::size_t>(n)] > 0 && end_ - n > 1;
      const bool interior = end_ - n > table_.block_size;
      double length = 0;
      std::int32_t best = 0;
      for_each_outcome(n, [&](std::int32_t a, double probability) {
        best = shortest_ ? cheapest(n, a, best) : a;
        length += probability * best;
        flow_.add_length(static_cast<std::size_t>(n), best, rounds * probability, could_verify);
        flow_.add_accepted(best, rounds * probability);  // nothing is wasted
        if (n + best + 1 < end_) v[n + best + 1] += rounds * probability;
      });
      flow_.add_rounds(static_cast<std::size_t>(n), rounds, rounds * (1.0 + length), interior);
      rounds_ += rounds;
      verified_ += rounds * length;
      if (interior) {
        interior_rounds_ += rounds;
        interior_tokens_ += rounds * (1.0 + length);
      }
    }
  }

  const OutcomeTable& table_;
  bool shortest_;
  RoundFlow& flow_;
  std::vector<double>& starts_;
  std::vector<double> length_cost_;  ///< [P+1]
  std::vector<double> way_;          ///< C(n), [positions of the sequence + 1]
  std::int64_t first_ = 0, end_ = 0;
  double rounds_ = 0, verified_ = 0, interior_rounds_ = 0, interior_tokens_ = 0;
};

}  // namespace

ClosedLoop follow_bound(const OutcomeTable& table, const Oracle& oracle, const RoundPrices& prices,
                        RoundFlow& flow, LoopScratch& scratch) {
  return Oracular(table, oracle, prices, flow, scratch).follow();
}

}  // namespace dspark
