#include "calibration/records.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/error.h"
#include "tests/calibration/sample_builder.h"
#include "tests/support/temporary_folder.h"

namespace dspark {
namespace {

class Records : public testing::Test {
 protected:
  std::string write(const std::string& text) const {
    const std::string file = folder_.file("records");
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }
  [[nodiscard]] CalibrationSamples read(const std::string& text, LabelKind labels) const {
    CalibrationSamples samples(labels, kPlenty);
    read_records(write(text), samples);
    return samples;
  }
  void expect_error(const std::string& text, const std::string& part) const {
    try {
      static_cast<void>(read(text, LabelKind::cumulative));
      ADD_FAILURE() << "no error for " << text.substr(0, 100);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::trace);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  test::TemporaryFolder folder_;
};

constexpr const char* kThree =
    "{\"logits\": [1.5, -0.25, 2], \"labels\": [1, 1, 0], \"other\": {\"x\": [1]}}\n"
    "\n"
    "{\"labels\":[0],\"logits\":[-3]}\r\n"
    "{\"logits\": [], \"labels\": []}";

TEST_F(Records, OfAnyLengthBecomeBlocks) {
  const CalibrationSamples samples = read(kThree, LabelKind::cumulative);
  ASSERT_EQ(samples.blocks().size(), 2u);
  EXPECT_EQ(samples.block_size(), 3);
  const auto first = samples.slots_of(samples.blocks()[0]);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[1].logit, -0.25);
  EXPECT_EQ(first[1].label, 1);
  EXPECT_EQ(first[2].label, 0);
  for (const SampleSlot& slot : first) EXPECT_EQ(slot.weight, 1);
  EXPECT_EQ(samples.slots_of(samples.blocks()[1]).size(), 1u);
}

TEST_F(Records, CountConditionallyWhereAllBeforeWereAccepted) {
  const CalibrationSamples samples =
      read("{\"logits\": [1, 2, 3], \"labels\": [1, 0, 0]}", LabelKind::conditional);
  const auto slots = samples.slots_of(samples.blocks()[0]);
  ASSERT_EQ(slots.size(), 2u);  // the third was not reached
  EXPECT_EQ(slots[0].label, 1);
  EXPECT_EQ(slots[1].label, 0);
  EXPECT_EQ(slots[1].weight, 1);
}

TEST_F(Records, ThatFollowEachOtherAreOneSequence) {
  std::string text;
  for (int i = 0; i < 2 * kRecordsPerSequence + 1; ++i) {
    text += "{\"logits\": [0.5], \"labels\": [1]}\n";
  }
  const CalibrationSamples samples = read(text, LabelKind::cumulative);
  EXPECT_EQ(samples.sequences().size(), 3u);
  EXPECT_EQ(samples.blocks()[kRecordsPerSequence - 1].sequence, 0);
  EXPECT_EQ(samples.blocks()[kRecordsPerSequence].sequence, 1);
}

TEST_F(Records, AreRecognisedByTheirContent) {
  EXPECT_TRUE(looks_like_records(write(kThree)));
  EXPECT_TRUE(looks_like_records(write("\n \t{\"logits\"")));
  EXPECT_FALSE(looks_like_records(write("\x89HDF\r\n\x1a\n")));
  EXPECT_FALSE(looks_like_records(write("[1]")));
  EXPECT_FALSE(looks_like_records(write("")));
  EXPECT_FALSE(looks_like_records(write("  \n ")));
  EXPECT_FALSE(looks_like_records(write(std::string(10, '\0') + "{")));
  EXPECT_FALSE(looks_like_records(folder_.file("missing")));
}

TEST_F(Records, ThatAreBrokenAreRefusedWithTheirLine) {
  const std::string good = "{\"logits\": [1], \"labels\": [1]}\n";
  expect_error(good + "{\"logits\": [1]", "records:2: is no valid JSON");
  expect_error(good + "\n[1]\n", "records:3: has no list 'logits'");
  expect_error("{\"logits\": [1]}", "records:1: has no list 'labels'");
  expect_error("{\"logits\": 1, \"labels\": [1]}", "no list 'logits'");
  expect_error("{\"logits\": [1, 2], \"labels\": [1]}", "2 logits and 1 labels");
  expect_error("{\"logits\": [1, null], \"labels\": [1, 0]}", "logits[1] is no finite number");
  expect_error("{\"logits\": [NaN], \"labels\": [1]}", "is no valid JSON");
  expect_error("{\"logits\": [1e999], \"labels\": [1]}", "records:1");
  expect_error("{\"logits\": [1], \"labels\": [0.5]}", "labels[0] is neither 0 nor 1");
  expect_error("{\"logits\": [1], \"labels\": [true]}", "labels[0] is neither 0 nor 1");
  expect_error("{\"logits\": [1, 2], \"labels\": [0, 1]}", "labels[1] is 1 behind a 0");
  expect_error(good + "{\"logits\": [" + std::string(std::size_t{1} << 20, ' ') + "]}",
               "records:2: is longer than 1 MiB");
  std::string many = "0";
  for (int i = 0; i < kMaxCalibratedSlots; ++i) many += ", 0";
  expect_error("{\"logits\": [" + many + "], \"labels\": [" + many + "]}", "has 65 entries");
  expect_error("\n\n", "has no record");
}

TEST_F(Records, AreBoundedByTheMemoryBudget) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "{\"logits\": [0.5], \"labels\": [1]}\n";
  CalibrationSamples samples(LabelKind::cumulative, 5'000);
  EXPECT_THROW(read_records(write(text), samples), Error);
}

TEST_F(Records, ThatAreMissingAreAnError) {
  CalibrationSamples samples(LabelKind::cumulative, kPlenty);
  EXPECT_THROW(read_records(folder_.file("missing"), samples), Error);
}

}  // namespace
}  // namespace dspark
