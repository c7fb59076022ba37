// Against tests/golden/anchors.json: right values of the recorded traces from an independent
// float64 evaluation.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "backends/cpu/cpu_backend.h"
#include "replay/closed_loop.h"
#include "replay/off_policy.h"
#include "replay/open_loop.h"
#include "replay/reduce.h"
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

// Two estimates with standard errors: within four of the combined one (and the tolerance of exact
// values, where an error is 0).
void expect_within_errors(const std::optional<double>& got, double got_se, double want,
                          double want_se, const std::string& what) {
  ASSERT_TRUE(got.has_value()) << what;
  const double tolerance = std::max({4 * std::hypot(got_se, want_se), 1e-5, 1e-4 * std::abs(want)});
  EXPECT_NEAR(*got, want, tolerance) << what;
}

/// One reduced recording with its right values; reduced once for all tests.
struct Recording {
  json golden;
  OutcomeTable table;
};

/// Null where `name` is bundled as a slice only (its right values are of the whole recording).
const Recording* recording(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Recording>> reduced;
  const auto [entry, added] = reduced.try_emplace(name);
  if (!added) return entry->second.get();
  auto recording = std::make_unique<Recording>();
  recording->golden = golden_of(name);
  const std::unique_ptr<TraceFile> trace = TraceFile::open((trace_folder() / name).string());
  const double whole = recording->golden.at("policies").at(0).at("tokens");
  if (static_cast<double>(trace->blocks()) != whole) return nullptr;
  const Heads heads = load_heads(*trace, "", 0);
  const TraceHeader& header = trace->header();
  ReplayOptions options;
  options.repeats = 24;
  const std::unique_ptr<Backend> backend = make_backend();
  EXPECT_EQ(backend->name(), DSPARK_BACKEND);
  recording->table = reduce_anchors(
      *backend, *trace, heads,
      {.sampling = {header.temperature, header.top_k, header.top_p, "water_filling"},
       .verification = header.greedy() ? Verification::greedy : Verification::probabilistic,
       .worlds = true},
      options);
  entry->second = std::move(recording);
  return entry->second.get();
}

/// Standard error of `verified` from 12 plain worlds (one drafted chain per anchor and world), the
/// estimator of the golden values, computed from this table's weighted worlds. The golden file
/// states the spread that its 12 worlds happened to show; that is 0 where none of them saw a rare
/// event, although the estimate is no better for it.
double plain_worlds_error(const OutcomeTable& table, const Policy& policy) {
  const std::vector<double> v = round_starts(table, policy, {});
  const auto block = static_cast<std::size_t>(table.block_size);
  double variance = 0, rounds = 0;
  for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
    for (std::int64_t n = table.sequence_offsets[s]; n < table.sequence_offsets[s + 1]; ++n) {
      const auto row = static_cast<std::size_t>(n) * block;
      const std::int32_t slots = table.slots[static_cast<std::size_t>(n)];
      const std::int64_t left = table.sequence_offsets[s + 1] - n;
      double first = 0, second = 0;  // moments of the verified length
      for (std::int32_t repeat = 0; repeat < table.repeats; ++repeat) {
        double reach = 1;
        for (std::int32_t r = 1; r <= slots + 1; ++r) {
          std::vector<float> c(table.confidence.begin() + static_cast<std::ptrdiff_t>(row),
                               table.confidence.begin() + static_cast<std::ptrdiff_t>(row + block));
          double weight = reach;
          if (r <= slots) {
            const double beta = table.beta[row + static_cast<std::size_t>(r) - 1];
            weight *= 1 - beta;
            reach *= beta;
          }
          if (!(weight > 0)) continue;
          for (std::int32_t k = r + 1; k <= slots; ++k) {
            c[static_cast<std::size_t>(k) - 1] =
                table.world_confidence
                    [(static_cast<std::size_t>(n) * static_cast<std::size_t>(table.repeats) +
                      static_cast<std::size_t>(repeat)) *
                         static_cast<std::size_t>(worlds_per_repeat(table.block_size)) +
                     static_cast<std::size_t>(world_offset(table.block_size, r, k))];
          }
          const double length = static_cast<double>(
              std::min<std::int64_t>(scheduled_length(policy, c.data(), slots, {}), left - 1));
          first += weight * length / table.repeats;
          second += weight * length * length / table.repeats;
        }
      }
      variance += v[static_cast<std::size_t>(n)] * v[static_cast<std::size_t>(n)] *
                  std::max(0.0, second - first * first);
      rounds += v[static_cast<std::size_t>(n)];
    }
  }
  return std::sqrt(variance / 12) / rounds;
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
#ifdef DSPARK_CUDA
    if (std::string(DSPARK_BACKEND) == "cuda" && !cuda_unavailable_reason().empty()) {
      GTEST_SKIP() << cuda_unavailable_reason();
    }
#endif
    recording_ = recording(GetParam());
    if (recording_ == nullptr) {
      GTEST_SKIP() << GetParam()
                   << " is bundled as a slice; set DSPARK_GOLDEN_TRACES to the folder of the whole "
                      "recordings";
    }
    EXPECT_EQ(recording_->table.invalid_rows, 0);
    EXPECT_EQ(recording_->table.impossible_tokens, 0);
  }

  const Recording* recording_ = nullptr;
};

TEST_P(Golden, PoliciesHaveTheRightTauRoundsAndVerifiedLengths) {
  for (const json& want : recording_->golden.at("policies")) {
    const Policy policy = policy_of(want.at("policy"));
    const ClosedLoop got = closed_loop(recording_->table, policy, {});
    const std::string what = want.at("policy").dump();
    expect_close(got.tau, want.at("tau"), what + " tau");
    expect_close(got.tau_interior, want.at("tau_interior"), what + " tau_interior");
    expect_close(got.rounds, want.at("rounds"), what + " rounds");
    expect_close(got.tokens, want.at("tokens"), what + " tokens");
    EXPECT_EQ(got.exact, want.contains("verified_per_round")) << what;
    if (got.exact) {
      expect_close(got.verified, want.at("verified_per_round"), what + " verified");
    } else {
      expect_close(got.verified_on_trajectory, want.at("verified_per_round_on_trajectory"),
                   what + " verified on trajectory");
      ASSERT_TRUE(got.verified_se.has_value()) << what;
      const double golden_error = std::max(want.at("verified_per_round_sampled_se").get<double>(),
                                           plain_worlds_error(recording_->table, policy));
      expect_within_errors(got.verified, *got.verified_se, want.at("verified_per_round_sampled"),
                           golden_error, what + " verified in worlds");
    }
  }
}

TEST_P(Golden, PositionsHaveTheRightSurvivalAndCalibration) {
  const json& golden = recording_->golden;
  const json& open = golden.at("open_loop");
  const std::vector<PositionResult> positions = open_loop(recording_->table);
  ASSERT_EQ(positions.size(), open.at("survival").size());
  for (std::size_t k = 0; k < positions.size(); ++k) {
    const PositionResult& got = positions[k];
    const std::string what = "position " + std::to_string(k + 1);
    expect_close(got.survival, open.at("survival")[k], what + " survival");
    expect_close(got.survival_trajectory, open.at("survival_trajectory")[k],
                 what + " survival_trajectory");
    expect_close(got.survival_visited, golden.at("survival_visited")[k],
                 what + " survival_visited");
    expect_close(got.conditional, open.at("conditional")[k], what + " conditional");
    const json& reliability = golden.at("reliability")[k];
    expect_close(got.predicted_conditional, reliability.at("predicted_conditional"),
                 what + " predicted_conditional");
    expect_close(got.conditional_ece, reliability.at("conditional_ece"), what + " conditional_ece");
    if (golden.contains("top1_agreement")) {
      expect_close(got.top1_agreement, golden.at("top1_agreement")[k], what + " top1_agreement");
    }
    if (golden.contains("predicted_sampled")) {
      expect_within_errors(got.predicted, got.predicted_se.value_or(0),
                           golden.at("predicted_sampled")[k], golden.at("predicted_sampled_se")[k],
                           what + " predicted");
    }
  }
}

TEST_P(Golden, OtherTemperaturesHaveTheRightSurvivalAndEffectiveSamples) {
  if (!recording_->golden.contains("other_settings")) {
    EXPECT_TRUE(recording_->table.greedy) << "nothing can be estimated from a greedy recording";
    return;
  }
  const std::unique_ptr<TraceFile> trace = TraceFile::open((trace_folder() / GetParam()).string());
  const Heads heads = load_heads(*trace, "", 0);
  const std::unique_ptr<Backend> backend = make_backend();
  for (const json& want : recording_->golden.at("other_settings")) {
    const double temperature = want.at("temperature");
    const OutcomeTable table = reduce_anchors(
        *backend, *trace, heads,
        {.sampling = {temperature, 0, 1, "water_filling"},
         .verification = temperature > 0 ? Verification::probabilistic : Verification::greedy,
         .worlds = false,
         .off_policy = true},
        {});
    const std::vector<PositionResult> positions = off_policy_positions(table);
    ASSERT_EQ(positions.size(), want.at("survival").size());
    for (std::size_t k = 0; k < positions.size(); ++k) {
      const std::string what =
          "temperature " + std::to_string(temperature) + ", position " + std::to_string(k + 1);
      expect_close(positions[k].survival, want.at("survival")[k], what + " survival");
      expect_close(positions[k].effective_samples, want.at("effective_samples")[k],
                   what + " effective samples");
      ASSERT_TRUE(positions[k].survival_se.has_value()) << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recordings, Golden,
                         testing::Values("code_t1.h5", "prose_t07.h5", "code_t0.h5"),
                         [](const auto& instance) {
                           return std::filesystem::path(instance.param).stem().string();
                         });

}  // namespace
}  // namespace dspark
