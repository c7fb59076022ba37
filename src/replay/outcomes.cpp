#include "replay/outcomes.h"

#include <algorithm>

#include "replay/cache.h"
#include "replay/products.h"
#include "replay/reduce.h"

namespace dspark {

namespace {

bool needs_top_probability(const ReplayJob& job) {
  return std::any_of(job.policies.begin(), job.policies.end(), uses_top_probability);
}

void tell_products(const Backend& backend, const ReplayJob& job, const ReplayOptions& options) {
  const std::string notice = products_notice(backend, job.trace, job.heads, options.products);
  if (!notice.empty() && options.notice) options.notice(notice);
}

}  // namespace

OutcomeTable outcomes_of(Backend& backend, const ReplayJob& job, const ReplayOptions& options) {
  const ReduceRequest request = {.sampling = job.sampling,
                                 .verification = job.verification,
                                 .worlds = true,
                                 .top_probability = needs_top_probability(job),
                                 .off_policy = job.off_policy};
  const auto reduce = [&] {
    tell_products(backend, job, options);
    return reduce_anchors(backend, job.trace, job.heads, request, options);
  };
  return options.cache
             ? options.cache->outcomes(backend, job.trace, job.heads, request, options, reduce)
             : reduce();
}

RoundTable rounds_of(Backend& backend, const ReplayJob& job, const ReplayOptions& options) {
  const ReduceRequest request = {.sampling = job.sampling,
                                 .verification = job.verification,
                                 .top_probability = needs_top_probability(job)};
  const auto replay = [&] {
    tell_products(backend, job, options);
    return replay_rounds(backend, job.trace, job.heads, job.sampling, job.verification, options,
                         request.top_probability);
  };
  return options.cache
             ? options.cache->rounds(backend, job.trace, job.heads, request, options, replay)
             : replay();
}

std::string missing_for_confidences(const TraceFile& trace, const Heads& heads) {
  if (!heads.has_confidence()) return "no confidence head";
  if (!trace.row_data(RowData::draft_hidden)) return "no draft_hidden";
  return {};
}

}  // namespace dspark
