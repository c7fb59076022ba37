// Exit code 3: the policy file is wrong, or asks for what the traces cannot answer.
#include "tests/cli/tiny_trace.h"
#include "tests/cli/tool.h"

namespace dspark::test {
namespace {

class PolicyError : public testing::Test {
 protected:
  PolicyError() { write_tiny_trace(trace_); }

  // Runs `trace` under a policy file of that text.
  Outcome run(const std::string& policy, const std::string& trace = {}) {
    write_file(policy_, policy);
    return run_tool({"run", trace.empty() ? trace_ : trace, "--backend", "cpu", "-p", policy_});
  }

  TemporaryFolder folder_;
  std::string trace_ = folder_.file("tiny.h5");
  std::string policy_ = folder_.file("p.yaml");
};

TEST_F(PolicyError, AFileThatIsNotThere) {
  expect_error(run_tool({"run", trace_, "-p", folder_.file("none.yaml")}), 3, {"none.yaml"});
  expect_error(run_tool({"run", trace_, "-p", folder_.path().string()}), 3,
               {folder_.path().string()});
}

TEST_F(PolicyError, AnUnknownKeyIsNamedWithItsPlace) {
  expect_error(run("version: 1\npolicy:\n  - {policy: none}\n"), 3, {policy_ + ":2:1: ", "policy"});
}

TEST_F(PolicyError, AThresholdAboveOne) {
  expect_error(run("version: 1\npolicies:\n  - {policy: threshold, threshold: 1.5}\n"), 3,
               {policy_ + ":3:", "threshold", "1.5"});
}

TEST_F(PolicyError, AnEmptyAxis) {
  expect_error(run("version: 1\npolicies:\n  - {policy: fixed, length: []}\n"), 3,
               {policy_ + ":3:", "length"});
}

TEST_F(PolicyError, ARangeOfAMillionRows) {
  expect_error(run("version: 1\npolicies:\n"
                   "  - {policy: threshold, threshold: {from: 0, to: 1, step: 0.000001}}\n"),
               3, {policy_ + ":3:"});
}

TEST_F(PolicyError, ALengthAboveTheBlockSizeOfTheTrace) {
  expect_error(run("version: 1\npolicies:\n  - {policy: fixed, length: 4}\n"), 3,
               {policy_ + ":3:", "4", "block size 3"});
}

TEST_F(PolicyError, AnotherSettingOfRounds) {
  const std::string rounds = bundled("rounds_code_t1.h5");
  expect_error(run("version: 1\nsampling: {temperature: 0.5}\n", rounds), 3,
               {policy_ + ":2:", "temperature 0.5", "rounds_code_t1.h5", "(1)"});
  expect_error(run("version: 1\nsampling: {top_k: 20}\n", rounds), 3,
               {policy_ + ":2:", "top_k 20"});
  expect_error(run("version: 1\nsampling: {top_p: 0.9}\n", rounds), 3,
               {policy_ + ":2:", "top_p 0.9"});
  expect_error(run("version: 1\nsampling: {drafts: greedy}\n", rounds), 3,
               {policy_ + ":2:", "drafts greedy"});
}

TEST_F(PolicyError, ATemperatureAboveZeroOfAGreedyTrace) {
  const std::string greedy = folder_.file("greedy.h5");
  write_tiny_trace(greedy, {.temperature = 0});
  expect_error(run("version: 1\nsampling: {temperature: 0.5}\n", greedy), 3,
               {policy_ + ":2:", "temperature 0.5", "greedy.h5", "(0)"});
}

TEST_F(PolicyError, AVerificationThatNoTraceAnswers) {
  const std::string greedy = folder_.file("greedy.h5");
  write_tiny_trace(greedy, {.temperature = 0});
  expect_error(run("version: 1\nverification: [probabilistic, greedy]\n", greedy), 3,
               {policy_ + ":2:", "probabilistic", "no trace"});
}

TEST_F(PolicyError, APolicyThatNeedsConfidencesWhereThereAreNone) {
  const std::string text = "version: 1\npolicies:\n  - {policy: threshold, threshold: 0.5}\n";
  const std::string no_head = folder_.file("no_head.h5");
  write_tiny_trace(no_head, {.with_confidence_head = false});
  expect_error(run(text, no_head), 3, {policy_ + ":3:", "threshold", "no confidence head"});
  const std::string no_hidden = folder_.file("no_hidden.h5");
  write_tiny_trace(no_hidden, {.with_draft_hidden = false});
  expect_error(run(text, no_hidden), 3, {policy_ + ":3:", "threshold", "no draft_hidden"});
}

TEST_F(PolicyError, LeavesNoOutputBehind) {
  write_file(policy_, "version: 2\n");
  expect_error(run_tool({"run", trace_, "-p", policy_, "-o", folder_.file("out")}), 3, {"version"});
  EXPECT_THAT(folder_.names(), testing::ElementsAre("p.yaml", "tiny.h5"));
}

}  // namespace
}  // namespace dspark::test
