#include "replay/outcomes.h"

#include <algorithm>

#include "replay/cache.h"
#include "replay/reduce.h"

namespace dspark {

namespace {

bool needs_top_probability(const ReplayJob& job) {
  return std::any_of(job.policies.begin(), job.policies.end(), uses_top_probability);
}

}  // namespace

OutcomeTable outcomes_of(Backend& backend, const ReplayJob& job, const ReplayOptions& options) {
  const ReduceRequest request = {.sampling = job.sampling,
                                 .verification = job.verification,
                                 .worlds = true,
                                 .top_probability = needs_top_probability(job),
                                 .off_policy = job.off_policy};
  const auto reduce = [&] {
    return reduce_anchors(backend, job.trace, job.heads, request, options);
  };
  return options.cache ? options.cache->outcomes(job.trace, job.heads, request, options, reduce)
                       : reduce();
}

RoundTable rounds_of(Backend& backend, const ReplayJob& job, const ReplayOptions& options) {
  const ReduceRequest request = {.sampling = job.sampling,
                                 .verification = job.verification,
                                 .top_probability = needs_top_probability(job)};
  const auto replay = [&] {
    return replay_rounds(backend, job.trace, job.heads, job.sampling, job.verification, options,
                         request.top_probability);
  };
  return options.cache ? options.cache->rounds(job.trace, job.heads, request, options, replay)
                       : replay();
}

std::string missing_for_confidences(const TraceFile& trace, const Heads& heads) {
  if (!heads.has_confidence()) return "no confidence head";
  if (!trace.row_data(RowData::draft_hidden)) return "no draft_hidden";
  return {};
}

}  // namespace dspark
