// TensorRT-LLM's speculation gate: off for good where speculation does not pay.
#pragma once

#include <cstdint>
#include <vector>

#include "core/host_device.h"

namespace dspark {

/// The gate's decision: whether the mean of `accepted` [window] (drafts per round of the last
/// completed requests, added up in this order) is below `min_accepted`.
DSPARK_HD bool gate_closes(const double* accepted, std::int32_t window, double min_accepted) {
  double sum = 0;
  for (std::int32_t i = 0; i < window; ++i) sum += accepted[i];
  return window > 0 && sum / window < min_accepted;
}

/// `gate`: watches the requests that are complete. Once `window` of them are, and ever after, the
/// mean of the last `window` is held against `min_accepted`; the first time that it is below,
/// speculation is over for all requests. A window of 0 never closes.
class SpeculationGate {
 public:
  SpeculationGate(std::int32_t window, double min_accepted);

  /// True while requests may speculate.
  [[nodiscard]] bool open() const { return open_; }
  /// Ends a request that emitted `tokens` in `rounds` rounds of the target: it counts as
  /// max(0, tokens / rounds - 1) accepted drafts per round. One without rounds is left out.
  void complete(std::int64_t tokens, std::int64_t rounds);

 private:
  std::vector<double> accepted_;  // of the last `window` requests, a ring
  double min_accepted_;
  std::int64_t completed_ = 0;
  bool open_ = true;
};

}  // namespace dspark
