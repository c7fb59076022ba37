#include "policy/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace dspark {
namespace {

using Parameters = std::vector<std::pair<std::string, ParameterValue>>;

const Policy kNone = NoSpeculation{};
const Policy kFixed = FixedLength{3};
const Policy kCumulative = Threshold{.threshold = 0.3};
const Policy kPerPosition = Threshold{
    .rule = ThresholdRule::per_position, .threshold = 0.5, .min_length = 0, .max_length = 5};
const Policy kSps = Sps{.survival_floor = 0.1, .min_length = 2, .max_length = 4};

TEST(Policy, HasTheNamesOfThePolicyFile) {
  EXPECT_EQ(policy_name(kNone), "none");
  EXPECT_EQ(policy_name(kFixed), "fixed");
  EXPECT_EQ(policy_name(kCumulative), "threshold");
  EXPECT_EQ(policy_name(kSps), "sps");
  EXPECT_EQ(policy_name(Oracle{}), "oracle");
  EXPECT_EQ(policy_name(OracleConfidence{}), "oracle_confidence");
  EXPECT_STREQ(verification_name(Verification::greedy), "greedy");
  EXPECT_STREQ(verification_name(Verification::probabilistic), "probabilistic");
  EXPECT_STREQ(threshold_rule_name(ThresholdRule::cumulative), "cumulative");
  EXPECT_STREQ(threshold_rule_name(ThresholdRule::per_position), "per_position");
}

TEST(Policy, PrintsItsParametersInOrder) {
  EXPECT_EQ(policy_parameters(kNone), Parameters{});
  EXPECT_EQ(policy_parameters(kFixed), (Parameters{{"length", std::int64_t{3}}}));
  EXPECT_EQ(policy_parameters(kCumulative), (Parameters{{"rule", std::string("cumulative")},
                                                        {"threshold", 0.3},
                                                        {"min_length", std::int64_t{1}}}));
  EXPECT_EQ(policy_parameters(kPerPosition), (Parameters{{"rule", std::string("per_position")},
                                                         {"threshold", 0.5},
                                                         {"min_length", std::int64_t{0}},
                                                         {"max_length", std::int64_t{5}}}));
  EXPECT_EQ(policy_parameters(kSps), (Parameters{{"survival_floor", 0.1},
                                                 {"min_length", std::int64_t{2}},
                                                 {"max_length", std::int64_t{4}}}));
}

TEST(Policy, PrintsTheParametersOfBounds) {
  EXPECT_EQ(policy_parameters(Oracle{OracleBound::shortest}),
            (Parameters{{"bound", std::string("shortest")}}));
  EXPECT_EQ(policy_parameters(OracleConfidence{Threshold{.threshold = 0.3}}),
            (Parameters{{"wrap", std::string("threshold")},
                        {"rule", std::string("cumulative")},
                        {"threshold", 0.3},
                        {"min_length", std::int64_t{1}}}));
}

TEST(Policy, TellsBoundsFromWhatCanBeRun) {
  for (const Policy& policy : {kNone, kFixed, kCumulative, kPerPosition, kSps}) {
    EXPECT_FALSE(is_bound(policy));
  }
  EXPECT_TRUE(is_bound(Oracle{}));
  EXPECT_TRUE(is_bound(OracleConfidence{}));
  EXPECT_FALSE(speculates(kNone));
  EXPECT_TRUE(speculates(FixedLength{0})) << "it drafts, and pays for it";
}

TEST(Policy, DependsOnTheDecidingConfidencesAlone) {
  const std::array<float, 5> c = {0.9f, 0.6f, 0.6f, 0.4f, 0.9f};
  for (const Policy& policy :
       {kNone, kFixed, kCumulative, kPerPosition, kSps, Policy(Threshold{.threshold = 0}),
        Policy(Threshold{.threshold = 1}), Policy(Threshold{.threshold = 0.95, .min_length = 3}),
        Policy(OracleConfidence{})}) {
    const std::int32_t deciding = deciding_slots(policy, c.data(), 5);
    const std::int32_t length = scheduled_length(policy, c.data(), 5, LinearCost{});
    for (const float other : {0.0f, 1.0f}) {
      std::array<float, 5> changed = c;
      std::fill(changed.begin() + deciding, changed.end(), other);
      EXPECT_EQ(scheduled_length(policy, changed.data(), 5, LinearCost{}), length);
    }
  }
  EXPECT_EQ(deciding_slots(kCumulative, c.data(), 5), 4);  // three pass, the fourth fails
  EXPECT_EQ(deciding_slots(kFixed, c.data(), 5), 0);
}

TEST(Policy, KnowsWhetherItLooksAtConfidences) {
  EXPECT_FALSE(uses_confidence(kNone));
  EXPECT_FALSE(uses_confidence(kFixed));
  EXPECT_TRUE(uses_confidence(kCumulative));
  EXPECT_TRUE(uses_confidence(kPerPosition));
  EXPECT_TRUE(uses_confidence(kSps));
  EXPECT_FALSE(uses_confidence(OracleConfidence{})) << "it has better ones";
}

TEST(Policy, NamesItsLargestLength) {
  EXPECT_EQ(largest_named_length(kNone), 0);
  EXPECT_EQ(largest_named_length(kFixed), 3);
  EXPECT_EQ(largest_named_length(kCumulative), 1);
  EXPECT_EQ(largest_named_length(kPerPosition), 5);
  EXPECT_EQ(largest_named_length(kSps), 4);
}

TEST(Policy, SchedulesByItsOwnRule) {
  const std::array<float, 5> c = {0.9f, 0.6f, 0.6f, 0.4f, 0.9f};
  const LinearCost cost;
  EXPECT_EQ(scheduled_length(kNone, nullptr, 5, cost), 0);
  EXPECT_EQ(scheduled_length(kFixed, nullptr, 5, cost), 3);
  EXPECT_EQ(scheduled_length(kFixed, nullptr, 2, cost), 2);
  EXPECT_EQ(scheduled_length(kCumulative, c.data(), 5, cost), 3);   // .9, .54, .324, .13
  EXPECT_EQ(scheduled_length(kPerPosition, c.data(), 5, cost), 3);  // stops at .4
  EXPECT_EQ(scheduled_length(Sps{}, c.data(), 5, cost), 2);
}

TEST(Policy, SpsOptimisesTheGivenCost) {
  const std::array<float, 4> c = {0.5f, 0.5f, 0.5f, 0.5f};
  EXPECT_EQ(scheduled_length(Sps{}, c.data(), 4, LinearCost{0, 1, 0, 0}), 4);
  EXPECT_EQ(scheduled_length(Sps{}, c.data(), 4, LinearCost{0, 0, 1, 0}), 1);
}

TEST(Policy, SchedulesNothingInAnEmptyBlock) {
  for (const Policy& policy : {kNone, kFixed, kCumulative, kPerPosition, kSps}) {
    EXPECT_EQ(scheduled_length(policy, nullptr, 0, LinearCost{}), 0) << policy_name(policy);
  }
}

}  // namespace
}  // namespace dspark
