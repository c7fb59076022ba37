// The bench itself: what it measures, what it refuses, and that it notices a wrong result.
#include "bench/bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>

#include "backends/cpu/cpu_backend.h"
#include "core/random.h"
#include "support/error.h"
#include "tests/replay/idle_backend.h"

namespace dspark {
namespace {

BenchOptions tiny() {
  BenchOptions options;
  options.axes.batch = {1, 3};
  options.axes.vocab = {300};
  options.axes.rank = {16};
  options.axes.block_size = {3};
  options.axes.hidden = {16};
  options.axes.top_k = {20};
  options.axes.anchors = {4};
  options.samples = 3;
  options.case_milliseconds = 20;
  options.threads = 2;
  return options;
}

/// Calls are counted; the clock says a millisecond each.
class HostBackend : public IdleBackend {
 public:
  [[nodiscard]] std::string name() const override { return "host"; }
  [[nodiscard]] bool shares_host_memory() const override { return true; }
  [[nodiscard]] DeviceFacts facts() const override { return {1000, 1, {}, {}}; }
  void upload(void* target, const void* source, std::size_t bytes) override {
    std::memcpy(target, source, bytes);
  }
  void download(void* target, const void* source, std::size_t bytes) override {
    std::memcpy(target, source, bytes);
  }
  void fill(void* target, int value, std::size_t bytes) override {
    std::memset(target, value, bytes);
  }
  void copy(void*, const void*, std::size_t) override { ++calls; }
  [[nodiscard]] std::unique_ptr<Recording> record(const std::function<void()>& enqueue) override {
    return std::make_unique<Kept>(enqueue);
  }
  [[nodiscard]] double measure(const std::function<void()>& enqueue) override {
    const int before = calls;
    enqueue();
    return calls - before;
  }
  void fill_uniforms(const FillUniformsArgs& args) override {
    ++calls;
    if (fails) throw device_error("", "the device fell off the bus");
    seen.insert(args.uniforms.data);
    for (std::int64_t i = 0; i < args.uniforms.size; ++i) {
      args.uniforms.data[i] =
          edge_llm_uniform(args.seed, args.offset, static_cast<std::uint64_t>(i));
    }
    if (lies && args.uniforms.size > 1) args.uniforms.data[args.uniforms.size - 1] = 2;
  }

  int calls = 0;
  bool lies = false;
  bool fails = false;
  std::size_t room = std::size_t{1} << 20;  ///< bytes for blocks of less than 1 kB
  std::set<const float*> seen;

 private:
  class Kept : public Recording {
   public:
    explicit Kept(std::function<void()> enqueue) : enqueue_(std::move(enqueue)) {}
    void replay() override { enqueue_(); }

   private:
    std::function<void()> enqueue_;
  };
  void* allocate_bytes(std::size_t bytes) override {
    if (bytes < 1000) {
      if (bytes > room) return nullptr;
      room -= bytes;
    }
    return std::malloc(bytes);
  }
  void free_bytes(void* data) noexcept override { std::free(data); }
};

BenchResult run_uniforms(HostBackend& device, BenchOptions options) {
  const auto reference = make_cpu_backend(1);
  options.only = {"uniforms"};
  return run_bench(device, *reference, options, [](const auto&, auto, auto) {});
}

TEST(Bench, TimesEveryCaseAfterItWasChecked) {
  const auto device = make_cpu_backend(1);
  const auto reference = make_cpu_backend(1);
  BenchOptions options = tiny();
  options.tensor_where_possible = true;  // nowhere, on a CPU
  std::int64_t last = -1;
  std::int64_t steps = 0;
  const BenchResult result =
      run_bench(*device, *reference, options,
                [&](const std::string& what, std::int64_t done, std::int64_t total) {
                  EXPECT_FALSE(what.empty());
                  EXPECT_GT(done, last);
                  EXPECT_LT(done, total);
                  last = done;
                  steps = total;
                });
  options.axes.products = {Products::exact};
  const std::vector<BenchCase> cases = make_cases({}, options.axes);
  ASSERT_EQ(result.cases.size(), cases.size());
  EXPECT_EQ(steps, static_cast<std::int64_t>(cases.size()) + 1);
  EXPECT_TRUE(result.refused.empty());
  EXPECT_GT(result.copy_bytes_per_second, 1e6);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const CaseResult& one = result.cases[i];
    SCOPED_TRACE(case_text(one.what));
    EXPECT_EQ(case_text(one.what), case_text(cases[i]));
    EXPECT_GT(one.time.least, 0);
    EXPECT_LE(one.time.least, one.time.p10);
    EXPECT_LE(one.time.p10, one.time.median);
    EXPECT_LE(one.time.median, one.time.p90);
    EXPECT_EQ(one.samples, 3);
    EXPECT_GE(one.repeats, 1);
    EXPECT_GE(one.sets, 1);
    EXPECT_FALSE(one.graph);
    EXPECT_EQ(one.bytes, one.what.family->bytes(one.what));
    EXPECT_EQ(one.checked, "bits");
  }
}

TEST(Bench, AWrongOutputIsAnErrorThatNamesTheCase) {
  HostBackend device;
  device.lies = true;
  BenchOptions options = tiny();
  options.axes.batch = {2};
  try {
    static_cast<void>(run_uniforms(device, options));
    FAIL() << "not noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::device);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("uniforms (batch 2, block size 3)"),
                                             testing::HasSubstr("differs")));
  }
}

// Calls take a millisecond by this backend's clock, and sets of 28 bytes rotate through a cache of
// 1000.
TEST(Bench, SamplesAsOftenAsTimeAllowsAndRotatesItsInputs) {
  HostBackend device;
  BenchOptions options = tiny();
  options.axes.batch = {1};
  options.samples = 7;
  options.case_milliseconds = 1000;
  const BenchResult plenty = run_uniforms(device, options);
  ASSERT_EQ(plenty.cases.size(), 1u);
  const CaseResult& one = plenty.cases[0];
  EXPECT_EQ(one.samples, 7);
  EXPECT_EQ(one.repeats, 1);
  EXPECT_DOUBLE_EQ(one.time.median, 1000);
  EXPECT_EQ(one.sets, 2000 / 28 + 1);
  EXPECT_TRUE(one.cold);
  EXPECT_EQ(device.seen.size(), static_cast<std::size_t>(one.sets));

  options.samples = 100;
  options.case_milliseconds = 10;
  const CaseResult hurried = run_uniforms(device, options).cases.at(0);
  EXPECT_EQ(hurried.samples, 11);  // the last one goes beyond it
  EXPECT_EQ(hurried.sets, 11);
  EXPECT_FALSE(hurried.cold);

  options.case_milliseconds = 1;
  EXPECT_EQ(run_uniforms(device, options).cases.at(0).samples, 5);
}

/// Copies for real, and stores the rows of a step.
class StoringBackend : public HostBackend {
 public:
  void copy(void* target, const void* source, std::size_t bytes) override {
    HostBackend::copy(target, source, bytes);
    std::memcpy(target, source, bytes);
  }
  void store_draft_step_probabilities(const StoreDraftStepProbabilitiesArgs& args) override {
    ++calls;
    for (std::int64_t b = 0; b < args.batch; ++b) {
      std::memcpy(
          args.destination.data + (b * args.block_size + args.step) * args.destination.stride,
          args.source.data + b * args.source.stride,
          static_cast<std::size_t>(args.source.vocab) * sizeof(float));
    }
  }
};

// A call reads a row of 200 bytes and writes one of three: 400 bytes of the 800 that a set has.
TEST(Bench, WhatCallsDoNotLookAtDoesNotMakeThemCold) {
  StoringBackend device;
  const auto reference = make_cpu_backend(1);
  BenchOptions options = tiny();
  options.only = {"store_probabilities"};
  options.axes.batch = {1};
  options.axes.vocab = {50};
  options.case_milliseconds = 1000;
  const BenchResult result = run_bench(device, *reference, options, [](const auto&, auto, auto) {});
  const CaseResult& one = result.cases.at(0);
  EXPECT_EQ(one.bytes, 400);
  EXPECT_EQ(one.sets, 2000 / 400 + 1);
  EXPECT_TRUE(one.cold);
}

/// Says that it has tensor cores; the bits are those of the CPU's products.
class TensorBackend : public StoringBackend {
 public:
  [[nodiscard]] bool has_tensor_products(DType a, DType b, std::int64_t depth) const override {
    return a == b && a != DType::f32 && depth % 8 == 0;
  }
  void project(const ProjectArgs& args) override { ++calls, cpu_->project(args); }
  void draft_rows(const DraftRowsArgs& args) override { ++calls, cpu_->draft_rows(args); }
  void build_markov_logits(const BuildMarkovLogitsArgs& args) override {
    ++calls, cpu_->build_markov_logits(args);
  }
  void quantize_markov_w2(const QuantizeMarkovW2Args& args) override {
    ++calls, cpu_->quantize_markov_w2(args);
  }
  void greedy_propose(const GreedyProposeArgs& args) override {
    ++calls, cpu_->greedy_propose(args);
  }

 private:
  std::unique_ptr<Backend> cpu_ = make_cpu_backend(1);
};

BenchOptions tensor_options(const std::vector<std::string>& only) {
  BenchOptions options = tiny();
  options.only = only;
  options.axes.batch = {1};
  options.axes.products = {Products::tensor};
  return options;
}

struct Told {
  std::vector<std::string> timed;
  std::vector<std::string> refused;  ///< "case: why"
};

Told told(Backend& device, const BenchOptions& options) {
  const auto reference = make_cpu_backend(1);
  const BenchResult result = run_bench(device, *reference, options, [](const auto&, auto, auto) {});
  Told out;
  for (const CaseResult& one : result.cases) {
    out.timed.push_back(case_text(one.what));
    EXPECT_EQ(one.checked == "bits", one.what.products == Products::exact) << out.timed.back();
  }
  for (const RefusedCase& one : result.refused) {
    out.refused.push_back(case_text(one.what) + ": " + one.why);
  }
  return out;
}

TEST(Bench, WorkThatWouldBeExactIsNotCalledTensor) {
  const auto cpu = make_cpu_backend(1);
  BenchOptions options = tensor_options({"project"});
  options.axes.products = {Products::exact, Products::tensor};
  const std::string exact = "project (exact, batch 1, vocab 300, block size 3, hidden 16)";
  const Told asked = told(*cpu, options);
  EXPECT_THAT(asked.timed, testing::ElementsAre(exact));
  EXPECT_THAT(asked.refused,
              testing::ElementsAre("project (tensor, batch 1, vocab 300, block size 3, hidden 16): "
                                   "the cpu backend has no tensor cores here, products are exact"));
  options.tensor_where_possible = true;
  const Told possible = told(*cpu, options);
  EXPECT_THAT(possible.timed, testing::ElementsAre(exact));
  EXPECT_TRUE(possible.refused.empty());
}

// The limits of the Markov bias in proposals, of FP8 codes, and of hidden states.
TEST(Bench, SizesThatTensorCoresDoNotTakeAreRefused) {
  TensorBackend device;
  BenchOptions options = tensor_options({"markov_logits", "greedy_proposal_fp8"});
  options.axes.rank = {12, 24, 512, 520, 528};
  const Told markov = told(device, options);
  EXPECT_THAT(markov.timed,
              testing::ElementsAre(
                  "markov_logits (tensor, batch 1, vocab 300, rank 24, block size 3)",
                  "markov_logits (tensor, batch 1, vocab 300, rank 512, block size 3)",
                  "greedy_proposal_fp8 (greedy, tensor, batch 1, vocab 300, rank 512, block size "
                  "3)"));
  ASSERT_EQ(markov.refused.size(), 7u);
  for (const std::size_t i : {0u, 1u, 2u, 6u}) {
    EXPECT_THAT(markov.refused[i], testing::HasSubstr("a rank that is a multiple of 8 and at most "
                                                      "512"));
  }
  for (const std::size_t i : {3u, 4u, 5u}) {
    EXPECT_THAT(markov.refused[i], testing::HasSubstr("rank of whole 16s"));
  }

  options = tensor_options({"project", "draft_rows"});
  options.axes.rank = {12, 520};
  options.axes.hidden = {16, 20};
  const Told hidden = told(device, options);
  EXPECT_THAT(hidden.timed,
              testing::ElementsAre(
                  "project (tensor, batch 1, vocab 300, block size 3, hidden 16)",
                  "draft_rows (tensor, batch 1, vocab 300, rank 520, block size 3, hidden 16)"));
  ASSERT_EQ(hidden.refused.size(), 4u);
  EXPECT_THAT(hidden.refused[0], testing::HasSubstr("hidden size that is a multiple of 8"));
  EXPECT_THAT(hidden.refused[1], testing::HasSubstr("rank that is a multiple of 8"));
}

TEST(Bench, TheCeilingIsTheBytesReadAndWritten) {
  HostBackend device;
  const BenchResult result = run_uniforms(device, tiny());
  EXPECT_EQ(result.copy_bytes, 2.0 * (256 << 20));
  EXPECT_DOUBLE_EQ(result.copy_bytes_per_second, 2e3 * (256 << 20));  // a millisecond a copy
}

TEST(Bench, RefusesWhatDoesNotFitAndGoesOn) {
  const auto device = make_cpu_backend(1);
  const auto reference = make_cpu_backend(1);
  BenchOptions options = tiny();
  options.only = {"greedy_accept", "uniforms"};
  options.axes.batch = {1, 1000};
  options.budget = 100'000;
  const BenchResult result =
      run_bench(*device, *reference, options, [](const auto&, auto, auto) {});
  ASSERT_EQ(result.refused.size(), 1u);
  EXPECT_EQ(case_text(result.refused[0].what),
            "greedy_accept (batch 1000, vocab 300, block size 3)");
  EXPECT_THAT(result.refused[0].why, testing::AllOf(testing::HasSubstr("need at least"),
                                                    testing::HasSubstr("budget of 100 kB")));
  EXPECT_EQ(result.cases.size(), 3u);
}

// FP8 weights come in whole 16s, and no more than a row holds can be its best.
TEST(Bench, RefusesSizesThatTheOperationsDoNotTake) {
  const auto device = make_cpu_backend(1);
  const auto reference = make_cpu_backend(1);
  BenchOptions options = tiny();
  options.only = {"greedy_proposal_fp8", "quantize_fp8", "select_top_k", "sample_top_k"};
  options.axes.batch = {1};
  options.axes.rank = {16, 24};
  options.axes.top_k = {300, 301};
  options.axes.products = {Products::exact};
  const BenchResult result =
      run_bench(*device, *reference, options, [](const auto&, auto, auto) {});
  std::vector<std::string> refused;
  for (const RefusedCase& one : result.refused) refused.push_back(case_text(one.what));
  EXPECT_THAT(
      refused,
      testing::ElementsAre(
          "greedy_proposal_fp8 (greedy, exact, batch 1, vocab 300, rank 24, block size 3)",
          "quantize_fp8 (vocab 300, rank 24)", "select_top_k (batch 1, vocab 300, top-k 301)",
          "sample_top_k (batch 1, vocab 300, top-k 301)"));
  EXPECT_THAT(result.refused.at(0).why, testing::HasSubstr("rank of whole 16s"));
  EXPECT_THAT(result.refused.at(2).why, testing::HasSubstr("larger than"));
  EXPECT_EQ(result.cases.size(), 4u);
}

TEST(Bench, ACaseThatFitsOnlyOnceRotatesThroughFewerSets) {
  HostBackend device;
  BenchOptions options = tiny();
  options.axes.batch = {1};
  options.budget = 100;  // three sets of 28 bytes
  options.case_milliseconds = 1000;
  const CaseResult one = run_uniforms(device, options).cases.at(0);
  EXPECT_EQ(one.sets, 3);
  EXPECT_FALSE(one.cold);
}

// Weights of one size are given back before those of the next are made.
TEST(Bench, WeightsOfOtherSizesDoNotFillTheBudget) {
  const auto device = make_cpu_backend(1);
  const auto reference = make_cpu_backend(1);
  BenchOptions options = tiny();
  options.only = {"markov_logits", "greedy_accept"};
  options.axes.batch = {1};
  options.axes.vocab = {1000};
  options.axes.rank = {64, 65, 66, 67};
  options.axes.products = {Products::exact};
  options.budget = 300'000;  // W1 and W2 of one size take 256 kB and more
  const BenchResult result =
      run_bench(*device, *reference, options, [](const auto&, auto, auto) {});
  EXPECT_TRUE(result.refused.empty()) << result.refused[0].why;
  EXPECT_EQ(result.cases.size(), 5u);
}

// The device may have less memory than the budget allows.
TEST(Bench, UsesTheSetsThatTheDeviceHasRoomFor) {
  HostBackend device;
  device.room = 4 * 28;
  BenchOptions options = tiny();
  options.axes.batch = {1};
  options.case_milliseconds = 1000;
  const CaseResult one = run_uniforms(device, options).cases.at(0);
  EXPECT_EQ(one.sets, 4);
}

TEST(Bench, AFailureOfTheDeviceNamesTheCase) {
  HostBackend device;
  device.fails = true;
  try {
    static_cast<void>(run_uniforms(device, tiny()));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::device);
    EXPECT_STREQ(error.what(), "uniforms (batch 1, block size 3): the device fell off the bus");
  }
}

// Accepting is timed on blocks that are rejected in the middle, as those of a real draft.
TEST(Bench, BlocksAreRejectedInTheMiddle) {
  const auto backend = make_cpu_backend(2);
  const Pools pools = make_pools(5, pool_size(4000), 2);
  Workbench bench(*backend, pools, kBenchBudget);
  BenchAxes axes;
  axes.batch = {64};
  axes.vocab = {4000};
  const auto lengths_of = [&](const std::string& family) {
    const std::vector<std::string> only = {family};
    const BenchCase what = make_cases(only, axes).front();
    Arena arena(bench, 0);
    const PreparedCase prepared = what.family->prepare(what, arena);
    prepared.enqueue();
    EXPECT_EQ(*prepared.status, kOpOk);
    const BenchOutput& output = prepared.outputs.at(1);
    EXPECT_EQ(output.name, "accept_length");
    return arena.download(static_cast<const std::int32_t*>(output.data), 64);
  };
  // P = 7: three drafts are accepted, then comes the correction.
  EXPECT_THAT(lengths_of("greedy_accept"), testing::Each(4));
  const std::vector<std::int32_t> sampled = lengths_of("probabilistic_accept");
  EXPECT_GT(std::count(sampled.begin(), sampled.end(), 4), 32);
  EXPECT_LT(std::count(sampled.begin(), sampled.end(), 8), 4);
}

struct Outputs {
  std::vector<std::vector<std::byte>> bytes;
  std::size_t goes_over = 0;  ///< Arena::bytes()
};

Outputs outputs_of(Workbench& bench, const BenchCase& what) {
  Arena arena(bench, 0);
  const PreparedCase prepared = what.family->prepare(what, arena);
  prepared.enqueue();
  EXPECT_EQ(*prepared.status, kOpOk);
  Outputs out;
  out.goes_over = arena.bytes();
  for (const BenchOutput& output : prepared.outputs) {
    const auto* const data = static_cast<const std::byte*>(output.data);
    out.bytes.emplace_back(data, data + output.bytes());
  }
  return out;
}

BenchCase first_case(const std::string& family, const BenchAxes& axes) {
  const std::vector<std::string> only = {family};
  return make_cases(only, axes).front();
}

Outputs outputs_of(Workbench& bench, const std::string& family, const BenchAxes& axes) {
  return outputs_of(bench, first_case(family, axes));
}

// The fused greedy proposal is timed on the inputs of the sampled one, whose greedy tokens are
// the same; FP8 weights are others, and half as many bytes.
TEST(Bench, GreedyProposalsAreThoseOfTheMarkovLogits) {
  const auto backend = make_cpu_backend(2);
  const Pools pools = make_pools(5, pool_size(4000), 2);
  Workbench bench(*backend, pools, kBenchBudget);
  BenchAxes axes;
  axes.batch = {8};
  axes.vocab = {4000};
  axes.rank = {64};
  const Outputs half = outputs_of(bench, "greedy_proposal", axes);
  const Outputs round = outputs_of(bench, "greedy_round", axes);
  EXPECT_EQ(half.bytes.at(0), round.bytes.at(0));
  BenchCase sampled = first_case("sampled_proposal", axes);
  sampled.rule = BenchRule::greedy;
  EXPECT_EQ(half.bytes.at(0), outputs_of(bench, sampled).bytes.at(0));
  const Outputs float8 = outputs_of(bench, "greedy_proposal_fp8", axes);
  EXPECT_EQ(float8.bytes.at(0).size(), half.bytes.at(0).size());
  // Codes and scales in place of f16; what they were made from is not gone over.
  EXPECT_EQ(half.goes_over - float8.goes_over, 4000u * 64 * 2 - (4000u * 64 + 4000u * 2));
}

// The best tokens are made from whole rows, which the call does not see.
TEST(Bench, SparseSamplingGoesOverTheBestTokensAlone) {
  const auto backend = make_cpu_backend(2);
  const Pools pools = make_pools(5, pool_size(4000), 2);
  Workbench bench(*backend, pools, kBenchBudget);
  BenchAxes axes;
  axes.batch = {8};
  axes.vocab = {4000};
  axes.top_k = {20};
  const std::size_t used = bench.used();
  const Outputs selected = outputs_of(bench, "select_top_k", axes);
  const Outputs sampled = outputs_of(bench, "sample_top_k", axes);
  EXPECT_EQ(selected.bytes.at(1), sampled.bytes.at(1));  // ids
  EXPECT_GE(selected.goes_over, 8u * 4000 * sizeof(float));
  EXPECT_LT(sampled.goes_over, 8u * 20 * 4 * sizeof(float) + 100);
  EXPECT_EQ(bench.used(), used);
}

// The reduce stage makes its draft rows in one call from hidden states.
TEST(Bench, DraftRowsAreMadeFromHiddenStates) {
  const auto backend = make_cpu_backend(2);
  const Pools pools = make_pools(5, pool_size(300), 2);
  Workbench bench(*backend, pools, kBenchBudget);
  const BenchOptions options = tiny();
  const Outputs rows = outputs_of(bench, "draft_rows", options.axes);
  ASSERT_EQ(rows.bytes.size(), 1u);
  EXPECT_EQ(rows.bytes[0].size(), 3u * 300 * sizeof(float));
  const Outputs reduced = outputs_of(bench, "reduce", options.axes);
  ASSERT_EQ(reduced.bytes.at(0).size(), 4u * 3 * sizeof(PairOutcome));
  for (std::size_t i = 0; i < 4 * 3; ++i) {
    PairOutcome pair;
    std::memcpy(&pair, reduced.bytes[0].data() + i * sizeof pair, sizeof pair);
    EXPECT_EQ(pair.valid, 1u);
    EXPECT_GT(pair.alpha, 0u);
  }
}

}  // namespace
}  // namespace dspark
