// The rules that look at all requests of a step, or back in time, as something that a walk can ask
// step by step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "policy/policy.h"
#include "replay/pricing.h"

namespace dspark {

/// Decides how many drafts each of R requests verifies, step after step. Made for one walk; asked
/// from one thread.
class StepScheduler {
 public:
  virtual ~StepScheduler() = default;
  StepScheduler(const StepScheduler&) = delete;
  StepScheduler& operator=(const StepScheduler&) = delete;

  /// Fills lengths [R]: drafts to verify, at most the step's slots. False: the step does not
  /// speculate at all, drafts nothing, and all lengths are 0.
  [[nodiscard]] virtual bool schedule(const BatchStep& step, std::span<std::int32_t> lengths) = 0;
  /// The price of the step that was just scheduled, where the rule has one of its own (measured
  /// cells); NaN: the walk's.
  [[nodiscard]] virtual double price() const;
  /// Tokens that the step submits, where the rule decides that too (measured cells); 0: the walk's.
  [[nodiscard]] virtual std::int64_t submitted() const;
  /// Ends a step: what each request verified and accepted [R].
  virtual void finish(const BatchStep& step, std::span<const std::int32_t> verified,
                      std::span<const std::int32_t> accepted);
  /// A request in place r is complete and the next one takes its place.
  virtual void replace(std::int32_t r, std::int64_t tokens, std::int64_t rounds);

 protected:
  StepScheduler() = default;
};

/// The scheduler of a policy for the steps that `prices` is about; `model` is what they were looked
/// up in, `round_prices` what rules of one request optimise. Any policy but the oracles; for one
/// that looks at top probabilities the steps hold those in place of confidences. Throws
/// Error(policy) for `exact_table` without such a table, or with none of its graphs large enough.
[[nodiscard]] std::unique_ptr<StepScheduler> make_scheduler(const Policy& policy,
                                                            const StepPrices& prices,
                                                            const CostModel& model,
                                                            const RoundPrices& round_prices);

}  // namespace dspark
