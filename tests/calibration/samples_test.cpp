#include "calibration/samples.h"

#include <gtest/gtest.h>

#include "support/error.h"
#include "tests/calibration/sample_builder.h"

namespace dspark {
namespace {

TEST(Samples, LeaveOutSlotsBehindTheLastThatHasAWeight) {
  CalibrationSamples samples(LabelKind::conditional, kPlenty);
  samples.add_input("t", "d");
  samples.add_block(std::vector<SampleSlot>{{.weight = 1}, {.weight = 0}, {.weight = 1}, {}, {}});
  samples.add_block(std::vector<SampleSlot>{{}, {}});
  ASSERT_EQ(samples.blocks().size(), 1u);
  EXPECT_EQ(samples.blocks()[0].slots, 3);
  EXPECT_EQ(samples.block_size(), 3);
  EXPECT_EQ(samples.inputs()[0].blocks, 1);
}

TEST(Samples, NameEachDomainOnce) {
  CalibrationSamples samples(LabelKind::conditional, kPlenty);
  for (const char* domain : {"code", "prose", "code"}) samples.add_input("t", domain);
  EXPECT_EQ(samples.domains(), (std::vector<std::string>{"code", "prose"}));
}

TEST(Samples, ThatWouldNotFitTheBudgetAreRefusedBeforeTheyAreAllocated) {
  CalibrationSamples samples(LabelKind::conditional, 10'000);
  samples.add_input("t.h5", "d");
  try {
    samples.make_room(std::size_t{1} << 40, std::size_t{7} << 40);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::trace);
    const std::string text = error.what();
    EXPECT_NE(text.find("t.h5"), std::string::npos) << text;
    EXPECT_NE(text.find("--memory-budget"), std::string::npos) << text;
  }
  EXPECT_THROW(add_random_input(samples, 1, 100, {1.0, 1.0}, 1), Error);
  EXPECT_GT(samples.blocks().size(), 10u);
  EXPECT_LE(samples.blocks().size() * (176 + 2 * sizeof(SampleSlot)), 10'000u);
}

}  // namespace
}  // namespace dspark
