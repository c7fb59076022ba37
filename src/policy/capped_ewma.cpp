#include "policy/capped_ewma.h"

#include <iterator>

namespace dspark {

double capped_rate(double acceptance, std::span<const double> price, std::int32_t cap) {
  const double cost = price[static_cast<std::size_t>(cap)];
  if (!(cost > 0)) return -1;
  double survival = 1;
  double committed = 1;
  for (std::int32_t i = 0; i < cap; ++i) {
    survival *= acceptance;
    committed += survival;
  }
  return committed / cost;
}

std::int32_t best_cap(double acceptance, std::span<const double> price, std::int32_t least) {
  std::int32_t best = least;
  double most = -1;
  for (std::int32_t cap = least; cap < std::ssize(price); ++cap) {
    const double rate = capped_rate(acceptance, price, cap);
    if (rate > most) {
      most = rate;
      best = cap;
    }
  }
  return best;
}

CappedEwma start_capped_ewma(const CappedEwmaOptions& options, std::span<const double> price) {
  CappedEwma state;
  state.acceptance = options.prior;
  state.cap = best_cap(state.acceptance, price, 0);
  return state;
}

std::int32_t capped_length(const CappedEwma& state, const CappedEwmaOptions& options,
                           std::span<const double> price) {
  if (state.cap > 0 || std::ssize(price) < 2) return state.cap;
  return (state.parked + 1) % options.probe == 0 ? best_cap(state.acceptance, price, 1) : 0;
}

void update_capped_ewma(CappedEwma& state, const CappedEwmaOptions& options,
                        std::span<const double> price, std::int32_t verified,
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
