// The parts that a row's numbers are sums of, kept apart by the cells of a resampled text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dspark {

/// Which cell of a Resampling (intervals.h) each position (anchors traces) or round (rounds traces)
/// belongs to.
struct CellMap {
  std::vector<std::int32_t> of;  ///< [N], below `cells`; empty: one cell holds all
  std::size_t cells = 1;

  [[nodiscard]] std::size_t operator[](std::size_t n) const {
    return of.empty() ? 0 : static_cast<std::size_t>(of[n]);
  }
};

/// Sums over expected rounds. Reused from row to row, so that a row allocates nothing.
class RoundFlow {
 public:
  /// Sums of one cell: these (the cost of walks alone), then rounds by drafts verified [P+1].
  enum Column : std::size_t { tokens, rounds, interior_tokens, interior_rounds, cost, scheduled };

  /// All in one cell.
  RoundFlow() = default;
  /// `map` must outlive the flow and its copies.
  explicit RoundFlow(const CellMap& map) : map_(&map) {}

  /// Forgets what was there; block size P, worlds of `repeats` repeats (0: lengths are exact).
  void begin(std::int32_t block_size, std::int32_t repeats);

  /// Rounds that start at n (or round n), and the tokens that they emit.
  void add_rounds(std::size_t n, double count, double emitted, bool interior) {
    double* cell = cell_of(n);
    cell[tokens] += emitted;
    cell[rounds] += count;
    if (!interior) return;
    cell[interior_tokens] += emitted;
    cell[interior_rounds] += count;
  }
  /// A round's share of what its step costs.
  void add_cost(std::size_t n, double share) { cell_of(n)[cost] += share; }
  /// Rounds that start at n and verify `length` drafts; `could_verify`: there were some.
  void add_length(std::size_t n, std::int32_t length, double count, bool could_verify) {
    cell_of(n)[scheduled + static_cast<std::size_t>(length)] += count;
    if (length == 0 && could_verify) trimmed_ += count;
  }
  void add_accepted(std::int32_t accepted, double count) {
    accepted_[static_cast<std::size_t>(accepted)] += count;
  }
  /// Drafts verified in one repeat of the worlds; divided by the rounds when all are there.
  void add_verified(std::int32_t repeat, double drafts) {
    verified_by_repeat_[static_cast<std::size_t>(repeat)] += drafts;
  }
  /// Multiplies all counts of rounds.
  void scale(double factor);
  void divide_verified_by(double all_rounds) {
    for (double& repeat : verified_by_repeat_) repeat /= all_rounds;
  }

  [[nodiscard]] std::int32_t block_size() const { return block_size_; }
  [[nodiscard]] std::size_t columns() const {
    return scheduled + static_cast<std::size_t>(block_size_) + 1;
  }
  /// [cells, columns()]
  [[nodiscard]] const std::vector<double>& cells() const { return cells_; }
  /// A column over all cells.
  [[nodiscard]] double total(std::size_t column) const;
  /// [P+1] expected rounds by drafts verified, and by drafts accepted.
  [[nodiscard]] std::vector<double> scheduled_rounds() const;
  [[nodiscard]] const std::vector<double>& accepted_rounds() const { return accepted_; }
  /// Rounds that could have verified and did not.
  [[nodiscard]] double trimmed() const { return trimmed_; }
  /// [S] verified per round in each repeat; empty where it is exact.
  [[nodiscard]] const std::vector<double>& verified_by_repeat() const {
    return verified_by_repeat_;
  }

 private:
  double* cell_of(std::size_t n) {
    return cells_.data() + (map_ != nullptr ? (*map_)[n] : 0) * columns();
  }

  const CellMap* map_ = nullptr;
  std::int32_t block_size_ = 0;
  std::vector<double> cells_;
  std::vector<double> accepted_;
  std::vector<double> verified_by_repeat_;
  double trimmed_ = 0;
};

/// Scratch memory of the closed loop; reused from row to row.
struct LoopScratch {
  std::vector<double> starts;        ///< [N] v(n)
  std::vector<std::int32_t> length;  ///< [N] drafts verified along the text
  std::vector<float> probability;    ///< [N, P] α in place of the confidences
};

}  // namespace dspark
