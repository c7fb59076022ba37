// The rows of one job: every policy at every number of requests in flight, priced and compared.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "replay/intervals.h"
#include "replay/lockstep.h"
#include "replay/replay.h"

namespace dspark {

/// What the rows of a job have in common.
struct RowSource {
  /// A policy that looks at one request at a time, evaluated: its tau, rounds and what it verifies,
  /// with `lossless`; `flow` gets the parts.
  std::function<PolicyResult(const Policy&, RoundFlow&, LoopScratch&)> evaluate;
  /// Where the others walk, in lockstep; null: the job has none of them.
  const OutcomeTable* table = nullptr;
  /// Which of the flow's entries stands at each place of the resampled text (map_cells()).
  std::vector<std::size_t> order = {};
};

/// Evaluates job.policies at job.concurrency and appends the rows to `result`, each the work of one
/// thread, so that no result depends on their number. A policy that looks at one request is
/// evaluated once; at each concurrency it is priced by what a step of that many such requests is
/// expected to cost. The others are walked at each. `options.reference` is a rank within one
/// concurrency.
void evaluate_rows(const ReplayJob& job, const ReplayOptions& options, const Resampling& resampling,
                   const RowSource& source, ReplayResult& result);

}  // namespace dspark
