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
  header.vocab_size = header.vocab_size_logical = 1000;
  header.block_size = 7;
  header.temperature = temperature;
  return header;
}

TraceHeader rounds_at(double temperature) {
  TraceHeader header = recorded_at(temperature, "r.h5");
  header.kind = TraceKind::rounds;
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

TraceHeader in_domain(TraceHeader header, const std::string& domain) {
  header.domain = domain;
  return header;
}

TEST(Settings, AVerificationIsLeftOutOnTracesRecordedWithTheOtherOne) {
  const SettingChoice choice =
      choose_settings(plan_asking_for({Verification::greedy, Verification::probabilistic}),
                      {in_domain(recorded_at(0, "greedy.h5"), "code"),
                       in_domain(recorded_at(1, "sampled.h5"), "code")});
  EXPECT_THAT(choice.by_trace, ElementsAre(SizeIs(1), SizeIs(1)));
  EXPECT_THAT(choice.notes,
              ElementsAre("greedy.h5: recorded at temperature 0, so probabilistic verification is "
                          "left out for it",
                          "sampled.h5: recorded at temperature 1, so greedy verification is left "
                          "out for it"));
}

TEST(Settings, ATraceThatAnswersNothingIsLeftOut) {
  const SettingChoice choice =
      choose_settings(plan_asking_for({Verification::greedy}),
                      {in_domain(recorded_at(1), "code"), in_domain(recorded_at(0), "code")});
  EXPECT_THAT(choice.by_trace, ElementsAre(IsEmpty(), SizeIs(1)));
  EXPECT_THAT(choice.notes, SizeIs(1));
}

TEST(Settings, APartnerIsTheOnlyTraceOfADomainThatIsNamed) {
  const auto estimates = [](const std::vector<TraceHeader>& traces) {
    std::size_t count = 0;
    for (const auto& settings :
         choose_settings(plan_asking_for({Verification::greedy}), traces).by_trace) {
      for (const Setting& setting : settings) count += setting.off_policy ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(estimates({recorded_at(1), recorded_at(0)}), 1U) << "no domain, no partner";
  EXPECT_EQ(
      estimates({in_domain(recorded_at(1, "a.h5"), "code"),
                 in_domain(recorded_at(1, "b.h5"), "code"), in_domain(recorded_at(0), "code")}),
      2U)
      << "nothing says which of the two belongs to it";
}

TEST(Settings, AVerificationThatNoTraceAnswersIsRefusedWithItsPlace) {
  EXPECT_EQ(refusal(plan_asking_for({Verification::greedy}), {rounds_at(1), rounds_at(0.5)}),
            "p.yaml:2:15: no trace can answer greedy verification; give a trace recorded at "
            "temperature 0 or an anchors trace, or leave 'greedy' out");
  EXPECT_THAT(refusal(plan_asking_for({Verification::greedy, Verification::probabilistic}),
                      {recorded_at(0)}),
              HasSubstr("no trace can answer probabilistic verification"));
}

TEST(Settings, GreedyVerificationIsEstimatedFromASampledTraceWithoutAPartner) {
  TraceHeader code = recorded_at(1, "code.h5"), prose = recorded_at(0, "prose.h5");
  code.domain = "code";
  prose.domain = "prose";
  const SettingChoice choice = choose_settings(
      plan_asking_for({Verification::greedy, Verification::probabilistic}), {code, prose});
  ASSERT_THAT(choice.by_trace, ElementsAre(SizeIs(2), SizeIs(1)));
  const Setting& estimate = choice.by_trace[0][0];
  EXPECT_EQ(estimate.verification, Verification::greedy);
  EXPECT_TRUE(estimate.off_policy);
  EXPECT_EQ(estimate.sampling.temperature, 0);
  EXPECT_EQ(estimate.sampling.drafts, "greedy");
  EXPECT_FALSE(choice.by_trace[0][1].off_policy);
  EXPECT_FALSE(choice.by_trace[1][0].off_policy);
  EXPECT_THAT(choice.notes,
              ElementsAre(HasSubstr("code.h5: greedy verification at temperature 0"),
                          HasSubstr("prose.h5: recorded at temperature 0, so probabilistic")));
}

TEST(Settings, AnEstimateThatIsAskedForByNameNeedsNoMissingPartner) {
  Plan plan = plan_asking_for({Verification::greedy});
  plan.sampling = {temperature_choice(0)};
  const SettingChoice choice = choose_settings(plan, {recorded_at(0), recorded_at(1)});
  ASSERT_THAT(choice.by_trace, ElementsAre(SizeIs(1), SizeIs(1)));
  EXPECT_TRUE(choice.by_trace[1][0].off_policy);
}

TEST(Settings, ARecordedF32TemperatureEqualsTheDecimalInTheFile) {
  const SettingChoice choice =
      choose_settings(plan_with(temperature_choice(0.7)), {recorded_at(0.7)});
  EXPECT_EQ(choice.by_trace[0][0].sampling.temperature, 0.7);
}

TEST(Settings, AnotherTemperatureIsAnEstimateOnAnchors) {
  const SettingChoice choice =
      choose_settings(plan_with(temperature_choice(0.8)), {recorded_at(0.7)});
  ASSERT_THAT(choice.by_trace, ElementsAre(SizeIs(1)));
  EXPECT_TRUE(choice.by_trace[0][0].off_policy);
  EXPECT_EQ(choice.by_trace[0][0].sampling.temperature, 0.8);
  EXPECT_EQ(choice.by_trace[0][0].verification, Verification::probabilistic);
  EXPECT_THAT(choice.notes,
              ElementsAre("a.h5: probabilistic verification at temperature 0.8, top_k 0, top_p 1 "
                          "was not recorded; it is estimated from the recording (off_policy)"));
}

TEST(Settings, AnotherTemperatureIsRefusedOnRoundsInTheWordsOfTheFile) {
  EXPECT_EQ(refusal(plan_with(temperature_choice(0.8)), {rounds_at(0.7)}),
            "p.yaml:3:11: temperature 0.8 is not what r.h5 was recorded with (0.7); leave "
            "temperature out or give 0.7; a trace of rounds is replayed in its own setting only");
  EXPECT_THAT(refusal(plan_with(temperature_choice(0)), {rounds_at(0.7)}),
              HasSubstr("temperature 0 is not what r.h5 was recorded with (0.7)"));
}

TEST(Settings, AGreedyTraceAnswersNoTemperatureAboveZero) {
  EXPECT_EQ(refusal(plan_with(temperature_choice(0.8)), {recorded_at(0)}),
            "p.yaml:3:11: temperature 0.8 is not what a.h5 was recorded with (0); leave "
            "temperature out or give 0; nothing but greedy verification can be estimated from a "
            "greedy trace");
}

TEST(Settings, EveryTemperatureBelowAThousandthIsGreedy) {
  const Plan plan = plan_with(temperature_choice(0.0005));
  const SettingChoice choice = choose_settings(plan, {recorded_at(0), recorded_at(1)});
  ASSERT_THAT(choice.by_trace, ElementsAre(SizeIs(1), SizeIs(1)));
  EXPECT_FALSE(choice.by_trace[0][0].off_policy);
  EXPECT_TRUE(choice.by_trace[1][0].off_policy);
  EXPECT_EQ(choice.by_trace[1][0].verification, Verification::greedy);
}

TEST(Settings, GreedyVerificationIsOneSettingAtEveryTemperature) {
  Plan plan = plan_asking_for({Verification::greedy});
  plan.sampling = {temperature_choice(0.7), temperature_choice(1), top_k_choice(5)};
  plan.sampling.emplace_back().greedy_drafts = true;
  EXPECT_THAT(choose_settings(plan, {recorded_at(1)}).by_trace, ElementsAre(SizeIs(1)));
}

TEST(Settings, ATopKOfTheWholeVocabularyIsOff) {
  for (const std::int64_t top_k : {0, 1000, 5000}) {
    const SettingChoice choice = choose_settings(plan_with(top_k_choice(top_k)), {recorded_at(1)});
    ASSERT_THAT(choice.by_trace, ElementsAre(SizeIs(1)));
    EXPECT_FALSE(choice.by_trace[0][0].off_policy);
  }
  EXPECT_TRUE(
      choose_settings(plan_with(top_k_choice(999)), {recorded_at(1)}).by_trace[0][0].off_policy);
  EXPECT_THAT(refusal(plan_with(top_k_choice(999)), {rounds_at(1)}), HasSubstr("top_k 999"));
}

TEST(Settings, AFilterThatHidesTokensFromTheRecordingIsRefusedWhereTheyAreNeeded) {
  TraceHeader trace = recorded_at(1);
  trace.top_p = 0.95;
  const auto off_policy = [&](double top_p) {
    return choose_settings(plan_with(top_p_choice(top_p)), {trace}).by_trace[0][0].off_policy;
  };
  EXPECT_FALSE(off_policy(0.95));
  EXPECT_TRUE(off_policy(0.5));
  EXPECT_THAT(refusal(plan_with(top_p_choice(1.0)), {trace}),
              HasSubstr("top_p 1 can draw tokens that a.h5 never shows (recorded at temperature 1, "
                        "top_k 0, top_p 0.95)"));
  EXPECT_THAT(refusal(plan_with(temperature_choice(1.2)), {trace}), HasSubstr("temperature 1.2"));
}

TEST(Settings, GreedyDraftsAreASettingOfTheirOwn) {
  Plan plan = plan_with(SamplingChoice{});
  plan.sampling.emplace_back().greedy_drafts = true;
  const SettingChoice choice = choose_settings(plan, {recorded_at(1), recorded_at(0)});
  ASSERT_THAT(choice.by_trace, ElementsAre(SizeIs(2), SizeIs(1)));
  EXPECT_EQ(choice.by_trace[0][0].sampling.drafts, "sampled");
  EXPECT_EQ(choice.by_trace[0][1].sampling.drafts, "greedy");
  EXPECT_FALSE(choice.by_trace[0][1].off_policy) << "the text is the recorded one";
  EXPECT_EQ(choice.by_trace[0][1].verification, Verification::probabilistic);
  EXPECT_EQ(choice.by_trace[1][0].sampling.drafts, "greedy");
  plan.sampling.erase(plan.sampling.begin());
  EXPECT_THAT(refusal(plan, {rounds_at(1)}), HasSubstr("drafts greedy is not what r.h5"));
  EXPECT_THAT(choose_settings(plan, {rounds_at(0)}).by_trace, ElementsAre(SizeIs(1)));
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
