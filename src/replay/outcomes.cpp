#include "replay/outcomes.h"

#include "replay/cache.h"
#include "replay/reduce.h"

namespace dspark {

OutcomeTable outcomes_of(Backend& backend, const ReplayJob& job, const ReplayOptions& options) {
  const ReduceRequest request = {.sampling = job.sampling,
                                 .verification = job.verification,
                                 .worlds = true,
                                 .off_policy = job.off_policy};
  const auto reduce = [&] {
    return reduce_anchors(backend, job.trace, job.heads, request, options);
  };
  return options.cache ? options.cache->outcomes(job.trace, job.heads, request, options, reduce)
                       : reduce();
}

RoundTable rounds_of(Backend& backend, const ReplayJob& job, const ReplayOptions& options) {
  const auto replay = [&] {
    return replay_rounds(backend, job.trace, job.heads, job.sampling, job.verification, options);
  };
  if (!options.cache) return replay();
  return options.cache->rounds(job.trace, job.heads,
                               {.sampling = job.sampling, .verification = job.verification},
                               options, replay);
}

std::string missing_for_confidences(const TraceFile& trace, const Heads& heads) {
  if (!heads.has_confidence()) return "no confidence head";
  if (!trace.row_data(RowData::draft_hidden)) return "no draft_hidden";
  return {};
}

}  // namespace dspark
