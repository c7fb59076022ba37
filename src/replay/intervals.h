// How sure are we: confidence intervals by resampling the recorded text, and paired comparisons.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replay/closed_loop.h"
#include "replay/outcome_table.h"
#include "replay/result.h"

namespace dspark {

/// Below this many sequences blocks of positions are resampled instead.
inline constexpr std::int64_t kFewSequences = 8;
/// Fewer rounds than this give a warning.
inline constexpr double kFewRounds = 200;
/// Draws of a bootstrap.
inline constexpr std::int32_t kBootstrapDraws = 400;
/// Positions are summed up in at most this many cells before they are resampled.
inline constexpr std::int64_t kMaxCells = 1024;
/// Length of a moving block in reaches of the dependence between neighbours, of which it leaves
/// little.
inline constexpr std::int64_t kReachesPerBlock = 8;
/// At most this many blocks make up a draw.
inline constexpr std::int64_t kMaxBlocksPerDraw = 256;

/// The draws of a bootstrap over a recorded text. The same draws serve every number and every row,
/// so that differences are paired.
///
/// A draw is a multiset of blocks, all equally likely. Where there are at least kFewSequences
/// sequences a block is a whole sequence (a group of neighbours where there are more than
/// kMaxBlocksPerDraw); else it is a run of positions that starts anywhere in a sequence and is
/// wrapped at its end (moving blocks; Künsch 1989, Politis & Romano 1992), long enough that the
/// text has forgotten its start. Intervals are percentiles of the draws, widened about the estimate
/// by Student's t and the root of n/(n-1) for the number of blocks, without which a handful of
/// blocks would look surer than it is (Hesterberg 2015), and for runs by the root of l/(l - r):
/// cutting a text into runs of l positions loses the dependence across the cuts, which reaches over
/// r of them. Over their
/// sampling error the repeats of the worlds are resampled too. How often the intervals cover:
/// tools/bench/README.md.
///
/// A pure function of its arguments.
class Resampling {
 public:
  /// `offsets`: [sequences + 1] as in an OutcomeTable; `reach`: positions over which neighbours
  /// depend on each other (≥ 1); a moving block has kReachesPerBlock times as many where the text
  /// is long enough. `repeats` 0: no worlds. `confidence` in (0, 1).
  Resampling(const std::vector<std::int64_t>& offsets, std::int64_t reach, std::int32_t repeats,
             std::uint64_t seed, double confidence);

  /// False where there is only one block (or none): no interval exists.
  [[nodiscard]] bool possible() const { return blocks_per_draw_ >= 2; }
  /// kBootstrapDraws, or 0.
  [[nodiscard]] std::size_t draws() const { return possible() ? kBootstrapDraws : 0; }
  [[nodiscard]] std::int64_t blocks_per_draw() const { return blocks_per_draw_; }
  [[nodiscard]] double confidence() const { return confidence_; }

  /// Positions [cell_starts()[c], cell_starts()[c + 1]) are cell c; cells cover the trace.
  [[nodiscard]] const std::vector<std::int64_t>& cell_starts() const { return cell_starts_; }
  [[nodiscard]] std::size_t cells() const { return cell_starts_.size() - 1; }

  /// Sums over the blocks of every draw. `cells`: [cells, columns] sums over positions, row-major;
  /// `out`: [draws, columns]; `scratch` is resized as needed.
  void draw_sums(const double* cells, std::size_t columns, std::vector<double>& scratch,
                 std::vector<double>& out) const;

  /// What resampling the repeats moves a mean over them by, per draw [draws]: `by_repeat` [repeats]
  /// are the means of each repeat over the whole text. Its standard deviation is the standard error
  /// over the repeats. All 0 for fewer than 2 repeats.
  void repeat_noise(const std::vector<double>& by_repeat, std::vector<double>& out) const;

  /// The interval of a number from its value in every draw (values that are not finite are left
  /// out; empty if they are more than half), cut to [least, most]. Reorders `values`.
  [[nodiscard]] std::optional<Range> interval(
      double estimate, std::vector<double>& values,
      double least = -std::numeric_limits<double>::infinity(),
      double most = std::numeric_limits<double>::infinity()) const;
  /// The same for a number that noise pushes in one direction, such as a calibration error: on
  /// average the draws lie off the estimate by as much as the estimate lies off the truth. The
  /// interval holds what is left when that is taken away, and what is there when it is not.
  [[nodiscard]] std::optional<Range> biased_interval(double estimate, std::vector<double>& values,
                                                     double least, double most) const;
  /// By how much interval() moves its ends away from the estimate.
  [[nodiscard]] double widening() const { return widening_; }

 private:
  void cut_cells(const std::vector<std::int64_t>& offsets, std::int64_t reach);
  void block_sums(const double* cells, std::size_t columns, std::vector<double>& out) const;

  struct Ring {
    std::size_t first, end;  ///< cells of one sequence
  };
  double confidence_;
  double widening_ = 1;
  std::vector<std::int64_t> cell_starts_;
  std::vector<Ring> rings_;
  std::size_t block_cells_ = 1;
  std::int64_t blocks_per_draw_ = 0;
  std::vector<std::int32_t> picks_;    ///< [draws, blocks_per_draw] cells at which blocks start
  std::vector<double> repeat_weight_;  ///< [draws, repeats] share of each repeat minus 1/repeats
};

/// The resampling of an anchors trace, where a draft block reaches over P + 1 positions.
[[nodiscard]] Resampling anchor_resampling(const OutcomeTable& table, std::uint64_t seed,
                                           double confidence);

/// The cells of the positions of an anchors trace, or of the rounds of a rounds trace. `order`:
/// which of them stands at each place of the resampled text; empty: its own.
[[nodiscard]] CellMap map_cells(const Resampling& resampling,
                                const std::vector<std::size_t>& order = {});

/// Sums of one row over the cells of a Resampling: what every number of it follows from.
struct RowSums {
  /// tokens, rounds, drafts verified, and tokens and rounds of the interior.
  static constexpr std::size_t kColumns = 5;
  std::vector<double> cells;      ///< [cells, kColumns]
  std::vector<double> scheduled;  ///< [P + 1] rounds by drafts verified, over all cells
  /// Drafts that a round verifies at most.
  [[nodiscard]] std::int32_t longest() const;
  /// Verified per round in each repeat over the whole text; empty where `verified` is exact.
  std::vector<double> verified_by_repeat;
};

/// Sums up what a row is made of.
void sum_cells(const RoundFlow& flow, RowSums& sums);

/// Scratch memory of row_intervals(); reused from row to row.
struct IntervalScratch {
  std::vector<double> blocks, sums, noise, values;
  std::vector<double> cells, prices;
};

/// Fills what row.intervals has of numbers that have no price: those of tau, tau_interior, rounds,
/// accepted_per_round, verified_per_round and acceptance_rate, as far as the row has them. Leaves
/// in `scratch` what price_intervals() needs.
void row_intervals(const Resampling& resampling, const RowSums& sums, IntervalScratch& scratch,
                   PolicyResult& row);

/// The others, under one cost: of cost_per_round, tokens_per_cost and what is a multiple of them.
/// Call behind row_intervals() for the same row, whose cost_per_round is set. `by_length`: what a
/// round of l drafts costs (ExpectedStep); empty: the flow has the cost of each round (walks).
/// `efficiency`: [draws] receives tokens per `scale` of cost in every draw (NaN where it does not
/// exist), for compare_rows(); a round's cost is a good scale, since draws are kept in single
/// precision.
void price_intervals(const Resampling& resampling, const RowSums& sums, const RoundFlow& flow,
                     std::span<const double> by_length, double scale, IntervalScratch& scratch,
                     PolicyResult& row, float* efficiency);

/// Compares a row with a reference on the same draws (`efficiency` of both, at one scale). Empty
/// where one of them has no tokens_per_cost, or no interval exists. The verdict is "within noise"
/// where the interval holds 0.
[[nodiscard]] std::optional<PairedComparison> compare_rows(const Resampling& resampling,
                                                           const PolicyResult& row,
                                                           const float* row_efficiency,
                                                           const PolicyResult& reference,
                                                           const float* reference_efficiency,
                                                           double scale, IntervalScratch& scratch);

/// The central `confidence` range of `values` (linear interpolation of order statistics; reorders
/// them); empty for fewer than 2.
[[nodiscard]] std::optional<Range> percentile_range(std::vector<double>& values, double confidence);

/// Quantiles of the standard normal and of Student's t with `freedom` ≥ 1 degrees of freedom, for
/// `probability` in (0.5, 1).
[[nodiscard]] double normal_quantile(double probability);
[[nodiscard]] double student_quantile(double probability, double freedom);

}  // namespace dspark
