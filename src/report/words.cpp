#include "report/words.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <variant>

#include "support/text.h"

namespace dspark {
namespace {

std::string parameter_text(const ParameterValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) {
    return std::isfinite(*number) ? shortest(*number) : "-";
  }
  return escape_text(std::get<std::string>(value));
}

}  // namespace

std::string policy_text(const std::string& policy,
                        const std::vector<std::pair<std::string, ParameterValue>>& parameters) {
  std::string out = escape_text(policy);
  for (const auto& [name, value] : parameters) {
    out += fmt::format(" {}={}", escape_text(name), parameter_text(value));
  }
  return out;
}

std::string setting_text(const SamplingLabel& sampling, bool greedy_verification) {
  std::string out = fmt::format("temperature {}", shortest(sampling.temperature));
  if (sampling.top_k > 0) out += fmt::format(", top_k {}", sampling.top_k);
  if (sampling.top_p < 1 || sampling.top_p_rule != "water_filling") {
    out +=
        fmt::format(", top_p {} ({})", shortest(sampling.top_p), escape_text(sampling.top_p_rule));
  }
  if (sampling.drafts == "greedy" && !greedy_verification) out += ", greedy drafts";
  return out;
}

std::string level_text(double confidence) { return shortest(100 * confidence) + " %"; }

}  // namespace dspark
