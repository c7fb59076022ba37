// Which settings are replayed on which trace.
#include "cli/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "support/error.h"

namespace dspark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TraceHeader recorded_at(double temperature, const std::string& file = "a.h5") {
  TraceHeader header;
  header.file = file;
  header.vocab_size = 1000;
  header.block_size = 7;
  header.temperature = temperature;
  return header;
}

Plan plan_with(const SamplingChoice& choice) {
  Plan plan;
  plan.file = "p.yaml";
  plan.sampling = {choice};
  return plan;
}

SamplingChoice temperature_choice(double temperature) {
  SamplingChoice choice;
  choice.temperature = temperature;
  choice.position = {3, 11};
  return choice;
}

SamplingChoice top_k_choice(std::int64_t top_k) {
  SamplingChoice choice;
  choice.top_k = top_k;
  return choice;
}

SamplingChoice top_p_choice(double top_p) {
  SamplingChoice choice;
  choice.top_p = top_p;
  return choice;
}

Plan plan_asking_for(const std::vector<Verification>& verification) {
  Plan plan = plan_with(SamplingChoice{});
  plan.verification = verification;
  plan.verification_position = {2, 15};
  return plan;
}

std::string refusal(const Plan& plan, const std::vector<TraceHeader>& traces) {
  try {
    static_cast<void>(choose_settings(plan, traces));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::policy);
    return error.what();
  }
  return "not refused";
}

TEST(Settings, WithoutAPlanEachTraceIsReplayedAsItWasRecorded) {
  TraceHeader filtered = recorded_at(0.7);
  filtered.top_k = 50;
  filtered.top_p = 0.9;
  const SettingChoice choice =
      choose_settings(plan_with(SamplingChoice{}), {recorded_at(0), filtered});
  ASSERT_THAT(choice.by_trace, ElementsAre(SizeIs(1), SizeIs(1)));
  EXPECT_EQ(choice.by_trace[0][0].verification, Verification::greedy);
  const Setting& setting = choice.by_trace[1][0];
  EXPECT_EQ(setting.verification, Verification::probabilistic);
  EXPECT_EQ(setting.sampling.temperature, 0.7);
  EXPECT_EQ(setting.sampling.top_k, 50);
  EXPECT_EQ(setting.sampling.top_p, 0.9);
  EXPECT_EQ(setting.sampling.top_p_rule, "water_filling");
  EXPECT_THAT(choice.notes, IsEmpty());
}

TEST(Settings, ATemperatureBelowAThousandthWasRecordedGreedily) {
  const auto verification = [](double temperature) {
    return choose_settings(plan_with(SamplingChoice{}), {recorded_at(temperature)})
        .by_trace[0][0]
        .verification;
  };
  EXPECT_EQ(verification(0.0009), Verification::greedy);
  EXPECT_EQ(verification(0.001), Verification::probabilistic);
}

TEST(Settings, AVerificationIsLeftOutOnTracesRecordedWithTheOtherOne) {
  const SettingChoice choice =
      choose_settings(plan_asking_for({Verification::greedy, Verification::probabilistic}),
                      {recorded_at(0, "greedy.h5"), recorded_at(1, "sampled.h5")});
  EXPECT_THAT(choice.by_trace, ElementsAre(SizeIs(1), SizeIs(1)));
  EXPECT_THAT(choice.notes,
              ElementsAre("greedy.h5: recorded at temperature 0, so probabilistic verification is "
                          "left out for it",
                          "sampled.h5: recorded at temperature 1, so greedy verification is left "
                          "out for it"));
}

TEST(Settings, ATraceThatAnswersNothingIsLeftOut) {
  const SettingChoice choice =
      choose_settings(plan_asking_for({Verification::greedy}), {recorded_at(1), recorded_at(0)});
  EXPECT_THAT(choice.by_trace, ElementsAre(IsEmpty(), SizeIs(1)));
  EXPECT_THAT(choice.notes, SizeIs(1));
}

TEST(Settings, AVerificationThatNoTraceAnswersIsRefusedWithItsPlace) {
  EXPECT_EQ(refusal(plan_asking_for({Verification::greedy}), {recorded_at(1), recorded_at(0.5)}),
            "p.yaml:2:15: no trace was recorded with greedy verification; give a trace recorded at "
            "temperature 0, or leave 'greedy' out");
  EXPECT_THAT(refusal(plan_asking_for({Verification::greedy, Verification::probabilistic}),
                      {recorded_at(0)}),
              HasSubstr("no trace was recorded with probabilistic verification"));
}

TEST(Settings, ARecordedF32TemperatureEqualsTheDecimalInTheFile) {
  const SettingChoice choice =
      choose_settings(plan_with(temperature_choice(0.7)), {recorded_at(0.7)});
  EXPECT_EQ(choice.by_trace[0][0].sampling.temperature, 0.7);
}

TEST(Settings, AnotherTemperatureIsRefusedInTheWordsOfTheFile) {
  EXPECT_EQ(refusal(plan_with(temperature_choice(0.8)), {recorded_at(0.7)}),
            "p.yaml:3:11: temperature 0.8 is not what a.h5 was recorded with (0.7); leave "
            "temperature out or give 0.7; estimates for other settings are not supported in this "
            "version");
}

TEST(Settings, EveryTemperatureBelowAThousandthIsGreedy) {
  EXPECT_THAT(choose_settings(plan_with(temperature_choice(0.0005)), {recorded_at(0)}).by_trace,
              ElementsAre(SizeIs(1)));
  EXPECT_THAT(refusal(plan_with(temperature_choice(0.0)), {recorded_at(1)}),
              HasSubstr("temperature 0"));
}

TEST(Settings, ATopKOfTheWholeVocabularyIsOff) {
  for (const std::int64_t top_k : {0, 1000, 5000}) {
    EXPECT_THAT(choose_settings(plan_with(top_k_choice(top_k)), {recorded_at(1)}).by_trace,
                ElementsAre(SizeIs(1)));
  }
  EXPECT_THAT(refusal(plan_with(top_k_choice(999)), {recorded_at(1)}), HasSubstr("top_k 999"));
}

TEST(Settings, ATopPThatDiffersIsRefused) {
  TraceHeader trace = recorded_at(1);
  trace.top_p = 0.95;
  EXPECT_THAT(choose_settings(plan_with(top_p_choice(0.95)), {trace}).by_trace,
              ElementsAre(SizeIs(1)));
  EXPECT_THAT(refusal(plan_with(top_p_choice(1.0)), {trace}), HasSubstr("(0.95)"));
  EXPECT_THAT(refusal(plan_with(top_p_choice(0.5)), {recorded_at(1)}), HasSubstr("top_p 0.5"));
}

TEST(Settings, TheTopPRuleMayBeChosenAndEqualSettingsAreOne) {
  Plan plan = plan_with(top_k_choice(0));
  plan.sampling.push_back(top_k_choice(1000));
  plan.sampling.emplace_back().top_p_rule = TopPRule::include_crossing;
  const SettingChoice choice = choose_settings(plan, {recorded_at(1)});
  ASSERT_THAT(choice.by_trace, ElementsAre(SizeIs(2)));
  EXPECT_EQ(choice.by_trace[0][0].sampling.top_p_rule, "water_filling");
  EXPECT_EQ(choice.by_trace[0][1].sampling.top_p_rule, "include_crossing");
}

TEST(Settings, PlacesNameTheFileAloneWhereThereIsNoLine) {
  const Plan plan = plan_with(SamplingChoice{});
  EXPECT_EQ(place_in_plan(plan, {4, 2}), "p.yaml:4:2");
  EXPECT_EQ(place_in_plan(plan, {}), "p.yaml");
}

}  // namespace
}  // namespace dspark
