#include "replay/off_policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "core/law.h"
#include "replay/causality.h"
#include "replay/open_loop.h"
#include "replay/worlds.h"
#include "support/error.h"

namespace dspark {
namespace {

constexpr std::size_t kMaxSlots = 64;
using Slots = std::array<double, kMaxSlots>;

/// A mean over blocks, and its standard error between batches of neighbouring blocks.
class BlockMean {
 public:
  /// `batch` never decreases.
  void add(std::int64_t batch, double value) {
    if (batches_.empty() || batches_.back().id != batch) batches_.push_back({batch, 0, 0});
    batches_.back().sum += value;
    batches_.back().count += 1;
    sum_ += value;
    count_ += 1;
  }
  [[nodiscard]] double count() const { return count_; }
  [[nodiscard]] std::optional<double> mean() const {
    if (count_ == 0) return std::nullopt;
    return sum_ / count_;
  }
  /// Empty for fewer than two batches.
  [[nodiscard]] std::optional<double> standard_error() const {
    const auto batches = static_cast<double>(batches_.size());
    if (batches < 2) return std::nullopt;
    double squares = 0;
    for (const Batch& batch : batches_) {
      const double deviation = batch.sum - batch.count * (sum_ / count_);
      squares += deviation * deviation;
    }
    return std::sqrt(squares * batches / (batches - 1)) / count_;
  }

 private:
  struct Batch {
    std::int64_t id;
    double sum;
    double count;
  };
  std::vector<Batch> batches_;
  double sum_ = 0;
  double count_ = 0;
};

/// Kish's effective number of samples.
class EffectiveSamples {
 public:
  void add(double weight) {
    sum_ += weight;
    squares_ += weight * weight;
  }
  [[nodiscard]] double value() const { return squares_ > 0 ? sum_ * sum_ / squares_ : 0.0; }
  [[nodiscard]] double sum() const { return sum_; }

 private:
  double sum_ = 0;
  double squares_ = 0;
};

/// A block with P positions left.
struct FullBlock {
  std::int64_t anchor;
  std::int64_t batch;
  std::int32_t slots;                          ///< drafts before the first invalid row
  const double* alpha;                         ///< [slots]
  const double* beta;                          ///< [slots]
  std::array<double, kMaxSlots + 1> weight{};  ///< [slots + 1]: Π_{i≤k} r_i at index k
};

/// Calls visit(block) for each, in order.
template <class Visit>
void for_each_full_block(const OutcomeTable& table, Visit&& visit) {
  if (!table.off_policy()) {
    throw internal_error("off-policy estimate", "the table is of the recorded setting");
  }
  const std::int64_t size = table.block_size;
  std::int64_t batch = 0;
  for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
    const std::int64_t first = table.sequence_offsets[s];
    const std::int64_t end = table.sequence_offsets[s + 1];
    for (std::int64_t n = first; n + size <= end; ++n) {
      if ((n - first) % size == 0) ++batch;
      const std::int64_t row = n * size;
      FullBlock block{n, batch, table.slots[static_cast<std::size_t>(n)], table.alpha.data() + row,
                      table.beta.data() + row};
      block.weight[0] = 1;
      for (std::int32_t k = 0; k < block.slots; ++k) {
        const auto at = static_cast<std::size_t>(k);
        block.weight[at + 1] =
            block.weight[at] * block.beta[k] * table.importance[static_cast<std::size_t>(row + k)];
      }
      visit(block);
    }
  }
}

/// Estimates E[f_k(c_1, ..., c_k)] for every slot k over the chains that the drafter drafts from
/// this block, c being what `signal` says. `values(c)` gives f_k at index k - 1. A chain that
/// leaves the text at slot r is one of the worlds rejected there, which happens with the weight of
/// slot r times 1 - alpha'_r; one that is still on it before slot k counts with the weight of slot
/// k.
template <class Values>
Slots over_drafted_chains(const OutcomeTable& table, const FullBlock& block, DraftSignal signal,
                          Values&& values) {
  BlockWorlds worlds(table, block.anchor, signal);
  const auto slots = static_cast<std::size_t>(block.slots);
  Slots mean = values(worlds.text());
  if (table.greedy) return mean;  // the only chain
  for (std::size_t k = 0; k < slots; ++k) mean[k] *= block.weight[k];
  for (std::size_t r = 1; r < slots; ++r) {
    const double weight = block.weight[r - 1] * (1.0 - block.alpha[r - 1]) / table.repeats;
    for (std::int32_t repeat = 0; repeat < table.repeats && weight > 0; ++repeat) {
      const Slots value = values(worlds.rejected_at(static_cast<std::int32_t>(r), repeat));
      for (std::size_t k = r; k < slots; ++k) mean[k] += weight * value[k];
    }
  }
  return mean;
}

bool has_chains(const OutcomeTable& table, DraftSignal signal) {
  return table.greedy ? table.has(signal) : table.has_worlds(signal);
}

/// Accepted drafts of a greedy run along the text, of which `length` are verified.
struct GreedyRun {
  std::int32_t least = 0;
  std::int32_t most = 0;
};

GreedyRun greedy_run(const OutcomeTable& table, const FullBlock& block, std::int32_t length) {
  const std::uint8_t* agreement = table.agreement.data() + block.anchor * table.block_size;
  for (std::int32_t k = 0; k < length; ++k) {
    if (agreement[k] == 0) return {k, k};
    if (block.beta[k] == 0.0) return {k + 1, length};  // accepted, but the text goes elsewhere
  }
  return {length, length};
}

}  // namespace

bool is_covered(const TraceHeader& recorded, const SamplingLabel& asked,
                Verification verification) {
  if (verification == Verification::greedy) return true;
  if (recorded.greedy()) return false;
  const std::int32_t vocab = recorded.vocab_size_logical;
  const auto filter = [&](double temperature, std::int64_t top_k, double top_p) {
    return make_sampling_rule(temperature, top_k, top_p, TopPRule::water_filling, vocab);
  };
  const SamplingRule was = filter(recorded.temperature, recorded.top_k, recorded.top_p);
  const SamplingRule is = filter(asked.temperature, asked.top_k, asked.top_p);
  if (was.top_k > 0 && (is.top_k == 0 || is.top_k > was.top_k)) return false;
  if (was.top_p == 0) return true;
  // The nucleus is the narrower the lower the temperature.
  return is.top_p > 0 && is.top_p <= was.top_p && is.inverse_temperature >= was.inverse_temperature;
}

std::vector<PositionResult> off_policy_positions(const OutcomeTable& table,
                                                 const Resampling* resampling) {
  struct Errors {
    BlockMean survival, predicted;
    EffectiveSamples weights;
  };
  const auto size = static_cast<std::size_t>(table.block_size);
  const CellMap map = resampling != nullptr ? map_cells(*resampling) : CellMap{};
  std::vector<Errors> errors(size);
  std::vector<std::vector<SlotSums>> sums(size, std::vector<SlotSums>(map.cells));
  for_each_full_block(table, [&](const FullBlock& block) {
    const float* confidence = table.confidence.data() + block.anchor * table.block_size;
    const auto slots = static_cast<std::size_t>(block.slots);
    const std::size_t cell = map[static_cast<std::size_t>(block.anchor)];
    for (std::size_t k = 0; k < slots; ++k) {
      SlotSums& at = sums[k][cell];
      const double weight = block.weight[k];
      at.anchors += 1;
      at.reached += weight;
      at.survival += weight * block.alpha[k];
      at.trajectory += block.weight[k + 1];
      at.calibration.add(static_cast<double>(confidence[k]), block.alpha[k], weight);
      errors[k].survival.add(block.batch, weight * block.alpha[k]);
      errors[k].weights.add(weight);
    }
    if (!has_chains(table, DraftSignal::confidence)) return;
    const Slots predicted =
        over_drafted_chains(table, block, DraftSignal::confidence, [&](const float* c) {
          Slots product{};
          double along = 1;
          for (std::size_t k = 0; k < slots; ++k) product[k] = along *= static_cast<double>(c[k]);
          return product;
        });
    for (std::size_t k = 0; k < slots; ++k) {
      sums[k][cell].predicted += predicted[k];
      sums[k][cell].predictions += 1;
      errors[k].predicted.add(block.batch, predicted[k]);
    }
  });
  std::vector<PositionResult> out(size);
  for (std::size_t k = 0; k < size; ++k) {
    out[k].position = static_cast<std::int32_t>(k) + 1;
    fill_position(sums[k], resampling, {}, out[k]);
    if (!out[k].survival) continue;
    out[k].survival_se = errors[k].survival.standard_error();
    out[k].predicted_se = errors[k].predicted.standard_error();
    out[k].effective_samples = errors[k].weights.value();
    if (*out[k].effective_samples < kLeastEffectiveSamples) out[k].intervals = {};
  }
  return out;
}

PolicyResult evaluate_off_policy(const OutcomeTable& table, const Policy& policy,
                                 const RoundPrices& prices, Verification verification) {
  RoundFlow flow;
  return evaluate_off_policy(table, policy, prices, verification, flow);
}

PolicyResult evaluate_off_policy(const OutcomeTable& table, const Policy& policy,
                                 const RoundPrices& prices, Verification verification,
                                 RoundFlow& flow) {
  flow.begin(table.block_size, 0);
  PolicyResult row;
  row.off_policy = true;
  row.lossless = is_lossless(policy, prices, verification, table.greedy, table.block_size);
  if (!row.lossless) return row;

  const std::optional<DraftSignal> signal = signal_of(policy, table);
  const DraftSignal seen = signal.value_or(DraftSignal::confidence);
  std::vector<EffectiveSamples> weights(static_cast<std::size_t>(table.block_size) + 1);
  BlockMean tau, verified;
  double least = 0, most = 0;
  std::int64_t censored = 0;
  std::int32_t deepest = 0;
  for_each_full_block(table, [&](const FullBlock& block) {
    if (block.slots < table.block_size) return;
    const float* confidence = table.along_text(seen).data() + block.anchor * table.block_size;
    const std::int32_t length = scheduled_length(policy, confidence, block.slots, prices);
    const auto at = static_cast<std::size_t>(block.anchor);
    double emitted = 1, last = 1;
    for (std::int32_t k = 0; k < length; ++k) {
      const double weight = block.weight[static_cast<std::size_t>(k)];
      flow.add_accepted(k, weight * (1.0 - block.alpha[k]));
      emitted += last = weight * block.alpha[k];
    }
    flow.add_accepted(length, last);
    flow.add_rounds(at, 1, emitted, false);
    tau.add(block.batch, emitted);
    deepest = std::max(deepest, length);
    for (std::size_t k = 0; k + 1 < weights.size(); ++k) weights[k + 1].add(block.weight[k]);
    weights[0].add(1);

    const bool could_verify = speculates(policy);
    if (!signal) {
      verified.add(block.batch, length);
      flow.add_length(at, length, 1, could_verify);
    } else if (has_chains(table, seen)) {
      const Slots admitted = over_drafted_chains(table, block, seen, [&](const float* c) {
        Slots one{};
        const std::int32_t scheduled = scheduled_length(policy, c, block.slots, prices);
        std::fill(one.begin(), one.begin() + scheduled, 1.0);
        return one;
      });
      double sum = 0, reach = 1;  // P(length ≥ k)
      for (std::int32_t k = 0; k < block.slots; ++k) {
        const double next = admitted[static_cast<std::size_t>(k)];
        flow.add_length(at, k, reach - next, could_verify);
        sum += reach = next;
      }
      flow.add_length(at, block.slots, reach, could_verify);
      verified.add(block.batch, sum);
    }
    if (verification == Verification::greedy) {
      const GreedyRun run = greedy_run(table, block, length);
      least += run.least;
      most += run.most;
      censored += run.least < run.most;
    }
  });
  if (!tau.mean()) return row;
  row.tau = tau.mean();
  row.tau_se = tau.standard_error();
  row.verified_per_round = verified.mean();
  if (signal) row.verified_per_round_se = verified.standard_error();
  row.effective_samples = weights[static_cast<std::size_t>(deepest)].value();
  if (verification == Verification::greedy) {
    row.tau_lo = 1 + least / tau.count();
    row.tau_hi = 1 + most / tau.count();
    row.censored_rounds = censored;
    row.censored_share = static_cast<double>(censored) / tau.count();
  }
  return row;
}

}  // namespace dspark
