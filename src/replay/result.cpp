#include "replay/result.h"

#include <algorithm>

namespace dspark {

namespace {

// Rows that are compared with each other over concurrencies: one trace under one setting.
struct Kind {
  std::vector<PolicyResult*> rows;  ///< ranked rows without bounds, in the order of rank_results()
};

std::vector<Kind> kinds_of(std::vector<PolicyResult>& results) {
  std::vector<Kind> kinds;
  for (PolicyResult& row : results) {
    if (row.bound || !row.tokens_per_cost || !row.tokens_per_cost_per_user) continue;
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& other) {
      const PolicyResult& first = *other.rows.front();
      return first.trace == row.trace && first.verification == row.verification &&
             first.sampling == row.sampling;
    });
    if (kind == kinds.end()) {
      kinds.push_back({{&row}});
    } else {
      kind->rows.push_back(&row);
    }
  }
  return kinds;
}

// From the most tokens per cost of the system down, a row is worth having if it is better for the
// user than all before it.
void mark_pareto(const Kind& kind) {
  std::vector<PolicyResult*> rows = kind.rows;
  std::stable_sort(rows.begin(), rows.end(), [](const PolicyResult* a, const PolicyResult* b) {
    if (*a->tokens_per_cost != *b->tokens_per_cost)
      return *a->tokens_per_cost > *b->tokens_per_cost;
    return *a->tokens_per_cost_per_user > *b->tokens_per_cost_per_user;
  });
  double best = -1;
  for (PolicyResult* row : rows) {
    row->pareto = *row->tokens_per_cost_per_user > best;
    best = std::max(best, *row->tokens_per_cost_per_user);
  }
}

BestPolicy best_of(const PolicyResult& row) {
  BestPolicy out;
  out.trace = row.trace;
  out.verification = row.verification;
  out.sampling = row.sampling;
  out.concurrency = row.concurrency;
  out.policy = row.policy;
  out.parameters = row.parameters;
  out.tokens_per_cost = row.tokens_per_cost;
  out.tokens_per_cost_per_user = row.tokens_per_cost_per_user;
  out.speedup = row.speedup;
  out.budget = row.budget;
  out.padded_tokens = row.padded_tokens;
  out.tokens_per_cost_interval = row.intervals.tokens_per_cost;
  return out;
}

}  // namespace

void rank_results(std::vector<PolicyResult>& results) {
  std::stable_sort(
      results.begin(), results.end(), [](const PolicyResult& a, const PolicyResult& b) {
        if (a.concurrency != b.concurrency) return a.concurrency < b.concurrency;
        if (a.bound != b.bound) return b.bound;
        if (a.tokens_per_cost.has_value() != b.tokens_per_cost.has_value()) {
          return a.tokens_per_cost.has_value();
        }
        return a.tokens_per_cost.has_value() && *a.tokens_per_cost > *b.tokens_per_cost;
      });
}

void find_best_policies(ReplayResult& result) {
  result.best.clear();
  for (const Kind& kind : kinds_of(result.results)) {
    mark_pareto(kind);
    if (kind.rows.front()->concurrency == kind.rows.back()->concurrency) continue;
    const std::size_t first = result.best.size();
    for (const PolicyResult* row : kind.rows) {
      const bool is_next =
          result.best.size() == first || result.best.back().concurrency != row->concurrency;
      if (!is_next) continue;
      BestPolicy best = best_of(*row);
      if (result.best.size() > first) {
        const BestPolicy& before = result.best.back();
        best.changes = before.policy != best.policy || before.parameters != best.parameters;
      }
      result.best.push_back(std::move(best));
    }
  }
}

}  // namespace dspark
