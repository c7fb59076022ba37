#include "replay/intervals.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "core/random.h"

namespace dspark {
namespace {

// Moving blocks trade length (dependence) for number (freedom): at least this many of them.
constexpr std::int64_t kWantedBlocks = 12;

// A number below `bound`, as even as 64 bits can be.
std::uint64_t uniform_below(std::uint64_t bits, std::uint64_t bound) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

// Value at rank `position` (0-based, between two order statistics) of `values`.
double order_statistic(std::vector<double>& values, double position) {
  const auto below = static_cast<std::size_t>(position);
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(below);
  std::nth_element(values.begin(), at, values.end());
  const double share = position - static_cast<double>(below);
  if (share == 0 || at + 1 == values.end()) return *at;
  return *at + share * (*std::min_element(at + 1, values.end()) - *at);
}

// Bisection: both functions increase, and this is done once per trace.
template <class Function>
double solve(double low, double high, double target, const Function& function) {
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle == low || middle == high) break;
    (function(middle) < target ? low : high) = middle;
  }
  return high;
}

template <std::size_t Columns>
void gather(const double* blocks, const std::int32_t* pick, std::int64_t count, double* out) {
  double sum[Columns] = {};
  for (std::int64_t b = 0; b < count; ++b) {
    const double* block = blocks + static_cast<std::size_t>(pick[b]) * Columns;
    for (std::size_t c = 0; c < Columns; ++c) sum[c] += block[c];
  }
  std::copy(sum, sum + Columns, out);
}

void gather(const double* blocks, const std::int32_t* pick, std::int64_t count, std::size_t columns,
            double* out) {
  std::fill(out, out + columns, 0.0);
  for (std::int64_t b = 0; b < count; ++b) {
    const double* block = blocks + static_cast<std::size_t>(pick[b]) * columns;
    for (std::size_t c = 0; c < columns; ++c) out[c] += block[c];
  }
}

}  // namespace

double normal_quantile(double probability) {
  return solve(0.0, 40.0, probability,
               [](double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); });
}

double student_quantile(double probability, double freedom) {
  // P(T ≤ t) = 1 - I_x(ν/2, 1/2) / 2 with x = ν / (ν + t²); in terms of θ = atan(t / √ν) the
  // density is proportional to cos^(ν-1) θ, which Simpson's rule integrates to far more than it
  // takes here.
  const auto area = [&](double end) {
    constexpr int steps = 2000;
    const double h = end / steps;
    double sum = 1.0 + std::pow(std::cos(end), freedom - 1);
    for (int i = 1; i < steps; ++i) {
      sum += (i % 2 == 1 ? 4.0 : 2.0) * std::pow(std::cos(h * i), freedom - 1);
    }
    return sum * h / 3;
  };
  const double whole = std::exp(std::lgamma(freedom / 2) - std::lgamma((freedom + 1) / 2)) *
                       std::sqrt(std::acos(-1.0)) / 2;  // ∫ over [0, π/2]
  double low = 0, high = std::acos(0.0);
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 + 0.5 * area(middle) / whole < probability ? low : high) = middle;
  }
  return std::sqrt(freedom) * std::tan((low + high) / 2);
}

std::optional<Range> percentile_range(std::vector<double>& values, double confidence) {
  if (values.size() < 2) return std::nullopt;
  const double last = static_cast<double>(values.size() - 1);
  const double tail = (1 - confidence) / 2;
  return Range{order_statistic(values, tail * last), order_statistic(values, (1 - tail) * last)};
}

Resampling::Resampling(const std::vector<std::int64_t>& offsets, std::int64_t reach,
                       std::int32_t repeats, std::uint64_t seed, double confidence)
    : confidence_(confidence) {
  cut_cells(offsets, reach);
  if (!possible()) return;
  const auto blocks = static_cast<double>(blocks_per_draw_);
  widening_ *= std::sqrt(blocks / (blocks - 1)) *
               student_quantile((1 + confidence) / 2, blocks - 1) /
               normal_quantile((1 + confidence) / 2);
  picks_.reserve(draws() * static_cast<std::size_t>(blocks_per_draw_));
  for (std::size_t draw = 0; draw < draws(); ++draw) {
    for (std::int64_t b = 0; b < blocks_per_draw_; ++b) {
      const std::uint64_t bits = random_uniform({.seed = seed,
                                                 .sequence = draw,
                                                 .position = static_cast<std::uint32_t>(b),
                                                 .purpose = RandomPurpose::resample});
      picks_.push_back(static_cast<std::int32_t>(uniform_below(bits, cells())));
    }
  }
  if (repeats < 2) return;
  const auto count = static_cast<std::size_t>(repeats);
  repeat_weight_.assign(draws() * count, -1.0 / repeats);
  for (std::size_t draw = 0; draw < draws(); ++draw) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t bits = random_uniform({.seed = seed,
                                                 .sequence = draw,
                                                 .position = static_cast<std::uint32_t>(i),
                                                 .slot = 1,
                                                 .purpose = RandomPurpose::resample});
      repeat_weight_[draw * count + uniform_below(bits, count)] += 1.0 / repeats;
    }
  }
}

void Resampling::cut_cells(const std::vector<std::int64_t>& offsets, std::int64_t reach) {
  std::vector<std::int64_t> bounds;  // of the sequences that have positions
  for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
    if (offsets[s + 1] > offsets[s]) bounds.push_back(offsets[s]);
  }
  const auto sequences = static_cast<std::int64_t>(bounds.size());
  const std::int64_t positions = offsets.empty() ? 0 : offsets.back();
  bounds.push_back(positions);
  if (sequences >= kFewSequences) {
    const std::int64_t groups = std::min(sequences, kMaxBlocksPerDraw);
    for (std::int64_t g = 0; g < groups; ++g) {
      cell_starts_.push_back(bounds[static_cast<std::size_t>(g * sequences / groups)]);
      rings_.push_back({static_cast<std::size_t>(g), static_cast<std::size_t>(g) + 1});
    }
    blocks_per_draw_ = groups;
  } else {
    const std::int64_t cell = std::max<std::int64_t>(1, (positions + kMaxCells - 1) / kMaxCells);
    for (std::int64_t s = 0; s < sequences; ++s) {
      const std::size_t first = cell_starts_.size();
      const std::int64_t end = bounds[static_cast<std::size_t>(s) + 1];
      for (std::int64_t n = bounds[static_cast<std::size_t>(s)]; n < end; n += cell) {
        cell_starts_.push_back(n);
      }
      rings_.push_back({first, cell_starts_.size()});
    }
    const std::int64_t least = (positions + kMaxBlocksPerDraw - 1) / kMaxBlocksPerDraw;
    const std::int64_t most = std::max<std::int64_t>(1, positions / kWantedBlocks);
    const std::int64_t length = std::max(least, std::min(kReachesPerBlock * reach, most));
    if (length > 0) {
      block_cells_ = static_cast<std::size_t>((length + cell - 1) / cell);
      const std::int64_t whole = static_cast<std::int64_t>(block_cells_) * cell;
      blocks_per_draw_ = positions / whole;
      // Blocks that are short of the reach lose more than half; nothing makes up for that.
      const auto lost = static_cast<double>(std::min(reach, whole / 2));
      widening_ = std::sqrt(static_cast<double>(whole) / (static_cast<double>(whole) - lost));
    }
  }
  cell_starts_.push_back(positions);
}

void Resampling::block_sums(const double* cells, std::size_t columns,
                            std::vector<double>& out) const {
  // Prefix sums within a ring, then the difference of two of them, or of three where it is wrapped.
  std::vector<double> prefix;
  for (const Ring& ring : rings_) {
    const std::size_t size = ring.end - ring.first;
    const std::size_t length = std::min(block_cells_, size);
    prefix.assign((size + 1) * columns, 0.0);
    for (std::size_t i = 0; i < size * columns; ++i) {
      prefix[columns + i] = prefix[i] + cells[ring.first * columns + i];
    }
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t end = i + length;
      for (std::size_t c = 0; c < columns; ++c) {
        const double head = prefix[std::min(end, size) * columns + c] - prefix[i * columns + c];
        const double wrapped = end > size ? prefix[(end - size) * columns + c] : 0.0;
        out[(ring.first + i) * columns + c] = head + wrapped;
      }
    }
  }
}

void Resampling::draw_sums(const double* cells, std::size_t columns, std::vector<double>& scratch,
                           std::vector<double>& out) const {
  const double* blocks = cells;
  if (block_cells_ > 1) {
    scratch.resize(this->cells() * columns);
    block_sums(cells, columns, scratch);
    blocks = scratch.data();
  }
  out.resize(draws() * columns);
  const std::int32_t* pick = picks_.data();
  for (std::size_t draw = 0; draw < draws(); ++draw, pick += blocks_per_draw_) {
    double* sums = out.data() + draw * columns;
    if (columns == RowSums::kColumns) {
      gather<RowSums::kColumns>(blocks, pick, blocks_per_draw_, sums);
    } else {
      gather(blocks, pick, blocks_per_draw_, columns, sums);
    }
  }
}

void Resampling::repeat_noise(const std::vector<double>& by_repeat,
                              std::vector<double>& out) const {
  out.assign(draws(), 0.0);
  const std::size_t repeats = by_repeat.size();
  if (repeats < 2 || repeat_weight_.size() != draws() * repeats) return;
  // Resampling n values shows (n-1)/n of the variance of their mean.
  const auto count = static_cast<double>(repeats);
  const double scale = std::sqrt(count / (count - 1));
  for (std::size_t draw = 0; draw < draws(); ++draw) {
    const double* weight = repeat_weight_.data() + draw * repeats;
    double sum = 0;
    for (std::size_t i = 0; i < repeats; ++i) sum += weight[i] * by_repeat[i];
    out[draw] = scale * sum;
  }
}

std::optional<Range> Resampling::interval(double estimate, std::vector<double>& values,
                                          double least, double most) const {
  const std::size_t all = values.size();
  values.erase(std::remove_if(values.begin(), values.end(),
                              [](double value) { return !std::isfinite(value); }),
               values.end());
  if (!std::isfinite(estimate) || 2 * values.size() < all) return std::nullopt;
  std::optional<Range> range = percentile_range(values, confidence_);
  if (!range) return std::nullopt;
  range->lo = std::clamp(estimate + widening_ * (range->lo - estimate), least, most);
  range->hi = std::clamp(estimate + widening_ * (range->hi - estimate), least, most);
  return range;
}

std::optional<Range> Resampling::biased_interval(double estimate, std::vector<double>& values,
                                                 double least, double most) const {
  std::vector<double> corrected = values;
  const std::optional<Range> plain = interval(estimate, values, least, most);
  if (!plain) return std::nullopt;
  const double bias =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()) -
      estimate;
  for (double& value : corrected) value -= 2 * bias;
  const std::optional<Range> shifted = interval(estimate - bias, corrected, least, most);
  if (!shifted) return std::nullopt;
  return Range{std::min(plain->lo, shifted->lo), std::max(plain->hi, shifted->hi)};
}

Resampling anchor_resampling(const OutcomeTable& table, std::uint64_t seed, double confidence) {
  return {table.sequence_offsets, table.block_size + 1, table.repeats, seed, confidence};
}

CellMap map_cells(const Resampling& resampling, const std::vector<std::size_t>& order) {
  CellMap map;
  map.cells = resampling.cells();
  map.of.resize(static_cast<std::size_t>(resampling.cell_starts().back()));
  for (std::size_t cell = 0; cell < resampling.cells(); ++cell) {
    const auto end = static_cast<std::size_t>(resampling.cell_starts()[cell + 1]);
    for (auto i = static_cast<std::size_t>(resampling.cell_starts()[cell]); i < end; ++i) {
      map.of[order.empty() ? i : order[i]] = static_cast<std::int32_t>(cell);
    }
  }
  return map;
}

void sum_cells(const RoundFlow& flow, RowSums& sums) {
  const std::size_t columns = flow.columns();
  const std::size_t cells = flow.cells().size() / columns;
  sums.cells.resize(cells * RowSums::kColumns);
  for (std::size_t cell = 0; cell < cells; ++cell) {
    const double* const part = flow.cells().data() + cell * columns;
    double* const sum = sums.cells.data() + cell * RowSums::kColumns;
    sum[0] = part[RoundFlow::tokens];
    sum[1] = part[RoundFlow::rounds];
    sum[2] = 0;
    for (std::int32_t l = 1; l <= flow.block_size(); ++l) {
      const double rounds = part[RoundFlow::scheduled + static_cast<std::size_t>(l)];
      sum[2] += l * rounds;
    }
    sum[3] = part[RoundFlow::interior_tokens];
    sum[4] = part[RoundFlow::interior_rounds];
  }
  sums.scheduled = flow.scheduled_rounds();
  sums.verified_by_repeat = flow.verified_by_repeat();
}

std::int32_t RowSums::longest() const {
  auto length = static_cast<std::int32_t>(scheduled.size()) - 1;
  while (length > 0 && scheduled[static_cast<std::size_t>(length)] == 0.0) --length;
  return std::max(length, 0);
}

namespace {

constexpr double kNoBound = std::numeric_limits<double>::infinity();

/// A row's means in one draw.
struct Draw {
  double tau, verified, tau_interior;
};

Draw draw_at(const IntervalScratch& scratch, std::size_t i) {
  const double* sum = scratch.sums.data() + i * RowSums::kColumns;
  return {sum[0] / sum[1], std::max(0.0, sum[2] / sum[1] + scratch.noise[i]), sum[3] / sum[4]};
}

/// The interval of a number that is a function of a draw's index.
template <class Number>
std::optional<Range> interval_of(const Resampling& resampling, IntervalScratch& scratch,
                                 double estimate, double least, double most, const Number& number) {
  scratch.values.resize(resampling.draws());
  for (std::size_t i = 0; i < scratch.values.size(); ++i) scratch.values[i] = number(i);
  return resampling.interval(estimate, scratch.values, least, most);
}

/// Shifts and scales of a number shift and scale its interval.
template <class Map>
std::optional<Range> mapped(const std::optional<Range>& range, const Map& map) {
  return range ? std::optional<Range>({map(range->lo), map(range->hi)}) : std::nullopt;
}

/// No round emits more than its drafts and one token.
double most_tokens(const RowSums& sums, const PolicyResult& row) {
  return std::max(*row.tau, sums.longest() + 1.0);
}

/// What one more draft costs a round, on average over the lengths of a row.
double marginal_price(const std::vector<double>& scheduled, std::span<const double> by_length) {
  double price = 0, rounds = 0;
  for (std::size_t l = 0; l + 1 < by_length.size(); ++l) {
    if (scheduled[l] == 0.0) continue;
    price += scheduled[l] * (by_length[l + 1] - by_length[l]);
    rounds += scheduled[l];
  }
  return rounds > 0 && std::isfinite(price) ? price / rounds : 0.0;
}

}  // namespace

void row_intervals(const Resampling& resampling, const RowSums& sums, IntervalScratch& scratch,
                   PolicyResult& row) {
  if (resampling.draws() == 0 || !row.tau) return;
  resampling.draw_sums(sums.cells.data(), RowSums::kColumns, scratch.blocks, scratch.sums);
  resampling.repeat_noise(sums.verified_by_repeat, scratch.noise);
  const auto interval = [&](double estimate, double least, double most, const auto& number) {
    return interval_of(resampling, scratch, estimate, least, most,
                       [&](std::size_t i) { return number(draw_at(scratch, i)); });
  };
  RowIntervals& out = row.intervals;
  const double most_tau = most_tokens(sums, row);
  out.tau = interval(*row.tau, 1, most_tau, [](const Draw& d) { return d.tau; });
  out.accepted_per_round = mapped(out.tau, [](double tau) { return tau - 1; });
  if (row.rounds && out.tau) {
    const double tokens = *row.rounds * *row.tau;
    out.rounds = Range{tokens / out.tau->hi, tokens / out.tau->lo};
  }
  if (row.tau_interior) {
    out.tau_interior =
        interval(*row.tau_interior, 1, most_tau, [](const Draw& d) { return d.tau_interior; });
  }
  if (!row.verified_per_round) return;
  out.verified_per_round = interval(*row.verified_per_round, 0, sums.longest(),
                                    [](const Draw& d) { return d.verified; });
  if (row.acceptance_rate) {
    out.acceptance_rate = interval(*row.acceptance_rate, 0, 1,
                                   [](const Draw& d) { return (d.tau - 1) / d.verified; });
  }
}

void price_intervals(const Resampling& resampling, const RowSums& sums, const RoundFlow& flow,
                     std::span<const double> by_length, double scale, IntervalScratch& scratch,
                     PolicyResult& row, float* efficiency) {
  const std::size_t draws = resampling.draws();
  std::fill(efficiency, efficiency + draws, std::numeric_limits<float>::quiet_NaN());
  if (draws == 0 || !row.tau || !row.cost_per_round) return;
  const double cost = *row.cost_per_round;
  // What the rounds of each cell cost above the mean: where all cost the same, exactly 0.
  scratch.cells.assign(resampling.cells(), 0.0);
  for (std::size_t cell = 0; cell < scratch.cells.size(); ++cell) {
    const double* part = flow.cells().data() + cell * flow.columns();
    double& above = scratch.cells[cell];
    if (by_length.empty()) above = part[RoundFlow::cost] - cost * part[RoundFlow::rounds];
    for (std::size_t l = 0; l < by_length.size(); ++l) {
      const double rounds = part[RoundFlow::scheduled + l];
      if (rounds != 0.0) above += rounds * (by_length[l] - cost);
    }
  }
  resampling.draw_sums(scratch.cells.data(), 1, scratch.blocks, scratch.prices);
  const double marginal = marginal_price(sums.scheduled, by_length);
  for (std::size_t i = 0; i < draws; ++i) {
    const double rounds = scratch.sums[i * RowSums::kColumns + 1];
    scratch.prices[i] =
        std::max(0.0, cost + scratch.prices[i] / rounds + marginal * scratch.noise[i]);
  }
  RowIntervals& out = row.intervals;
  out.cost_per_round = interval_of(resampling, scratch, cost, 0, kNoBound,
                                   [&](std::size_t i) { return scratch.prices[i]; });
  const double requests = row.concurrency;
  out.cost_per_step = mapped(out.cost_per_round, [&](double value) { return value * requests; });
  if (!row.tokens_per_cost) return;
  for (std::size_t i = 0; i < draws; ++i) {
    efficiency[i] = static_cast<float>(draw_at(scratch, i).tau / (scratch.prices[i] / scale));
  }
  // What every round can reach at the least and at the most.
  const double least = out.cost_per_round ? 1 / out.cost_per_round->hi : 0;
  const double most =
      out.cost_per_round ? most_tokens(sums, row) / out.cost_per_round->lo : kNoBound;
  out.tokens_per_cost =
      interval_of(resampling, scratch, *row.tokens_per_cost, least, most,
                  [&](std::size_t i) { return draw_at(scratch, i).tau / scratch.prices[i]; });
  out.tokens_per_cost_per_user =
      mapped(out.tokens_per_cost, [&](double value) { return value / requests; });
  if (row.speedup) {
    const double plain = *row.tokens_per_cost / *row.speedup;
    out.speedup = mapped(out.tokens_per_cost, [&](double value) { return value / plain; });
  }
}

std::optional<PairedComparison> compare_rows(const Resampling& resampling, const PolicyResult& row,
                                             const float* row_efficiency,
                                             const PolicyResult& reference,
                                             const float* reference_efficiency, double scale,
                                             IntervalScratch& scratch) {
  if (!row.tokens_per_cost || !reference.tokens_per_cost) return std::nullopt;
  scratch.values.resize(resampling.draws());
  for (std::size_t i = 0; i < scratch.values.size(); ++i) {
    scratch.values[i] = static_cast<double>(row_efficiency[i] - reference_efficiency[i]);
  }
  PairedComparison out;
  out.difference = *row.tokens_per_cost - *reference.tokens_per_cost;
  const std::optional<Range> range = resampling.interval(out.difference * scale, scratch.values);
  if (!range) return std::nullopt;
  out.interval = {range->lo / scale, range->hi / scale};
  // Draws are kept in single precision: two rows that do the same differ by its rounding.
  const double rounding = 1e-6 * std::abs(*reference.tokens_per_cost * scale);
  out.verdict = range->lo > rounding ? "win" : range->hi < -rounding ? "loss" : "within noise";
  return out;
}

}  // namespace dspark
