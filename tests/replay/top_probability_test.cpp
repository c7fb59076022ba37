// The drafter's largest probabilities: what they cost and change, traces without a confidence head,
// and walks of rules that look at them.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "replay/closed_loop.h"
#include "replay/lockstep.h"
#include "replay/off_policy.h"
#include "replay/pass.h"
#include "replay/reduce.h"
#include "support/error.h"
#include "tests/replay/random_table.h"
#include "tests/replay/same_bits.h"
#include "tests/replay/tiny_trace.h"
#include "tests/support/temporary_folder.h"

namespace dspark {
namespace {

OutcomeTable reduce(const TinyTrace& tiny, const ReduceRequest& request) {
  const test::TemporaryFolder folder;
  tiny.write(folder.file("t.h5"));
  const std::unique_ptr<TraceFile> trace = TraceFile::open(folder.file("t.h5"));
  const Heads heads = load_heads(*trace, "", 0);
  const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  return reduce_anchors(*backend, *trace, heads, request, {});
}

ReduceRequest request_of(bool top_probability, bool greedy_drafts = false) {
  SamplingLabel sampling = {1, 0, 1, "water_filling"};
  if (greedy_drafts) sampling.drafts = "greedy";
  return {.sampling = sampling, .worlds = true, .top_probability = top_probability};
}

RowLaw law_of_row(std::vector<float> row, const SamplingRule& rule) {
  const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  const auto vocab = static_cast<std::int32_t>(row.size());
  RowLaw law;
  backend->row_laws({.logits = {row.data(), 1, vocab, vocab}, .rule = rule, .laws = {&law, 1}});
  backend->synchronize();
  return law;
}

TEST(TopProbability, IsWhatTheLawKeepsOfItsLargestToken) {
  const std::vector<float> row = {std::log(1.0f), std::log(4.0f), std::log(2.0f), std::log(1.0f)};
  const auto top = [&](double temperature, std::int64_t top_k, double top_p, TopPRule rule) {
    return top_probability(law_of_row(row, make_sampling_rule(temperature, top_k, top_p, rule, 4)));
  };
  EXPECT_NEAR(top(1, 0, 1, TopPRule::water_filling), 4 / 8.0, 1e-6);
  EXPECT_NEAR(top(0.5, 0, 1, TopPRule::water_filling), 16 / 22.0, 1e-6);
  EXPECT_NEAR(top(1, 2, 1, TopPRule::water_filling), 4 / 6.0, 1e-6);
  EXPECT_NEAR(top(1, 0, 0.625, TopPRule::water_filling), 4 / 5.0, 1e-6);
  EXPECT_NEAR(top(1, 0, 0.625, TopPRule::include_crossing), 4 / 6.0, 1e-6);
  EXPECT_EQ(top(1, 0, 0.25, TopPRule::water_filling), 1.0f) << "the nucleus is one token";
  EXPECT_TRUE(std::isnan(top_probability(law_of_row({NAN, 1}, {}))));
}

TEST(TopProbability, OfGreedyDraftsIsThatOfThePlainSoftmax) {
  const SamplingRule sampled = make_sampling_rule(0.7, 3, 0.9, TopPRule::water_filling, 5);
  const SamplingRule same = top_probability_rule(sampled);
  EXPECT_EQ(same.inverse_temperature, sampled.inverse_temperature);
  EXPECT_EQ(same.top_k, 3);
  EXPECT_EQ(same.top_p, sampled.top_p);
  const SamplingRule greedy = make_sampling_rule(0, 3, 0.9, TopPRule::water_filling, 5);
  const SamplingRule plain = top_probability_rule(greedy);
  EXPECT_FALSE(plain.greedy);
  EXPECT_EQ(plain.inverse_temperature, 1);
  EXPECT_EQ(plain.top_k, 0);
  EXPECT_EQ(plain.top_p, 0u);
}

TEST(TopProbability, AreOnlyThereOnRequestAndChangeNothingElse) {
  const TinyTrace tiny(3, 37);
  for (const bool greedy_drafts : {false, true}) {
    SCOPED_TRACE(greedy_drafts);
    const OutcomeTable with = reduce(tiny, request_of(true, greedy_drafts));
    const OutcomeTable without = reduce(tiny, request_of(false, greedy_drafts));
    EXPECT_TRUE(without.top_probability.empty());
    EXPECT_TRUE(without.world_top_probability.empty());
    EXPECT_EQ(with.top_probability.size(), with.confidence.size());
    EXPECT_EQ(with.world_top_probability.size(), with.world_confidence.size());
    EXPECT_EQ(with.world_top_probability.empty(), greedy_drafts);
    EXPECT_EQ(with.slots, without.slots);
    EXPECT_EQ(with.repeats, without.repeats);
    EXPECT_TRUE(same_bits(with.beta, without.beta));
    EXPECT_TRUE(same_bits(with.alpha, without.alpha));
    EXPECT_EQ(with.agreement, without.agreement);
    EXPECT_TRUE(same_bits(with.confidence, without.confidence));
    EXPECT_TRUE(same_bits(with.world_confidence, without.world_confidence));
  }
}

TEST(TopProbability, EveryWorldHasThemWhereItHasConfidences) {
  const OutcomeTable table = reduce(TinyTrace(3, 37), request_of(true));
  std::size_t worlds = 0;
  for (std::size_t i = 0; i < table.world_confidence.size(); ++i) {
    ASSERT_EQ(std::isnan(table.world_top_probability[i]), std::isnan(table.world_confidence[i]));
    if (std::isnan(table.world_top_probability[i])) continue;
    ++worlds;
    EXPECT_GE(table.world_top_probability[i], 1.0f / 37);
    EXPECT_LE(table.world_top_probability[i], 1.0f);
  }
  EXPECT_GT(worlds, 50u);
}

TEST(TopProbability, NeedsNoConfidenceHeadAndNoHiddenStates) {
  TinyTrace tiny(3, 37);
  const OutcomeTable whole = reduce(tiny, request_of(true));
  tiny.has_confidence = false;
  const OutcomeTable table = reduce(tiny, request_of(true));
  EXPECT_FALSE(table.has_confidence);
  EXPECT_TRUE(table.world_confidence.empty());
  EXPECT_TRUE(same_bits(table.top_probability, whole.top_probability));
  EXPECT_TRUE(same_bits(table.world_top_probability, whole.world_top_probability));

  const Policy rule = SoftmaxMin{0.12, 0};
  const ClosedLoop loop = closed_loop(table, rule, {});
  EXPECT_GT(*loop.verified, 0);
  EXPECT_EQ(loop.verified, closed_loop(whole, rule, {}).verified);
  EXPECT_FALSE(closed_loop(table, Threshold{}, {}).verified.has_value()) << "it has no worlds";
  EXPECT_EQ(reduce(tiny, request_of(false)).repeats, 0);
}

TEST(TopProbability, ATableThatLacksThemIsNotFollowed) {
  OutcomeTable table = random_table({20}, 3, 2, 1);
  table.top_probability.clear();
  table.world_top_probability.clear();
  const Policy rule = SoftmaxMin{0.5, 0};
  RoundFlow flow;
  const CostModel model;
  EXPECT_THROW(static_cast<void>(closed_loop(table, rule, {})), Error);
  EXPECT_THROW(static_cast<void>(
                   walk_lockstep(table, rule, {model, Width::ragged, 1, 3}, model, 1, 0, flow)),
               Error);
  table.importance.assign(table.beta.size(), 1.0);
  EXPECT_THROW(static_cast<void>(evaluate_off_policy(table, rule, {}, Verification::probabilistic)),
               Error);
}

TEST(TopProbability, AWalkOfOneRequestIsTheClosedLoop) {
  const OutcomeTable table = random_table({40, 25, 31}, 5, 3, 12);
  const CostModel model;
  const StepPrices prices(model, Width::ragged, 1, 5);
  for (const double minimum : {0.2, 0.45, 0.7}) {
    SCOPED_TRACE(minimum);
    const Policy rule = SoftmaxMin{minimum, 0};
    const ClosedLoop loop = closed_loop(table, rule, {});
    RoundFlow flow;
    const Lockstep walked = walk_lockstep(table, rule, prices, model, 400, 7, flow);
    EXPECT_NEAR(walked.tau, loop.tau, 4 * *walked.tau_se);
    EXPECT_NEAR(walked.verified, *loop.verified, 4 * *walked.verified_se);
    EXPECT_LT(*walked.tau_se, 0.02);
    EXPECT_LT(*walked.verified_se, 0.02);
    EXPECT_GT(std::abs(*loop.verified - loop.verified_on_trajectory), 4 * *walked.verified_se)
        << "the walk tells drafts behind a rejection from those of the text";
  }
}

TEST(TopProbability, AGateThatStaysOpenIsTheRuleInsideIt) {
  const OutcomeTable table = random_table({40, 25, 31}, 5, 3, 12);
  const CostModel model;
  const StepPrices prices(model, Width::ragged, 2, 5);
  const SoftmaxMin rule{0.45, 0};
  RoundFlow flow;
  const Lockstep plain = walk_lockstep(table, rule, prices, model, 3, 7, flow);
  const Lockstep open = walk_lockstep(table, Gate{.window = 1, .min_accepted = 0, .wrapped = rule},
                                      prices, model, 3, 7, flow);
  EXPECT_EQ(open.tau, plain.tau);
  EXPECT_EQ(open.verified, plain.verified);
  const Lockstep shut = walk_lockstep(table, Gate{.window = 1, .min_accepted = 5, .wrapped = rule},
                                      prices, model, 3, 7, flow);
  EXPECT_GT(shut.plain_share, 0.5);
}

}  // namespace
}  // namespace dspark
