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

/// Batches of steps that standard errors are taken between.
constexpr std::int64_t kBatches = 16;

/// Where one request stands.
struct Walker {
  std::size_t sequence = 0;
  std::int64_t position = 0;
  std::uint32_t pass = 0;  ///< how often its sequence was walked before
  std::int64_t tokens = 0;
  std::int64_t rounds = 0;
};

/// Sums over the steps of one batch.
struct Batch {
  double rounds = 0, tokens = 0, verified = 0;
};

/// The standard error of Σ part / Σ rounds between batches; empty for fewer than two.
template <class Part>
std::optional<double> ratio_error(const std::vector<Batch>& batches, const Part& part) {
  double parts = 0, rounds = 0;
  for (const Batch& batch : batches) {
    parts += part(batch);
    rounds += batch.rounds;
  }
  const auto count = static_cast<double>(batches.size());
  if (batches.size() < 2 || !(rounds > 0)) return std::nullopt;
  double squares = 0;
  for (const Batch& batch : batches) {
    const double deviation = part(batch) - batch.rounds * (parts / rounds);
    squares += deviation * deviation;
  }
  return std::sqrt(squares * count / (count - 1)) / rounds;
}

class Walk {
 public:
  /// `signal`: what the rule looks at.
  Walk(const OutcomeTable& table, DraftSignal signal, const StepPrices& prices,
       StepScheduler& scheduler, std::uint64_t seed, RoundFlow& flow)
      : table_(table),
        signal_(signal),
        worlds_(!table.greedy && table.has_worlds(signal)),
        prices_(prices),
        scheduler_(scheduler),
        seed_(seed),
        flow_(flow),
        requests_(static_cast<std::size_t>(prices.requests())),
        block_(static_cast<std::size_t>(table.block_size)) {
    for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
      if (table.sequence_offsets[s] < table.sequence_offsets[s + 1]) sequences_.push_back(s);
    }
    if (sequences_.empty()) throw internal_error("walk_lockstep", "the table has no positions");
    passes_.resize(sequences_.size());
    confidence_.resize(requests_ * block_);
    slots_.resize(requests_);
    scheduled_.resize(requests_);
    verified_.resize(requests_);
    accepted_.resize(requests_);
    acceptable_.resize(requests_);
    place_requests();
  }

  Lockstep run(std::int32_t passes) {
    for (std::int64_t i = 0; i < kWarmupSteps; ++i) step(nullptr);
    flow_.begin(table_.block_size, 0);
    const double wanted = static_cast<double>(passes) * static_cast<double>(table_.anchors());
    // Batches grow by pairs: their number stays between kBatches and twice as many.
    std::vector<Batch> batches;
    std::int64_t per_batch = 1;
    while (out_.steps < kLeastSteps || out_.tokens < wanted) {
      if (static_cast<std::int64_t>(out_.steps) % per_batch == 0) {
        if (static_cast<std::int64_t>(batches.size()) == 2 * kBatches) {
          merge_pairs(batches);
          per_batch *= 2;
        }
        batches.emplace_back();
      }
      step(&batches.back());
    }
    return finish(batches);
  }

 private:
  void place_requests() {
    walkers_.resize(requests_);
    const std::size_t count = sequences_.size();
    const std::size_t waves = (requests_ + count - 1) / count;
    for (std::size_t r = 0; r < requests_; ++r) {
      enter(walkers_[r]);
      const std::int64_t length = end_of(walkers_[r]) - walkers_[r].position;
      walkers_[r].position +=
          static_cast<std::int64_t>(r / count) * length / static_cast<std::int64_t>(waves);
    }
  }

  void enter(Walker& walker) {
    const std::size_t at = next_++ % sequences_.size();
    walker = {sequences_[at], table_.sequence_offsets[sequences_[at]], passes_[at]++, 0, 0};
  }

  [[nodiscard]] std::int64_t end_of(const Walker& walker) const {
    return table_.sequence_offsets[walker.sequence + 1];
  }

  /// A number in [0, 1) for this round; slot 1: where it is rejected, 2: which repeat's world.
  [[nodiscard]] std::uint64_t bits(const Walker& walker, std::uint32_t slot) const {
    return random_uniform({.seed = seed_,
                           .sequence = walker.sequence,
                           .position = static_cast<std::uint32_t>(
                               walker.position - table_.sequence_offsets[walker.sequence]),
                           .slot = slot,
                           .repeat = walker.pass & 0xFFFFu,
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

  /// One step of all requests; counted where `batch` is given.
  void step(Batch* batch) {
    for (std::size_t r = 0; r < requests_; ++r) draw_world(r);
    const BatchStep now = {prices_.requests(), table_.block_size, static_cast<std::int64_t>(block_),
                           confidence_.data(), slots_.data()};
    const bool speculating = scheduler_.schedule(now, scheduled_);
    std::int32_t total = 0, longest = 0;
    for (std::size_t r = 0; r < requests_; ++r) {
      const std::int64_t left = end_of(walkers_[r]) - walkers_[r].position;
      // The bonus token needs a place too.
      verified_[r] = static_cast<std::int32_t>(std::min<std::int64_t>(scheduled_[r], left - 1));
      accepted_[r] = std::min(acceptable_[r], verified_[r]);
      total += verified_[r];
      longest = std::max(longest, verified_[r]);
    }
    if (batch != nullptr) count_step(*batch, speculating, total, longest);
    scheduler_.finish(now, verified_, accepted_);
    for (std::size_t r = 0; r < requests_; ++r) advance(r);
  }

  void count_step(Batch& batch, bool speculating, std::int32_t total, std::int32_t longest) {
    const double own = scheduler_.price();
    const double cost = !speculating      ? prices_.plain()
                        : std::isnan(own) ? prices_.of(total, longest)
                                          : own;
    out_.steps += 1;
    out_.cost += cost;
    if (speculating) out_.padding += prices_.padding(total, longest);
    if (!speculating) out_.plain_share += 1;
    const double share = cost / static_cast<double>(requests_);
    for (std::size_t r = 0; r < requests_; ++r) {
      const Walker& walker = walkers_[r];
      const auto at = static_cast<std::size_t>(walker.position);
      const std::int64_t left = end_of(walker) - walker.position;
      const bool interior = left > table_.block_size;
      const double emitted = accepted_[r] + 1;
      flow_.add_rounds(at, 1, emitted, interior);
      flow_.add_cost(at, share);
      flow_.add_length(at, verified_[r], 1, speculating && slots_[r] > 0 && left > 1);
      flow_.add_accepted(accepted_[r], 1);
      batch.rounds += 1;
      batch.tokens += emitted;
      batch.verified += verified_[r];
      out_.tokens += emitted;
    }
  }

  void advance(std::size_t r) {
    Walker& walker = walkers_[r];
    walker.position += accepted_[r] + 1;
    walker.tokens += accepted_[r] + 1;
    walker.rounds += 1;
    if (walker.position < end_of(walker)) return;
    scheduler_.replace(static_cast<std::int32_t>(r), walker.tokens, walker.rounds);
    enter(walker);
  }

  static void merge_pairs(std::vector<Batch>& batches) {
    for (std::size_t i = 0; i < batches.size() / 2; ++i) {
      const Batch& a = batches[2 * i];
      const Batch& b = batches[2 * i + 1];
      batches[i] = {a.rounds + b.rounds, a.tokens + b.tokens, a.verified + b.verified};
    }
    batches.resize(batches.size() / 2);
  }

  Lockstep finish(const std::vector<Batch>& batches) {
    double verified = 0;
    for (const Batch& batch : batches) {
      out_.rounds += batch.rounds;
      verified += batch.verified;
    }
    out_.tau = out_.tokens / out_.rounds;
    out_.verified = verified / out_.rounds;
    out_.tau_se = ratio_error(batches, [](const Batch& batch) { return batch.tokens; });
    out_.verified_se = ratio_error(batches, [](const Batch& batch) { return batch.verified; });
    const double interior = flow_.total(RoundFlow::interior_rounds);
    if (interior > 0) out_.tau_interior = flow_.total(RoundFlow::interior_tokens) / interior;
    out_.cost /= out_.steps;
    out_.padding /= out_.steps;
    out_.plain_share /= out_.steps;
    return out_;
  }

  const OutcomeTable& table_;
  DraftSignal signal_;
  bool worlds_;
  const StepPrices& prices_;
  StepScheduler& scheduler_;
  std::uint64_t seed_;
  RoundFlow& flow_;
  std::size_t requests_, block_;
  std::vector<std::size_t> sequences_;  ///< those with positions
  std::vector<std::uint32_t> passes_;
  std::size_t next_ = 0;
  std::vector<Walker> walkers_;
  std::vector<float> confidence_;  ///< [R, P] or top probabilities
  std::vector<std::int32_t> slots_, scheduled_, verified_, accepted_, acceptable_;  ///< [R]
  Lockstep out_;
};

}  // namespace

Lockstep walk_lockstep(const OutcomeTable& table, const Policy& policy, const StepPrices& prices,
                       const CostModel& model, std::int32_t passes, std::uint64_t seed,
                       RoundFlow& flow) {
  if (table.off_policy() || table.block_size != prices.block_size()) {
    throw internal_error("walk_lockstep", "the table is not of this step's blocks");
  }
  const std::unique_ptr<StepScheduler> scheduler =
      make_scheduler(policy, prices, model, RoundPrices(round_prices(model, table.block_size)));
  const DraftSignal signal = signal_of(policy, table).value_or(DraftSignal::confidence);
  return Walk(table, signal, prices, *scheduler, seed, flow).run(passes);
}

}  // namespace dspark
