#include "policy/exact_table.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/policy/batch_case.h"

namespace dspark {
namespace {

// Survivals 0.75 0.5 0.375 0.25: Y is 2, 2.75, 3.25, 3.625 and natively 3.875 tokens.
const test::BatchCase kBatch({{0.5f, 0.5f}, {0.75f, 0.5f}});
constexpr std::int32_t kGraph = 2;
const std::vector<ExactCell> kCells = {{0, 10}, {2, 6}, {4, 8}, {5, 9.5}, {6, 1}};
const DrainGuard kGuard = {
    .loss_multiplier = 1, .mean_output = 2, .minimum_value = 0, .tail_price = 4};
const ExactChoice kNative = {0, kEveryDraft, 10, 3.875};

ExactChoice choose(const std::vector<ExactCell>& cells, double min_gain,
                   const std::optional<DrainGuard>& guard, std::int32_t graph = kGraph,
                   std::int32_t floor = 0) {
  BatchWorkspace workspace;
  BatchOptions options;
  options.floor = floor;
  return exact_table_choice(kBatch.step(), graph, cells, min_gain, guard, options, workspace);
}

// Tokens per time: natively 0.3875; V = 2: 0.333, 4: 0.40625 (4.8 % better), 5: 0.3816; V = 6 is
// the full block and no candidate.
TEST(ExactTable, TakesTheCellThatBeatsTheNativePath) {
  EXPECT_EQ(choose(kCells, 0.01, kGuard), (ExactChoice{4, 2, 8, 3.25}));
}

TEST(ExactTable, KeepsTheNativePathBelowTheMinimumGain) {
  EXPECT_EQ(choose(kCells, 0.048, kGuard), (ExactChoice{4, 2, 8, 3.25}));
  EXPECT_EQ(choose(kCells, 0.049, kGuard), kNative);
}

TEST(ExactTable, KeepsTheNativePathAtTheSameRate) {
  EXPECT_EQ(choose({{0, 31}, {4, 26}}, 0, kGuard).tokens, 0);  // an eighth of a token per time
  EXPECT_EQ(choose({{0, 31}, {4, 25.9}}, 0, kGuard).tokens, 4);
}

TEST(ExactTable, IsNativeWithoutADrainGuard) {
  EXPECT_EQ(choose(kCells, 0, std::nullopt), kNative);
}

// Value of V = 4: 10 - 8 - (0.625 / 2) · 4 / 2 = 1.375.
TEST(ExactTable, NeedsAValueAboveTheGuardsMinimum) {
  DrainGuard guard = kGuard;
  guard.minimum_value = 1.375;
  EXPECT_EQ(choose(kCells, 0, guard), kNative);
  guard.minimum_value = 1.374;
  EXPECT_EQ(choose(kCells, 0, guard).tokens, 4);
  guard = kGuard;
  guard.loss_multiplier = 3.2;  // 2 - 2 = 0
  EXPECT_EQ(choose(kCells, 0, guard), kNative);
  guard.tail_price = 3;
  EXPECT_EQ(choose(kCells, 0, guard).tokens, 4);
}

TEST(ExactTable, TakesTheMostValueThenTheBestRateThenTheMostTokens) {
  // V = 3: 10 - 6.5 - (1.125 / 2) · 2 = 2.375, more than V = 4 has.
  EXPECT_EQ(choose({{0, 10}, {3, 6.5}, {4, 8}}, 0, kGuard), (ExactChoice{3, 1, 6.5, 2.75}));
  // Without a loss the value is the time won: as much for both, V = 4 yields more in it.
  DrainGuard guard = kGuard;
  guard.tail_price = 0;
  EXPECT_EQ(choose({{0, 10}, {3, 6.5}, {4, 6.5}}, 0, guard).tokens, 4);
}

TEST(ExactTable, SubmitsTheAnchorsOfPaddingRowsToo) {
  // A graph of 4 for 2 requests: V = 6 leaves 2 drafts; V = 4 none, V = 3 is no cell of it.
  EXPECT_EQ(choose({{0, 10}, {3, 1}, {6, 8}}, 0, kGuard, 4), (ExactChoice{6, 2, 8, 3.25}));
  EXPECT_EQ(choose({{0, 10}, {3, 1}}, 0, kGuard, 4), kNative);
}

TEST(ExactTable, LeavesOutCellsTooSmallForTheFloor) {
  EXPECT_EQ(choose({{0, 10}, {2, 1}, {3, 1}, {4, 8}}, 0, kGuard, kGraph, 1).tokens, 4);
}

TEST(ExactTable, ComparesNothingWithoutANativePrice) {
  EXPECT_EQ(choose({}, 0, kGuard), (ExactChoice{0, kEveryDraft, 0, 3.875}));
  EXPECT_EQ(choose({{4, 1}}, 0, kGuard), (ExactChoice{0, kEveryDraft, 0, 3.875}));
  EXPECT_EQ(choose({{0, 0}, {4, 1}}, 0, kGuard), (ExactChoice{0, kEveryDraft, 0, 3.875}));
}

}  // namespace
}  // namespace dspark
