#include "replay/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <vector>

#include "policy/batch.h"
#include "policy/exact_table.h"
#include "policy/gate.h"
#include "support/error.h"

namespace dspark {
namespace {

std::int32_t sum_of(std::span<const std::int32_t> slots) {
  std::int32_t sum = 0;
  for (const std::int32_t count : slots) sum += count;
  return sum;
}

/// A rule of one request, for each of them.
class PerRequest : public StepScheduler {
 public:
  PerRequest(const Policy& policy, const RoundPrices& prices) : policy_(policy), prices_(prices) {}

  bool schedule(const BatchStep& step, std::span<std::int32_t> lengths) override {
    for (std::int32_t r = 0; r < step.requests; ++r) {
      lengths[static_cast<std::size_t>(r)] =
          scheduled_length(policy_, step.confidence + r * step.stride, step.slots[r], prices_);
    }
    return speculates(policy_);
  }

 private:
  Policy policy_;
  RoundPrices prices_;
};

/// Rules that fill a capacity by rank of the current survivals.
class ByCapacity : public StepScheduler {
 public:
  bool schedule(const BatchStep& step, std::span<std::int32_t> lengths) final {
    allocate(step, capacity(step), options_, lengths, workspace_);
    return true;
  }

 protected:
  explicit ByCapacity(const BatchOptions& options) : options_(options) {}
  virtual std::int32_t capacity(const BatchStep& step) = 0;

  BatchOptions options_;
  BatchWorkspace workspace_;
};

class Fraction final : public ByCapacity {
 public:
  explicit Fraction(double fraction) : ByCapacity({}), fraction_(fraction) {}

 private:
  std::int32_t capacity(const BatchStep& step) override {
    return budget_fraction_capacity(fraction_, step.requests, step.positions);
  }
  double fraction_;
};

class Promising final : public ByCapacity {
 public:
  explicit Promising(const CountBudgetOptions& options)
      : ByCapacity({.floor = 1}), budget_(options) {}

  void finish(const BatchStep& step, std::span<const std::int32_t>,
              std::span<const std::int32_t>) override {
    budget_.update(step);
  }

 private:
  std::int32_t capacity(const BatchStep& step) override {
    return budget_.capacity(step.requests, step.positions);
  }
  CountBudget budget_;
};

class Admission final : public ByCapacity {
 public:
  Admission(const Algorithm1& rule, const StepPrices& prices)
      // The paper admits whatever survives at all.
      : ByCapacity(
            {.rule = BatchRule::algorithm1, .floor = rule.min_length, .survival_epsilon = 0}),
        prices_(prices) {}

 private:
  std::int32_t capacity(const BatchStep& step) override {
    return algorithm1_capacity(step, prices_.by_total(), options_, workspace_).drafts;
  }
  const StepPrices& prices_;
};

/// The confidences of the last steps. Places of requests that were not there count as certain.
class History {
 public:
  explicit History(std::int32_t lag) : lag_(static_cast<std::size_t>(lag)) {}

  /// The confidences of `lag` steps ago, in the layout of `step`.
  const float* before(const BatchStep& step) {
    if (lag_ == 0) return step.confidence;
    if (steps_.size() == lag_) return steps_.front().data();
    certain_.assign(size_of(step), 1.0f);
    return certain_.data();
  }
  void remember(const BatchStep& step) {
    if (lag_ == 0) return;
    std::vector<float> row;
    if (steps_.size() == lag_) {
      row = std::move(steps_.front());
      steps_.pop_front();
    }
    row.assign(step.confidence, step.confidence + size_of(step));
    stride_ = static_cast<std::size_t>(step.stride);
    steps_.push_back(std::move(row));
  }
  void forget(std::int32_t r) {
    for (std::vector<float>& step : steps_) {
      const auto row =
          step.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(r) * stride_);
      std::fill(row, row + static_cast<std::ptrdiff_t>(stride_), 1.0f);
    }
  }

 private:
  static std::size_t size_of(const BatchStep& step) {
    return static_cast<std::size_t>(step.requests) * static_cast<std::size_t>(step.stride);
  }
  std::size_t lag_;
  std::size_t stride_ = 0;
  std::deque<std::vector<float>> steps_;
  std::vector<float> certain_;
};

class Global final : public ByCapacity {
 public:
  Global(const GlobalBudget& rule, const StepPrices& prices, const CostModel& model)
      : ByCapacity({.floor = rule.min_length,
                    // TensorRT-LLM takes the largest of equally good tiers.
                    .last_maximum = !rule.tiers.empty(),
                    .min_gain = rule.min_gain}),
        rule_(rule),
        prices_(prices),
        history_(rule.lag) {
    for (const std::int64_t bucket : model.buckets()) {
      buckets_.push_back(static_cast<std::int32_t>(
          std::min<std::int64_t>(bucket, std::numeric_limits<std::int32_t>::max())));
    }
  }

  void finish(const BatchStep& step, std::span<const std::int32_t>,
              std::span<const std::int32_t>) override {
    history_.remember(step);
  }
  void replace(std::int32_t r, std::int64_t, std::int64_t) override { history_.forget(r); }

 private:
  std::int32_t capacity(const BatchStep& step) override {
    BatchStep old = step;
    old.confidence = history_.before(step);
    const std::int32_t drafts =
        global_capacity(old, prices_.by_total(), options_, workspace_, rule_.tiers).drafts;
    if (!rule_.fill_buckets || drafts == kEveryDraft) return drafts;
    const std::int32_t all = sum_of({step.slots, static_cast<std::size_t>(step.requests)});
    return fill_bucket(drafts, step.requests, all, buckets_);
  }

  GlobalBudget rule_;
  const StepPrices& prices_;
  History history_;
  std::vector<std::int32_t> buckets_;
};

/// TensorRT-LLM B: the smallest graph that holds the requests, and its cells.
class Cells final : public StepScheduler {
 public:
  Cells(const ExactTable& rule, const StepPrices& prices, const CostModel& model)
      : options_{.floor = 1}, besides_(model.draft(prices.requests()) + model.overhead()) {
    const CostTable* table = model.table();
    if (table == nullptr || table->format != CostFormat::trtllm_exact) {
      throw policy_error("policy 'exact_table'", "the cost is no exact table of TensorRT-LLM",
                         "give one as cost.table, or use the policy 'global'");
    }
    const auto graph =
        std::find_if(table->rows.begin(), table->rows.end(),
                     [&](const CostRow& row) { return row.requests >= prices.requests(); });
    if (graph == table->rows.end()) {
      throw policy_error(
          table->file, fmt::format("no graph of cost_tables holds {} requests", prices.requests()),
          "measure a larger one, or lower the concurrency");
    }
    graph_ = static_cast<std::int32_t>(graph->requests);
    cells_ = cells_of(*graph);
    min_gain_ = rule.min_gain.value_or(table->min_predicted_gain.value_or(0.0));
    if (table->drain_guard) guard_ = guard_of(*table, *table->drain_guard);
  }

  bool schedule(const BatchStep& step, std::span<std::int32_t> lengths) override {
    const ExactChoice choice =
        exact_table_choice(step, graph_, cells_, min_gain_, guard_, options_, workspace_);
    allocate(step, choice.drafts, options_, lengths, workspace_);
    price_ = choice.price + besides_;
    submitted_ = choice.tokens > 0 ? choice.tokens
                                   : std::int64_t{graph_} * (std::int64_t{step.positions} + 1);
    return true;
  }
  double price() const override { return price_; }
  std::int64_t submitted() const override { return submitted_; }

 private:
  static std::vector<ExactCell> cells_of(const CostRow& row) {
    std::vector<ExactCell> cells;
    for (std::size_t i = 0; i < row.curve.size(); ++i) {
      cells.push_back({static_cast<std::int32_t>(row.curve.at[i]), row.curve.value[i]});
    }
    return cells;
  }
  static DrainGuard guard_of(const CostTable& table, const CostDrainGuard& guard) {
    DrainGuard out = {guard.loss_multiplier, guard.mean_output_tokens_per_request_iteration,
                      guard.minimum_group_value_ms, 0};
    for (const CostRow& row : table.rows) {
      if (row.requests == guard.tail_graph_batch_size) out.tail_price = row.curve.value.front();
    }
    return out;
  }

  BatchOptions options_;
  BatchWorkspace workspace_;
  std::int32_t graph_ = 0;
  std::vector<ExactCell> cells_;
  double min_gain_ = 0;
  std::optional<DrainGuard> guard_;
  double besides_;
  double price_ = std::numeric_limits<double>::quiet_NaN();
  std::int64_t submitted_ = 0;
};

/// mlx-dspark: one cap for all requests, learned from all of them.
class Capped final : public StepScheduler {
 public:
  Capped(const CappedEwmaOptions& options, const StepPrices& prices) : options_(options) {
    price_.push_back(prices.plain());
    for (std::int32_t cap = 1; cap <= prices.block_size(); ++cap) {
      price_.push_back(prices.of(prices.requests() * cap, cap));
    }
    state_ = start_capped_ewma(options_, price_);
  }

  bool schedule(const BatchStep& step, std::span<std::int32_t> lengths) override {
    const std::int32_t cap = capped_length(state_, options_, price_);
    for (std::int32_t r = 0; r < step.requests; ++r) {
      lengths[static_cast<std::size_t>(r)] = std::min(cap, step.slots[r]);
    }
    return cap > 0;
  }
  void finish(const BatchStep&, std::span<const std::int32_t> verified,
              std::span<const std::int32_t> accepted) override {
    // Every request teaches the acceptance, but rounds, looks and probes are counted in steps.
    for (std::size_t r = 0; r < verified.size(); ++r) {
      CappedEwma next = state_;
      update_capped_ewma(next, options_, price_, verified[r], accepted[r]);
      if (r + 1 < verified.size()) {
        state_.acceptance = next.acceptance;
      } else {
        state_ = next;
      }
    }
  }

 private:
  CappedEwmaOptions options_;
  std::vector<double> price_;
  CappedEwma state_;
};

class Gated final : public StepScheduler {
 public:
  Gated(const Gate& gate, std::unique_ptr<StepScheduler> inside)
      : gate_(gate.window, gate.min_accepted), inside_(std::move(inside)) {}

  bool schedule(const BatchStep& step, std::span<std::int32_t> lengths) override {
    if (gate_.open()) return inside_->schedule(step, lengths);
    std::fill(lengths.begin(), lengths.end(), 0);
    return false;
  }
  double price() const override { return gate_.open() ? inside_->price() : StepScheduler::price(); }
  std::int64_t submitted() const override { return gate_.open() ? inside_->submitted() : 0; }
  void finish(const BatchStep& step, std::span<const std::int32_t> verified,
              std::span<const std::int32_t> accepted) override {
    inside_->finish(step, verified, accepted);
  }
  void replace(std::int32_t r, std::int64_t tokens, std::int64_t rounds) override {
    gate_.complete(tokens, rounds);
    inside_->replace(r, tokens, rounds);
  }

 private:
  SpeculationGate gate_;
  std::unique_ptr<StepScheduler> inside_;
};

}  // namespace

double StepScheduler::price() const { return std::numeric_limits<double>::quiet_NaN(); }
std::int64_t StepScheduler::submitted() const { return 0; }
void StepScheduler::finish(const BatchStep&, std::span<const std::int32_t>,
                           std::span<const std::int32_t>) {}
void StepScheduler::replace(std::int32_t, std::int64_t, std::int64_t) {}

std::unique_ptr<StepScheduler> make_scheduler(const Policy& policy, const StepPrices& prices,
                                              const CostModel& model,
                                              const RoundPrices& round_prices) {
  if (is_bound(policy)) {
    throw internal_error("make_scheduler", policy_name(policy) + " cannot be run step by step");
  }
  if (const auto* budget = std::get_if<BudgetFraction>(&policy)) {
    return std::make_unique<Fraction>(budget->fraction);
  }
  if (const auto* budget = std::get_if<PromisingBudget>(&policy)) {
    return std::make_unique<Promising>(budget->options);
  }
  if (const auto* rule = std::get_if<Algorithm1>(&policy)) {
    return std::make_unique<Admission>(*rule, prices);
  }
  if (const auto* rule = std::get_if<GlobalBudget>(&policy)) {
    return std::make_unique<Global>(*rule, prices, model);
  }
  if (const auto* rule = std::get_if<ExactTable>(&policy)) {
    return std::make_unique<Cells>(*rule, prices, model);
  }
  if (const auto* rule = std::get_if<CapController>(&policy)) {
    return std::make_unique<Capped>(rule->options, prices);
  }
  if (const auto* gate = std::get_if<Gate>(&policy)) {
    return std::make_unique<Gated>(
        *gate, make_scheduler(*inner_policy(policy), prices, model, round_prices));
  }
  return std::make_unique<PerRequest>(at_concurrency(policy, prices.requests()), round_prices);
}

}  // namespace dspark
