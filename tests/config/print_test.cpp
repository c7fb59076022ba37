#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/plan.h"
#include "support/error.h"
#include "tests/config/expect_error.h"

namespace dspark {
namespace {

// Two plans but for positions and names.
void expect_same(const Plan& a, const Plan& b) {
  EXPECT_EQ(a.verification, b.verification);
  ASSERT_EQ(a.sampling.size(), b.sampling.size());
  for (std::size_t i = 0; i < a.sampling.size(); ++i) {
    EXPECT_EQ(a.sampling[i].temperature, b.sampling[i].temperature) << i;
    EXPECT_EQ(a.sampling[i].top_k, b.sampling[i].top_k) << i;
    EXPECT_EQ(a.sampling[i].top_p, b.sampling[i].top_p) << i;
    EXPECT_EQ(a.sampling[i].top_p_rule, b.sampling[i].top_p_rule) << i;
    EXPECT_EQ(a.sampling[i].greedy_drafts, b.sampling[i].greedy_drafts) << i;
  }
  EXPECT_EQ(a.cost.linear.draft, b.cost.linear.draft);
  EXPECT_EQ(a.cost.linear.verify_base, b.cost.linear.verify_base);
  EXPECT_EQ(a.cost.linear.verify_token, b.cost.linear.verify_token);
  EXPECT_EQ(a.cost.linear.accept, b.cost.linear.accept);
  EXPECT_EQ(a.cost.draft, b.cost.draft);
  EXPECT_EQ(a.cost.draft_by_requests, b.cost.draft_by_requests);
  EXPECT_EQ(a.cost.overhead, b.cost.overhead);
  EXPECT_EQ(a.cost.buckets, b.cost.buckets);
  EXPECT_EQ(a.width, b.width);
  EXPECT_EQ(a.concurrency, b.concurrency);
  EXPECT_EQ(a.default_sweep, b.default_sweep);
  ASSERT_EQ(a.rows.size(), b.rows.size());
  for (std::size_t i = 0; i < a.rows.size(); ++i)
    EXPECT_EQ(a.rows[i].policy, b.rows[i].policy) << i;
}

void expect_round_trip(const std::string& text) {
  const Plan plan = parse_plan(text, "p.yaml");
  const std::string printed = print_plan(plan);
  expect_same(plan, parse_plan(printed, "printed"));
  EXPECT_EQ(print_plan(parse_plan(printed, "printed")), printed);
}

TEST(PrintPlan, WritesAFileThatAPersonWouldWrite) {
  const Plan plan = parse_plan(
      "version: 1\n"
      "verification: [greedy, probabilistic]\n"
      "sampling: {temperature: 1.0, top_k: 0, top_p: 1.0, top_p_rule: water_filling}\n"
      "policies:\n"
      "  - {policy: none}\n"
      "  - {policy: fixed, length: {from: 0, to: 3, step: 1}}\n"
      "  - {policy: threshold, threshold: {from: 0.1, to: 0.3, step: 0.1}, min_length: [0, 1]}\n"
      "  - {policy: sps, survival_floor: 0.1}\n",
      "p.yaml");
  EXPECT_EQ(print_plan(plan),
            "version: 1\n"
            "verification: [greedy, probabilistic]\n"
            "sampling: {temperature: 1, top_k: 0, top_p: 1, top_p_rule: water_filling, drafts: "
            "sampled}\n"
            "cost: {linear: {draft: 0.5, verify_base: 1, verify_token: 0.45, accept: 0.02}}\n"
            "concurrency: [1]\n"
            "policies:\n"
            "  - {policy: none}\n"
            "  - {policy: fixed, length: [0, 1, 2, 3]}\n"
            "  - {policy: threshold, rule: cumulative, threshold: [0.1, 0.2, 0.3], min_length: [0, "
            "1], max_length: 0}\n"
            "  - {policy: sps, survival_floor: 0.1, min_length: 1, max_length: 0}\n");
}

TEST(PrintPlan, OfTheDefaultSweepReadsBackToIt) {
  const std::string printed = print_plan(default_plan());
  EXPECT_EQ(printed.substr(0, 47), "version: 1\nsampling: {top_p_rule: water_filling");
  expect_same(default_plan(), parse_plan(printed, "printed"));
}

TEST(PrintPlan, ReadsBackToTheSamePlan) {
  expect_round_trip("version: 1\n");
  expect_round_trip("version: 1\nverification: greedy\n");
  expect_round_trip(with_version("sampling: {temperature: [0.7, 1], top_p: [0.9, 1e-5]}"));
  expect_round_trip(with_version("sampling: {drafts: greedy}"));
  expect_round_trip(with_version("sampling: {drafts: [greedy, sampled], temperature: [0, 1]}"));
  expect_round_trip(
      with_version("sampling: {top_k: [0, 40], top_p_rule: [include_crossing, "
                   "water_filling]}"));
  expect_round_trip(
      with_version("cost: {linear: {draft: 0.1, verify_base: 1e-20, verify_token: "
                   "0.30000000000000004, accept: 1e20}}"));
  expect_round_trip(with_policy("{policy: fixed, length: [7, 0, 3]}"));
  expect_round_trip(
      with_policy("{policy: threshold, rule: [per_position, cumulative], threshold: "
                  "[0, 1, 0.123456789012345678], min_length: [1, 2], max_length: "
                  "[0, 5, 3]}"));
}

TEST(PrintPlan, ReadsBoundsBack) {
  expect_round_trip(with_policy("{policy: oracle, bound: [shortest, no_waste]}"));
  expect_round_trip(
      with_policy("{policy: oracle_confidence, wrap: [{policy: threshold, rule: [cumulative, "
                  "per_position], threshold: [0.2, 0.4]}, {policy: sps, max_length: 3}]}"));
}

TEST(PrintPlan, ReadsBackWhereEqualRowsBreakTheProducts) {
  expect_round_trip(
      "version: 1\npolicies:\n"
      "- {policy: threshold, threshold: [0.2, 0.5], min_length: [1, 2, 3]}\n"
      "- {policy: threshold, threshold: [0.5, 0.2, 0.7], min_length: [0, 2]}\n"
      "- {policy: fixed, length: [3, 1]}\n- {policy: none}\n"
      "- {policy: fixed, length: [0, 1, 2, 3, 4]}\n");
}

TEST(PrintPlan, ReadsBackWithManyRows) {
  expect_round_trip(
      with_policy("{policy: threshold, threshold: {from: 0.3, to: 0.99999, step: "
                  "0.0003}, min_length: [0, 1, 2], max_length: [0, 7, 64]}"));
}

TEST(PrintPlan, RefusesSamplingChoicesThatNoFileCanGive) {
  Plan plan = default_plan();
  plan.sampling = {SamplingChoice{}, SamplingChoice{}};
  plan.sampling[0].temperature = 1.0;
  EXPECT_THROW((void)print_plan(plan), Error);
}

}  // namespace
}  // namespace dspark
