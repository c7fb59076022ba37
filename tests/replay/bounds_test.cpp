#include "replay/bounds.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "cost/cost.h"
#include "replay/ledger.h"
#include "replay/rounds.h"
#include "tests/replay/random_table.h"

namespace dspark {
namespace {

double tokens_per_cost(const ClosedLoop& loop, const LinearCost& cost) {
  return loop.tau / round_cost(cost, *loop.verified);
}

std::vector<Policy> real_policies(std::int32_t block_size) {
  std::vector<Policy> out;
  for (std::int32_t l = 0; l <= block_size; ++l) out.emplace_back(FixedLength{l});
  for (const double t : {0.05, 0.2, 0.4, 0.6, 0.8}) {
    for (const std::int32_t least : {0, 1}) {
      out.emplace_back(Threshold{ThresholdRule::cumulative, t, least, 0});
      out.emplace_back(Threshold{ThresholdRule::per_position, t, least, 0});
    }
  }
  out.emplace_back(Sps{.min_length = 0});
  out.emplace_back(Sps{.survival_floor = 0.3});
  out.emplace_back(OracleConfidence{Sps{.min_length = 0}});
  out.emplace_back(Oracle{OracleBound::no_waste});
  return out;
}

TEST(Shortest, BeatsEveryPolicyOnAnyTable) {
  const std::vector<LinearCost> costs = {
      {}, {0, 0, 1, 0}, {0.1, 1, 0, 0}, {0.2, 0.5, 0.1, 0.3}, {2, 1, 1, 0}};
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const std::int32_t block_size = 1 + static_cast<std::int32_t>(seed % 6);
    const OutcomeTable table = random_table({30, 1, 2, 25}, block_size, 2, seed);
    const LinearCost& cost = costs[seed % costs.size()];
    const double bound =
        tokens_per_cost(closed_loop(table, Oracle{OracleBound::shortest}, cost), cost);
    for (const Policy& policy : real_policies(block_size)) {
      EXPECT_GE(bound * (1 + 1e-12), tokens_per_cost(closed_loop(table, policy, cost), cost))
          << seed << " " << policy_name(policy) << " " << policy.index();
    }
  }
}

TEST(Shortest, StopsShortWhereTheNextBlockStartsBetter) {
  // P = 2, four positions, all deterministic: from 0 two drafts could be accepted, which leads to
  // position 3, a round for one token: costs (0 tokens verified) 1 + ... By hand, with cost 1 per
  // round and 1 per verified draft, draft and accept free: full: 0 -(2)-> 3 -> end: 3 + 1 = 4.
  // shortest: any l costs l + 1 for l + 1 tokens; 4 tokens cost 4 whatever the path.
  OutcomeTable table = uniform_table(4, 2, 1.0, 0.5f);
  const LinearCost flat{0, 0, 1, 0};
  const ClosedLoop loop = closed_loop(table, Oracle{OracleBound::shortest}, flat);
  EXPECT_DOUBLE_EQ(tokens_per_cost(loop, flat), 1);
  // With a price on rounds alone, the fewest rounds win: 3 + 1 tokens, or 2 + 2 tokens.
  const LinearCost rounds_only{1, 0, 0, 0};
  EXPECT_DOUBLE_EQ(closed_loop(table, Oracle{OracleBound::shortest}, rounds_only).rounds, 2);
  // With nothing accepted from position 2 on, one draft less at the start changes nothing; but a
  // draft that is dear is left unverified.
  const LinearCost dear{0, 1, 0, 100};
  const ClosedLoop none = closed_loop(table, Oracle{OracleBound::shortest}, dear);
  EXPECT_DOUBLE_EQ(*none.verified, 0);
  EXPECT_DOUBLE_EQ(none.tau, 1);
}

TEST(Shortest, IsTheCheapestPathByHand) {
  // N = 3, P = 2; β at 0: (1/2, 1/4). left 3, 2, 1. Cost of a round: 1 + l.
  OutcomeTable table = uniform_table(3, 2, 0, 0.5f);
  table.beta = {0.5, 0.25, 1, 0, 0, 0};
  const LinearCost cost{0, 0, 1, 0};  // verify_token (l + 1)
  // Every draft saves a round and costs as much: C = 3 whatever happens.
  EXPECT_DOUBLE_EQ(tokens_per_cost(closed_loop(table, Oracle{OracleBound::shortest}, cost), cost),
                   1.0);
  const LinearCost cheap{0, 1, 0.25, 0};  // 1 + 0.25 (l + 1)
  // C(2) = 1.25. C(1): a = 1 surely: min(1.25 + C(2), 1.5) = 1.5. C(0): a = 0 (1/2): 1.25 + 1.5;
  // a = 1 (3/8): min(2.75, 1.5 + 1.25); a = 2 (1/8): min(2.75, 2.75, 1.75).
  const double want = 0.5 * 2.75 + 0.375 * 2.75 + 0.125 * 1.75;
  const ClosedLoop loop = closed_loop(table, Oracle{OracleBound::shortest}, cheap);
  EXPECT_NEAR(tokens_per_cost(loop, cheap), 3 / want, 1e-12);
  EXPECT_NEAR(loop.rounds * round_cost(cheap, *loop.verified), want, 1e-12);
}

TEST(NoWaste, HasTheRoundsOfTheFullBlockAndVerifiesWhatIsAccepted) {
  const OutcomeTable table = random_table({60, 33}, 4, 2, 9);
  const ClosedLoop full = closed_loop(table, FixedLength{4}, {});
  const ClosedLoop bound = closed_loop(table, Oracle{OracleBound::no_waste}, {});
  EXPECT_NEAR(bound.rounds, full.rounds, 1e-9);
  EXPECT_NEAR(*bound.tau_interior, *full.tau_interior, 1e-9);
  EXPECT_NEAR(*bound.verified, bound.tau - 1, 1e-9);
  EXPECT_TRUE(bound.exact);
}

TEST(OracleConfidence, SchedulesByAcceptanceInPlaceOfConfidences) {
  OutcomeTable table = random_table({80}, 4, 2, 10);
  const ClosedLoop oracle =
      closed_loop(table, OracleConfidence{Threshold{.threshold = 0.4}}, LinearCost{});
  for (std::size_t i = 0; i < table.alpha.size(); ++i) {
    table.confidence[i] = static_cast<float>(table.alpha[i]);
  }
  const ClosedLoop same = closed_loop(table, Threshold{.threshold = 0.4}, LinearCost{});
  EXPECT_DOUBLE_EQ(oracle.tau, same.tau);
  EXPECT_DOUBLE_EQ(*oracle.verified, same.verified_on_trajectory);
}

TEST(RoundBounds, ShortestChoosesTheLengthsThatGiveTheMostPerCost) {
  RoundTable table;
  table.block_size = 3;
  table.rounds = {{.slots = 3, .accepted = 3},
                  {.slots = 3, .accepted = 0},
                  {.slots = 3, .accepted = 1},
                  {.slots = 2, .accepted = 2}};
  table.confidence.assign(12, 0.5f);
  for (const LinearCost& cost : {LinearCost{}, LinearCost{0, 0.1, 1, 2}, LinearCost{1, 0, 1, 0}}) {
    const auto rate = [&](const Policy& policy) {
      const PolicyResult row = evaluate_rounds(table, policy, cost);
      return *row.tau / round_cost(cost, *row.verified_per_round);
    };
    // Every choice of lengths: 4 · 1 · 2 · 3 of them.
    double best = 0;
    for (int a = 0; a <= 3; ++a) {
      for (int b = 0; b <= 1; ++b) {
        for (int c = 0; c <= 2; ++c) {
          const double spent =
              round_cost(cost, a) + round_cost(cost, 0) + round_cost(cost, b) + round_cost(cost, c);
          best = std::max(best, (a + b + c + 4) / spent);
        }
      }
    }
    EXPECT_NEAR(rate(Oracle{OracleBound::shortest}), best, 1e-12);
    EXPECT_GE(best * (1 + 1e-12), rate(Oracle{OracleBound::no_waste}));
    EXPECT_GE(best * (1 + 1e-12), rate(FixedLength{2}));
  }
}

class LedgerIdentities : public testing::TestWithParam<int> {};

TEST_P(LedgerIdentities, HoldForEveryPolicy) {
  const OutcomeTable table = random_table({70, 50}, 4, 3, static_cast<std::uint64_t>(GetParam()));
  const LinearCost cost{0.3, 0.7, 0.2, 0.05};
  std::vector<Policy> policies = real_policies(4);
  policies.emplace_back(NoSpeculation{});
  policies.emplace_back(Oracle{OracleBound::shortest});
  for (const Policy& policy : policies) {
    SCOPED_TRACE(policy_name(policy));
    RoundFlow flow;
    LoopScratch scratch;
    const ClosedLoop loop = closed_loop(table, policy, cost, flow, scratch);
    PolicyResult row;
    row.rounds = loop.rounds;
    row.tokens = loop.tokens;
    row.verified_per_round = loop.verified;
    row.cost_per_round = speculates(policy) ? round_cost(cost, *loop.verified) : step_cost(cost);
    const std::optional<Ledger> ledger =
        make_ledger(row, flow, CostModel(cost), StepPrices(CostModel(cost), Width::ragged, 1, 4),
                    speculates(policy) ? 1 : 0);
    ASSERT_TRUE(ledger.has_value());
    const double rounds = ledger->rounds;
    EXPECT_DOUBLE_EQ(ledger->verified, rounds * *loop.verified);
    EXPECT_NEAR(ledger->accepted, rounds * (loop.tau - 1), 1e-9);
    EXPECT_DOUBLE_EQ(ledger->wasted, ledger->verified - ledger->accepted);
    EXPECT_NEAR(ledger->draft_cost + ledger->verify_cost + ledger->accept_cost,
                rounds * *row.cost_per_round, 1e-9);
    EXPECT_DOUBLE_EQ(*ledger->break_even_tau, *row.cost_per_round / step_cost(cost));
    EXPECT_DOUBLE_EQ(ledger->proposed, speculates(policy) ? 4 * rounds : 0);
    const auto mean = [](const std::vector<double>& histogram) {
      double sum = 0;
      for (std::size_t l = 0; l < histogram.size(); ++l) {
        EXPECT_GE(histogram[l], 0);
        sum += static_cast<double>(l) * histogram[l];
      }
      EXPECT_NEAR(std::accumulate(histogram.begin(), histogram.end(), 0.0), 1, 1e-9);
      return sum;
    };
    ASSERT_EQ(ledger->scheduled_histogram.size(), 5u);
    EXPECT_NEAR(mean(ledger->scheduled_histogram), *loop.verified, 1e-9);
    EXPECT_NEAR(mean(ledger->accepted_histogram), loop.tau - 1, 1e-9);
    EXPECT_DOUBLE_EQ(ledger->rounds_without_acceptance, ledger->accepted_histogram[0] * rounds);
    EXPECT_LE(ledger->rounds_trimmed, ledger->scheduled_histogram[0] * rounds + 1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, LedgerIdentities, testing::Range(0, 3));

TEST(Ledger, CountsRoundsThatCouldHaveVerified) {
  const OutcomeTable table = uniform_table(5, 2, 0.0, 0.1f);
  const LinearCost cost;
  RoundFlow flow;
  LoopScratch scratch;
  const auto trimmed = [&](const Policy& policy) {
    (void)closed_loop(table, policy, cost, flow, scratch);
    return flow.trimmed();
  };
  EXPECT_DOUBLE_EQ(trimmed(FixedLength{0}), 4) << "the last round has no place for a draft";
  EXPECT_DOUBLE_EQ(trimmed(FixedLength{1}), 0);
  EXPECT_DOUBLE_EQ(trimmed(NoSpeculation{}), 0) << "it has no drafts";
}

TEST(Ledger, IsMissingWhereWhatWasVerifiedIs) {
  PolicyResult row;
  row.rounds = 3;
  row.tokens = 4;
  RoundFlow flow;
  flow.begin(2, 0);
  EXPECT_FALSE(make_ledger(row, flow, {}, StepPrices({}, Width::ragged, 1, 2), 1).has_value());
}

}  // namespace
}  // namespace dspark
