// mlx-dspark's cap controller: one acceptance probability for all positions, learned as it goes.
#pragma once

#include <cstdint>
#include <span>

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

/// Tokens per price of a round with that many drafts: (1 + Σ_{i ≤ cap} p^i) / price[cap]; -1 where
/// the price is not above 0. `price[cap]` = cost of a whole round that drafts and verifies `cap`
/// drafts, price[0] that of one without speculation; here and below it is not empty.
[[nodiscard]] double capped_rate(double acceptance, std::span<const double> price,
                                 std::int32_t cap);

/// The cap of largest rate in [least, price.size() - 1], the smallest of equal ones; `least` if
/// none has a price.
[[nodiscard]] std::int32_t best_cap(double acceptance, std::span<const double> price,
                                    std::int32_t least);

/// Before the first round: the best cap by the prior.
[[nodiscard]] CappedEwma start_capped_ewma(const CappedEwmaOptions& options,
                                           std::span<const double> price);

/// Drafts of the next round: the cap; while parked 0, but in every `probe`-th round the best cap
/// that speculates, since without drafts nothing is learned.
[[nodiscard]] std::int32_t capped_length(const CappedEwma& state, const CappedEwmaOptions& options,
                                         std::span<const double> price);

/// Ends a round that verified so many drafts and accepted the first `accepted` of them, in
/// [0, verified]: each accepted draft moves p towards 1, the rejected one towards 0, those behind
/// it say nothing. Every `repick`-th round then looks whether another cap is better by the
/// hysteresis.
void update_capped_ewma(CappedEwma& state, const CappedEwmaOptions& options,
                        std::span<const double> price, std::int32_t verified,
                        std::int32_t accepted);

}  // namespace dspark
