#include "replay/pairs.h"

#include <gtest/gtest.h>

#include <cmath>

namespace dspark {
namespace {

TraceSummary trace(const std::string& file, const std::string& domain) {
  TraceSummary out;
  out.file = file;
  out.domain = domain;
  return out;
}

PolicyResult row(const std::string& file, const std::string& verification, std::int64_t length,
                 double tau) {
  PolicyResult out;
  out.trace = file;
  out.verification = verification;
  out.policy = "fixed";
  out.parameters = {{"length", length}};
  out.tau = tau;
  out.intervals.tau = Range{tau - 0.3, tau + 0.4};
  out.tokens_per_cost = tau / 2;
  return out;
}

TEST(Pairs, AreTheSamePolicyOnTwoTracesOfOneDomain) {
  ReplayResult result;
  result.traces = {trace("greedy.h5", "code"), trace("sampled.h5", "code"),
                   trace("prose.h5", "prose")};
  result.results = {row("greedy.h5", "greedy", 1, 3), row("greedy.h5", "greedy", 2, 4),
                    row("sampled.h5", "probabilistic", 2, 2),
                    row("prose.h5", "probabilistic", 1, 1.5)};
  const std::vector<std::string> notes = pair_verifications(result);
  ASSERT_EQ(result.pairs.size(), 1u) << "length 1 has no partner in its domain";
  const VerificationPair& pair = result.pairs[0];
  EXPECT_EQ(pair.domain, "code");
  EXPECT_EQ(pair.parameters, result.results[1].parameters);
  EXPECT_EQ(pair.greedy.trace, "greedy.h5");
  EXPECT_EQ(pair.probabilistic.trace, "sampled.h5");
  EXPECT_DOUBLE_EQ(pair.tau_difference, 2);
  // 0.3 below and 0.4 above on one side, 0.4 and 0.3 on the other.
  EXPECT_DOUBLE_EQ(pair.tau_interval->lo, 2 - 0.5);
  EXPECT_DOUBLE_EQ(pair.tau_interval->hi, 2 + 0.5);
  EXPECT_DOUBLE_EQ(*pair.efficiency_difference, 1);
  EXPECT_FALSE(pair.efficiency_interval.has_value()) << "the rows have none";
  EXPECT_TRUE(notes.empty());
}

TEST(Pairs, OfOneTraceMayBeEstimates) {
  ReplayResult result;
  result.traces = {trace("a.h5", "")};
  result.results = {row("a.h5", "greedy", 1, 2), row("a.h5", "probabilistic", 1, 1.5)};
  result.results[0].off_policy = true;
  result.results[0].tokens_per_cost.reset();
  EXPECT_TRUE(pair_verifications(result).empty());
  ASSERT_EQ(result.pairs.size(), 1u);
  EXPECT_TRUE(result.pairs[0].greedy.off_policy);
  EXPECT_FALSE(result.pairs[0].efficiency_difference.has_value());
}

TEST(Pairs, EstimatesOfOneTraceAreNotSetBesideAnotherTrace) {
  ReplayResult result;
  result.traces = {trace("a.h5", "code"), trace("b.h5", "code")};
  result.results = {row("a.h5", "greedy", 1, 2), row("b.h5", "probabilistic", 1, 1.5)};
  result.results[0].off_policy = true;
  EXPECT_TRUE(pair_verifications(result).empty());
  EXPECT_TRUE(result.pairs.empty());
}

TEST(Pairs, ADomainWithSeveralRecordingsOfAKindIsLeftAloneAndSaysSo) {
  ReplayResult result;
  result.traces = {trace("g.h5", "code"), trace("s.h5", "code"), trace("t.h5", "code")};
  result.results = {row("g.h5", "greedy", 1, 2), row("s.h5", "probabilistic", 1, 1.5),
                    row("t.h5", "probabilistic", 1, 1.4)};
  const std::vector<std::string> notes = pair_verifications(result);
  EXPECT_TRUE(result.pairs.empty());
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("domain code: 1 greedy and 2 sampled traces"), std::string::npos);
}

TEST(Pairs, BoundsHaveNone) {
  ReplayResult result;
  result.traces = {trace("a.h5", "")};
  result.results = {row("a.h5", "greedy", 1, 2), row("a.h5", "probabilistic", 1, 1.5)};
  result.results[0].bound = result.results[1].bound = true;
  EXPECT_TRUE(pair_verifications(result).empty());
  EXPECT_TRUE(result.pairs.empty());
}

}  // namespace
}  // namespace dspark
