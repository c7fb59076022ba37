// Which verification and sampling settings are replayed on which trace.
#pragma once

#include <string>
#include <vector>

#include "config/plan.h"
#include "replay/result.h"
#include "trace/schema.h"

namespace dspark {

/// One setting to replay on a trace; always the one the trace was recorded with, but for the top-p
/// rule, which is not recorded and may be chosen.
struct Setting {
  Verification verification;
  SamplingLabel sampling;
};

struct SettingChoice {
  std::vector<std::vector<Setting>>
      by_trace;                    ///< parallel to the traces; empty: the trace is left out
  std::vector<std::string> notes;  ///< what is left out, one line each
};

/// The settings of `plan` that each trace can answer exactly. A verification that was asked for is
/// left out on traces that were recorded with the other one, as long as some trace answers it.
/// Throws Error(policy) with the place in the policy file where no trace answers it, or where a
/// temperature, top_k or top_p differs from a recorded one (top_k of 0 or ≥ V are one setting, as
/// are top_p ≥ 1 - 1e-6; recorded f32 numbers equal the same numbers in the file).
[[nodiscard]] SettingChoice choose_settings(const Plan& plan,
                                            const std::vector<TraceHeader>& traces);

/// "file:line:column" of a place in the plan's policy file; the file alone, or nothing, where that
/// is all there is.
[[nodiscard]] std::string place_in_plan(const Plan& plan, const SourcePosition& position);

}  // namespace dspark
