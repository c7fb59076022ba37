// What policies and settings are called, wherever a person reads about them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "policy/policy.h"
#include "replay/result.h"

namespace dspark {

/// "threshold rule=cumulative threshold=0.3", as in a policy file; escaped, "-" for a number that
/// does not exist.
[[nodiscard]] std::string policy_text(
    const std::string& policy,
    const std::vector<std::pair<std::string, ParameterValue>>& parameters);

/// The same for a row of the result, or a pair of them.
template <class Row>
[[nodiscard]] std::string policy_text(const Row& row) {
  return policy_text(row.policy, row.parameters);
}

/// "temperature 0.7, top_k 40", with what is not the default.
[[nodiscard]] std::string setting_text(const SamplingLabel& sampling, bool greedy_verification);

/// "95 %" of 0.95.
[[nodiscard]] std::string level_text(double confidence);

}  // namespace dspark
