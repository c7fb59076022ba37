// mlx-dspark's cap controller: one acceptance probability for all positions, learned as it goes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/host_device.h"

namespace dspark {

/// `capped_ewma` with mlx-dspark's numbers.
struct CappedEwmaOptions {
  double prior = 0.65;       ///< acceptance before anything is seen, in [0, 1]
  double alpha = 0.02;       ///< weight of one verified draft, in [0, 1]
  double hysteresis = 1.03;  ///< a new cap must be this much better, at least 1
  std::int32_t repick = 4;   ///< rounds from one look at the caps to the next, at least 1
  std::int32_t probe = 8;    ///< while parked, every so many rounds speculates, at least 1
  bool operator==(const CappedEwmaOptions&) const = default;
};

/// Where the controller stands after a number of rounds.
struct CappedEwma {
  double acceptance = 0;    ///< p: a draft is accepted given that those before it were
  std::int32_t cap = 0;     ///< drafts of a round; 0: parked
  std::int32_t rounds = 0;  ///< rounds that ended
  std::int32_t parked = 0;  ///< rounds since it was parked
  bool operator==(const CappedEwma&) const = default;
};

/// Prices of whole rounds by their cap, 0 to count - 1; a view.
struct CapPrices {
  const double* data = nullptr;
  std::int32_t count = 0;

  CapPrices(std::span<const double> prices)  // NOLINT(google-explicit-constructor): a view too
      : data(prices.data()), count(static_cast<std::int32_t>(prices.size())) {}
  CapPrices(const std::vector<double>& prices)  // NOLINT(google-explicit-constructor)
      : CapPrices(std::span<const double>(prices)) {}
};

/// Tokens per price of a round with that many drafts: (1 + Σ_{i ≤ cap} p^i) / price[cap]; -1 where
/// the price is not above 0. `price[cap]` = cost of a whole round that drafts and verifies `cap`
/// drafts, price[0] that of one without speculation; here and below it is not empty.
[[nodiscard]] DSPARK_HD double capped_rate(double acceptance, const CapPrices& price,
                                           std::int32_t cap) {
  const double cost = price.data[cap];
  if (!(cost > 0)) return -1;
  double survival = 1;
  double committed = 1;
  for (std::int32_t i = 0; i < cap; ++i) {
    survival *= acceptance;
    committed += survival;
  }
  return committed / cost;
}

/// The cap of largest rate in [least, price.size() - 1], the smallest of equal ones; `least` if
/// none has a price.
[[nodiscard]] DSPARK_HD std::int32_t best_cap(double acceptance, const CapPrices& price,
                                              std::int32_t least) {
  std::int32_t best = least;
  double most = -1;
  for (std::int32_t cap = least; cap < price.count; ++cap) {
    const double rate = capped_rate(acceptance, price, cap);
    if (rate > most) {
      most = rate;
      best = cap;
    }
  }
  return best;
}

/// Before the first round: the best cap by the prior.
[[nodiscard]] DSPARK_HD CappedEwma start_capped_ewma(const CappedEwmaOptions& options,
                                                     const CapPrices& price) {
  CappedEwma state;
  state.acceptance = options.prior;
  state.cap = best_cap(state.acceptance, price, 0);
  return state;
}

/// Drafts of the next round: the cap; while parked 0, but in every `probe`-th round the best cap
/// that speculates, since without drafts nothing is learned.
[[nodiscard]] DSPARK_HD std::int32_t capped_length(const CappedEwma& state,
                                                   const CappedEwmaOptions& options,
                                                   const CapPrices& price) {
  if (state.cap > 0 || price.count < 2) return state.cap;
  return (state.parked + 1) % options.probe == 0 ? best_cap(state.acceptance, price, 1) : 0;
}

/// Ends a round that verified so many drafts and accepted the first `accepted` of them, in
/// [0, verified]: each accepted draft moves p towards 1, the rejected one towards 0, those behind
/// it say nothing. Every `repick`-th round then looks whether another cap is better by the
/// hysteresis.
DSPARK_HD void update_capped_ewma(CappedEwma& state, const CappedEwmaOptions& options,
                                  const CapPrices& price, std::int32_t verified,
                                  std::int32_t accepted) {
  for (std::int32_t i = 0; i < accepted; ++i) {
    state.acceptance += options.alpha * (1 - state.acceptance);
  }
  if (accepted < verified) state.acceptance -= options.alpha * state.acceptance;
  ++state.rounds;
  if (state.cap == 0) ++state.parked;
  if (state.rounds % options.repick != 0) return;
  const std::int32_t best = best_cap(state.acceptance, price, 0);
  const double now = capped_rate(state.acceptance, price, state.cap);
  if (capped_rate(state.acceptance, price, best) > options.hysteresis * now) {
    state.cap = best;
    state.parked = 0;
  }
}

}  // namespace dspark
