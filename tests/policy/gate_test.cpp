#include "policy/gate.h"

#include <gtest/gtest.h>

namespace dspark {
namespace {

TEST(SpeculationGate, ClosesForGoodWhenTheRollingMeanFallsBelow) {
  SpeculationGate gate(3, 1.0);
  gate.complete(20, 10);  // 1 accepted draft per round
  gate.complete(5, 10);   // fewer tokens than rounds: 0, not -0.5
  EXPECT_TRUE(gate.open()) << "the window is not full";
  gate.complete(30, 10);  // 1, 0, 2: the mean is 1, not below
  EXPECT_TRUE(gate.open());
  gate.complete(19, 10);  // 0, 2, 0.9
  EXPECT_FALSE(gate.open());
  gate.complete(1000, 10);
  EXPECT_FALSE(gate.open());
}

TEST(SpeculationGate, ForgetsWhatLeftTheWindow) {
  SpeculationGate gate(2, 1.0);
  gate.complete(10, 10);
  gate.complete(40, 10);  // 0, 3
  gate.complete(10, 10);  // 3, 0
  EXPECT_TRUE(gate.open());
  gate.complete(19, 10);  // 0, 0.9
  EXPECT_FALSE(gate.open());
}

TEST(SpeculationGate, OfNoWindowNeverCloses) {
  for (const std::int32_t window : {0, -1}) {
    SpeculationGate gate(window, 5.0);
    for (int i = 0; i < 10; ++i) gate.complete(1, 1);
    EXPECT_TRUE(gate.open());
  }
}

TEST(SpeculationGate, LeavesOutRequestsWithoutRounds) {
  SpeculationGate gate(1, 1.0);
  gate.complete(0, 0);
  EXPECT_TRUE(gate.open());
  gate.complete(1, 1);
  EXPECT_FALSE(gate.open());
}

}  // namespace
}  // namespace dspark
