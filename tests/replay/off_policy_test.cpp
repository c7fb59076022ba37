// Estimates of settings that were not recorded, against enumeration and by hand.
#include "replay/off_policy.h"

#include <gtest/gtest.h>

#include <array>

#include "backends/cpu/cpu_backend.h"
#include "replay/reduce.h"
#include "replay/worlds.h"
#include "support/error.h"
#include "tests/replay/random_table.h"
#include "tests/replay/same_bits.h"
#include "tests/replay/toy_model.h"
#include "tests/support/temporary_folder.h"

namespace dspark {
namespace {

struct Case {
  const char* name;
  ToySetting recorded;
  ToySetting asked;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

OutcomeTable reduce(const Case& c, const std::vector<ToyModel::Text>& texts, std::int32_t repeats,
                    std::int64_t chunk = 0) {
  const test::TemporaryFolder folder;
  ToyModel::trace(c.recorded, texts).write(folder.file("t.h5"));
  const std::unique_ptr<TraceFile> trace = TraceFile::open(folder.file("t.h5"));
  const Heads heads = load_heads(*trace, "", 0);
  const std::unique_ptr<Backend> backend = make_cpu_backend(2);
  SamplingLabel label{c.asked.temperature, c.asked.top_k, 1, "water_filling"};
  label.drafts = c.asked.greedy_drafts ? "greedy" : "sampled";
  ReplayOptions options;
  options.repeats = repeats;
  options.chunk = chunk;
  return reduce_anchors(
      *backend, *trace, heads,
      {.sampling = label,
       .verification = c.asked.greedy_target ? Verification::greedy : Verification::probabilistic,
       .worlds = true,
       .top_probability = true,
       .off_policy = true},
      options);
}

/// What the blocks that start at token 0 do under a setting, over every chain of drafts.
struct Expected {
  std::array<double, 2> survival{};
  double tau = 1;
  double verified = 0;
};

Expected expected(const ToySetting& setting, const Policy& policy) {
  Expected out;
  const Law q1 = ToyModel::draft(setting, 0, 1, 0), p1 = ToyModel::target(setting, 0);
  for (std::int32_t x = 0; x < ToyModel::kVocab; ++x) {
    const auto i = static_cast<std::size_t>(x);
    if (q1[i] == 0) continue;
    const Law q2 = ToyModel::draft(setting, 0, 2, x), p2 = ToyModel::target(setting, x);
    const std::array<float, 2> seen = {ToyModel::seen(policy, setting, 0, 1, 0),
                                       ToyModel::seen(policy, setting, 0, 2, x)};
    const std::int32_t length = scheduled_length(policy, seen.data(), 2, {});
    const double first = std::min(p1[i], q1[i]);
    double second = 0;
    for (std::size_t j = 0; j < p2.size(); ++j) second += std::min(p2[j], q2[j]);
    out.survival[0] += first;
    out.survival[1] += first * second;
    out.tau += (length >= 1 ? first : 0) + (length >= 2 ? first * second : 0);
    out.verified += q1[i] * length;
  }
  return out;
}

class OffPolicy : public testing::TestWithParam<Case> {};

TEST_P(OffPolicy, EstimatesAreUnbiased) {
  const Case& c = GetParam();
  auto texts = ToyModel::texts(2);  // one whole block each, at token 0
  std::erase_if(texts, [&](const ToyModel::Text& text) {
    return ToyModel::probability(c.recorded, text) == 0;
  });
  const OutcomeTable table = reduce(c, texts, 1000);
  EXPECT_EQ(table.impossible_tokens, 0) << "a token that is only impossible where it was not drawn";
  const Verification verification =
      c.asked.greedy_target ? Verification::greedy : Verification::probabilistic;
  for (const Policy& policy :
       {Policy{NoSpeculation{}}, Policy{FixedLength{1}}, Policy{FixedLength{2}},
        Policy{Threshold{ThresholdRule::cumulative, 0.45, 0, 0}},
        Policy{Threshold{ThresholdRule::per_position, 0.6, 0, 0}}, Policy{Sps{0, 0, 0}},
        Policy{SoftmaxMin{0.42, 0}}, Policy{SoftmaxMin{0.57, 0}}}) {
    SCOPED_TRACE(policy_name(policy));
    const Expected want = expected(c.asked, policy);
    Expected got;
    got.tau = 0;
    double lo = 0, hi = 0;
    for (std::size_t s = 0; s < texts.size(); ++s) {
      const double p = ToyModel::probability(c.recorded, texts[s]);
      const OutcomeTable one = only_sequence(table, s);
      const auto positions = off_policy_positions(one);
      for (std::size_t k = 0; k < 2; ++k) got.survival[k] += p * positions[k].survival.value();
      const PolicyResult row = evaluate_off_policy(one, policy, {}, verification);
      EXPECT_TRUE(row.off_policy);
      EXPECT_TRUE(row.lossless);
      got.tau += p * row.tau.value();
      got.verified += p * row.verified_per_round.value();
      if (verification == Verification::greedy) {
        lo += p * row.tau_lo.value();
        hi += p * row.tau_hi.value();
      }
    }
    for (std::size_t k = 0; k < 2; ++k) EXPECT_NEAR(got.survival[k], want.survival[k], 1e-6) << k;
    EXPECT_NEAR(got.tau, want.tau, 1e-6);
    const bool sampled = signal_of(policy) && !table.greedy;
    EXPECT_NEAR(got.verified, want.verified, sampled ? 0.01 : 1e-9);
    if (verification == Verification::greedy) {
      EXPECT_LE(lo, want.tau + 1e-6);
      EXPECT_GE(hi, want.tau - 1e-6);
    }
  }
}

TEST_P(OffPolicy, TheTableDoesNotDependOnTheChunk) {
  const auto texts = ToyModel::texts(2);
  const OutcomeTable whole = reduce(GetParam(), texts, 10);
  for (const std::int64_t chunk : {1, 7}) {
    const OutcomeTable parts = reduce(GetParam(), texts, 10, chunk);
    EXPECT_EQ(parts.beta, whole.beta);
    EXPECT_EQ(parts.alpha, whole.alpha);
    EXPECT_EQ(parts.importance, whole.importance);
    EXPECT_EQ(parts.agreement, whole.agreement);
    EXPECT_EQ(parts.slots, whole.slots);
    EXPECT_TRUE(same_bits(parts.world_confidence, whole.world_confidence));
    EXPECT_TRUE(same_bits(parts.world_top_probability, whole.world_top_probability));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, OffPolicy,
    testing::Values(
        Case{"colder", {}, {.temperature = 0.7}}, Case{"warmer", {}, {.temperature = 1.4}},
        Case{"warmer_than_cold", {.temperature = 0.6}, {.temperature = 1.2}},
        Case{"filtered", {}, {.temperature = 0.8, .top_k = 2}},
        Case{"narrower", {.top_k = 3}, {.top_k = 2}},
        Case{"colder_greedy_drafts", {}, {.temperature = 0.7, .greedy_drafts = true}},
        Case{"greedy", {}, {.temperature = 0, .greedy_target = true, .greedy_drafts = true}},
        Case{"greedy_of_filtered",
             {.temperature = 1.5, .top_k = 3},
             {.temperature = 0, .greedy_target = true, .greedy_drafts = true}}),
    [](const auto& instance) { return std::string(instance.param.name); });

/// One sequence of five positions, two slots: four whole blocks in two batches.
OutcomeTable four_blocks() {
  OutcomeTable table;
  table.block_size = 2;
  table.has_confidence = true;
  table.sequence_offsets = {0, 5};
  table.slots = {2, 2, 2, 2, 1};
  table.beta = {1, 0.5, 0.5, 1, 1, 1, 0, 1, 1, 0};
  table.importance = {2, 1, 1, 1, 0.5, 1, 1, 1, 1, 0};
  table.alpha = {0.5, 0.25, 0.5, 0.75, 1, 0.5, 0.25, 0.25, 0, 0};
  table.confidence = {0.9f, 0.9f, 0.9f, 0.1f, 0.9f, 0.9f, 0.9f, 0.1f, 0.9f, 0.9f};
  table.agreement.assign(10, 0);
  return table;
}

TEST(OffPolicyPositions, WeightsErrorsAndEffectiveSamplesAreTheirDefinitions) {
  const auto positions = off_policy_positions(four_blocks());
  ASSERT_EQ(positions.size(), 2u);
  EXPECT_DOUBLE_EQ(positions[0].survival.value(), 2.25 / 4);
  EXPECT_DOUBLE_EQ(positions[0].effective_samples.value(), 4);
  // Weights of slot 2: 2, 0.5, 0.5, 0; terms 0.5, 0.375, 0.25, 0; batches 0.875 and 0.25.
  EXPECT_DOUBLE_EQ(positions[1].survival.value(), 1.125 / 4);
  EXPECT_DOUBLE_EQ(positions[1].effective_samples.value(), 9 / 4.5);
  EXPECT_DOUBLE_EQ(positions[1].conditional.value(), 1.125 / 3);
  EXPECT_DOUBLE_EQ(positions[1].survival_trajectory.value(), (1 + 0.5 + 0.5) / 4);
  const double deviation = 0.875 - 1.125 / 2;
  EXPECT_DOUBLE_EQ(positions[1].survival_se.value(),
                   std::sqrt(2 * deviation * deviation * 2 / 1) / 4);
  EXPECT_FALSE(positions[1].predicted.has_value()) << "no worlds were sampled";
  EXPECT_FALSE(positions[1].survival_visited.has_value());
}

TEST(OffPolicyRows, EffectiveSamplesAreThoseOfTheDeepestSlotThatIsVerified) {
  const OutcomeTable table = four_blocks();
  const auto samples = [&](const Policy& policy) {
    return evaluate_off_policy(table, policy, {}, Verification::probabilistic)
        .effective_samples.value();
  };
  EXPECT_DOUBLE_EQ(samples(NoSpeculation{}), 4);
  EXPECT_DOUBLE_EQ(samples(FixedLength{1}), 4);
  EXPECT_DOUBLE_EQ(samples(FixedLength{2}), 2);
  EXPECT_DOUBLE_EQ(samples(Threshold{ThresholdRule::cumulative, 0.5, 0, 0}), 2);
  EXPECT_DOUBLE_EQ(samples(Threshold{ThresholdRule::cumulative, 0.85, 0, 0}), 4);
}

TEST(OffPolicyRows, ABlockThatIsCutDoesNotCount) {
  OutcomeTable table = four_blocks();
  table.slots[0] = 1;
  const PolicyResult row =
      evaluate_off_policy(table, FixedLength{2}, {}, Verification::probabilistic);
  EXPECT_DOUBLE_EQ(row.tau.value(), 1 + (1.75 + 0.625) / 3);
  std::fill(table.slots.begin(), table.slots.end(), std::uint8_t{1});
  const PolicyResult none =
      evaluate_off_policy(table, FixedLength{2}, {}, Verification::probabilistic);
  EXPECT_FALSE(none.tau || none.tau_se || none.verified_per_round || none.effective_samples);
}

TEST(OffPolicyRows, TheirPartsAddUpToTheirNumbers) {
  OutcomeTable table = four_blocks();
  table.repeats = 1;
  table.world_confidence.assign(5, 0.9f);
  for (const Policy& policy : {Policy(FixedLength{2}), Policy(Threshold{.threshold = 0.5})}) {
    SCOPED_TRACE(policy_name(policy));
    RoundFlow flow;
    const PolicyResult row =
        evaluate_off_policy(table, policy, {}, Verification::probabilistic, flow);
    EXPECT_DOUBLE_EQ(flow.total(RoundFlow::rounds), 4);
    EXPECT_DOUBLE_EQ(flow.total(RoundFlow::tokens), 4 * *row.tau);
    double verified = 0, rounds = 0;
    const std::vector<double> scheduled = flow.scheduled_rounds();
    for (std::size_t l = 0; l < scheduled.size(); ++l) {
      verified += static_cast<double>(l) * scheduled[l];
      rounds += scheduled[l];
    }
    EXPECT_DOUBLE_EQ(verified, 4 * *row.verified_per_round);
    EXPECT_DOUBLE_EQ(rounds, 4);
  }
  // Accepted exactly 0: Σ (1 - alpha of slot 1) over the four blocks.
  RoundFlow flow;
  (void)evaluate_off_policy(table, FixedLength{2}, {}, Verification::probabilistic, flow);
  EXPECT_DOUBLE_EQ(flow.accepted_rounds()[0], 4 - 2.25);
  EXPECT_DOUBLE_EQ(flow.accepted_rounds()[2], 1.125);
}

TEST(OffPolicyPositions, HaveIntervalsWhereTheTextIsResampled) {
  OutcomeTable table = random_table({120, 90}, 3, 2, 5);
  table.importance.assign(table.beta.size(), 1.0);
  const Resampling resampling = anchor_resampling(table, 0, 0.95);
  const auto plain = off_policy_positions(table);
  const auto sure = off_policy_positions(table, &resampling);
  for (std::size_t k = 0; k < sure.size(); ++k) {
    ASSERT_TRUE(sure[k].intervals.survival && sure[k].intervals.predicted) << k;
    EXPECT_NEAR(*sure[k].survival, *plain[k].survival, 1e-12);
    EXPECT_LT(sure[k].intervals.survival->lo, *sure[k].survival);
    EXPECT_GT(sure[k].intervals.survival->hi, *sure[k].survival);
    // About twice two standard errors, both for blocks that are alike.
    const double width = sure[k].intervals.survival->hi - sure[k].intervals.survival->lo;
    EXPECT_GT(width, 2 * *sure[k].survival_se);
    EXPECT_LT(width, 10 * *sure[k].survival_se);
    EXPECT_FALSE(plain[k].intervals.survival.has_value());
  }
}

TEST(OffPolicyRows, AGreedyRunIsCensoredWhereDraftAndTargetAgreeOnAnotherToken) {
  OutcomeTable table = four_blocks();
  table.greedy = true;
  // Accepted along the text; censored at slot 1; rejected at slot 1; accepted, then censored.
  table.beta = {1, 1, 0, 0, 0, 0, 1, 0, 0, 0};
  table.agreement = {1, 1, 1, 0, 0, 0, 1, 1, 0, 0};
  const PolicyResult two = evaluate_off_policy(table, FixedLength{2}, {}, Verification::greedy);
  EXPECT_DOUBLE_EQ(two.tau_lo.value(), 1 + (2 + 1 + 0 + 2) / 4.0);
  EXPECT_DOUBLE_EQ(two.tau_hi.value(), 1 + (2 + 2 + 0 + 2) / 4.0);
  EXPECT_EQ(two.censored_rounds, 1) << "the last slot is accepted or not: nothing is left to know";
  EXPECT_DOUBLE_EQ(two.censored_share.value(), 0.25);
  const PolicyResult one = evaluate_off_policy(table, FixedLength{1}, {}, Verification::greedy);
  EXPECT_EQ(one.censored_rounds, 0);
  EXPECT_EQ(one.tau_lo, one.tau_hi);
  EXPECT_FALSE(evaluate_off_policy(table, FixedLength{2}, {}, Verification::probabilistic).tau_lo);
}

TEST(OffPolicyRows, ATableOfTheRecordedSettingIsRefused) {
  OutcomeTable table = four_blocks();
  table.importance.clear();
  EXPECT_THROW((void)off_policy_positions(table), Error);
  EXPECT_THROW((void)evaluate_off_policy(table, FixedLength{1}, {}, Verification::probabilistic),
               Error);
}

TEST(Coverage, NeedsEveryTokenThatCanBeAcceptedToHaveHadAChance) {
  TraceHeader all;
  all.temperature = 1;
  all.vocab_size = all.vocab_size_logical = 100;
  TraceHeader top_k = all, top_p = all, greedy = all;
  top_k.top_k = 40;
  top_p.top_p = 0.9;
  greedy.temperature = 0;
  const auto covered = [](const TraceHeader& trace, double temperature, std::int64_t k, double p) {
    return is_covered(trace, {temperature, k, p, "water_filling"}, Verification::probabilistic);
  };
  EXPECT_TRUE(covered(all, 5, 0, 1));
  EXPECT_TRUE(covered(all, 0.2, 10, 0.5));
  EXPECT_TRUE(covered(top_k, 2, 40, 1));
  EXPECT_TRUE(covered(top_k, 1, 20, 0.5));
  EXPECT_FALSE(covered(top_k, 1, 41, 1));
  EXPECT_FALSE(covered(top_k, 1, 0, 0.5));
  EXPECT_TRUE(covered(top_p, 0.5, 0, 0.9));
  EXPECT_TRUE(covered(top_p, 1, 20, 0.8));
  EXPECT_FALSE(covered(top_p, 1.1, 0, 0.9)) << "a warmer nucleus is wider";
  EXPECT_FALSE(covered(top_p, 1, 0, 0.95));
  EXPECT_FALSE(covered(top_p, 0.5, 5, 1));
  EXPECT_FALSE(covered(greedy, 0.5, 0, 1));
  for (const TraceHeader& trace : {all, top_k, top_p, greedy}) {
    EXPECT_TRUE(is_covered(trace, {0, 0, 1, "water_filling"}, Verification::greedy));
  }
}

}  // namespace
}  // namespace dspark
