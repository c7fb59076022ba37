#include "policy/count_budget.h"

#include <gtest/gtest.h>

#include <vector>

#include "policy/batch.h"
#include "tests/policy/batch_case.h"

namespace dspark {
namespace {

using test::BatchCase;

std::int32_t budget(const std::vector<std::vector<float>>& rows, double threshold = 0.3) {
  return counted_budget(BatchCase(rows).step(), threshold);
}

TEST(CountedBudget, IsTheMeanCountRoundedUpAndMadeOdd) {
  // Survivals at least 0.3: 0.9 0.81 0.729 0.656 0.59 (5), 0.5 (1), none: mean 2, made odd.
  const std::vector<float> sure(5, 0.9f);
  EXPECT_EQ(budget({sure, {0.5f, 0.5f}, {0.1f}}), 3);
  EXPECT_EQ(budget({sure, {0.5f, 0.5f}}), 3);         // 6 / 2
  EXPECT_EQ(budget({sure, {0.9f, 0.9f, 0.9f}}), 5);   // 8 / 2, made odd
  EXPECT_EQ(budget({sure, sure, {0.5f, 0.5f}}), 5);   // 11 / 3, up to 4, made odd
  EXPECT_EQ(budget({{0.1f, 0.9f}, {0.1f}}), 1);       // at least 1
  EXPECT_EQ(budget({{0.9f, 0.9f, 0.9f, 0.9f}}), 4);   // P stays as it is
  EXPECT_EQ(budget({{0.5f, 0.5f, 0.5f}}, 0.25), 3);   // 2, made odd
  EXPECT_EQ(budget({{0.5f, 0.5f, 0.5f}}, 0.125), 3);  // the threshold itself counts
  EXPECT_EQ(budget({}), 0);
  EXPECT_EQ(budget({{}, {}}), 0);
}

TEST(CountBudget, StartsAtItsInitialValueAndLooksEverySixteenSteps) {
  CountBudget state({});
  const BatchCase sure({std::vector<float>(7, 1.0f), std::vector<float>(7, 1.0f)});
  const BatchCase poor({{0.5f, 0.1f}, {0.5f, 0.1f}});
  for (int i = 0; i < 15; ++i) {
    EXPECT_EQ(state.per_request(), 5) << i;
    state.update(sure.step());
  }
  state.update(poor.step());  // only the sixteenth is looked at
  EXPECT_EQ(state.per_request(), 1);
  EXPECT_EQ(state.capacity(2, 7), 2);
  for (int i = 0; i < 16; ++i) state.update(sure.step());
  EXPECT_EQ(state.per_request(), 7);
  EXPECT_EQ(state.capacity(2, 7), 14);
}

TEST(CountBudget, IsSharedByRankOfSurvivalWithAFloorOfOne) {
  const CountBudget state({.initial = 3});
  EXPECT_EQ(state.capacity(2, 2), 4) << "no more than the blocks hold";
  const BatchCase batch({{0.9f, 0.9f, 0.9f, 0.9f, 0.9f}, {0.1f, 0.9f, 0.9f}});
  BatchOptions options;
  options.floor = 1;
  BatchWorkspace workspace;
  std::vector<std::int32_t> lengths(2);
  allocate(batch.step(), state.capacity(2, 5), options, lengths, workspace);
  EXPECT_EQ(lengths, (std::vector<std::int32_t>{5, 1}));
}

TEST(CountBudget, DoesNotCountStepsWithoutRequests) {
  CountBudget state({.refresh = 2});
  const BatchCase sure({std::vector<float>(7, 1.0f)});
  state.update({});
  state.update(sure.step());
  EXPECT_EQ(state.per_request(), 5);
  state.update(sure.step());
  EXPECT_EQ(state.per_request(), 7);
}

TEST(LengthByRequests, IsThatOfTheLargestKeyNotAbove) {
  const std::vector<ScheduleEntry> entries = {{1, 4}, {4, 2}, {8, 0}};
  const std::vector<std::pair<std::int32_t, std::int32_t>> right = {
      {0, 0}, {1, 4}, {3, 4}, {4, 2}, {7, 2}, {8, 0}, {1000, 0}};
  for (const auto& [requests, length] : right) {
    EXPECT_EQ(length_by_requests(entries, requests), length) << requests;
  }
  EXPECT_EQ(length_by_requests({}, 3), 0);
}

}  // namespace
}  // namespace dspark
