#include "replay/lockstep.h"

#include <gtest/gtest.h>

#include <cmath>

#include "replay/causality.h"
#include "replay/closed_loop.h"
#include "support/error.h"
#include "tests/replay/random_table.h"

namespace dspark {
namespace {

struct Walked {
  Lockstep numbers;
  RoundFlow flow;
};

Walked walk(const OutcomeTable& table, const Policy& policy, std::int32_t requests,
            const CostModel& model = {}, std::int32_t passes = 40, std::uint64_t seed = 0) {
  Walked out;
  const StepPrices prices(model, Width::ragged, requests, table.block_size);
  out.numbers = walk_lockstep(table, policy, prices, model, passes, seed, out.flow);
  return out;
}

/// A cost whose best length is often beyond a worse one: dear first drafts, then free ones.
CostModel stairs() {
  return CostModel(parse_cost_table(
      R"({"token_counts": [1, 2, 3, 4, 5, 6, 7, 8],
          "step_time_ms": [1.0, 1.6, 1.61, 1.62, 2.3, 2.31, 2.32, 2.33]})",
      "stairs"));
}

RoundPrices prices_of(const CostModel& model, const OutcomeTable& table) {
  return RoundPrices(round_prices(model, table.block_size));
}

/// The sequence of a table `count` times.
OutcomeTable repeated_text(const OutcomeTable& one, std::size_t count) {
  OutcomeTable out = one;
  const auto repeat = [count](auto& values) {
    const auto copy = values;
    for (std::size_t i = 1; i < count; ++i) values.insert(values.end(), copy.begin(), copy.end());
  };
  repeat(out.slots);
  repeat(out.beta);
  repeat(out.alpha);
  repeat(out.confidence);
  repeat(out.agreement);
  repeat(out.world_confidence);
  repeat(out.top_probability);
  repeat(out.world_top_probability);
  for (std::size_t i = 2; i <= count; ++i) {
    out.sequence_offsets.push_back(static_cast<std::int64_t>(i) * one.sequence_offsets.back());
  }
  return out;
}

TEST(Lockstep, OfOneRequestAgreesWithTheClosedLoop) {
  const OutcomeTable table = random_table({120, 90, 150}, 5, 6, 3);
  for (const Policy& policy :
       {Policy(FixedLength{2}), Policy(Threshold{.threshold = 0.3, .min_length = 0}),
        Policy(Threshold{ThresholdRule::per_position, 0.5, 0, 0}), Policy(NoSpeculation{})}) {
    SCOPED_TRACE(policy_name(policy));
    const Lockstep walked = walk(table, policy, 1, {}, 100).numbers;
    const ClosedLoop exact = closed_loop(table, policy, {});
    ASSERT_TRUE(walked.tau_se && walked.verified_se);
    EXPECT_NEAR(walked.tau, exact.tau, 4 * *walked.tau_se + 1e-12);
    EXPECT_NEAR(walked.verified, *exact.verified, 4 * *walked.verified_se + 1e-12);
    EXPECT_NEAR(*walked.tau_interior, *exact.tau_interior, 6 * *walked.tau_se + 1e-12);
  }
}

TEST(Lockstep, OfSeveralIndependentRequestsCostsWhatIsExpectedOfThem) {
  const OutcomeTable table = random_table({80, 70, 90, 60, 85}, 4, 4, 8);
  const Policy policy = Threshold{.threshold = 0.4, .min_length = 0};
  RoundFlow flow;
  LoopScratch scratch;
  const ClosedLoop exact = closed_loop(table, policy, {}, flow, scratch);
  std::vector<double> share = flow.scheduled_rounds();
  for (double& rounds : share) rounds /= exact.rounds;
  for (const Width width : {Width::ragged, Width::uniform, Width::cap_accept}) {
    const StepPrices prices(stairs(), width, 3, 4);
    RoundFlow walked_flow;
    const Lockstep walked = walk_lockstep(table, policy, prices, stairs(), 200, 1, walked_flow);
    const ExpectedStep expected = expected_step(prices, share);
    EXPECT_NEAR(walked.cost, expected.cost, 0.02 * expected.cost) << width_name(width);
    EXPECT_NEAR(walked.padding, expected.padding, 0.05 * expected.padding + 1e-9);
    EXPECT_NEAR(walked.tau, exact.tau, 5 * *walked.tau_se);
    EXPECT_NEAR(walked_flow.total(RoundFlow::cost) / walked_flow.total(RoundFlow::rounds),
                walked.cost / 3, 1e-9 * walked.cost);
  }
}

TEST(Lockstep, OfARuleThatLooksAheadAgreesWithTheFullBlocks) {
  OutcomeTable table = random_table({150, 150, 150, 150}, 6, 8, 11);
  // Behind a rejection the drafter is unsure: a rule that looks there sees what is coming.
  for (float& confidence : table.world_confidence) confidence *= 0.3f;
  const CostModel model = stairs();
  const RoundPrices prices = prices_of(model, table);
  const Policy policy = Sps{.survival_floor = 0, .min_length = 0};
  ASSERT_FALSE(is_causal(length_rule(policy, prices), 6));
  const ClosedLoop full = closed_loop(table, policy, prices, Acceptance::full_blocks);
  // The walk keeps min(a, l) of every world it draws.
  const Lockstep walked = walk(table, policy, 1, model, 200).numbers;
  EXPECT_NEAR(walked.tau, full.tau, 4 * *walked.tau_se);
  EXPECT_NEAR(walked.verified, *full.verified, 4 * *walked.verified_se);
}

TEST(FullBlocks, KeepOnlyWhatTheRuleVerifiesInEachWorld) {
  // The first draft is always accepted, the others every other time. Along the text the third looks
  // good, and three drafts pay; where the second was rejected it does not, and none does.
  OutcomeTable table = uniform_table(5, 3, 0.5, 0.6f);
  table.repeats = 1;
  table.world_confidence.assign(5 * 3, 0.01f);
  for (std::size_t n = 0; n < 5; ++n) {
    table.beta[3 * n] = 1;
    table.confidence[3 * n + 2] = 0.95f;
  }
  const RoundPrices prices(std::vector<double>{1, 2, 2.2, 2.21});
  const Policy policy = Sps{.survival_floor = 0, .min_length = 0};
  const auto emitted = [&](Acceptance acceptance) {
    const CellMap first = {.of = {0, 1, 1, 1, 1}, .cells = 2};
    RoundFlow flow(first);
    LoopScratch scratch;
    (void)closed_loop(table, policy, prices, flow, scratch, acceptance);
    return flow.cells()[RoundFlow::tokens];  // of the round that starts the text
  };
  EXPECT_DOUBLE_EQ(emitted(Acceptance::along_text), 1 + 1 + 0.5 + 0.25);
  EXPECT_DOUBLE_EQ(emitted(Acceptance::full_blocks), 1 + 0.5 * 0 + 0.5 * (2 + 0.5));
}

TEST(FullBlocks, OfACausalRuleAreTheRoundsAlongTheText) {
  const OutcomeTable table = random_table({100, 60}, 5, 3, 2);
  for (const Policy& policy : {Policy(Threshold{.threshold = 0.35}), Policy(Sps{})}) {
    const ClosedLoop along = closed_loop(table, policy, {});
    const ClosedLoop full = closed_loop(table, policy, {}, Acceptance::full_blocks);
    EXPECT_NEAR(full.tau, along.tau, 1e-9) << policy_name(policy);
    EXPECT_NEAR(*full.verified, *along.verified, 1e-9);
    EXPECT_NEAR(*full.tau_interior, *along.tau_interior, 1e-9);
  }
}

TEST(Lockstep, BatchRulesOfOneRequestAreRulesOfOneRequest) {
  const OutcomeTable table = random_table({100, 110, 90}, 4, 4, 5);
  const CostModel model = stairs();
  const auto same = [&](const Policy& a, const Policy& b) {
    const Lockstep first = walk(table, a, 1, model).numbers;
    const Lockstep second = walk(table, b, 1, model).numbers;
    EXPECT_EQ(first.tau, second.tau) << policy_name(a);
    EXPECT_EQ(first.verified, second.verified) << policy_name(a);
  };
  same(GlobalBudget{}, Sps{.survival_floor = 0, .min_length = 0});
  same(GlobalBudget{.min_length = 1}, Sps{.survival_floor = 0, .min_length = 1});
  same(BudgetFraction{0.5}, FixedLength{2});
  same(Gate{.window = 1000000, .min_accepted = 64, .wrapped = FixedLength{3}}, FixedLength{3});
}

TEST(Lockstep, AGateThatClosesEndsSpeculationForTheRestOfThePass) {
  // One draft in ten is accepted, and a text is complete after a dozen steps.
  const OutcomeTable table = repeated_text(uniform_table(12, 3, 0.1, 0.5f), 50);
  const auto plain_share = [&](double min_accepted, std::int32_t passes) {
    return walk(table, Gate{2, min_accepted, FixedLength{3}}, 2, {}, passes).numbers.plain_share;
  };
  EXPECT_EQ(plain_share(0, 4), 0);
  EXPECT_GT(plain_share(1, 4), 0.9);
  EXPECT_LT(plain_share(1, 4), 1) << "each pass starts with an open gate";
  EXPECT_NEAR(plain_share(1, 4), plain_share(1, 64), 0.02) << "whatever the number of passes";
}

TEST(Lockstep, AParkedControllerProbesWhateverTheNumberOfRequests) {
  // Nearly all drafts are accepted, and the controller starts out thinking that none is.
  const OutcomeTable table = repeated_text(uniform_table(60, 4, 0.95, 0.9f), 8);
  CapController controller;
  controller.options.prior = 0;
  controller.options.alpha = 0.2;
  for (const std::int32_t requests : {1, 2, 4, 8}) {
    EXPECT_GT(walk(table, controller, requests, {}, 4).numbers.tau, 2) << requests;
  }
}

TEST(Lockstep, VisitsAllOfTheTextAlike) {
  const OutcomeTable table = random_table({256, 256, 256}, 5, 4, 12);
  // The same policy, exact and walked (a gate that never closes).
  const ClosedLoop exact = closed_loop(table, FixedLength{3}, {});
  for (const std::int32_t requests : {1, 2, 3, 5, 16, 64}) {
    double mean = 0, squares = 0;
    constexpr int kSeeds = 24;
    for (int seed = 0; seed < kSeeds; ++seed) {
      const double off = walk(table, Gate{1000000, 0, FixedLength{3}}, requests, {}, 2,
                              static_cast<std::uint64_t>(seed))
                             .numbers.tau -
                         exact.tau;
      mean += off / kSeeds;
      squares += off * off / kSeeds;
    }
    const double error = std::sqrt((squares - mean * mean) / (kSeeds - 1));
    EXPECT_LT(std::abs(mean), 4 * error + 0.002 * exact.tau) << requests;
  }
}

TEST(Lockstep, IsAPureFunctionAndTheSeedMatters) {
  const OutcomeTable table = random_table({60, 50, 70}, 4, 3, 9);
  const Policy policy = GlobalBudget{.lag = 2};
  const Lockstep a = walk(table, policy, 5, stairs()).numbers;
  const Lockstep b = walk(table, policy, 5, stairs()).numbers;
  EXPECT_EQ(a.tau, b.tau);
  EXPECT_EQ(a.cost, b.cost);
  EXPECT_NE(walk(table, policy, 5, stairs(), 40, 1).numbers.tau, a.tau);
}

TEST(Lockstep, CountsEnoughStepsForMoreRequestsThanPositions) {
  const OutcomeTable table = random_table({9, 0, 12}, 3, 2, 4);
  const Walked walked = walk(table, Algorithm1{}, 50, {}, 2);
  EXPECT_EQ(walked.numbers.steps, static_cast<double>(2 * kLeastSteps));
  EXPECT_EQ(walked.numbers.tokens, 21) << "scaled to one pass over the text";
  EXPECT_NEAR(walked.flow.total(RoundFlow::rounds), walked.numbers.rounds, 1e-9);
  EXPECT_NEAR(walked.flow.total(RoundFlow::tokens), walked.numbers.tokens, 1e-9);
}

TEST(Lockstep, TheBudgetFallsWhereTokensCostMore) {
  const OutcomeTable table = random_table({200, 220, 180}, 6, 4, 6);
  double before = 1e9;
  for (const double token : {0.01, 0.1, 0.3, 1.0}) {
    const CostModel model(LinearCost{0.2, 1, token, 0});
    const Lockstep walked = walk(table, GlobalBudget{}, 4, model, 4).numbers;
    EXPECT_LT(walked.verified, before) << token;
    before = walked.verified;
  }
}

TEST(LosslessInSteps, LooksAtWhatTheRuleLooksAt) {
  const CostModel model = stairs();
  const CostModel line(LinearCost{0.5, 1, 0.45, 0.02});
  const auto lossless = [](const Policy& policy, const CostModel& cost, std::int32_t requests,
                           Verification verification = Verification::probabilistic) {
    return is_lossless_in_steps(policy, StepPrices(cost, Width::ragged, requests, 6), cost,
                                verification, false);
  };
  for (const std::int32_t requests : {1, 4}) {
    EXPECT_TRUE(lossless(Algorithm1{}, model, requests)) << "it stops early";
    EXPECT_TRUE(lossless(GlobalBudget{.lag = 1}, model, requests));
    EXPECT_TRUE(lossless(GlobalBudget{}, line, requests)) << "equal to the early stop";
    EXPECT_TRUE(lossless(BudgetFraction{0.4}, model, requests));
    EXPECT_TRUE(lossless(PromisingBudget{}, model, requests));
  }
  EXPECT_FALSE(lossless(GlobalBudget{}, model, 1));
  EXPECT_FALSE(lossless(GlobalBudget{}, model, 4));
  EXPECT_FALSE(lossless(ExactTable{}, model, 16));
  GlobalBudget tiered;
  tiered.tiers = {1, 3};
  EXPECT_FALSE(lossless(tiered, line, 16));
  EXPECT_FALSE(lossless(GlobalBudget{.min_gain = 0.05}, line, 1));
  EXPECT_FALSE(lossless(Gate{4, 0.5, GlobalBudget{}}, model, 1));
  EXPECT_TRUE(lossless(Gate{4, 0.5, Threshold{}}, model, 1));
  EXPECT_TRUE(lossless(GlobalBudget{}, model, 1, Verification::greedy));
}

TEST(Scheduler, AnExactTableIsNeededAndMustHoldTheRequests) {
  const OutcomeTable table = random_table({40}, 3, 1, 1);
  EXPECT_THROW((void)walk(table, ExactTable{}, 1), Error);
}

}  // namespace
}  // namespace dspark
