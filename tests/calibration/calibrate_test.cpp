#include "calibration/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "calibration/holdout.h"
#include "support/error.h"
#include "tests/calibration/sample_builder.h"

namespace dspark {
namespace {

bool has_note(const CalibrationReport& report, const std::string& part) {
  return std::any_of(report.notes.begin(), report.notes.end(),
                     [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

std::vector<JudgedPosition> positions_of(const CalibrationReport& report, SamplePart part,
                                         const std::optional<std::string>& domain) {
  std::vector<JudgedPosition> out;
  for (const JudgedPosition& at : report.positions) {
    if (at.part == part && at.domain == domain) out.push_back(at);
  }
  return out;
}

TEST(Calibrate, LowersTheErrorOfAnOverconfidentDrafterOnWhatWasHeldOut) {
  for (const LabelKind labels : {LabelKind::conditional, LabelKind::cumulative}) {
    CalibrationSamples samples(labels, kPlenty);
    add_random_input(samples, 6, 500, {1.0, 1.0, 1.0}, 1, 3.0);
    const CalibrationReport report = calibrate(samples, {});
    EXPECT_EQ(report.held_out, 3);
    EXPECT_LT(*report.held_out_error.after, 0.4 * *report.held_out_error.before);
    EXPECT_FALSE(has_note(report, "does not fall"));
    EXPECT_TRUE(meets(report, *report.held_out_error.after));
    EXPECT_FALSE(meets(report, *report.held_out_error.after * 0.99));
  }
}

TEST(Calibrate, SaysWhereTheErrorDoesNotFall) {
  // Fitted on another law than judged. Which of two sequences is held out depends on the seed
  // alone.
  CalibrationSamples probe(LabelKind::conditional, kPlenty);
  add_random_input(probe, 2, 1, {1.0}, 1);
  hold_out(probe, 0.5, 0);
  CalibrationSamples adverse(LabelKind::conditional, kPlenty);
  adverse.add_input("t", "d");
  for (std::int32_t s = 0; s < 2; ++s) {
    adverse.add_sequence(s);
    const bool held = probe.sequences()[static_cast<std::size_t>(s)].held_out;
    for (std::uint32_t i = 0; i < 300; ++i) {
      const double logit = 6 * uniform(9, i) - 3;
      adverse.add_block(std::vector<SampleSlot>{
          {.logit = logit, .label = tempered(logit, held ? 1.0 : 4.0), .weight = 1}});
    }
  }
  const CalibrationReport report = calibrate(adverse, {});
  EXPECT_GT(*report.held_out_error.after, *report.held_out_error.before);
  EXPECT_TRUE(has_note(report, "does not fall"));
}

TEST(Calibrate, JudgesOnOtherSequencesThanItFits) {
  CalibrationSamples samples(LabelKind::conditional, kPlenty);
  add_random_input(samples, 4, 50, {1.0}, 1);
  const CalibrationReport report = calibrate(samples, {});
  EXPECT_EQ(positions_of(report, SamplePart::fit, {})[0].before.blocks, 100);
  EXPECT_EQ(positions_of(report, SamplePart::held_out, {})[0].before.blocks, 100);
  EXPECT_EQ(report.temperatures[0].blocks, 100);
  EXPECT_EQ(report.fitted_blocks, 100);
}

TEST(Calibrate, WithOneSequenceJudgesNothingAndSaysSo) {
  CalibrationSamples samples(LabelKind::cumulative, kPlenty);
  add_random_input(samples, 1, 100, {1.0, 1.0}, 1);
  const CalibrationReport report = calibrate(samples, {});
  EXPECT_EQ(report.held_out, 0);
  EXPECT_TRUE(positions_of(report, SamplePart::held_out, {}).empty());
  EXPECT_FALSE(report.held_out_error.before.has_value());
  EXPECT_FALSE(report.held_out_error.after.has_value());
  EXPECT_TRUE(report.fit_error.after.has_value());
  EXPECT_TRUE(has_note(report, "nothing is held out"));
  EXPECT_FALSE(meets(report, 1.0));  // a gate that nothing was judged by does not pass
}

TEST(Calibrate, ReportsEveryDomainAndAllTogether) {
  CalibrationSamples samples(LabelKind::conditional, kPlenty);
  add_random_input(samples, 2, 30, {1.0, 1.0}, 1, 1, "code");
  add_random_input(samples, 2, 20, {1.0, 1.0}, 2, 1, "prose");
  const CalibrationReport report = calibrate(samples, {});
  const auto all = positions_of(report, SamplePart::held_out, std::nullopt);
  const auto code = positions_of(report, SamplePart::held_out, "code");
  const auto prose = positions_of(report, SamplePart::held_out, "prose");
  ASSERT_EQ(all.size(), 2u);
  ASSERT_EQ(code.size(), 2u);
  EXPECT_EQ(all[1].position, 2);
  EXPECT_EQ(code[0].before.blocks, 30);
  EXPECT_EQ(prose[0].before.blocks, 20);
  EXPECT_EQ(all[0].before.blocks, 50);
}

TEST(Calibrate, LeavesASingleClassWithoutAreaUnderTheCurve) {
  CalibrationSamples samples(LabelKind::cumulative, kPlenty);
  samples.add_input("t", "d");
  for (std::int32_t s = 0; s < 2; ++s) {
    samples.add_sequence(s);
    samples.add_block(std::vector<SampleSlot>{{.logit = 1, .label = 1, .weight = 1}});
  }
  const CalibrationReport report = calibrate(samples, {});
  for (const JudgedPosition& at : report.positions) {
    EXPECT_FALSE(at.before.auc.has_value());
    EXPECT_FALSE(at.after.auc.has_value());
    EXPECT_TRUE(at.after.ece.has_value());
  }
  EXPECT_TRUE(has_note(report, "an end of the grid"));
}

TEST(Calibrate, LeavesPositionsWithoutDataOutOfTheMean) {
  CalibrationSamples samples(LabelKind::cumulative, kPlenty);
  add_random_input(samples, 2, 50, {1.0}, 1);
  samples.raise_block_size(2);
  const CalibrationReport report = calibrate(samples, {});
  const auto at = positions_of(report, SamplePart::held_out, {});
  ASSERT_EQ(at.size(), 2u);
  EXPECT_FALSE(at[1].before.ece.has_value());
  EXPECT_EQ(*report.held_out_error.before, *at[0].before.ece);
  EXPECT_TRUE(has_note(report, "position 2: nothing to fit on"));
}

TEST(Calibrate, RefusesNothing) {
  CalibrationSamples samples(LabelKind::cumulative, kPlenty);
  samples.add_input("t", "d");
  EXPECT_THROW(static_cast<void>(calibrate(samples, {})), Error);
}

}  // namespace
}  // namespace dspark
