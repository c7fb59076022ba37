#include "replay/lockstep.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/random.h"
#include "replay/scheduler.h"
#include "replay/worlds.h"
#include "support/error.h"

namespace dspark {
namespace {

/// Where one request stands.
struct Walker {
  std::size_t index = 0;  ///< of its sequence among those with positions
  std::size_t sequence = 0;
  std::int64_t position = 0;
  std::uint32_t entry = 0;  ///< how often its sequence was entered before
  std::int64_t tokens = 0;
  std::int64_t rounds = 0;
};

/// Sums over the counted steps of one pass.
struct Pass {
  double steps = 0, rounds = 0, tokens = 0, verified = 0;
};

/// The standard error of Σ part / Σ rounds between passes; empty for fewer than two.
template <class Part>
std::optional<double> ratio_error(const std::vector<Pass>& passes, const Part& part) {
  double parts = 0, rounds = 0;
  for (const Pass& pass : passes) {
    parts += part(pass);
    rounds += pass.rounds;
  }
  const auto count = static_cast<double>(passes.size());
  if (passes.size() < 2 || !(rounds > 0)) return std::nullopt;
  double squares = 0;
  for (const Pass& pass : passes) {
    const double deviation = part(pass) - pass.rounds * (parts / rounds);
    squares += deviation * deviation;
  }
  return std::sqrt(squares * count / (count - 1)) / rounds;
}

class Walk {
 public:
  /// `make_scheduler()` gives one that knows nothing yet; `early` is the early-stopped form that
  /// the rule is compared with, or null; `signal`: what the rule looks at.
  template <class MakeScheduler>
  Walk(const OutcomeTable& table, DraftSignal signal, const StepPrices& prices,
       StepScheduler* early, std::uint64_t seed, RoundFlow& flow, std::int32_t passes,
       std::int64_t warmup, const MakeScheduler& make)
      : table_(table),
        prices_(prices),
        early_(early),
        seed_(seed),
        flow_(flow),
        requests_(static_cast<std::size_t>(prices.requests())),
        block_(static_cast<std::size_t>(table.block_size)),
        signal_(signal),
        worlds_(!table.greedy && table.has_worlds(signal)) {
    for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
      if (table.sequence_offsets[s] < table.sequence_offsets[s + 1]) sequences_.push_back(s);
    }
    if (sequences_.empty()) throw internal_error("walk_lockstep", "the table has no positions");
    entered_.resize(sequences_.size());
    walkers_.resize(requests_);
    confidence_.resize(requests_ * block_);
    for (auto* counts : {&slots_, &scheduled_, &verified_, &accepted_, &acceptable_, &stopped_}) {
      counts->resize(requests_);
    }
    flow_.begin(table_.block_size, 0);
    for (std::int32_t pass = 0; pass < passes; ++pass) {
      const std::unique_ptr<StepScheduler> scheduler = make();
      scheduler_ = scheduler.get();
      place_requests(pass);
      for (std::int64_t i = 0; i < warmup; ++i) step(nullptr);
      Pass& counted = passes_.emplace_back();
      const auto wanted = static_cast<double>(table_.anchors());
      while (counted.steps < kLeastSteps || counted.tokens < wanted) step(&counted);
    }
  }

  Lockstep result() {
    double tokens = 0, rounds = 0, verified = 0;
    for (const Pass& pass : passes_) {
      out_.steps += pass.steps;
      tokens += pass.tokens;
      rounds += pass.rounds;
      verified += pass.verified;
    }
    out_.tau = tokens / rounds;
    out_.tokens = static_cast<double>(table_.anchors());
    out_.rounds = out_.tokens / out_.tau;
    out_.verified = verified / rounds;
    out_.tau_se = ratio_error(passes_, [](const Pass& pass) { return pass.tokens; });
    out_.verified_se = ratio_error(passes_, [](const Pass& pass) { return pass.verified; });
    const double interior = flow_.total(RoundFlow::interior_rounds);
    if (interior > 0) out_.tau_interior = flow_.total(RoundFlow::interior_tokens) / interior;
    out_.cost /= out_.steps;
    out_.padding /= out_.steps;
    out_.plain_share /= out_.steps;
    if (early_ != nullptr) out_.early_stop_difference = different_ / rounds;
    flow_.scale(out_.tokens / tokens);
    return out_;
  }

 private:
  void place_requests(std::int32_t pass) {
    const std::int64_t total = table_.anchors();
    for (std::size_t r = 0; r < requests_; ++r) {
      const std::uint64_t random = random_uniform({.seed = seed_,
                                                   .sequence = r,
                                                   .slot = 3,
                                                   .repeat = static_cast<std::uint32_t>(pass),
                                                   .purpose = RandomPurpose::walk});
      const auto within = static_cast<double>(random >> 11) * 0x1p-53;
      const double place = (static_cast<double>(r) + within) / static_cast<double>(requests_);
      const std::int64_t position =
          std::min(total - 1, static_cast<std::int64_t>(place * static_cast<double>(total)));
      const auto above = std::upper_bound(table_.sequence_offsets.begin(),
                                          table_.sequence_offsets.end(), position);
      const auto sequence = static_cast<std::size_t>(above - table_.sequence_offsets.begin()) - 1;
      const auto at = static_cast<std::size_t>(
          std::lower_bound(sequences_.begin(), sequences_.end(), sequence) - sequences_.begin());
      enter(walkers_[r], at);
      walkers_[r].position = position;
    }
  }

  void enter(Walker& walker, std::size_t at) {
    walker = {at, sequences_[at], table_.sequence_offsets[sequences_[at]], entered_[at]++, 0, 0};
  }

  [[nodiscard]] std::int64_t end_of(const Walker& walker) const {
    return table_.sequence_offsets[walker.sequence + 1];
  }

  /// Random bits for this round; slot 1: where it is rejected, 2: which repeat's world.
  [[nodiscard]] std::uint64_t bits(const Walker& walker, std::uint32_t slot) const {
    return random_uniform({.seed = seed_,
                           .sequence = walker.sequence,
                           .position = static_cast<std::uint32_t>(
                               walker.position - table_.sequence_offsets[walker.sequence]),
                           .slot = slot,
                           .branch = (walker.entry >> 16) & 0xFFu,
                           .repeat = walker.entry & 0xFFFFu,
                           .purpose = RandomPurpose::walk});
  }

  /// Draws the world of request r: what is seen of its drafts, and how many drafts would be
  /// accepted.
  void draw_world(std::size_t r) {
    const Walker& walker = walkers_[r];
    BlockWorlds worlds(table_, walker.position, signal_);
    const std::int32_t slots = worlds.slots();
    const double* beta = table_.beta.data() + walker.position * table_.block_size;
    const double u = static_cast<double>(bits(walker, 1) >> 11) * 0x1p-53;
    double reach = 1;
    std::int32_t accepted = 0;
    while (accepted < slots && u < (reach *= beta[accepted])) ++accepted;
    const float* confidence = worlds.text();
    if (worlds_ && accepted + 1 < slots) {
      const auto repeats = static_cast<std::uint64_t>(table_.repeats);
      const std::uint64_t repeat = (bits(walker, 2) >> 32) * repeats >> 32;
      confidence = worlds.rejected_at(accepted + 1, static_cast<std::int32_t>(repeat));
    }
    std::copy(confidence, confidence + slots, confidence_.data() + r * block_);
    slots_[r] = slots;
    acceptable_[r] = accepted;
  }

  /// One step of all requests; counted where `pass` is given.
  void step(Pass* pass) {
    for (std::size_t r = 0; r < requests_; ++r) draw_world(r);
    const BatchStep now = {prices_.requests(), table_.block_size, static_cast<std::int64_t>(block_),
                           confidence_.data(), slots_.data()};
    const bool speculating = scheduler_->schedule(now, scheduled_);
    std::int32_t total = 0, longest = 0;
    for (std::size_t r = 0; r < requests_; ++r) {
      const std::int64_t left = end_of(walkers_[r]) - walkers_[r].position;
      // The bonus token needs a place too.
      verified_[r] = static_cast<std::int32_t>(std::min<std::int64_t>(scheduled_[r], left - 1));
      accepted_[r] = std::min(acceptable_[r], verified_[r]);
      total += verified_[r];
      longest = std::max(longest, verified_[r]);
    }
    if (pass != nullptr) {
      count_step(*pass, speculating, total, longest);
      if (early_ != nullptr) count_differences(now);
    }
    scheduler_->finish(now, verified_, accepted_);
    for (std::size_t r = 0; r < requests_; ++r) advance(r);
  }

  void count_step(Pass& pass, bool speculating, std::int32_t total, std::int32_t longest) {
    const double own = scheduler_->price();
    const double cost = !speculating      ? prices_.plain()
                        : std::isnan(own) ? prices_.of(total, longest)
                                          : own;
    const std::int64_t submitted = scheduler_->submitted();
    pass.steps += 1;
    out_.cost += cost;
    out_.padding += !speculating    ? prices_.plain_padding()
                    : submitted > 0 ? static_cast<double>(submitted - prices_.requests() - total)
                                    : prices_.padding(total, longest);
    if (!speculating) out_.plain_share += 1;
    const double share = cost / static_cast<double>(requests_);
    for (std::size_t r = 0; r < requests_; ++r) {
      const Walker& walker = walkers_[r];
      const auto at = static_cast<std::size_t>(walker.position);
      const std::int64_t left = end_of(walker) - walker.position;
      const double emitted = accepted_[r] + 1;
      flow_.add_rounds(at, 1, emitted, left > table_.block_size);
      flow_.add_cost(at, share);
      flow_.add_length(at, verified_[r], 1, speculating && slots_[r] > 0 && left > 1);
      flow_.add_accepted(accepted_[r], 1);
      pass.rounds += 1;
      pass.tokens += emitted;
      pass.verified += verified_[r];
    }
  }

  void count_differences(const BatchStep& now) {
    (void)early_->schedule(now, stopped_);
    for (std::size_t r = 0; r < requests_; ++r) {
      const std::int64_t left = end_of(walkers_[r]) - walkers_[r].position;
      different_ += std::min<std::int64_t>(stopped_[r], left - 1) != verified_[r] ? 1 : 0;
    }
  }

  void advance(std::size_t r) {
    Walker& walker = walkers_[r];
    walker.position += accepted_[r] + 1;
    walker.tokens += accepted_[r] + 1;
    walker.rounds += 1;
    if (walker.position < end_of(walker)) return;
    scheduler_->replace(static_cast<std::int32_t>(r), walker.tokens, walker.rounds);
    enter(walker, (walker.index + 1) % sequences_.size());
  }

  const OutcomeTable& table_;
  const StepPrices& prices_;
  StepScheduler* scheduler_ = nullptr;
  StepScheduler* early_;
  std::uint64_t seed_;
  RoundFlow& flow_;
  std::size_t requests_, block_;
  std::vector<std::size_t> sequences_;  ///< those with positions
  std::vector<std::uint32_t> entered_;  ///< [sequences_]
  std::vector<Walker> walkers_;
  std::vector<float> confidence_;  ///< [R, P]
  std::vector<std::int32_t> slots_, scheduled_, verified_, accepted_, acceptable_,
      stopped_;  ///< [R]
  std::vector<Pass> passes_;
  double different_ = 0;
  Lockstep out_;
  DraftSignal signal_;
  bool worlds_;
};

}  // namespace

Lockstep walk_lockstep(const OutcomeTable& table, const Policy& policy, const StepPrices& prices,
                       const CostModel& model, std::int32_t passes, std::uint64_t seed,
                       RoundFlow& flow) {
  if (table.off_policy() || table.block_size != prices.block_size()) {
    throw internal_error("walk_lockstep", "the table is not of this step's blocks");
  }
  const DraftSignal signal = signal_of(policy, table).value_or(DraftSignal::confidence);
  const RoundPrices of_round(round_prices(model, table.block_size));
  const bool learns = std::holds_alternative<PromisingBudget>(policy) ||
                      std::holds_alternative<CapController>(policy);
  std::unique_ptr<StepScheduler> early;
  if (const auto* global = std::get_if<GlobalBudget>(&policy);
      global != nullptr && global->lag == 0) {
    early = make_scheduler(Algorithm1{global->min_length}, prices, model, of_round);
  }
  Walk walk(table, signal, prices, early.get(), seed, flow, passes,
            learns ? kLearningSteps : kWarmupSteps,
            [&] { return make_scheduler(policy, prices, model, of_round); });
  return walk.result();
}

}  // namespace dspark
