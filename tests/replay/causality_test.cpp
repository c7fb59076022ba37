// Which rules keep the target's distribution.
#include "replay/causality.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace dspark {
namespace {

/// The shortest of the lengths with the most expected tokens per step, `speed[l]` being the steps
/// per second with l drafts to verify: what a measured staircase of costs makes of `sps`.
LengthRule argmax_over(const std::vector<double>& speed) {
  return [speed](const float* confidence, std::int32_t slots) {
    double survival = 1, expected = 1, best = speed[0];
    std::int32_t selected = 0;
    for (std::int32_t l = 1; l <= slots; ++l) {
      survival *= static_cast<double>(confidence[l - 1]);
      expected += survival;
      const double throughput = expected * speed[static_cast<std::size_t>(l)];
      if (throughput > best) {
        best = throughput;
        selected = l;
      }
    }
    return selected;
  };
}

LengthRule early_stopped(const LengthRule& rule) {
  return [rule](const float* confidence, std::int32_t slots) {
    return early_stopped_length(rule, confidence, slots);
  };
}

/// The paper's counterexample (its appendix A): a block of two drafts over the tokens A and B,
/// whose second confidence shows what the first draft was.
constexpr std::array<double, 2> kTarget = {0.7, 0.3};
constexpr std::array<double, 2> kDraft = {0.5, 0.5};
constexpr float kFirst = 0.8f;                          // Σ min(p, q)
constexpr std::array<float, 2> kSecond = {0.9f, 0.0f};  // after A, after B
const std::vector<double> kSpeed = {1.0, 0.5, 0.45};

/// The law of the first emitted token under `rule`, over every draft, decision and correction.
std::array<double, 2> first_token(const LengthRule& rule) {
  std::array<double, 2> out{};
  const double excess = kTarget[0] - kDraft[0];  // the residual is all on A
  EXPECT_GT(excess, 0);
  for (std::size_t x = 0; x < 2; ++x) {
    const std::array<float, 2> confidence = {kFirst, kSecond[x]};
    if (rule(confidence.data(), 2) == 0) {
      for (std::size_t v = 0; v < 2; ++v) out[v] += kDraft[x] * kTarget[v];
      continue;
    }
    const double accept = std::min(1.0, kTarget[x] / kDraft[x]);
    out[x] += kDraft[x] * accept;
    out[0] += kDraft[x] * (1 - accept);
  }
  return out;
}

TEST(Causality, ARuleThatLooksBackFromTheWholeBlockShiftsTheDistribution) {
  const LengthRule retrospective = argmax_over(kSpeed);
  const std::array<float, 2> after_a = {kFirst, kSecond[0]}, after_b = {kFirst, kSecond[1]};
  EXPECT_EQ(retrospective(after_a.data(), 2), 2);
  EXPECT_EQ(retrospective(after_b.data(), 2), 0);
  const auto law = first_token(retrospective);
  EXPECT_NEAR(law[0], 0.85, 1e-12);
  EXPECT_NEAR(law[1], 0.15, 1e-12);
  EXPECT_FALSE(is_causal(retrospective, 2));
}

TEST(Causality, ItsEarlyStoppedFormDoesNot) {
  const LengthRule causal = early_stopped(argmax_over(kSpeed));
  const std::array<float, 2> after_a = {kFirst, kSecond[0]};
  EXPECT_EQ(causal(after_a.data(), 2), 0);
  for (const LengthRule& rule :
       {causal, length_rule(Threshold{ThresholdRule::cumulative, 0.5, 0, 0}, {}),
        length_rule(Sps{0, 0, 0}, {}), length_rule(FixedLength{2}, {})}) {
    const auto law = first_token(rule);
    EXPECT_NEAR(law[0], kTarget[0], 1e-12);
    EXPECT_NEAR(law[1], kTarget[1], 1e-12);
    EXPECT_TRUE(is_causal(rule, 2));
  }
}

TEST(Causality, AnArgmaxIsCausalWhereTheCostIsLinearOrConvex) {
  std::vector<double> linear, convex, concave, staircase;
  for (int l = 0; l <= 8; ++l) {
    linear.push_back(1 / (2.0 + 0.4 * l));
    convex.push_back(1 / (1.0 + 0.05 * l * l));
    concave.push_back(1 / (1.0 + std::sqrt(static_cast<double>(l))));
    staircase.push_back(1 / (1.0 + 0.7 * ((l + 3) / 4)));
  }
  for (const std::int32_t slots : {2, 5, 8}) {
    EXPECT_TRUE(is_causal(argmax_over(linear), slots)) << slots;
    EXPECT_TRUE(is_causal(argmax_over(convex), slots)) << slots;
    EXPECT_FALSE(is_causal(argmax_over(concave), slots)) << slots;
    EXPECT_FALSE(is_causal(argmax_over(staircase), slots)) << slots;
    for (const auto& speed : {linear, convex, concave, staircase}) {
      EXPECT_TRUE(is_causal(early_stopped(argmax_over(speed)), slots)) << slots;
    }
  }
}

TEST(Causality, EveryPolicyWithALinearCostIsLossless) {
  for (const LinearCost& cost :
       {LinearCost{}, LinearCost{0, 0, 1, 0}, LinearCost{0, 1, 0, 0}, LinearCost{0, 0, 0, 1},
        LinearCost{3, 0, 1e-9, 5}, LinearCost{0, 1e-9, 0, 0}}) {
    for (const Policy& policy :
         {Policy{NoSpeculation{}}, Policy{FixedLength{3}},
          Policy{Threshold{ThresholdRule::cumulative, 0.4, 0, 0}},
          Policy{Threshold{ThresholdRule::cumulative, 0.9, 2, 5}},
          Policy{Threshold{ThresholdRule::per_position, 0.5, 0, 0}}, Policy{Sps{0, 0, 0}},
          Policy{Sps{0.3, 1, 0}}, Policy{Sps{0, 2, 4}}}) {
      for (const std::int32_t slots : {1, 2, 7, 64}) {
        EXPECT_TRUE(is_lossless(policy, cost, Verification::probabilistic, false, slots))
            << policy_name(policy) << " " << slots;
      }
    }
  }
}

TEST(Causality, AMinimumOfTheTopProbabilityIsCausalAlsoBehindAGate) {
  for (const double minimum : {0.1, 0.5, 0.9}) {
    const SoftmaxMin rule{minimum, 0};
    EXPECT_TRUE(is_causal(length_rule(rule, {}), 8));
    EXPECT_TRUE(is_lossless(rule, {}, Verification::probabilistic, false, 8));
    const CostModel model;
    EXPECT_TRUE(is_lossless_in_steps(Gate{.window = 3, .min_accepted = 1, .wrapped = rule},
                                     StepPrices(model, Width::ragged, 2, 8), model,
                                     Verification::probabilistic, false));
  }
}

TEST(Causality, ALengthRoundedDownToABucketLooksAheadAndOneRoundedUpDoesNot) {
  const LengthRule threshold = length_rule(Threshold{ThresholdRule::cumulative, 0.3, 0, 0}, {});
  const LengthRule down = [&](const float* c, std::int32_t slots) {
    return threshold(c, slots) / 2 * 2;
  };
  const LengthRule up = [&](const float* c, std::int32_t slots) {
    return std::min(slots, (threshold(c, slots) + 1) / 2 * 2);
  };
  EXPECT_FALSE(is_causal(down, 4));
  EXPECT_TRUE(is_causal(up, 4));
}

TEST(Causality, TheEarlyStoppedFormOfACausalRuleIsTheRule) {
  const std::array<float, 4> c = {0.9f, 0.7f, 0.8f, 0.2f};
  for (const Policy& policy : {Policy{Threshold{ThresholdRule::cumulative, 0.55, 0, 0}},
                               Policy{Threshold{ThresholdRule::per_position, 0.75, 2, 3}},
                               Policy{Sps{0, 0, 0}}, Policy{FixedLength{3}}}) {
    const LengthRule rule = length_rule(policy, {});
    EXPECT_EQ(early_stopped_length(rule, c.data(), 4), rule(c.data(), 4)) << policy_name(policy);
  }
}

/// Two sequences of four positions, two slots, two repeats; the second confidence in the worlds is
/// high or low.
OutcomeTable two_sequences() {
  OutcomeTable table;
  table.block_size = 2;
  table.repeats = 2;
  table.has_confidence = true;
  table.sequence_offsets = {0, 4, 8};
  table.slots = {2, 2, 2, 1, 2, 2, 2, 1};
  for (int n = 0; n < 8; ++n) {
    table.beta.insert(table.beta.end(), {0.25, 0.5});
    table.alpha.insert(table.alpha.end(), {0.25, 0.5});
    table.confidence.insert(table.confidence.end(), {kFirst, n < 4 ? 0.9f : 0.0f});
    table.world_confidence.insert(table.world_confidence.end(), {0.9f, 0.0f});
  }
  return table;
}

TEST(EarlyStopDifference, IsTheShareOfRoundsByStartsAndWorlds) {
  const OutcomeTable table = two_sequences();
  const LengthRule rule = argmax_over(kSpeed);  // 2 where the second confidence is 0.9, else 0
  // Round starts: only positions with two slots and three tokens left can differ by 2, with two
  // left by 1 (the bonus token needs a place).
  const std::vector<double> starts = {1, 0, 0.5, 0.25, 1, 0, 0, 0};
  // Rejected at slot 1 (0.75): half of the repeats differ. Else (0.25) the text: the first sequence
  // differs, the second does not. At the last position the block is one slot: nothing differs.
  const double first = 0.75 * 0.5 + 0.25, second = 0.75 * 0.5;
  const auto share = early_stop_difference(table, starts, rule);
  ASSERT_TRUE(share.has_value());
  EXPECT_NEAR(*share, (1 * first + 0.5 * first + 1 * second) / 2.75, 1e-12);
  EXPECT_EQ(early_stop_difference(table, starts, early_stopped(rule)), 0.0);
}

TEST(EarlyStopDifference, NeedsWorldsUnlessDraftsAreDeterministic) {
  OutcomeTable table = two_sequences();
  table.repeats = 0;
  table.world_confidence.clear();
  const std::vector<double> starts(8, 1.0);
  const LengthRule rule = argmax_over(kSpeed);
  EXPECT_FALSE(early_stop_difference(table, starts, rule).has_value());
  table.greedy = true;  // the confidences are those of the only chain
  EXPECT_NEAR(early_stop_difference(table, starts, rule).value(), 3.0 / 8, 1e-12);
}

}  // namespace
}  // namespace dspark
