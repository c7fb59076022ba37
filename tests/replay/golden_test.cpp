// Against tests/golden/anchors.json: right values of the recorded traces from an independent float64 evaluation.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backends/cpu/cpu_backend.h"
#include "replay/replay.h"
#ifdef DSPARK_CUDA
#include "backends/cuda/cuda_backend.h"
#endif

namespace dspark {
namespace {

using nlohmann::json;

std::filesystem::path trace_folder() {
  const char* folder = std::getenv("DSPARK_GOLDEN_TRACES");
  return folder != nullptr ? folder : DSPARK_TRACES;
}

json golden_of(const std::string& trace) {
  std::ifstream file(std::string(DSPARK_SOURCE) + "/tests/golden/anchors.json");
  for (const json& entry : json::parse(file)) {
    if (entry.at("trace") == trace) return entry;
  }
  throw std::runtime_error("no golden values for " + trace);
}

std::unique_ptr<Backend> make_backend() {
#ifdef DSPARK_CUDA
  if (std::string(DSPARK_BACKEND) == "cuda") return make_cuda_backend();
#endif
  return make_cpu_backend(2);
}

Policy policy_of(const json& policy) {
  const std::string kind = policy.at("kind");
  if (kind == "fixed") return FixedLength{policy.at("k")};
  if (kind == "threshold_cumulative") {
    return Threshold{ThresholdRule::cumulative, policy.at("t"), 1, 0};
  }
  if (kind == "threshold_per_position") {
    return Threshold{ThresholdRule::per_position, policy.at("t"), 0, 0};
  }
  return Sps{policy.at("floor"), 1, 0};
}

// 1e-4 relative or 1e-5 absolute, whichever is wider.
void expect_close(const std::optional<double>& got, double want, const std::string& what) {
  ASSERT_TRUE(got.has_value()) << what;
  EXPECT_NEAR(*got, want, std::max(1e-5, 1e-4 * std::abs(want))) << what;
}

// Two estimates with standard errors: within four of the combined one (and the tolerance of exact values, where an error is 0).
void expect_within_errors(const std::optional<double>& got, double got_se, double want,
                          double want_se, const std::string& what) {
  ASSERT_TRUE(got.has_value()) << what;
  const double tolerance = std::max({4 * std::hypot(got_se, want_se), 1e-5, 1e-4 * std::abs(want)});
  EXPECT_NEAR(*got, want, tolerance) << what;
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
#ifdef DSPARK_CUDA
    if (std::string(DSPARK_BACKEND) == "cuda" && !cuda_unavailable_reason().empty()) {
      GTEST_SKIP() << cuda_unavailable_reason();
    }
#endif
    const std::filesystem::path path = trace_folder() / GetParam();
    golden_ = golden_of(GetParam());
    const std::unique_ptr<TraceFile> trace = TraceFile::open(path.string());
    std::int64_t golden_anchors = 0;  // the golden values are of whole recordings
    for (const json& row : golden_.at("policies")) golden_anchors = row.at("tokens").get<double>();
    if (trace->blocks() != golden_anchors) {
      GTEST_SKIP() << path << " is a slice; set DSPARK_GOLDEN_TRACES to the folder of the whole recordings";
    }
    const Heads heads = load_heads(*trace, "", 0);
    ReplayJob job{.trace = *trace,
                  .heads = heads,
                  .verification = trace->header().greedy() ? Verification::greedy
                                                           : Verification::probabilistic,
                  .sampling = {trace->header().temperature, trace->header().top_k,
                               trace->header().top_p, "water_filling"},
                  .policies = {},
                  .cost = {}};
    for (const json& row : golden_.at("policies")) job.policies.push_back(policy_of(row.at("policy")));
    ReplayOptions options;
    options.repeats = 24;
    options.threads = 2;
    TraceSummary summary;
    const std::unique_ptr<Backend> backend = make_backend();
    ASSERT_EQ(backend->name(), DSPARK_BACKEND);
    replay_trace(*backend, job, options, summary, result_);
    EXPECT_EQ(summary.invalid_rows, 0);
    EXPECT_EQ(summary.impossible_tokens, 0);
    ASSERT_EQ(result_.results.size(), golden_.at("policies").size());
  }

  json golden_;
  ReplayResult result_;
};

TEST_P(Golden, PoliciesHaveTheRightTauRoundsAndVerifiedLengths) {
  for (std::size_t i = 0; i < result_.results.size(); ++i) {
    const json& want = golden_.at("policies")[i];
    const PolicyResult& got = result_.results[i];
    const std::string what = want.at("policy").dump();
    expect_close(got.tau, want.at("tau"), what + " tau");
    expect_close(got.tau_interior, want.at("tau_interior"), what + " tau_interior");
    expect_close(got.rounds, want.at("rounds"), what + " rounds");
    EXPECT_TRUE(got.lossless) << what;
    if (want.contains("verified_per_round")) {
      expect_close(got.verified_per_round, want.at("verified_per_round"), what + " verified");
      EXPECT_FALSE(got.verified_per_round_se.has_value()) << what;
    } else {
      expect_close(got.verified_per_round_on_trajectory, want.at("verified_per_round_on_trajectory"),
                   what + " verified on trajectory");
      ASSERT_TRUE(got.verified_per_round_se.has_value()) << what;
      expect_within_errors(got.verified_per_round, *got.verified_per_round_se,
                           want.at("verified_per_round_sampled"),
                           want.at("verified_per_round_sampled_se"), what + " verified in worlds");
    }
  }
}

TEST_P(Golden, PositionsHaveTheRightSurvivalAndCalibration) {
  const json& open = golden_.at("open_loop");
  for (std::size_t k = 0; k < result_.positions.size(); ++k) {
    const PositionResult& got = result_.positions[k];
    const std::string what = "position " + std::to_string(k + 1);
    expect_close(got.survival, open.at("survival")[k], what + " survival");
    expect_close(got.survival_trajectory, open.at("survival_trajectory")[k], what + " survival_trajectory");
    expect_close(got.survival_visited, golden_.at("survival_visited")[k], what + " survival_visited");
    expect_close(got.conditional, open.at("conditional")[k], what + " conditional");
    const json& reliability = golden_.at("reliability")[k];
    expect_close(got.predicted_conditional, reliability.at("predicted_conditional"), what + " predicted_conditional");
    expect_close(got.conditional_ece, reliability.at("conditional_ece"), what + " conditional_ece");
    if (golden_.contains("top1_agreement")) {
      expect_close(got.top1_agreement, golden_.at("top1_agreement")[k], what + " top1_agreement");
    }
    if (golden_.contains("predicted_sampled")) {
      expect_within_errors(got.predicted, got.predicted_se.value_or(0), golden_.at("predicted_sampled")[k],
                           golden_.at("predicted_sampled_se")[k], what + " predicted");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recordings, Golden, testing::Values("code_t1.h5", "prose_t07.h5", "code_t0.h5"),
                         [](const auto& info) {
                           return std::filesystem::path(info.param).stem().string();
                         });

}  // namespace
}  // namespace dspark
