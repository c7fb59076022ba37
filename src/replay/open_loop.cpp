#include "replay/open_loop.h"

#include <algorithm>
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

struct Sums {
  double survival = 0, trajectory = 0, anchors = 0, reached = 0;
  double visited = 0, visited_weight = 0;
  double agreed = 0, rows = 0;
  CalibrationError calibration;
};

/// Mean over full blocks of Π_{i≤k} c_i over drafted chains: each world weighted with its
/// probability. One value per slot.
std::vector<double> predicted_in_repeat(const OutcomeTable& table, std::int32_t repeat) {
  const auto block = static_cast<std::size_t>(table.block_size);
  const auto per_repeat = static_cast<std::size_t>(worlds_per_repeat(table.block_size));
  std::vector<double> sum(block, 0.0);
  std::vector<double> count(block, 0.0);
  for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
    const std::int64_t end = table.sequence_offsets[s + 1];
    for (std::int64_t n = table.sequence_offsets[s]; n < end; ++n) {
      if (end - n < table.block_size) continue;
      const auto slots = static_cast<std::size_t>(table.slots[static_cast<std::size_t>(n)]);
      const std::size_t row = static_cast<std::size_t>(n) * block;
      double along = 1;  // Π c along the text
      double reach = 1;  // Π β
      // Worlds whose rejection came before slot k, by rejection slot: weight · Π_{i≤k} c.
      std::vector<double> branch(slots, 0.0);
      for (std::size_t k = 1; k <= slots; ++k) {
        double total = 0;
        for (std::size_t r = 1; r < k; ++r) {
          if (branch[r - 1] == 0.0) continue;
          const float* world =
              table.world_confidence.data() +
              (static_cast<std::size_t>(n) * static_cast<std::size_t>(table.repeats) +
               static_cast<std::size_t>(repeat)) *
                  per_repeat;
          const float later = world[world_offset(table.block_size, static_cast<std::int32_t>(r),
                                                 static_cast<std::int32_t>(k))];
          branch[r - 1] *= std::isnan(later) ? static_cast<double>(table.confidence[row + k - 1])
                                             : static_cast<double>(later);
          total += branch[r - 1];
        }
        along *= static_cast<double>(table.confidence[row + k - 1]);
        sum[k - 1] += total + reach * along;
        count[k - 1] += 1;
        const double beta = table.beta[row + k - 1];
        branch[k - 1] = reach * (1.0 - beta) * along;
        reach *= beta;
      }
    }
  }
  for (std::size_t k = 0; k < block; ++k) sum[k] = count[k] > 0 ? sum[k] / count[k] : std::nan("");
  return sum;
}

/// Greedy: the drafted chain is the only one.
std::vector<double> predicted_on_chain(const OutcomeTable& table) {
  const auto block = static_cast<std::size_t>(table.block_size);
  std::vector<double> sum(block, 0.0), count(block, 0.0);
  for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
    const std::int64_t end = table.sequence_offsets[s + 1];
    for (std::int64_t n = table.sequence_offsets[s]; n < end; ++n) {
      if (end - n < table.block_size) continue;
      double along = 1;
      for (std::size_t k = 0; k < table.slots[static_cast<std::size_t>(n)]; ++k) {
        along *= static_cast<double>(table.confidence[static_cast<std::size_t>(n) * block + k]);
        sum[k] += along;
        count[k] += 1;
      }
    }
  }
  for (std::size_t k = 0; k < block; ++k) sum[k] = count[k] > 0 ? sum[k] / count[k] : std::nan("");
  return sum;
}

void fill_predicted(const OutcomeTable& table, std::vector<PositionResult>& positions) {
  if (!table.has_confidence) return;
  std::vector<std::vector<double>> repeats;
  if (table.greedy) {
    repeats.push_back(predicted_on_chain(table));
  } else {
    for (std::int32_t s = 0; s < table.repeats; ++s)
      repeats.push_back(predicted_in_repeat(table, s));
  }
  const auto count = static_cast<double>(repeats.size());
  for (std::size_t k = 0; k < positions.size(); ++k) {
    if (repeats.empty() || std::isnan(repeats[0][k])) continue;
    double mean = 0;
    for (const auto& repeat : repeats) mean += repeat[k];
    mean /= count;
    positions[k].predicted = mean;
    if (repeats.size() > 1) {
      double squares = 0;
      for (const auto& repeat : repeats) squares += (repeat[k] - mean) * (repeat[k] - mean);
      positions[k].predicted_se = std::sqrt(squares / (count - 1) / count);
    }
  }
}

}  // namespace

std::vector<PositionResult> open_loop(const OutcomeTable& table) {
  const auto block = static_cast<std::size_t>(table.block_size);
  const std::vector<double> v = round_starts(table, FixedLength{table.block_size}, LinearCost{});
  std::vector<Sums> sums(block);
  for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
    const std::int64_t end = table.sequence_offsets[s + 1];
    for (std::int64_t n = table.sequence_offsets[s]; n < end; ++n) {
      const std::size_t row = static_cast<std::size_t>(n) * block;
      const bool full = end - n >= table.block_size;
      double reach = 1;  // Π_{i<k} β_i
      for (std::size_t k = 0; k < table.slots[static_cast<std::size_t>(n)]; ++k) {
        Sums& at = sums[k];
        const double beta = table.beta[row + k];
        const double alpha = table.alpha[row + k];
        at.rows += 1;
        at.agreed += table.agreement[row + k];
        if (full) {
          const double visits = v[static_cast<std::size_t>(n)];
          at.anchors += 1;
          at.reached += reach;
          at.survival += reach * alpha;
          at.trajectory += reach * beta;
          at.visited += visits * reach * alpha;
          at.visited_weight += visits;
          at.calibration.add(static_cast<double>(table.confidence[row + k]), alpha, reach);
        }
        reach *= beta;
      }
    }
  }
  std::vector<PositionResult> out(block);
  for (std::size_t k = 0; k < block; ++k) {
    const Sums& at = sums[k];
    out[k].position = static_cast<std::int32_t>(k) + 1;
    out[k].survival = ratio(at.survival, at.anchors);
    out[k].survival_trajectory = ratio(at.trajectory, at.anchors);
    out[k].survival_visited = ratio(at.visited, at.visited_weight);
    out[k].conditional = ratio(at.survival, at.reached);
    out[k].predicted_conditional = at.calibration.mean_confidence();
    out[k].conditional_ece = at.calibration.value();
    if (!table.greedy) out[k].top1_agreement = ratio(at.agreed, at.rows);
  }
  fill_predicted(table, out);
  return out;
}

}  // namespace dspark
