#include "replay/result.h"

#include <algorithm>

namespace dspark {

void rank_results(std::vector<PolicyResult>& results) {
  std::stable_sort(
      results.begin(), results.end(), [](const PolicyResult& a, const PolicyResult& b) {
        if (a.bound != b.bound) return b.bound;
        if (a.tokens_per_cost.has_value() != b.tokens_per_cost.has_value()) {
          return a.tokens_per_cost.has_value();
        }
        return a.tokens_per_cost.has_value() && *a.tokens_per_cost > *b.tokens_per_cost;
      });
}

}  // namespace dspark
