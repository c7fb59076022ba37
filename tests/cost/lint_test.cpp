#include "cost/lint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cost/examples.h"

namespace dspark::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kNoDraft =
    "no draft time: drafting is free, unless the times are those of whole steps";
const CostProblem kMissingDraft = {CostSeverity::warning, "draft", kNoDraft};

TEST(Lint, HasNothingToSayOfTheMeasuredTable) {
  EXPECT_THAT(lint(example("h200_qwen3_8b_shape")), ElementsAre());
  EXPECT_THAT(lint(example("mlx")), ElementsAre());
}

TEST(Lint, MissesTheDraftTimeWhereTheFormatHasNone) {
  for (const char* name : {"sglang_1d", "sglang_2d", "trtllm", "trtllm_exact", "vllm_ascend"}) {
    EXPECT_THAT(lint(example(name)), ElementsAre(kMissingDraft)) << name;
  }
}

TEST(Lint, RefusesOneProbe) {
  const auto problems = lint(parsed(
      R"({"sample_batch_tokens": [1], "sample_steps_per_sec": [1.0], "max_batch_tokens": 64})"));
  EXPECT_THAT(problems,
              ElementsAre(CostProblem{CostSeverity::refuse, "sample_steps_per_sec",
                                      "one probe, so verifying everything always looks best"},
                          kMissingDraft));
}

TEST(Lint, RefusesWhatIsFlatWithinTwoPercent) {
  const auto problems = lint(parsed(R"({"latency_ms": {"8": 100, "16": 101.9}})"));
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].severity, CostSeverity::refuse);
  EXPECT_EQ(problems[0].where, "latency_ms");
  EXPECT_EQ(problems[0].what,
            "flat: the times at different tokens lie within 2 % (100 ms to 101.9 ms), so verifying "
            "everything always looks best");
  EXPECT_THAT(lint(parsed(R"({"latency_ms": {"8": 100, "16": 102.1}})")),
              ElementsAre(kMissingDraft));
}

TEST(Lint, WarnsOfTimesThatFall) {
  const auto problems =
      lint(parsed(R"({"latency_ms": {"8": 5, "16": 6, "32": 5.5, "64": 5.4, "128": 9}})"));
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].severity, CostSeverity::warning);
  EXPECT_EQ(
      problems[0].what,
      "not monotone: 32 tokens take 5.5 ms, fewer than the 6 ms of 16 tokens (and 1 fall more)");
  const auto rates = lint(parsed(
      R"({"sample_batch_tokens": [1, 2], "sample_steps_per_sec": [100, 200], "max_batch_tokens": 2})"));
  EXPECT_THAT(rates.front().what, HasSubstr("2 tokens take 5 ms, fewer than the 10 ms"));
}

TEST(Lint, WarnsOfAPlateauOverFourTimesTheTokens) {
  const auto problems =
      lint(parsed(R"({"latency_ms": {"8": 4, "16": 5, "32": 5.05, "64": 5.09, "128": 9}})"));
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(
      problems[0].what,
      "from 16 to 64 tokens the time stays within 2 % (5 ms): a plateau of the hardware, or the "
      "budgets of the profile were not honoured");
  EXPECT_THAT(
      lint(parsed(R"({"latency_ms": {"8": 4, "16": 5, "32": 5.05, "63": 5.09, "128": 9}})")),
      ElementsAre(kMissingDraft));
}

TEST(Lint, NamesTheRequestCountOfMeasuredRows) {
  const auto problems = lint(parsed(
      R"({"verify": [{"requests": 1, "tokens": 2, "ms": 4}, {"requests": 1, "tokens": 4, "ms": 3},
                     {"requests": 4, "tokens": 8, "ms": 9}],
          "draft": [{"requests": 1, "ms": 1}]})"));
  EXPECT_THAT(
      problems,
      ElementsAre(CostProblem{CostSeverity::warning, "verify, requests 1",
                              "not monotone: 4 tokens take 3 ms, fewer than the 4 ms of 2 tokens"},
                  CostProblem{CostSeverity::warning, "verify, requests 4",
                              "one measurement at this request count: its time is taken "
                              "whatever the tokens"}));
}

TEST(Lint, WarnsOfATextThatSglangWouldMistake) {
  const auto problems = lint(parsed(
      R"({"sample_batch_tokens": [1, 2], "sample_steps_per_sec": [2, 1], "max_batch_tokens": 2,
          "note": "no bias_seconds here"})"));
  EXPECT_THAT(
      problems,
      ElementsAre(CostProblem{CostSeverity::warning, "note",
                              "SGLang takes a file with the text 'bias_seconds' for a 2-D table"},
                  kMissingDraft));
}

TEST(Lint, WarnsOfAStatedLookupThatIsNotTheEngines) {
  const auto problems = lint(
      parsed(R"({"token_counts": [1, 2], "step_time_ms": [1, 2], "_meta": {"lookup": "floor"}})"));
  EXPECT_THAT(problems,
              ElementsAre(CostProblem{CostSeverity::warning, "_meta.lookup",
                                      "not \"interp\", and it is interpolated nevertheless"},
                          kMissingDraft));
}

TEST(LintRange, WarnsOfStepsBeyondTheTable) {
  const CostTable measured = example("h200_qwen3_8b_shape");
  EXPECT_THAT(lint_range(measured, 128, 1024), ElementsAre());
  const auto problems = lint_range(measured, 256, 2048);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].what,
            "narrower than asked for: steps above 128 requests continue the last slope");
  EXPECT_EQ(problems[1].what,
            "narrower than asked for: steps above 1024 tokens continue the last slope");
  const auto clamped = lint_range(example("sglang_1d"), 128, 513);
  ASSERT_EQ(clamped.size(), 1U);
  EXPECT_EQ(clamped[0].what,
            "narrower than asked for: steps above 512 tokens cost what the last probe does");
  EXPECT_THAT(lint_range(example("trtllm_exact"), 32, 257)[0].what,
              HasSubstr("steps above 256 tokens have no time"));
}

TEST(LintModel, KnowsWhatThePolicyFileAdded) {
  CostModel model(example("trtllm"));
  EXPECT_THAT(lint(model), ElementsAre(kMissingDraft));
  model.set_draft(1.0);
  EXPECT_THAT(lint(model), ElementsAre());
  EXPECT_THAT(lint(CostModel()), ElementsAre());
  const auto flat = lint(CostModel(LinearCost{1, 1, 0, 0}));
  ASSERT_EQ(flat.size(), 1U);
  EXPECT_EQ(flat[0].severity, CostSeverity::refuse);
}

}  // namespace
}  // namespace dspark::test
