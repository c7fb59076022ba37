#include "calibration/holdout.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/calibration/sample_builder.h"

namespace dspark {
namespace {

CalibrationSamples with_inputs(const std::vector<int>& sequences) {
  CalibrationSamples samples(LabelKind::conditional, kPlenty);
  for (const int count : sequences) add_random_input(samples, count, 2, {1.0}, 1);
  return samples;
}

std::vector<std::int64_t> held_out_by_input(const std::vector<int>& sequences, double fraction) {
  CalibrationSamples samples = with_inputs(sequences);
  hold_out(samples, fraction, 0);
  std::vector<std::int64_t> out;
  for (const SampleInput& input : samples.inputs()) out.push_back(input.held_out);
  return out;
}

std::set<std::int32_t> held_out_of(const CalibrationSamples& samples, std::int32_t input) {
  std::set<std::int32_t> out;
  for (const SampleSequence& sequence : samples.sequences()) {
    if (sequence.held_out && sequence.input == input) out.insert(sequence.index);
  }
  return out;
}

TEST(HoldOut, TakesItsShareOfEveryInput) {
  EXPECT_EQ(held_out_by_input({10, 4, 3}, 0.5), (std::vector<std::int64_t>{5, 2, 1}));
  EXPECT_EQ(held_out_by_input({10, 4, 3}, 0.3), (std::vector<std::int64_t>{3, 1, 1}));
}

TEST(HoldOut, LeavesSomethingToFitOnAndSomethingToJudgeBy) {
  EXPECT_EQ(held_out_by_input({5, 2}, 0.001), (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(held_out_by_input({5, 2}, 0.999), (std::vector<std::int64_t>{4, 1}));
}

TEST(HoldOut, FitsOnTheOnlySequenceOfAnInput) {
  EXPECT_EQ(held_out_by_input({1, 4}, 0.5), (std::vector<std::int64_t>{0, 2}));
}

TEST(HoldOut, TreatsTheSameSequencesAlikeInEveryInput) {
  CalibrationSamples samples = with_inputs({8, 8});
  hold_out(samples, 0.5, 7);
  EXPECT_EQ(held_out_of(samples, 0), held_out_of(samples, 1));
}

TEST(HoldOut, DependsOnTheSeedAndNothingElse) {
  std::set<std::set<std::int32_t>> choices;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CalibrationSamples samples = with_inputs({8});
    CalibrationSamples again = with_inputs({3, 8});
    hold_out(samples, 0.5, seed);
    hold_out(again, 0.5, seed);
    EXPECT_EQ(held_out_of(samples, 0), held_out_of(again, 1));
    choices.insert(held_out_of(samples, 0));
  }
  EXPECT_GT(choices.size(), 10u);  // of 70; the draws are not all the same
}

TEST(HoldOut, DoesNotCountSequencesWithoutABlock) {
  CalibrationSamples samples(LabelKind::conditional, kPlenty);
  samples.add_input("t", "d");
  for (int s = 0; s < 4; ++s) {
    samples.add_sequence(s);
    if (s == 2) samples.add_block(std::vector<SampleSlot>{{.logit = 0, .label = 1, .weight = 1}});
  }
  EXPECT_EQ(samples.inputs()[0].sequences, 1);
  EXPECT_EQ(samples.sequences()[0].index, 2);
  hold_out(samples, 0.5, 0);
  EXPECT_EQ(samples.inputs()[0].held_out, 0);
}

}  // namespace
}  // namespace dspark
