#include "replay/pairs.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>
#include <tuple>

namespace dspark {
namespace {

using PolicyKey =
    std::tuple<std::string, std::vector<std::pair<std::string, ParameterValue>>, std::int32_t>;

PolicyKey key_of(const PolicyResult& row) { return {row.policy, row.parameters, row.concurrency}; }

/// The interval of a - b from those of a and b, as if they were independent.
std::optional<Range> interval_of_difference(double a, const std::optional<Range>& of_a, double b,
                                            const std::optional<Range>& of_b) {
  if (!of_a || !of_b) return std::nullopt;
  const double difference = a - b;
  return Range{difference - std::hypot(a - of_a->lo, of_b->hi - b),
               difference + std::hypot(of_a->hi - a, b - of_b->lo)};
}

PairSide side_of(const PolicyResult& row) {
  return {row.trace, row.sampling, row.off_policy, row.tau.value(), row.tokens_per_cost};
}

VerificationPair pair_of(const PolicyResult& greedy, const PolicyResult& probabilistic,
                         const std::string& domain) {
  VerificationPair out;
  out.domain = domain;
  out.policy = greedy.policy;
  out.parameters = greedy.parameters;
  out.concurrency = greedy.concurrency;
  out.greedy = side_of(greedy);
  out.probabilistic = side_of(probabilistic);
  out.tau_difference = *greedy.tau - *probabilistic.tau;
  out.tau_interval = interval_of_difference(*greedy.tau, greedy.intervals.tau, *probabilistic.tau,
                                            probabilistic.intervals.tau);
  if (!greedy.tokens_per_cost || !probabilistic.tokens_per_cost) return out;
  out.efficiency_difference = *greedy.tokens_per_cost - *probabilistic.tokens_per_cost;
  out.efficiency_interval = interval_of_difference(
      *greedy.tokens_per_cost, greedy.intervals.tokens_per_cost, *probabilistic.tokens_per_cost,
      probabilistic.intervals.tokens_per_cost);
  return out;
}

/// The traces of one domain, by the verification they were recorded for and replayed under.
struct Domain {
  std::set<std::string> greedy, probabilistic;
};

}  // namespace

std::vector<std::string> pair_verifications(ReplayResult& result) {
  std::vector<std::string> notes;
  result.pairs.clear();
  std::map<std::string, std::string> domain_of;  // by file
  for (const TraceSummary& trace : result.traces) domain_of[trace.file] = trace.domain;
  const auto is_greedy = [](const PolicyResult& row) { return row.verification == "greedy"; };

  std::map<std::string, Domain> domains;
  std::map<PolicyKey, std::vector<const PolicyResult*>> probabilistic;
  for (const PolicyResult& row : result.results) {
    if (row.bound || !row.tau) continue;
    if (!is_greedy(row)) probabilistic[key_of(row)].push_back(&row);
    const std::string& domain = domain_of[row.trace];
    if (row.off_policy || domain.empty()) continue;
    (is_greedy(row) ? domains[domain].greedy : domains[domain].probabilistic).insert(row.trace);
  }
  const auto is_clear = [&](const std::string& domain) {
    return domains[domain].greedy.size() == 1 && domains[domain].probabilistic.size() == 1;
  };
  for (const auto& [name, domain] : domains) {
    if (domain.greedy.empty() || domain.probabilistic.empty() || is_clear(name)) continue;
    notes.push_back(fmt::format(
        "domain {}: {} greedy and {} sampled traces, so greedy and probabilistic rows are not "
        "paired; replay the two that belong together",
        name, domain.greedy.size(), domain.probabilistic.size()));
  }
  for (const PolicyResult& row : result.results) {
    if (row.bound || !row.tau || !is_greedy(row)) continue;
    const std::string& domain = domain_of[row.trace];
    for (const PolicyResult* other : probabilistic[key_of(row)]) {
      const bool one_trace = other->trace == row.trace;
      const bool two_recordings = !one_trace && !row.off_policy && !other->off_policy &&
                                  !domain.empty() && domain_of[other->trace] == domain &&
                                  is_clear(domain);
      if (one_trace || two_recordings) result.pairs.push_back(pair_of(row, *other, domain));
    }
  }
  return notes;
}

}  // namespace dspark
