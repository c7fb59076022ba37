#include "replay/open_loop.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "replay/closed_loop.h"

namespace dspark {

void CalibrationError::add(double confidence, double label, double weight) {
  if (!(confidence >= 0 && confidence <= 1) || !(weight > 0)) return;
  const int bin = std::min(kCalibrationBins - 1, static_cast<int>(confidence * kCalibrationBins));
  gap_[bin] += weight * (confidence - label);
  weight_ += weight;
  confidence_ += weight * confidence;
}

std::optional<double> CalibrationError::value() const {
  if (!(weight_ > 0)) return std::nullopt;
  double sum = 0;
  for (const double gap : gap_) sum += std::abs(gap);
  return sum / weight_;
}

std::optional<double> CalibrationError::mean_confidence() const {
  if (!(weight_ > 0)) return std::nullopt;
  return confidence_ / weight_;
}

namespace {

std::optional<double> ratio(double sum, double weight) {
  if (!(weight > 0)) return std::nullopt;
  return sum / weight;
}

// The sums as the numbers that they are, for a resampler that knows of columns alone.
using Columns = std::array<double, SlotSums::kColumns>;

std::vector<double> columns_of(const std::vector<SlotSums>& cells) {
  std::vector<double> columns;
  columns.reserve(cells.size() * SlotSums::kColumns);
  for (const SlotSums& cell : cells) {
    const auto values = std::bit_cast<Columns>(cell);
    columns.insert(columns.end(), values.begin(), values.end());
  }
  return columns;
}

SlotSums sums_of(const double* columns) {
  Columns values;
  std::copy(columns, columns + values.size(), values.begin());
  return std::bit_cast<SlotSums>(values);
}

SlotSums total_of(const std::vector<double>& columns) {
  Columns total = {};
  for (std::size_t i = 0; i < columns.size(); ++i) total[i % total.size()] += columns[i];
  return std::bit_cast<SlotSums>(total);
}

// One number of a position: where it is kept, how it follows from the sums.
struct PositionNumber {
  std::optional<double> PositionResult::*value;
  std::optional<Range> PositionIntervals::*interval;
  std::optional<double> (*of)(const SlotSums&);
};

constexpr PositionNumber kNumbers[] = {
    {&PositionResult::survival, &PositionIntervals::survival,
     [](const SlotSums& at) { return ratio(at.survival, at.anchors); }},
    {&PositionResult::survival_trajectory, &PositionIntervals::survival_trajectory,
     [](const SlotSums& at) { return ratio(at.trajectory, at.anchors); }},
    {&PositionResult::survival_visited, &PositionIntervals::survival_visited,
     [](const SlotSums& at) { return ratio(at.visited, at.visits); }},
    {&PositionResult::conditional, &PositionIntervals::conditional,
     [](const SlotSums& at) { return ratio(at.survival, at.reached); }},
    {&PositionResult::predicted_conditional, &PositionIntervals::predicted_conditional,
     [](const SlotSums& at) { return at.calibration.mean_confidence(); }},
    {&PositionResult::conditional_ece, &PositionIntervals::conditional_ece,
     [](const SlotSums& at) { return at.calibration.value(); }},
    {&PositionResult::predicted, &PositionIntervals::predicted,
     [](const SlotSums& at) { return ratio(at.predicted, at.predictions); }},
    {&PositionResult::top1_agreement, &PositionIntervals::top1_agreement,
     [](const SlotSums& at) { return ratio(at.agreed, at.compared); }},
};

void add_intervals(const std::vector<double>& cells, const Resampling& resampling,
                   const std::vector<double>& predicted_by_repeat, PositionResult& position) {
  if (!resampling.possible()) return;
  std::vector<double> scratch, sums, noise, values;
  resampling.draw_sums(cells.data(), SlotSums::kColumns, scratch, sums);
  resampling.repeat_noise(predicted_by_repeat, noise);
  for (const PositionNumber& number : kNumbers) {
    const std::optional<double>& estimate = position.*number.value;
    if (!estimate) continue;
    values.resize(resampling.draws());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const SlotSums draw = sums_of(sums.data() + i * SlotSums::kColumns);
      values[i] = number.of(draw).value_or(std::nan(""));
      if (number.value == &PositionResult::predicted) values[i] += noise[i];
    }
    // An importance-weighted estimate of a probability may lie above 1.
    const double most = std::max(1.0, *estimate);
    position.intervals.*number.interval =
        number.value == &PositionResult::conditional_ece
            ? resampling.biased_interval(*estimate, values, 0, most)
            : resampling.interval(*estimate, values, 0, most);
    // An event that was never seen, or never missed, is not therefore impossible, or certain.
    std::optional<Range>& range = position.intervals.*number.interval;
    if (range && range->lo == range->hi && (*estimate == 0 || *estimate == 1)) range.reset();
  }
}

/// Adds mean predictions over the drafted chains, Π_{i≤k} c_i, of every full block.
class Predictions {
 public:
  explicit Predictions(const OutcomeTable& table)
      : table_(table),
        block_(static_cast<std::size_t>(table.block_size)),
        branch_(block_),
        by_repeat_(table.greedy ? 0 : static_cast<std::size_t>(table.repeats),
                   std::vector<double>(block_, 0.0)) {}

  /// `at`: the sums of the anchor's slots, one per slot.
  void add(std::int64_t n, SlotSums* at) {
    if (!table_.has_confidence) return;
    if (table_.greedy) {
      add_chain(n, at);  // the drafted chain is the only one
    } else {
      for (std::int32_t repeat = 0; repeat < table_.repeats; ++repeat) add_worlds(n, repeat, at);
    }
  }

  /// The mean of slot k (0-based) in each repeat, given the number of anchors that count there.
  [[nodiscard]] std::vector<double> by_repeat(std::size_t k, double anchors) const {
    std::vector<double> means;
    if (!table_.has_confidence || !(anchors > 0)) return means;
    for (const auto& sums : by_repeat_) means.push_back(sums[k] / anchors);
    return means;
  }

 private:
  [[nodiscard]] std::size_t slots(std::int64_t n) const {
    return table_.slots[static_cast<std::size_t>(n)];
  }

  void add_chain(std::int64_t n, SlotSums* at) {
    double along = 1;
    for (std::size_t k = 0; k < slots(n); ++k) {
      along *= static_cast<double>(table_.confidence[static_cast<std::size_t>(n) * block_ + k]);
      at[k].predicted += along;
      at[k].predictions += 1;
    }
  }

  /// The worlds of one repeat, each weighted with its probability.
  void add_worlds(std::int64_t n, std::int32_t repeat, SlotSums* at) {
    const auto row = static_cast<std::size_t>(n) * block_;
    const float* world = table_.world_confidence.data() +
                         (static_cast<std::size_t>(n) * static_cast<std::size_t>(table_.repeats) +
                          static_cast<std::size_t>(repeat)) *
                             static_cast<std::size_t>(worlds_per_repeat(table_.block_size));
    double along = 1;  // Π c along the text
    double reach = 1;  // Π β
    // branch_[r-1]: the world rejected at slot r: its probability · Π_{i≤k} c.
    for (std::size_t k = 1; k <= slots(n); ++k) {
      const double own = static_cast<double>(table_.confidence[row + k - 1]);
      double total = 0;
      for (std::size_t r = 1; r < k; ++r) {
        if (branch_[r - 1] == 0.0) continue;
        const float later = world[world_offset(table_.block_size, static_cast<std::int32_t>(r),
                                               static_cast<std::int32_t>(k))];
        branch_[r - 1] *= std::isnan(later) ? own : static_cast<double>(later);
        total += branch_[r - 1];
      }
      along *= own;
      const double predicted = total + reach * along;
      by_repeat_[static_cast<std::size_t>(repeat)][k - 1] += predicted;
      at[k - 1].predicted += predicted / table_.repeats;
      if (repeat == 0) at[k - 1].predictions += 1;
      const double beta = table_.beta[row + k - 1];
      branch_[k - 1] = reach * (1.0 - beta) * along;
      reach *= beta;
    }
  }

  const OutcomeTable& table_;
  std::size_t block_;
  std::vector<double> branch_;
  std::vector<std::vector<double>> by_repeat_;
};

}  // namespace

void fill_position(const std::vector<SlotSums>& cells, const Resampling* resampling,
                   const std::vector<double>& predicted_by_repeat, PositionResult& position) {
  const std::vector<double> columns = columns_of(cells);
  const SlotSums total = total_of(columns);
  for (const PositionNumber& number : kNumbers) position.*number.value = number.of(total);
  if (position.predicted && predicted_by_repeat.size() > 1) {
    const auto count = static_cast<double>(predicted_by_repeat.size());
    double squares = 0;
    for (const double repeat : predicted_by_repeat) {
      squares += (repeat - *position.predicted) * (repeat - *position.predicted);
    }
    position.predicted_se = std::sqrt(squares / (count - 1) / count);
  }
  if (resampling != nullptr) add_intervals(columns, *resampling, predicted_by_repeat, position);
}

std::vector<PositionResult> open_loop(const OutcomeTable& table, const Resampling* resampling) {
  const auto block = static_cast<std::size_t>(table.block_size);
  const std::vector<double> v = round_starts(table, FixedLength{table.block_size}, LinearCost{});
  const std::size_t cells = resampling != nullptr ? resampling->cells() : 1;
  std::vector<std::vector<SlotSums>> sums(block, std::vector<SlotSums>(cells));
  std::vector<SlotSums> here(block);
  Predictions predictions(table);
  std::size_t cell = 0;
  for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
    const std::int64_t end = table.sequence_offsets[s + 1];
    for (std::int64_t n = table.sequence_offsets[s]; n < end; ++n) {
      while (resampling != nullptr && n >= resampling->cell_starts()[cell + 1]) ++cell;
      const std::size_t row = static_cast<std::size_t>(n) * block;
      const auto slots = static_cast<std::size_t>(table.slots[static_cast<std::size_t>(n)]);
      // With deterministic drafts it is the acceptance itself.
      for (std::size_t k = 0; k < slots && !table.greedy; ++k) {
        sums[k][cell].compared += 1;
        sums[k][cell].agreed += table.agreement[row + k];
      }
      if (end - n < table.block_size) continue;
      const double visits = v[static_cast<std::size_t>(n)];
      double reach = 1;  // Π_{i<k} β_i
      for (std::size_t k = 0; k < slots; ++k) {
        SlotSums& at = sums[k][cell];
        const double alpha = table.alpha[row + k];
        const double beta = table.beta[row + k];
        at.anchors += 1;
        at.reached += reach;
        at.survival += reach * alpha;
        at.trajectory += reach * beta;
        at.visited += visits * reach * alpha;
        at.visits += visits;
        at.calibration.add(static_cast<double>(table.confidence[row + k]), alpha, reach);
        reach *= beta;
      }
      std::fill(here.begin(), here.end(), SlotSums{});
      predictions.add(n, here.data());
      for (std::size_t k = 0; k < slots; ++k) {
        sums[k][cell].predicted += here[k].predicted;
        sums[k][cell].predictions += here[k].predictions;
      }
    }
  }
  std::vector<PositionResult> out(block);
  for (std::size_t k = 0; k < block; ++k) {
    double anchors = 0;
    for (const SlotSums& at : sums[k]) anchors += at.predictions;
    out[k].position = static_cast<std::int32_t>(k) + 1;
    fill_position(sums[k], resampling, predictions.by_repeat(k, anchors), out[k]);
  }
  return out;
}

}  // namespace dspark
