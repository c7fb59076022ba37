#include "replay/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>

#include "replay/causality.h"
#include "replay/ledger.h"
#include "replay/off_policy.h"
#include "support/text.h"

namespace dspark {
namespace {

/// Calls work(i, scratch) for i = 0 .. count - 1 on `threads` threads, each with its own copy of
/// `scratch`; rethrows what the first of them, by i, threw.
template <class Scratch, class Work>
void for_each_row(std::size_t count, int threads, const Scratch& scratch, const Work& work) {
  std::exception_ptr failure;
  std::size_t failed = count;
#pragma omp parallel num_threads(threads)
  {
    Scratch own = scratch;
#pragma omp for schedule(dynamic, 1)
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(count); ++i) {
      const auto at = static_cast<std::size_t>(i);
      try {
        work(at, own);
      } catch (...) {
#pragma omp critical
        if (at < failed) {
          failed = at;
          failure = std::current_exception();
        }
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// Rows that rest on too few effective samples keep their estimates and are not ranked.
bool is_refused(const PolicyResult& row) {
  return row.off_policy && row.effective_samples.value_or(0) < kMinEffectiveSamples;
}

/// Expected rounds by drafts verified, as shares.
std::vector<double> shares_of(const RowSums& sums, double rounds) {
  std::vector<double> shares = sums.scheduled;
  for (double& share : shares) share /= rounds;
  return shares;
}

class RowEvaluator {
 public:
  RowEvaluator(const ReplayJob& job, const ReplayOptions& options, const Resampling& resampling,
               const RowSource& source)
      : job_(job),
        options_(options),
        resampling_(resampling),
        source_(source),
        map_(map_cells(resampling, source.order)),
        columns_(job.concurrency.size()) {
    for (const std::int32_t requests : job.concurrency) {
      prices_.emplace_back(job.cost, job.width, requests, block_size());
      // Tokens per cost are kept in units of this, whatever the unit of the model.
      const double step = prices_.back().by_total()[static_cast<std::size_t>(requests)];
      scale_.push_back(std::isfinite(step) && step > 0 ? step / requests : 1.0);
    }
  }

  void run(ReplayResult& result) {
    rows_.resize(job_.policies.size() * columns_);
    efficiency_.resize(rows_.size() * resampling_.draws());
    const Scratch fresh = {.flow = RoundFlow(map_), .loop = {}, .sums = {}, .intervals = {}};
    for_each_row(job_.policies.size(), options_.threads, fresh,
                 [&](std::size_t p, Scratch& scratch) { evaluate(p, scratch); });
    for (std::size_t column = 0; column < columns_; ++column) compare(column);
    add_notes();
    for (PolicyResult& row : rows_) result.results.push_back(std::move(row));
  }

 private:
  struct Scratch {
    RoundFlow flow;
    LoopScratch loop;
    RowSums sums;
    IntervalScratch intervals;
  };

  [[nodiscard]] std::int32_t block_size() const { return job_.trace.header().block_size; }
  [[nodiscard]] const std::string& file() const { return job_.trace.header().file; }
  [[nodiscard]] std::size_t index(std::size_t policy, std::size_t column) const {
    return policy * columns_ + column;
  }
  [[nodiscard]] float* efficiency_of(std::size_t row) {
    return efficiency_.data() + row * resampling_.draws();
  }

  /// Fills what every row of a policy has.
  void label(const Policy& policy, PolicyResult& row) const {
    row.trace = file();
    row.verification = verification_name(job_.verification);
    row.sampling = job_.sampling;
    row.policy = policy_name(policy);
    row.parameters = policy_parameters(policy);
    row.bound = is_bound(policy);
    if (row.tau) row.accepted_per_round = *row.tau - 1.0;
    if (row.verified_per_round.value_or(0) > 0 && row.accepted_per_round) {
      row.acceptance_rate = *row.accepted_per_round / *row.verified_per_round;
    }
  }

  /// All rows of one policy.
  void evaluate(std::size_t p, Scratch& scratch) {
    const Policy& policy = job_.policies[p];
    std::optional<Policy> evaluated;  // whose flow is in the scratch
    PolicyResult base;
    for (std::size_t column = 0; column < columns_; ++column) {
      PolicyResult& row = rows_[index(p, column)];
      if (!is_per_request(policy)) {
        walk(policy, column, scratch, row);
        continue;
      }
      const Policy here = at_concurrency(policy, job_.concurrency[column]);
      if (!evaluated || !(*evaluated == here)) {
        base = source_.evaluate(here, scratch.flow, scratch.loop);
        label(policy, base);
        sum_cells(scratch.flow, scratch.sums);
        row_intervals(resampling_, scratch.sums, scratch.intervals, base);
        evaluated = here;
      }
      row = base;
      price(here, column, scratch, row);
    }
  }

  /// Prices a row of a policy of one request, whose flow is in the scratch.
  void price(const Policy& policy, std::size_t column, Scratch& scratch, PolicyResult& row) {
    const StepPrices& prices = prices_[column];
    row.concurrency = prices.requests();
    // What is cheapest for one request alone is no bound on steps of several.
    const auto* oracle = std::get_if<Oracle>(&policy);
    const bool answers =
        oracle == nullptr || oracle->bound != OracleBound::shortest || row.concurrency == 1;
    ExpectedStep step;
    const double rounds = scratch.flow.total(RoundFlow::rounds);
    if (row.verified_per_round && answers && rounds > 0) {
      if (speculates(policy)) {
        step = expected_step(prices, shares_of(scratch.sums, rounds));
        row.padded_tokens = step.padding;
      } else {
        step.cost = prices.plain();
        step.by_length.assign(static_cast<std::size_t>(block_size()) + 1,
                              step.cost / prices.requests());
        row.padded_tokens = prices.plain_padding();
      }
      row.budget = *row.verified_per_round * prices.requests();
      set_cost(step.cost, column, row);
    }
    finish(speculates(policy) ? 1 : 0, step.by_length, column, scratch, row);
  }

  /// A row of a policy that looks at all requests, or back in time.
  void walk(const Policy& policy, std::size_t column, Scratch& scratch, PolicyResult& row) {
    const StepPrices& prices = prices_[column];
    const Lockstep walked =
        walk_lockstep(*source_.table, policy, prices, job_.cost, std::max(1, options_.repeats),
                      options_.seed, scratch.flow);
    row.walked = true;
    row.concurrency = prices.requests();
    row.tau = walked.tau;
    row.tau_se = walked.tau_se;
    row.tau_interior = walked.tau_interior;
    row.rounds = walked.rounds;
    row.tokens = walked.tokens;
    row.verified_per_round = walked.verified;
    row.verified_per_round_se = walked.verified_se;
    row.early_stop_difference = walked.early_stop_difference;
    row.budget = walked.verified * prices.requests();
    row.padded_tokens = walked.padding;
    row.lossless =
        is_lossless_in_steps(policy, prices, job_.cost, job_.verification, source_.table->greedy);
    label(policy, row);
    sum_cells(scratch.flow, scratch.sums);
    row_intervals(resampling_, scratch.sums, scratch.intervals, row);
    set_cost(walked.cost, column, row);
    finish(1 - walked.plain_share, {}, column, scratch, row);
  }

  /// Sets what follows from the cost of a step; nothing where it has none.
  void set_cost(double step, std::size_t column, PolicyResult& row) const {
    if (!std::isfinite(step)) return;
    const double requests = row.concurrency;
    row.cost_per_step = step;
    row.cost_per_round = step / requests;
    if (!row.tau || !(step > 0) || is_refused(row)) return;
    row.tokens_per_cost = *row.tau / *row.cost_per_round;
    row.tokens_per_cost_per_user = *row.tau / step;
    const double plain = prices_[column].plain();
    if (plain > 0) row.speedup = *row.tau / step * plain;
  }

  /// `drafting`: share of the steps that draft.
  void finish(double drafting, std::span<const double> by_length, std::size_t column,
              Scratch& scratch, PolicyResult& row) {
    row.ledger = make_ledger(row, scratch.flow, job_.cost, prices_[column], drafting);
    price_intervals(resampling_, scratch.sums, scratch.flow, by_length, scale_[column],
                    scratch.intervals, row,
                    efficiency_of(static_cast<std::size_t>(&row - rows_.data())));
    if (row.off_policy && row.effective_samples.value_or(0) < kLeastEffectiveSamples) {
      row.intervals = {};
    }
  }

  /// The row at the rank that was asked for, in the order of rank_results(); empty where fewer rows
  /// of this concurrency are ranked.
  [[nodiscard]] std::optional<std::size_t> reference(std::size_t column) const {
    std::vector<std::size_t> ranking;
    for (std::size_t p = 0; p < job_.policies.size(); ++p) {
      const PolicyResult& row = rows_[index(p, column)];
      if (!row.bound && row.tokens_per_cost) ranking.push_back(index(p, column));
    }
    std::stable_sort(ranking.begin(), ranking.end(), [&](std::size_t a, std::size_t b) {
      return *rows_[a].tokens_per_cost > *rows_[b].tokens_per_cost;
    });
    const auto rank = static_cast<std::size_t>(options_.reference);
    if (rank > ranking.size()) return std::nullopt;
    return ranking[rank - 1];
  }

  void compare(std::size_t column) {
    const std::optional<std::size_t> found = reference(column);
    if (!found) {
      if (options_.reference == 1) return;  // nothing is ranked, and that has been said
      note(
          fmt::format("fewer than {} rows of {} verification at temperature {} are ranked, so "
                      "they are compared with none",
                      options_.reference, verification_name(job_.verification),
                      shortest(job_.sampling.temperature)));
      return;
    }
    const std::size_t best = *found;
    rows_[best].is_reference = true;
    for_each_row(job_.policies.size(), options_.threads, IntervalScratch{},
                 [&](std::size_t p, IntervalScratch& scratch) {
                   const std::size_t i = index(p, column);
                   if (i == best) return;
                   rows_[i].versus =
                       compare_rows(resampling_, rows_[i], efficiency_of(i), rows_[best],
                                    efficiency_of(best), scale_[column], scratch);
                 });
  }

  void note(const std::string& text) const {
    if (options_.note) options_.note(fmt::format("{}: {}", file(), text));
  }

  void add_notes() const {
    std::optional<double> fewest;
    std::size_t unpriced = 0;
    for (const PolicyResult& row : rows_) {
      if (row.bound || !row.ledger) continue;
      if (!row.walked) {
        fewest = std::min(fewest.value_or(row.ledger->rounds), row.ledger->rounds);
      }
      if (!row.cost_per_step) ++unpriced;
    }
    if (fewest && *fewest < kFewRounds) {
      note(
          fmt::format("some rows rest on as few as {:.0f} rounds; below {:.0f} even the "
                      "intervals are rough, so record more text",
                      *fewest, kFewRounds));
    }
    if (unpriced > 0) {
      note(fmt::format("{} rows have steps that the cost table has no cell for, and no cost",
                       unpriced));
    }
    for (std::size_t p = 0; p < job_.policies.size(); ++p) {
      const auto* oracle = std::get_if<Oracle>(&job_.policies[p]);
      if (oracle == nullptr || oracle->bound != OracleBound::shortest) continue;
      for (std::size_t column = 0; column < columns_; ++column) {
        const PolicyResult& row = rows_[index(p, column)];
        if (!row.speedup || *row.speedup >= 1) continue;
        note(
            fmt::format("even the oracle's shortest path has a speedup of {:.3f}: under these "
                        "costs no schedule can win with this drafter",
                        *row.speedup));
      }
    }
  }

  const ReplayJob& job_;
  const ReplayOptions& options_;
  const Resampling& resampling_;
  const RowSource& source_;
  const CellMap map_;
  std::size_t columns_;             ///< concurrencies
  std::vector<StepPrices> prices_;  ///< [columns]
  std::vector<double> scale_;       ///< [columns]
  std::vector<PolicyResult> rows_;  ///< [policies, columns]
  std::vector<float> efficiency_;   ///< [policies, columns, draws] tokens per scale of cost
};

}  // namespace

void evaluate_rows(const ReplayJob& job, const ReplayOptions& options, const Resampling& resampling,
                   const RowSource& source, ReplayResult& result) {
  RowEvaluator(job, options, resampling, source).run(result);
}

}  // namespace dspark
