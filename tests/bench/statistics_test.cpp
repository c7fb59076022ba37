#include "bench/statistics.h"

#include <gtest/gtest.h>

#include "support/error.h"

namespace dspark {
namespace {

TEST(Spread, OfOneSampleIsThatSample) {
  const Spread spread = spread_of({3});
  EXPECT_EQ(spread.median, 3);
  EXPECT_EQ(spread.least, 3);
  EXPECT_EQ(spread.p10, 3);
  EXPECT_EQ(spread.p90, 3);
}

TEST(Spread, DoesNotDependOnTheOrder) {
  const Spread spread = spread_of({50, 10, 40, 0, 20, 30, 60, 100, 90, 80, 70});
  EXPECT_EQ(spread.median, 50);
  EXPECT_EQ(spread.least, 0);
  EXPECT_EQ(spread.p10, 10);
  EXPECT_EQ(spread.p90, 90);
}

TEST(Spread, LiesBetweenSamplesWhereItMust) {
  const Spread spread = spread_of({4, 1, 2, 3});
  EXPECT_DOUBLE_EQ(spread.median, 2.5);
  EXPECT_DOUBLE_EQ(spread.p10, 1.3);
  EXPECT_DOUBLE_EQ(spread.p90, 3.7);
}

TEST(Spread, OfNothingIsAMistake) { EXPECT_THROW(static_cast<void>(spread_of({})), Error); }

}  // namespace
}  // namespace dspark
