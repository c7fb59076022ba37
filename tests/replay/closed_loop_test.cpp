#include "replay/closed_loop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "support/error.h"
#include "tests/replay/random_table.h"

namespace dspark {
namespace {

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

/// A table of one sequence of `n` positions with block size 2 and the same numbers at every anchor.
OutcomeTable two_slots(std::int64_t n, double beta1, double beta2, float c1, float c2) {
  OutcomeTable table;
  table.block_size = 2;
  table.has_confidence = true;
  table.sequence_offsets = {0, n};
  for (std::int64_t i = 0; i < n; ++i) {
    table.slots.push_back(static_cast<std::uint8_t>(std::min<std::int64_t>(2, n - i)));
    table.beta.insert(table.beta.end(), {beta1, beta2});
    table.alpha.insert(table.alpha.end(), {beta1, beta2});
    table.confidence.insert(table.confidence.end(), {c1, c2});
    table.agreement.insert(table.agreement.end(), {0, 0});
  }
  return table;
}

TEST(ClosedLoop, NoSpeculationEmitsOneTokenPerRound) {
  const ClosedLoop loop = closed_loop(two_slots(5, 0.5, 0.5, 1, 1), NoSpeculation{}, {});
  EXPECT_DOUBLE_EQ(loop.rounds, 5);
  EXPECT_DOUBLE_EQ(loop.tau, 1);
  EXPECT_DOUBLE_EQ(*loop.verified, 0);
  EXPECT_TRUE(loop.exact);
}

TEST(ClosedLoop, CertainAcceptanceAdvancesByTheWholeBlockAndTheBonus) {
  const ClosedLoop loop = closed_loop(two_slots(6, 1, 1, 1, 1), FixedLength{2}, {});
  EXPECT_DOUBLE_EQ(loop.rounds, 2);
  EXPECT_DOUBLE_EQ(loop.tau, 3);
  EXPECT_DOUBLE_EQ(*loop.verified, 2);
}

TEST(ClosedLoop, TheLastTokenIsNeverADraft) {
  // 4 positions: one round of 3 tokens, then one token is left and nothing can be verified.
  const ClosedLoop loop = closed_loop(two_slots(4, 1, 1, 1, 1), FixedLength{2}, {});
  EXPECT_DOUBLE_EQ(loop.rounds, 2);
  EXPECT_DOUBLE_EQ(*loop.verified, 1);
}

TEST(ClosedLoop, FollowsEveryOutcomeWithItsProbability) {
  // By hand, N = 3, fixed length 2, beta = (1/2, 1/4). v0 = 1.
  // n=0, l=2: a=0 w.p. 1/2 -> n=1; a=1 w.p. 1/2*3/4 -> n=2; a=2 w.p. 1/8 -> end.
  // n=1 (v=1/2), left 2, l=1: a=0 -> n=2 (1/4), a=1 -> end. n=2: v = 3/8 + 1/4.
  const OutcomeTable table = two_slots(3, 0.5, 0.25, 1, 1);
  const std::vector<double> v = round_starts(table, FixedLength{2}, {});
  EXPECT_DOUBLE_EQ(v[0], 1);
  EXPECT_DOUBLE_EQ(v[1], 0.5);
  EXPECT_DOUBLE_EQ(v[2], 0.625);
  const ClosedLoop loop = closed_loop(table, FixedLength{2}, {});
  EXPECT_DOUBLE_EQ(loop.tau, 3 / 2.125);
  EXPECT_DOUBLE_EQ(*loop.verified, (1 * 2 + 0.5 * 1 + 0.625 * 0) / 2.125);
  // left > P holds for n = 0 alone: 1 + 1/2 + 1/8.
  EXPECT_DOUBLE_EQ(*loop.tau_interior, 1.625);
}

TEST(ClosedLoop, SequencesAreIndependentAndEmptyOnesAreSkipped) {
  OutcomeTable table = two_slots(6, 0.5, 0.25, 1, 1);
  table.sequence_offsets = {0, 3, 3, 6};
  for (const std::size_t n : {1u, 4u}) table.slots[n] = 2;
  for (const std::size_t n : {2u, 5u}) table.slots[n] = 1;
  EXPECT_DOUBLE_EQ(closed_loop(table, FixedLength{2}, {}).rounds, 2 * 2.125);
}

TEST(ClosedLoop, ACutBlockLimitsTheLength) {
  OutcomeTable table = two_slots(6, 1, 1, 1, 1);
  table.slots[0] = 0;  // its first row is invalid: one plain token, then whole blocks
  const ClosedLoop loop = closed_loop(table, FixedLength{2}, {});
  EXPECT_DOUBLE_EQ(loop.rounds, 3);  // 0 -> 1 -> 4 -> end
}

TEST(ClosedLoop, ConfidencesDecideTheLengthOnTheTrajectory) {
  const OutcomeTable table = two_slots(5, 1, 1, 0.9f, 0.5f);
  const Policy cautious = Threshold{ThresholdRule::cumulative, 0.6, 1, 0};
  EXPECT_DOUBLE_EQ(closed_loop(table, cautious, {}).verified_on_trajectory, (1 + 1 + 0) / 3.0);
  EXPECT_FALSE(closed_loop(table, cautious, {}).verified.has_value()) << "no worlds were sampled";
}

TEST(ClosedLoop, WorldsWeighTheLengthsAfterARejection) {
  // P = 3, one repeat. After a rejection at slot 1 the confidences at 2 and 3 are high, so more is
  // verified there than along the text.
  OutcomeTable table;
  table.block_size = 3;
  table.repeats = 2;
  table.has_confidence = true;
  table.sequence_offsets = {0, 8};
  for (int i = 0; i < 8; ++i) {
    table.slots.push_back(static_cast<std::uint8_t>(std::min(3, 8 - i)));
    table.beta.insert(table.beta.end(), {0.75, 0, 0});
    table.alpha.insert(table.alpha.end(), {0.75, 0, 0});
    table.confidence.insert(table.confidence.end(), {0.9f, 0.1f, 0.1f});
    table.agreement.insert(table.agreement.end(), {0, 0, 0});
    // repeat 0: rejected at 1 -> (0.9, 0.9); rejected at 2 -> (0.9). repeat 1: rejected at 1 ->
    // (0.9, 0.1).
    table.world_confidence.insert(table.world_confidence.end(),
                                  {0.9f, 0.9f, 0.9f, 0.9f, 0.1f, 0.9f});
  }
  const Policy policy = Threshold{ThresholdRule::per_position, 0.5, 0, 0};
  const ClosedLoop loop = closed_loop(table, policy, {});
  // Along the text l = 1 (min(1, left-1) at the end). In worlds: rejected at 1 (weight 1/4): repeat
  // 0 verifies 3, repeat 1 verifies 2; else 1. With left - 1 as a limit. Only starts n with v > 0
  // count.
  const std::vector<double> v = round_starts(table, policy, {});
  double want0 = 0, want1 = 0, rounds = 0;
  for (int n = 0; n < 8; ++n) {
    const double left = 8 - n - 1;
    const double slots = std::min(3, 8 - n);
    rounds += v[static_cast<std::size_t>(n)];
    const double along = std::min(1.0, left);
    const double in0 = slots >= 2 ? std::min(slots, left) : along;
    const double in1 = slots >= 2 ? std::min(2.0, left) : along;
    want0 += v[static_cast<std::size_t>(n)] * (0.25 * in0 + 0.75 * along);
    want1 += v[static_cast<std::size_t>(n)] * (0.25 * in1 + 0.75 * along);
  }
  want0 /= rounds;
  want1 /= rounds;
  EXPECT_NEAR(*loop.verified, (want0 + want1) / 2, 1e-12);
  EXPECT_NEAR(*loop.verified_se, std::abs(want0 - want1) / 2, 1e-12);
  EXPECT_LT(loop.verified_on_trajectory, *loop.verified);
}

TEST(ClosedLoop, GreedyVerificationNeedsNoWorlds) {
  OutcomeTable table = two_slots(5, 1, 0, 0.9f, 0.5f);
  table.greedy = true;
  const ClosedLoop loop = closed_loop(table, Threshold{ThresholdRule::cumulative, 0.4, 1, 0}, {});
  EXPECT_TRUE(loop.exact);
  EXPECT_DOUBLE_EQ(*loop.verified, loop.verified_on_trajectory);
}

/// Verified per round by looking at every world of every repeat.
double verified_in_all_worlds(const OutcomeTable& table, const Policy& policy) {
  const bool top = uses_top_probability(policy);
  const std::vector<float>& text = top ? table.top_probability : table.confidence;
  const std::vector<float>& worlds = top ? table.world_top_probability : table.world_confidence;
  const std::vector<double> v = round_starts(table, policy, {});
  const auto block = static_cast<std::size_t>(table.block_size);
  double sum = 0, rounds = 0;
  for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
    for (std::int64_t n = table.sequence_offsets[s]; n < table.sequence_offsets[s + 1]; ++n) {
      const auto at = static_cast<std::size_t>(n);
      const std::int32_t slots = table.slots[at];
      const std::int64_t left = table.sequence_offsets[s + 1] - n;
      rounds += v[at];
      for (std::int32_t repeat = 0; repeat < table.repeats; ++repeat) {
        double reach = v[at] / table.repeats;
        for (std::int32_t r = 1; r <= slots + 1; ++r) {
          std::vector<float> c(text.begin() + static_cast<std::ptrdiff_t>(at * block),
                               text.begin() + static_cast<std::ptrdiff_t>((at + 1) * block));
          double weight = reach;
          if (r <= slots) {
            const double beta = table.beta[at * block + static_cast<std::size_t>(r) - 1];
            weight *= 1 - beta;
            reach *= beta;
          }
          for (std::int32_t k = r + 1; k <= slots; ++k) {
            c[static_cast<std::size_t>(k) - 1] = worlds[static_cast<std::size_t>(
                (n * table.repeats + repeat) * worlds_per_repeat(table.block_size) +
                world_offset(table.block_size, r, k))];
          }
          sum += weight * static_cast<double>(std::min<std::int64_t>(
                              scheduled_length(policy, c.data(), slots, {}), left - 1));
        }
      }
    }
  }
  return sum / rounds;
}

TEST(ClosedLoop, SkipsOnlyWorldsThatCannotChangeTheLength) {
  const OutcomeTable table = random_table({40, 25}, 5, 3, 8);
  for (const double t : {0.0, 0.1, 0.3, 0.6, 1.0}) {
    for (const std::int32_t least : {0, 1, 3}) {
      for (const std::int32_t most : {0, 3}) {
        for (const ThresholdRule rule : {ThresholdRule::cumulative, ThresholdRule::per_position}) {
          const Policy policy = Threshold{rule, t, least, most};
          EXPECT_NEAR(*closed_loop(table, policy, {}).verified,
                      verified_in_all_worlds(table, policy), 1e-12)
              << t << " " << least << " " << most;
        }
      }
    }
  }
  EXPECT_NEAR(*closed_loop(table, Sps{}, {}).verified, verified_in_all_worlds(table, Sps{}), 1e-12);
  for (const double minimum : {0.0, 0.1, 0.3, 0.6, 1.0}) {
    for (const std::int32_t most : {0, 3}) {
      const Policy policy = SoftmaxMin{minimum, most};
      EXPECT_NEAR(*closed_loop(table, policy, {}).verified, verified_in_all_worlds(table, policy),
                  1e-12)
          << minimum << " " << most;
    }
  }
}

TEST(ClosedLoop, ARuleOfTopProbabilitiesSeesThemAndNothingElse) {
  OutcomeTable table = random_table({40, 25}, 5, 3, 8);
  const Policy rule = SoftmaxMin{0.4, 0};
  const ClosedLoop loop = closed_loop(table, rule, {});
  EXPECT_FALSE(loop.exact);
  EXPECT_GT(*loop.verified_se, 0);
  std::swap(table.confidence, table.top_probability);
  std::swap(table.world_confidence, table.world_top_probability);
  const Policy same = Threshold{ThresholdRule::per_position, 0.4, 0, 0};
  EXPECT_EQ(closed_loop(table, same, {}).tau, loop.tau);
  EXPECT_EQ(closed_loop(table, same, {}).verified, loop.verified);
  table.top_probability.clear();
  EXPECT_THROW(static_cast<void>(closed_loop(table, rule, {})), Error) << "nothing stands in";
}

TEST(ClosedLoop, GivesPartsThatAddUpToItsNumbersAndDoNotDependOnWhatWasThere) {
  const OutcomeTable table = random_table({40, 25}, 5, 3, 9);
  CellMap halves = {.of = std::vector<std::int32_t>(65, 0), .cells = 2};
  std::fill(halves.of.begin() + 20, halves.of.end(), 1);
  RoundFlow used(halves);
  LoopScratch scratch;
  for (const Policy& policy : {Policy(FixedLength{3}), Policy(Sps{}), Policy(OracleConfidence{}),
                               Policy(Oracle{OracleBound::shortest})}) {
    SCOPED_TRACE(policy_name(policy));
    RoundFlow fresh(halves);
    LoopScratch unused;
    const ClosedLoop loop = closed_loop(table, policy, {}, fresh, unused);
    EXPECT_DOUBLE_EQ(closed_loop(table, policy, {}, used, scratch).tau, loop.tau);
    EXPECT_EQ(used.cells(), fresh.cells());
    EXPECT_EQ(used.accepted_rounds(), fresh.accepted_rounds());
    EXPECT_EQ(used.verified_by_repeat(), fresh.verified_by_repeat());
    EXPECT_EQ(used.trimmed(), fresh.trimmed());

    ASSERT_EQ(fresh.cells().size(), 2 * fresh.columns());
    const auto total = [&](std::size_t column) { return fresh.total(column); };
    EXPECT_GT(fresh.cells()[RoundFlow::tokens], 0);
    EXPECT_NEAR(total(RoundFlow::rounds), loop.rounds, 1e-9);
    EXPECT_NEAR(total(RoundFlow::tokens), loop.tokens, 1e-9);
    EXPECT_NEAR(total(RoundFlow::interior_tokens) / total(RoundFlow::interior_rounds),
                *loop.tau_interior, 1e-9);
    double verified = 0, rounds = 0, accepted = 0;
    const std::vector<double> scheduled = fresh.scheduled_rounds();
    for (std::size_t l = 0; l < scheduled.size(); ++l) {
      EXPECT_NEAR(scheduled[l], total(RoundFlow::scheduled + l), 1e-12);
      verified += static_cast<double>(l) * scheduled[l];
      rounds += scheduled[l];
      accepted += static_cast<double>(l) * fresh.accepted_rounds()[l];
    }
    EXPECT_NEAR(verified, loop.rounds * *loop.verified, 1e-9);
    EXPECT_NEAR(rounds, loop.rounds, 1e-9);
    EXPECT_NEAR(accepted, loop.tokens - loop.rounds, 1e-9);
  }
}

TEST(WorldOffset, EnumeratesEveryLaterSlotOnce) {
  for (std::int32_t p = 1; p <= 9; ++p) {
    std::int32_t next = 0;
    for (std::int32_t r = 1; r <= p; ++r) {
      for (std::int32_t k = r + 1; k <= p; ++k) EXPECT_EQ(world_offset(p, r, k), next++);
    }
    EXPECT_EQ(next, worlds_per_repeat(p));
  }
}

}  // namespace
}  // namespace dspark
