// Which verification and sampling settings are replayed on which trace.
#pragma once

#include <string>
#include <vector>

#include "config/plan.h"
#include "replay/result.h"
#include "trace/schema.h"

namespace dspark {

/// One setting to replay on a trace.
struct Setting {
  Verification verification;
  SamplingLabel sampling;
  bool off_policy = false;  ///< another one than the trace was recorded with: an estimate
};

struct SettingChoice {
  std::vector<std::vector<Setting>>
      by_trace;                    ///< parallel to the traces; empty: the trace is left out
  std::vector<std::string> notes;  ///< what is left out, one line each
};

/// The settings of `plan` on each trace, each once. What is not given is the recorded value; greedy
/// verification is one setting at any temperature, its label says 0. A top-p rule is not recorded,
/// so any is the recorded one.
///
/// Anchors traces recorded at a temperature of at least 1e-3 answer other temperatures, filters and
/// greedy verification too, by estimates (off_policy.h). Everything else is answered exactly or not
/// at all: a verification that is asked for is left out, with a note, on traces that cannot answer
/// it, or that need not because a trace of the same domain was recorded with it.
///
/// Throws Error(policy) with the place in the policy file where no trace answers a verification;
/// where a trace of rounds is asked for another setting than its own (top_k of 0 or ≥ V are one
/// setting, as are top_p ≥ 1 - 1e-6; recorded f32 numbers equal the same numbers in the file), a
/// trace recorded greedily for a temperature above 0 and no verification; and where the recording's
/// filters hide tokens that the setting can draw.
[[nodiscard]] SettingChoice choose_settings(const Plan& plan,
                                            const std::vector<TraceHeader>& traces);

/// "file:line:column" of a place in the plan's policy file; the file alone, or nothing, where that
/// is all there is.
[[nodiscard]] std::string place_in_plan(const Plan& plan, const SourcePosition& position);

}  // namespace dspark
