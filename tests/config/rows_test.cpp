#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "config/plan.h"
#include "support/error.h"
#include "tests/config/expect_error.h"

namespace dspark {
namespace {

std::vector<Policy> policies_of(const std::vector<PlanRow>& rows) {
  std::vector<Policy> out;
  for (const PlanRow& row : rows) out.push_back(row.policy);
  return out;
}

TEST(DefaultRows, AreNoneAllLengthsThresholdsSpsAndBounds) {
  const std::vector<Policy> rows = policies_of(default_rows(2, true));
  ASSERT_EQ(rows.size(), 1u + 3u + 19u + 3u + 3u);
  EXPECT_EQ(rows[0], Policy(NoSpeculation{}));
  EXPECT_EQ(rows[1], Policy(FixedLength{0}));
  EXPECT_EQ(rows[3], Policy(FixedLength{2}));
  EXPECT_EQ(rows[4], Policy(Threshold{.threshold = 0.05}));
  EXPECT_EQ(rows[6], Policy(Threshold{.threshold = 0.15}));
  EXPECT_EQ(rows[22], Policy(Threshold{.threshold = 0.95}));
  EXPECT_EQ(rows[23], Policy(Sps{.survival_floor = 0}));
  EXPECT_EQ(rows[25], Policy(Sps{.survival_floor = 0.3}));
  EXPECT_EQ(rows[26], Policy(Oracle{OracleBound::no_waste}));
  EXPECT_EQ(rows[27], Policy(Oracle{OracleBound::shortest}));
  EXPECT_EQ(rows[28], Policy(OracleConfidence{}));
}

TEST(DefaultRows, LeaveOutWhatNeedsConfidences) {
  const std::vector<PlanRow> rows = default_rows(7, false);
  EXPECT_EQ(rows.size(), 9u + 3u);
  for (const PlanRow& row : rows) EXPECT_FALSE(uses_confidence(row.policy));
}

TEST(DefaultPlan, IsTheDefaultSweep) {
  const Plan plan = default_plan();
  EXPECT_TRUE(plan.default_sweep);
  EXPECT_EQ(plan.sampling.size(), 1u);
  EXPECT_EQ(policies_of(rows_for_block_size(plan, 7, true)), policies_of(default_rows(7, true)));
  EXPECT_EQ(policies_of(rows_for_block_size(plan, 7, false)), policies_of(default_rows(7, false)));
}

TEST(DefaultPlan, IsWhatAFileWithoutPoliciesGives) {
  const Plan plan = parse_plan("version: 1\n", "p");
  EXPECT_EQ(policies_of(rows_for_block_size(plan, 4, true)), policies_of(default_rows(4, true)));
}

TEST(RowsForBlockSize, AlwaysHaveTheBaselinesFirst) {
  const Plan plan = parse_plan(with_policy("{policy: sps}"), "p");
  EXPECT_EQ(policies_of(rows_for_block_size(plan, 2, true)),
            (std::vector<Policy>{NoSpeculation{}, FixedLength{0}, FixedLength{1}, FixedLength{2},
                                 Sps{}}));
}

TEST(RowsForBlockSize, GiveARowThatIsABaselineOnceWithItsPlace) {
  const Plan plan = parse_plan(
      "version: 1\npolicies:\n- {policy: fixed, length: [2, 1]}\n- {policy: "
      "none}\n",
      "p");
  const std::vector<PlanRow> rows = rows_for_block_size(plan, 3, true);
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0].position.line, 4);
  EXPECT_EQ(rows[1].position.line, 0);  // length 0 is not in the file
  EXPECT_EQ(rows[3].policy, Policy(FixedLength{2}));
  EXPECT_EQ(rows[3].position.line, 3);
}

TEST(RowsForBlockSize, RefuseALengthAboveTheBlockWhereItIsWritten) {
  const auto error_of = [](const std::string& text, std::int32_t block_size) -> std::string {
    const Plan plan = parse_plan(text, "p.yaml");
    try {
      (void)rows_for_block_size(plan, block_size, true);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::policy);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(with_policy("{policy: fixed, length: [1, 8]}"), 7),
            "p.yaml:3:31: length 8 is above the trace's block size 7; use lengths up to 7");
  EXPECT_EQ(error_of(with_policy("{policy: fixed, length: [1, 8]}"), 8), "");
  EXPECT_EQ(error_of(with_policy("{policy: sps, min_length: 5}"), 4).substr(0, 12), "p.yaml:3:29:");
  EXPECT_EQ(error_of(with_policy("{policy: sps, max_length: 5}"), 4).substr(0, 12), "p.yaml:3:29:");
  EXPECT_EQ(error_of(with_policy("{policy: sps, max_length: 0}"), 1), "");
}

TEST(RowsForBlockSize, KeepAPolicyThatWasAskedForWithoutConfidences) {
  const Plan plan = parse_plan(with_policy("{policy: sps}"), "p");
  EXPECT_EQ(rows_for_block_size(plan, 1, false).back().policy, Policy(Sps{}));
}

TEST(RowsForBlockSize, AreUnique) {
  const Plan plan = parse_plan(
      "version: 1\npolicies:\n- {policy: fixed, length: {from: 0, to: 5, step: 1}}\n"
      "- {policy: threshold, rule: [cumulative, per_position], threshold: [0.1, 0.2], min_length: "
      "[0, 1]}\n",
      "p");
  const std::vector<Policy> rows = policies_of(rows_for_block_size(plan, 7, true));
  EXPECT_EQ(rows.size(), 1u + 8u + 8u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(std::count(rows.begin(), rows.end(), rows[i]), 1);
  }
}

}  // namespace
}  // namespace dspark
