#include "replay/calibration_samples.h"

#include <gtest/gtest.h>

#include <cmath>

#include "calibration/calibrate.h"
#include "calibration/logit.h"
#include "replay/apply_calibration.h"
#include "replay/open_loop.h"
#include "support/error.h"
#include "tests/replay/random_table.h"

namespace dspark {
namespace {

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 30;

CalibrationSamples samples_of(const OutcomeTable& table, LabelKind labels) {
  CalibrationSamples samples(labels, kPlenty);
  samples.add_input("trace", "domain");
  add_calibration_samples(table, samples);
  return samples;
}

/// What is claimed at every position, over all samples (the table has one sequence, which is not
/// held out).
std::vector<Reliability> judged(const OutcomeTable& table, LabelKind labels) {
  CalibrationSamples samples = samples_of(table, labels);
  CalibrateOptions options;
  options.rule.bins = kCalibrationBins;
  std::vector<Reliability> out;
  for (const JudgedPosition& at : calibrate(samples, options).positions) out.push_back(at.before);
  return out;
}

TEST(CalibrationSamples, OfTheTextAreWhatTheOpenLoopSaysOfConditionals) {
  const OutcomeTable table = random_table({200}, 4, 2, 1);
  const std::vector<PositionResult> loop = open_loop(table);
  const std::vector<Reliability> at = judged(table, LabelKind::conditional);
  ASSERT_EQ(at.size(), 4u);
  for (std::size_t k = 0; k < 4; ++k) {
    EXPECT_NEAR(*at[k].ece, *loop[k].conditional_ece, 1e-6) << k;
    EXPECT_NEAR(*at[k].predicted, *loop[k].predicted_conditional, 1e-6) << k;
    EXPECT_NEAR(*at[k].observed, *loop[k].conditional, 1e-12) << k;
  }
}

TEST(CalibrationSamples, OfTheWorldsAreWhatTheOpenLoopPredicts) {
  const OutcomeTable table = random_table({150}, 4, 3, 2);
  const std::vector<PositionResult> loop = open_loop(table);
  const std::vector<Reliability> at = judged(table, LabelKind::cumulative);
  ASSERT_EQ(at.size(), 4u);
  for (std::size_t k = 0; k < 4; ++k) {
    EXPECT_NEAR(at[k].weight, 147, 1e-9) << k;  // 1 per anchor with a full block
    EXPECT_NEAR(*at[k].predicted, *loop[k].predicted, 1e-6) << k;
    EXPECT_NEAR(*at[k].observed, *loop[k].survival_trajectory, 1e-9) << k;
  }
}

TEST(CalibrationSamples, OfTheWorldsHaveTheirRejectionAsLabelAndTheirProbabilityAsWeight) {
  OutcomeTable table = uniform_table(2, 2, 0.25, 0.5f);
  table.repeats = 2;
  table.world_confidence = {0.1f, 0.2f, 0.3f,
                            0.4f};  // of two anchors; the second has no full block
  const CalibrationSamples samples = samples_of(table, LabelKind::cumulative);
  ASSERT_EQ(samples.blocks().size(), 4u);
  struct Expected {
    double first_label, second_label, weight;
    float second_confidence;
  };
  const Expected expected[] = {{0, 0, 0.375, 0.1f},    // rejected at 1, in repeat 0
                               {0, 0, 0.375, 0.2f},    // in repeat 1
                               {1, 0, 0.1875, 0.5f},   // rejected at 2
                               {1, 1, 0.0625, 0.5f}};  // accepted
  for (std::size_t i = 0; i < 4; ++i) {
    const auto slots = samples.slots_of(samples.blocks()[i]);
    ASSERT_EQ(slots.size(), 2u);
    EXPECT_EQ(slots[0].label, expected[i].first_label) << i;
    EXPECT_EQ(slots[1].label, expected[i].second_label) << i;
    EXPECT_DOUBLE_EQ(slots[0].weight, expected[i].weight) << i;
    EXPECT_DOUBLE_EQ(slots[1].weight, expected[i].weight) << i;
    EXPECT_NEAR(slots[1].logit, logit_of(expected[i].second_confidence), 1e-12) << i;
  }
}

TEST(CalibrationSamples, OfDeterministicDraftsAreTheDraftedChain) {
  OutcomeTable table = uniform_table(3, 3, 1, 0.5f);
  table.greedy = true;
  table.beta = {1, 0, 0, 1, 1, 1, 1, 1, 1};
  table.alpha = table.beta;
  const CalibrationSamples chain = samples_of(table, LabelKind::cumulative);
  ASSERT_EQ(chain.blocks().size(), 1u);  // one anchor has three positions left
  const auto slots = chain.slots_of(chain.blocks()[0]);
  ASSERT_EQ(slots.size(), 3u);
  EXPECT_EQ(slots[0].label, 1);
  EXPECT_EQ(slots[1].label, 0);
  EXPECT_EQ(slots[2].label, 0);
  EXPECT_EQ(slots[2].weight, 1);
  const CalibrationSamples text = samples_of(table, LabelKind::conditional);
  EXPECT_EQ(text.slots_of(text.blocks()[0]).size(), 2u);  // slot 3 is never reached
}

TEST(CalibrationSamples, EndWithTheFirstInvalidRowAndLeaveShortBlocksOut) {
  OutcomeTable table = uniform_table(5, 3, 0.5, 0.5f);
  table.slots = {2, 0, 3, 2, 1};
  for (const LabelKind labels : {LabelKind::conditional, LabelKind::cumulative}) {
    const CalibrationSamples samples = samples_of(table, labels);
    EXPECT_EQ(samples.block_size(), 3);
    // Anchors 0 and 2 count, with 2 and 3 slots; anchor 1 has none.
    EXPECT_EQ(samples.slots_of(samples.blocks().front()).size(), 2u);
    EXPECT_EQ(samples.slots_of(samples.blocks().back()).size(), 3u);
  }
}

TEST(CalibrationSamples, KeepTheSequencesApart) {
  const OutcomeTable table = random_table({10, 2, 10}, 4, 1, 3);
  const CalibrationSamples samples = samples_of(table, LabelKind::conditional);
  ASSERT_EQ(samples.sequences().size(), 2u);  // the second has no full block
  EXPECT_EQ(samples.sequences()[0].index, 0);
  EXPECT_EQ(samples.sequences()[1].index, 2);
}

TEST(CalibrationSamples, OfATableWithoutConfidencesAreNone) {
  OutcomeTable table = random_table({10}, 3, 0, 1);
  table.has_confidence = false;
  table.confidence.assign(table.confidence.size(), std::nanf(""));
  EXPECT_TRUE(samples_of(table, LabelKind::conditional).blocks().empty());
}

RoundTable three_rounds() {
  RoundTable table;
  table.block_size = 3;
  table.has_confidence = true;
  table.rounds = {{.slots = 3, .accepted = 1},
                  {.slots = 3, .accepted = 2, .diverged_slot = 2, .censored = true},
                  {.slots = 2, .accepted = 2}};
  table.request = {5, 2, 5};
  table.confidence = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f, std::nanf("")};
  return table;
}

TEST(CalibrationSamples, OfRoundsAreTheirDraftedChainsByRequest) {
  CalibrationSamples samples(LabelKind::cumulative, kPlenty);
  samples.add_input("trace", "domain");
  add_calibration_samples(three_rounds(), samples);
  ASSERT_EQ(samples.blocks().size(), 3u);
  ASSERT_EQ(samples.sequences().size(), 2u);
  EXPECT_EQ(samples.sequences()[0].index, 2);
  EXPECT_EQ(samples.sequences()[1].index, 5);
  const auto censored = samples.slots_of(samples.blocks()[0]);
  ASSERT_EQ(censored.size(), 2u);  // nobody knows about the third
  EXPECT_EQ(censored[1].label, 1);
  EXPECT_NEAR(censored[1].logit, logit_of(0.5f), 1e-12);
  const auto rejected = samples.slots_of(samples.blocks()[1]);
  ASSERT_EQ(rejected.size(), 3u);
  EXPECT_EQ(rejected[0].label, 1);
  EXPECT_EQ(rejected[1].label, 0);
  EXPECT_EQ(rejected[2].label, 0);
  EXPECT_EQ(rejected[2].weight, 1);
  EXPECT_EQ(samples.slots_of(samples.blocks()[2]).size(), 2u);
  EXPECT_EQ(samples.block_size(), 3);
}

TEST(CalibrationSamples, OfRoundsCountConditionallyUpToTheRejection) {
  CalibrationSamples samples(LabelKind::conditional, kPlenty);
  samples.add_input("trace", "domain");
  add_calibration_samples(three_rounds(), samples);
  const auto rejected = samples.slots_of(samples.blocks()[1]);
  ASSERT_EQ(rejected.size(), 2u);
  EXPECT_EQ(rejected[1].label, 0);
}

TEST(CalibrationSamples, AreRefusedWhereTheyWouldNotFit) {
  CalibrationSamples samples(LabelKind::cumulative, 100'000);
  samples.add_input("trace", "domain");
  EXPECT_THROW(add_calibration_samples(random_table({1000}, 7, 4, 1), samples), Error);
  EXPECT_TRUE(samples.blocks().empty());
}

TEST(CalibrationSamples, OfAnOverconfidentDrafterGetTwiceTheTemperature) {
  const OutcomeTable honest = random_table({800}, 3, 2, 5);
  OutcomeTable doubled = honest;
  apply_calibration(doubled, {0.5, 0.5, 0.5});
  for (const LabelKind labels : {LabelKind::conditional, LabelKind::cumulative}) {
    const CalibrationSamples before = samples_of(honest, labels);
    const CalibrationSamples after = samples_of(doubled, labels);
    const double t = fit_temperatures(before, deepspec_fit(), 1)[0].temperature;
    EXPECT_NEAR(fit_temperatures(after, deepspec_fit(), 1)[0].temperature / t, 2, 0.1);
  }
}

}  // namespace
}  // namespace dspark
