// synth: what it writes can be inspected and replayed, and has the acceptance that was asked for.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/cli/tool.h"

namespace dspark::test {
namespace {

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class SynthTest : public testing::Test {
 protected:
  // Writes a trace that is small where `more` does not say otherwise.
  [[nodiscard]] Outcome synth(const Arguments& more) const {
    Arguments arguments = {"synth", "--backend", "cpu", "-o", trace_};
    for (const auto& [flag, value] :
         std::vector<std::pair<std::string, std::string>>{{"--vocab", "60"},
                                                          {"--hidden", "12"},
                                                          {"--rank", "4"},
                                                          {"--block", "3"},
                                                          {"--acceptance", "0.9,0.7,0.4"}}) {
      if (std::find(more.begin(), more.end(), flag) == more.end()) {
        arguments = arguments + Arguments{flag, value};
      }
    }
    return run_tool(arguments + more);
  }
  void expect_synth(const Arguments& more) const {
    const Outcome outcome = synth(more);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, testing::StartsWith("dspark-replay: note: " + trace_));
  }
  [[nodiscard]] nlohmann::json json_of(const Arguments& arguments) const {
    const Outcome outcome = run_tool(arguments + Arguments{"--format", "json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err << outcome.out;
    return nlohmann::json::parse(outcome.out);
  }
  [[nodiscard]] nlohmann::json replay(const Arguments& more = {}) const {
    return json_of(Arguments{"run", trace_, "--backend", "cpu", "--strict"} + more);
  }

  TemporaryFolder folder_;
  std::string trace_ = folder_.file("t.h5");
};

struct RoundTrip {
  std::string name;
  Arguments flags;
};

void PrintTo(const RoundTrip& trip, std::ostream* out) { *out << trip.name; }

class SynthRoundTrip : public SynthTest, public testing::WithParamInterface<RoundTrip> {
 protected:
  // The conditional acceptance replayed is the profile, within four standard errors of as many
  // yes-or-no outcomes as blocks get that far. What is drawn depends on the seed alone, so the test
  // gives the same answer every time.
  static void expect_profile(const nlohmann::json& result, double blocks) {
    ASSERT_EQ(result["positions"].size(), 3U);
    double reached = blocks;
    int k = 0;
    for (const double profile : {0.9, 0.7, 0.4}) {
      const double measured = result["positions"][static_cast<std::size_t>(k++)]["conditional"];
      EXPECT_NEAR(measured, profile, 4 * std::sqrt(profile * (1 - profile) / reached)) << k;
      reached *= profile;
    }
  }
};

TEST_P(SynthRoundTrip, Anchors) {
  expect_synth(GetParam().flags + Arguments{"--sequences", "4", "--length", "150"});
  const auto report = json_of({"inspect", trace_})["traces"][0];
  EXPECT_TRUE(report["valid"].get<bool>());
  EXPECT_EQ(report["kind"], "anchors");
  EXPECT_EQ(report["anchors"], 600);
  EXPECT_EQ(report["vocab_size"], 60);
  EXPECT_EQ(report["block_size"], 3);

  const nlohmann::json result = replay();
  EXPECT_EQ(result["traces"][0]["invalid_rows"], 0);
  EXPECT_EQ(result["traces"][0]["impossible_tokens"], 0);
  expect_profile(result, 600);
  EXPECT_THAT(result.dump(), testing::HasSubstr("\"policy\":\"sps\""));
}

TEST_P(SynthRoundTrip, Rounds) {
  expect_synth(GetParam().flags +
               Arguments{"--kind", "rounds", "--sequences", "60", "--length", "5"});
  const auto report = json_of({"inspect", trace_})["traces"][0];
  EXPECT_TRUE(report["valid"].get<bool>());
  EXPECT_EQ(report["kind"], "rounds");
  EXPECT_EQ(report["rounds"], 300);

  const nlohmann::json result = replay();
  EXPECT_EQ(result["traces"][0]["reproduced"], 300);
  EXPECT_EQ(result["traces"][0]["diverged"], 0);
  EXPECT_EQ(result["traces"][0]["censored"], 0);
  expect_profile(result, 300);
}

INSTANTIATE_TEST_SUITE_P(
    Synth, SynthRoundTrip,
    testing::Values(
        RoundTrip{"Defaults", {}},
        RoundTrip{"GreedyLogits", {"--temperature", "0", "--store", "logits"}},
        RoundTrip{"CoolBf16", {"--temperature", "0.7", "--dtype", "bf16"}},
        RoundTrip{"TopKF32Logits", {"--top-k", "10", "--dtype", "f32", "--store", "logits"}},
        RoundTrip{"TopPF64Both", {"--top-p", "0.9", "--dtype", "f64", "--store", "both"}},
        RoundTrip{"WithoutMarkovHead", {"--rank", "0"}}),
    [](const auto& test) { return test.param.name; });

TEST_F(SynthTest, WithoutSpreadTheProfileIsMetExactly) {
  expect_synth({"--sequences", "1", "--length", "50", "--spread", "0"});
  const auto positions = replay()["positions"];
  EXPECT_NEAR(positions[0]["conditional"].get<double>(), 0.9, 1e-4);
  EXPECT_NEAR(positions[1]["conditional"].get<double>(), 0.7, 1e-4);
  EXPECT_NEAR(positions[2]["conditional"].get<double>(), 0.4, 1e-4);
}

TEST_F(SynthTest, TheSeedDecidesAndTheThreadsDoNot) {
  const Arguments small = {"--sequences", "2", "--length", "40"};
  const auto bytes = [&](const Arguments& more) {
    expect_synth(small + more);
    return read_file(trace_);
  };
  const std::string first = bytes({"--seed", "5", "--threads", "1"});
  EXPECT_EQ(bytes({"--seed", "5", "--threads", "2"}), first);
  EXPECT_NE(bytes({"--seed", "6", "--threads", "1"}), first);
}

TEST_F(SynthTest, ReplaysAreTheSameWhateverTheThreadsTheChunkAndTheOrder) {
  expect_synth({"--sequences", "3", "--length", "30"});
  const std::string other = folder_.file("other.h5");
  std::filesystem::rename(trace_, other);
  expect_synth({"--kind", "rounds", "--sequences", "9", "--length", "3"});
  const auto rows = [&](const Arguments& traces, const Arguments& flags) {
    nlohmann::json result = json_of(Arguments{"run", "--backend", "cpu"} + traces + flags);
    nlohmann::json of_trace;
    for (const char* part : {"traces", "positions", "results"}) {
      for (const auto& row : result[part]) {
        const std::string file = row.contains("file") ? row["file"] : row["trace"];
        of_trace[file + " " + part].push_back(row);
      }
    }
    return of_trace;
  };
  const auto expected = rows({trace_, other}, {"--threads", "1"});
  EXPECT_EQ(rows({other, trace_}, {"--threads", "2", "--chunk", "7"}), expected);
}

TEST_F(SynthTest, WithoutConfidenceHeadOnlyLengthsAreReplayed) {
  expect_synth({"--sequences", "1", "--length", "20", "--no-confidence"});
  for (const auto& row : replay()["results"]) {
    EXPECT_THAT(row["policy"], testing::AnyOf("none", "fixed"));
  }
}

TEST_F(SynthTest, HeadsMayHaveAFileOfTheirOwn) {
  expect_synth({"--sequences", "1", "--length", "20", "--heads-file", "h.h5"});
  EXPECT_THAT(folder_.names(), testing::ElementsAre("h.h5", "t.h5"));
  EXPECT_EQ(json_of({"inspect", folder_.file("h.h5")})["traces"][0]["kind"], "heads");
  EXPECT_FALSE(replay()["results"].empty());
}

TEST_F(SynthTest, TheHeadsFileIsNotTheTraceUnderAnotherName) {
  expect_error(synth({"--heads-file", "t.h5"}), 2, {"--heads-file", "the same file"});
  std::filesystem::create_symlink("t.h5", folder_.file("link.h5"));
  write_file(trace_, "old");
  expect_error(synth({"--heads-file", "link.h5"}), 2, {"--heads-file", "the same file"});
  EXPECT_EQ(read_file(trace_), "old");
}

TEST_F(SynthTest, BadFlagsExitWith2AndWriteNothing) {
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {{"--vocab", "1"}, "--vocab: 1 "},
      {{"--vocab", "1e4"}, "--vocab: '1e4'"},
      {{"--hidden", "6"}, "--hidden: 6 is too small"},
      {{"--block", "65"}, "--block: 65"},
      {{"--kind", "heads"}, "--kind"},
      {{"--dtype", "fp8"}, "--dtype"},
      {{"--store", "none"}, "--store"},
      {{"--spread", "1.5"}, "--spread"},
      {{"--temperature", "nan"}, "--temperature"},
      {{"--top-p", "0"}, "--top-p"},
      {{"--length", "0"}, "--length"},
      {{"--length", "5", "--length", "6"}, "given more than once"},
      {{"--sequences", "2147483647", "--length", "2147483583"}, "blocks"},
      {{"--random-lengths"}, "--random-lengths"},
      {{"--heads-file", "a/h.h5"}, "--heads-file"},
      {{"--format", "json"}, "--format"},
      {{"--heads", "h.h5"}, "--heads"},
      {{"--memory-budget", "1G"}, "--memory-budget"},
      {{"extra.h5"}, "extra.h5"}};
  for (const auto& [flags, name] : cases) {
    SCOPED_TRACE(flags.front());
    expect_error(synth(flags), 2, {name});
  }
  for (const char* profile : {"0.5,", "", "1.5", "nan", "a", "0.5,0.5,0.5,0.5"}) {
    SCOPED_TRACE(profile);
    expect_error(synth({"--acceptance", profile}), 2, {"--acceptance: "});
  }
  expect_error(run_tool({"synth"}), 2, {"--output", "-o TRACE"});
  expect_error(run_tool({"synth", "-o", "-"}), 2, {"--output"});
  expect_error(run_tool({"synth", "-o", "/dev/full"}), 2, {"/dev/full"});
  expect_error(run_tool({"synth", "-o", folder_.file("no/t.h5")}), 2, {"cannot be created"});
  EXPECT_THAT(folder_.names(), testing::IsEmpty());
}

TEST_F(SynthTest, ATraceThatDoesNotFitTheDiskIsRefusedAtOnce) {
  expect_error(synth({"--sequences", "1000000", "--length", "1000000"}), 1, {trace_, "are free"});
  EXPECT_THAT(folder_.names(), testing::IsEmpty());
}

TEST_F(SynthTest, ASignalLeavesNothingBehind) {
  Process process(DSPARK_TOOL, {.arguments = {"synth", "--backend", "cpu", "-o", trace_, "--length",
                                              "100000", "--heads-file", "h.h5"}});
  for (int i = 0; folder_.names().size() < 2 && i < 1000; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(folder_.names().size(), 2U) << "temporary files of the trace and of its heads";
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill(process.id(), SIGINT);
  EXPECT_EQ(process.finish().exit_code, 128 + SIGINT);
  EXPECT_THAT(folder_.names(), testing::IsEmpty());
}

}  // namespace
}  // namespace dspark::test
