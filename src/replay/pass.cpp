#include "replay/pass.h"

#include <limits>
#include <string>
#include <vector>

#include "support/error.h"

namespace dspark {

SamplingRule sampling_rule(const SamplingLabel& sampling, Verification verification,
                           std::int32_t vocab) {
  const TopPRule top_p_rule = sampling.top_p_rule == "include_crossing" ? TopPRule::include_crossing
                                                                        : TopPRule::water_filling;
  SamplingRule rule =
      make_sampling_rule(sampling.temperature, sampling.top_k, sampling.top_p, top_p_rule, vocab);
  if (verification == Verification::greedy) rule.greedy = true;
  return rule;
}

SamplingRule top_probability_rule(const SamplingRule& drafts) {
  return drafts.greedy ? SamplingRule{} : drafts;
}

float top_probability(const RowLaw& law) {
  if (law.status != kRowValid) return std::numeric_limits<float>::quiet_NaN();
  const std::uint64_t mass = law_mass(law, law.max_logit, law.argmax);
  return static_cast<float>(static_cast<double>(mass) / static_cast<double>(law.total));
}

const char* invalid_row_reason(std::uint32_t status) {
  if (status & kRowNaN) return "NaN";
  if (status & kRowPlusInfinity) return "+inf";
  return "no finite value";
}

std::uint64_t tile_bytes(const Backend& backend, const ReplayOptions& options) {
  if (options.tile_bytes > 0) return options.tile_bytes;
  return backend.shares_host_memory() ? kHostTileBytes : kDeviceTileBytes;
}

StatusWord::StatusWord(Backend& backend) : word_(backend, 1) { word_.upload({kOpOk}); }

void StatusWord::require_good_ids() const {
  std::vector<std::uint32_t> status;
  word_.download(status, 1);
  const std::uint32_t bad = status[0] & (kOpBadToken | kOpBadRow | kOpBadLength);
  if (bad == kOpOk) return;
  throw internal_error(
      "replay",
      "an operation was given an id or length out of range (status " + std::to_string(bad) + ")",
      "this is a mistake in the program, report it");
}

}  // namespace dspark
