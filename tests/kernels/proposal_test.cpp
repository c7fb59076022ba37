// build_markov_logits, sample_probability_rows, store_draft_step_probabilities,
// vanilla_markov_sample, fill_uniforms.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/random.h"
#include "tests/kernels/kernel_test.h"
#include "tests/kernels/oracle.h"

namespace dspark::test {
namespace {

class Proposal : public KernelTest {};

TEST_F(Proposal, MarkovPartialCountIsTheNumberOfSixteens) {
  EXPECT_EQ(markov_partial_count(0), 0);
  EXPECT_EQ(markov_partial_count(1), 1);
  EXPECT_EQ(markov_partial_count(16), 1);
  EXPECT_EQ(markov_partial_count(17), 2);
  EXPECT_EQ(markov_partial_count(151936), 9496);
}

std::vector<std::int32_t> uniform_grid(std::uint64_t seed, std::uint64_t offset,
                                       std::size_t count) {
  const Device<float> uniforms(count);
  backend().fill_uniforms({uniforms.array(), seed, offset});
  std::vector<std::int32_t> grid;
  for (const float u : uniforms.values()) {
    EXPECT_GE(u, 0.0f);
    EXPECT_LT(u, 1.0f);
    grid.push_back(static_cast<std::int32_t>(u * 16777216.0f));
  }
  return grid;
}

TEST_F(Proposal, UniformsAreCompatibleWithEdgeLlm) {
  EXPECT_EQ(uniform_grid(1234, 56, 6),
            (std::vector<std::int32_t>{11749375, 7314495, 4684000, 14521996, 9879181, 4573257}));
  EXPECT_EQ(uniform_grid(1234, 57, 6),
            (std::vector<std::int32_t>{15321162, 16034821, 524258, 7943184, 12052006, 7085945}));
  EXPECT_EQ(uniform_grid(0x44535041524B2026ull, 0, 6),
            (std::vector<std::int32_t>{4828136, 2095774, 4873011, 8829000, 9221580, 8861049}));
}

TEST_F(Proposal, UniformsDependOnTheirIndexAlone) {
  const std::vector<std::int32_t> many = uniform_grid(9, 3, 1000);
  const std::vector<std::int32_t> few = uniform_grid(9, 3, 10);
  EXPECT_EQ(std::vector<std::int32_t>(many.begin(), many.begin() + 10), few);
}

// --- Markov logits ---

struct MarkovLogits {
  std::vector<float> corrected;
  std::uint32_t status;
};

constexpr std::int32_t kBatch = 3;
constexpr std::int32_t kSlots = 2;
constexpr std::int32_t kStride = 4;
constexpr std::int32_t kOffset = 1;
constexpr std::int32_t kVocab = 45;
constexpr std::int32_t kRank = 9;

/// Heads and logits of a batch with strides and offsets.
struct ProposalCase {
  explicit ProposalCase(std::uint64_t seed)
      : random(seed),
        backbone_values(random.normals(kBatch * kStride * kVocab, 2)),
        backbone(backbone_values, kVocab, 2),
        w1(random.normals(kVocab * kRank), kRank, DType::f16, 1),
        w2(random.normals(kVocab * kRank), kRank, DType::f16) {}

  std::vector<float> corrected(std::int32_t b, std::int32_t step, std::int32_t previous) const {
    std::vector<float> out;
    for (std::int32_t v = 0; v < kVocab; ++v) {
      out.push_back(row(backbone_values, b * kStride + step + kOffset, kVocab)[v] +
                    chain(row(w1.dense(), previous, kRank), row(w2.dense(), v, kRank), kRank));
    }
    return out;
  }

  MarkovLogits build(std::int32_t step, const std::vector<std::int32_t>& first,
                     const std::vector<std::int32_t>& draft, bool head = true) const {
    const Device<std::int32_t> device_first(first);
    const Device<std::int32_t> device_draft(draft);
    const DeviceRows out(kBatch, kVocab, 3);
    const DeviceScratch scratch(build_markov_logits_scratch(kBatch));
    const Device<std::uint32_t> status(1);
    BuildMarkovLogitsArgs args;
    args.batch = kBatch;
    args.block_size = kSlots;
    args.step = step;
    args.backbone = backbone.view();
    args.logits_stride = kStride;
    args.logits_offset = kOffset;
    if (head) args.w1 = w1.view();
    if (head) args.w2 = w2.view();
    args.first_previous = device_first.data();
    args.draft = device_draft.data();
    args.corrected = out.view();
    args.scratch = scratch.view();
    args.status = status.data();
    backend().build_markov_logits(args);
    return {out.dense(), status.values()[0]};
  }

  Random random;
  std::vector<float> backbone_values;
  DeviceRows backbone;
  DeviceMatrix w1;
  DeviceMatrix w2;
};

TEST_F(Proposal, MarkovLogitsTakeThePreviousTokenOfEachStep) {
  const ProposalCase test(41);
  const std::vector<std::int32_t> first = {3, 44, 0};
  const std::vector<std::int32_t> draft = {7, 1, 8, 2, 9, 3};
  for (std::int32_t step = 0; step < kSlots; ++step) {
    std::vector<float> expected;
    for (std::int32_t b = 0; b < kBatch; ++b) {
      const auto index = static_cast<std::size_t>(b);
      const std::vector<float> one =
          test.corrected(b, step, step == 0 ? first[index] : draft[index * kSlots]);
      expected.insert(expected.end(), one.begin(), one.end());
    }
    const MarkovLogits got = test.build(step, first, draft);
    expect_same_bits(got.corrected, expected);
    EXPECT_EQ(got.status, kOpOk);
  }
}

TEST_F(Proposal, MarkovLogitsOnTensorCoresAreThoseOfMarkovRows) {
  constexpr std::int32_t kTokens = 700;
  constexpr std::int64_t kWidth = 72;
  constexpr std::int32_t kSteps = 3;
  for (const std::int32_t batch : {1, 9, 70}) {
    Random random(static_cast<std::uint64_t>(batch));
    const auto size = [](std::int64_t rows, std::int64_t cols) {
      return static_cast<std::size_t>(rows * cols);
    };
    const DeviceRows backbone(random.normals(size(batch * kSteps, kTokens)), kTokens);
    const DeviceMatrix w1(random.normals(size(kTokens, kWidth)), kWidth, DType::f16);
    const DeviceMatrix w2(random.normals(size(kTokens, kWidth)), kWidth, DType::f16);
    std::vector<std::int32_t> first(static_cast<std::size_t>(batch));
    std::vector<std::int32_t> draft(static_cast<std::size_t>(batch * kSteps));
    for (std::int32_t& id : first) id = random.integer(0, kTokens - 1);
    for (std::int32_t& id : draft) id = random.integer(0, kTokens - 1);
    if (batch > 1) draft[static_cast<std::size_t>(kSteps)] = kTokens;  // entry 1, before step 1
    const Device<std::int32_t> device_first(first);
    const Device<std::int32_t> device_draft(draft);
    // Steps walk the vocabulary in turn in both directions.
    for (std::int32_t step = 0; step < kSteps; ++step) {
      SCOPED_TRACE(testing::Message() << batch << " rows, step " << step);
      const bool bad = batch > 1 && step == 1;
      const DeviceRows got(batch, kTokens, 1);
      const DeviceScratch scratch(build_markov_logits_scratch(batch));
      const Device<std::uint32_t> status(1);
      BuildMarkovLogitsArgs args;
      args.batch = batch;
      args.block_size = kSteps;
      args.step = step;
      args.backbone = backbone.view();
      args.w1 = w1.view();
      args.w2 = w2.view();
      args.first_previous = device_first.data();
      args.draft = device_draft.data();
      args.corrected = got.view();
      args.products = Products::tensor;
      args.scratch = scratch.view();
      args.status = status.data();
      backend().build_markov_logits(args);
      EXPECT_EQ(status.values()[0], bad ? kOpBadToken : kOpOk);

      std::vector<std::int32_t> previous;
      std::vector<std::int32_t> rows;
      for (std::int32_t b = 0; b < batch; ++b) {
        const auto entry = static_cast<std::size_t>(b);
        previous.push_back(step == 0 ? first[entry]
                                     : draft[entry * kSteps + static_cast<std::size_t>(step) - 1]);
        rows.push_back(b * kSteps + step);
      }
      if (bad) previous[1] = -1;
      const Device<std::int32_t> device_previous(previous);
      const Device<std::int32_t> device_rows(rows);
      const DeviceRows expected(batch, kTokens);
      MarkovRowsArgs markov;
      markov.backbone = backbone.view();
      markov.backbone_row = device_rows.view();
      markov.previous = device_previous.view();
      markov.w1 = w1.view();
      markov.w2 = w2.view();
      markov.out = expected.view();
      markov.products = Products::tensor;
      backend().markov_rows(markov);
      std::vector<float> left = got.dense();
      std::vector<float> right = expected.dense();
      if (bad) {
        for (std::size_t v = kTokens; v < 2 * kTokens; ++v) {
          EXPECT_TRUE(std::isnan(left[v]));
          left[v] = right[v] = 0;
        }
      }
      expect_same_bits(left, right);
    }
  }
}

TEST_F(Proposal, MarkovLogitsOfABadIdAreNaNAndReported) {
  const ProposalCase test(42);
  for (const std::int32_t bad : {-1, kVocab}) {
    const MarkovLogits got = test.build(0, {3, bad, 5}, {0, 0, 0, 0, 0, 0});
    EXPECT_EQ(got.status, kOpBadToken);
    std::vector<float> expected = test.corrected(0, 0, 3);
    expected.insert(expected.end(), kVocab, std::nanf(""));
    const std::vector<float> last = test.corrected(2, 0, 5);
    expected.insert(expected.end(), last.begin(), last.end());
    expect_same_bits(got.corrected, expected);
  }
}

TEST_F(Proposal, WithoutAMarkovHeadLogitsAreTheBackboneAndIdsAreNotRead) {
  const ProposalCase test(43);
  const MarkovLogits got = test.build(1, {-1, -1, -1}, {99, 99, 99, 99, 99, 99}, false);
  EXPECT_EQ(got.status, kOpOk);
  std::vector<float> expected;
  for (std::int32_t b = 0; b < kBatch; ++b) {
    const float* const from = row(test.backbone_values, b * kStride + 1 + kOffset, kVocab);
    expected.insert(expected.end(), from, from + kVocab);
  }
  expect_same_bits(got.corrected, expected);
}

// --- sampling from probabilities ---

struct Sampled {
  std::vector<std::int32_t> tokens;
  std::vector<float> distance;
  std::uint32_t status;
};

/// Samples one row per uniform.
Sampled sample(const std::vector<float>& probabilities, std::int32_t vocab,
               const std::vector<float>& uniforms) {
  const auto batch = static_cast<std::int32_t>(uniforms.size());
  const DeviceRows rows(probabilities, vocab, 1);
  const Device<float> device_uniforms(uniforms);
  const Device<std::int32_t> tokens(uniforms.size(), -5);
  const Device<float> distance(uniforms.size());
  const DeviceScratch scratch(row_scan_scratch(batch, vocab));
  const Device<std::uint32_t> status(1);
  SampleProbabilityRowsArgs args;
  args.batch = batch;
  args.block_size = 1;
  args.probabilities = rows.view();
  args.uniforms = device_uniforms.data();
  args.tokens = tokens.data();
  args.distance = distance.data();
  args.scratch = scratch.view();
  args.status = status.data();
  backend().sample_probability_rows(args);
  return {tokens.values(), distance.values(), status.values()[0]};
}

TEST_F(Proposal, SamplesAreTheInverseCdfInIdOrder) {
  const std::vector<float> row_values = {0, 0.25f, 0, 0.5f, 0.25f, 0};
  std::vector<float> rows;
  for (int i = 0; i < 6; ++i) rows.insert(rows.end(), row_values.begin(), row_values.end());
  const Sampled got = sample(rows, 6, {0, 0.2f, 0.25f, 0.74999994f, 0.75f, 1});
  EXPECT_EQ(got.tokens, (std::vector<std::int32_t>{1, 1, 3, 3, 4, 4}));
  EXPECT_EQ(got.status, kOpOk);
}

TEST_F(Proposal, SampleDistancesAreToTheNearestBoundary) {
  const std::vector<float> row_values = {0.25f, 0.5f, 0.25f};
  std::vector<float> rows;
  for (int i = 0; i < 4; ++i) rows.insert(rows.end(), row_values.begin(), row_values.end());
  const Sampled got = sample(rows, 3, {0.125f, 0.5f, 0.25f, 0.9375f});
  EXPECT_EQ(got.distance, (std::vector<float>{0.125f, 0.25f, 0, 0.0625f}));
}

TEST_F(Proposal, BeyondARowsSumTheLastPositiveIdIsTaken) {
  const Sampled got = sample({0.25f, 0.25f, 0, 0.25f, 0.25f, 0, 0, 0, 0}, 3, {0.5f, 0.9f, 0.5f});
  EXPECT_EQ(got.tokens, (std::vector<std::int32_t>{1, 1, 0}));
  EXPECT_EQ(got.status, kOpOk);
}

TEST_F(Proposal, TheSmallestWeightCountsAsPositive) {
  EXPECT_EQ(sample({0.25f, 0x1p-40f, 0}, 3, {0.5f}).tokens, std::vector<std::int32_t>{1});
  EXPECT_EQ(sample({0.25f, 0x1p-41f, 0}, 3, {0.5f}).tokens, std::vector<std::int32_t>{0});
}

TEST_F(Proposal, WeightsAreClampedAndNaNIsReported) {
  const float infinity = std::numeric_limits<float>::infinity();
  Sampled got = sample({-1, 7, 0, -infinity, infinity, 0}, 3, {0.999f, 0});
  EXPECT_EQ(got.tokens, (std::vector<std::int32_t>{1, 1}));
  EXPECT_EQ(got.status, kOpOk);
  got = sample({std::nanf(""), 0.5f, 0.5f}, 3, {0});
  EXPECT_EQ(got.tokens, std::vector<std::int32_t>{1});
  EXPECT_EQ(got.status, kOpInvalidRow);
  got = sample({0.5f, 0.5f, std::nanf("")}, 3, {0});  // beyond the token that is taken
  EXPECT_EQ(got.tokens, std::vector<std::int32_t>{0});
  EXPECT_EQ(got.status, kOpInvalidRow);
}

TEST_F(Proposal, UniformsOutsideTheUnitIntervalAreClamped) {
  const Sampled got = sample({0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f}, 2, {-1, 2, std::nanf("")});
  EXPECT_EQ(got.tokens, (std::vector<std::int32_t>{0, 1, 0}));
}

TEST_F(Proposal, SamplesOfLongRowsAgreeWithTheRunningSum) {
  Random random(44);
  for (const std::int32_t vocab : {1, 255, 4096, 4097, 12000}) {
    std::vector<float> rows;
    std::vector<float> uniforms = {0, 0.99999994f};
    for (int i = 0; i < 6; ++i) uniforms.push_back(random.uniform());
    for (std::size_t r = 0; r < uniforms.size(); ++r) {
      for (std::int32_t v = 0; v < vocab; ++v) {
        rows.push_back(2 * random.uniform() / static_cast<float>(vocab));
      }
    }
    const Sampled got = sample(rows, vocab, uniforms);
    for (std::size_t r = 0; r < uniforms.size(); ++r) {
      const auto target = static_cast<std::int64_t>(std::ldexp(uniforms[r], 40));
      std::int64_t running = 0;
      std::int32_t expected = 0;
      for (std::int32_t v = 0; v < vocab && running <= target; ++v) {
        const float p = row(rows, static_cast<std::int64_t>(r), vocab)[v];
        if (p > 0) expected = v;
        running += std::llrint(std::ldexp(static_cast<double>(p), 40));
      }
      EXPECT_EQ(got.tokens[r], expected) << vocab;
    }
  }
}

TEST_F(Proposal, SamplingWritesOnlyItsStep) {
  const DeviceRows rows({0.5f, 0.5f, 0.5f, 0.5f}, 2);
  const Device<float> uniforms({0.9f, 0.9f, 0.1f, 0.1f, 0.9f, 0.1f});
  const Device<std::int32_t> tokens(6, -5);
  const DeviceScratch scratch(row_scan_scratch(2, 2));
  SampleProbabilityRowsArgs args;
  args.batch = 2;
  args.block_size = 3;
  args.step = 1;
  args.probabilities = rows.view();
  args.uniforms = uniforms.data();
  args.tokens = tokens.data();
  args.scratch = scratch.view();
  backend().sample_probability_rows(args);
  EXPECT_EQ(tokens.values(), (std::vector<std::int32_t>{-5, 1, -5, -5, 1, -5}));
}

TEST_F(Proposal, StoringWritesOnlyItsStep) {
  const DeviceRows source({1, 2, 3, 4}, 2, 1);
  const DeviceRows destination(6, 2, 2);
  backend().store_draft_step_probabilities({2, 3, 2, source.view(), destination.view()});
  const float none = canary();
  expect_same_bits(destination.dense(),
                   {none, none, none, none, 1, 2, none, none, none, none, 3, 4});
}

// --- the whole proposal ---

struct Proposed {
  std::vector<std::int32_t> tokens;
  std::vector<float> probabilities;
  std::vector<float> distance;
  std::uint32_t status;
};

Proposed propose(VanillaMarkovSampleArgs args, const std::vector<std::int32_t>& first,
                 const std::vector<float>& uniforms) {
  const std::int32_t cells = args.batch * args.block_size;
  const Device<std::int32_t> device_first(first);
  const Device<float> device_uniforms(uniforms);
  const Device<std::int32_t> tokens(static_cast<std::size_t>(cells), -5);
  const Device<float> distance(static_cast<std::size_t>(cells));
  const DeviceRows probabilities(cells, args.backbone.vocab, 1);
  const DeviceScratch scratch(vanilla_markov_sample_scratch(args.batch, args.backbone.vocab));
  const Device<std::uint32_t> status(1);
  args.first_previous = device_first.data();
  args.uniforms = device_uniforms.data();
  args.tokens = tokens.data();
  args.distance = distance.data();
  args.draft_probabilities = probabilities.view();
  args.scratch = scratch.view();
  args.status = status.data();
  backend().vanilla_markov_sample(args);
  return {tokens.values(), probabilities.dense(), distance.values(), status.values()[0]};
}

TEST_F(Proposal, VanillaSampleOfTheReference) {
  const DeviceRows backbone({0, 2, 1, -1, 0, 0, 3, 1}, 4);
  const DeviceMatrix zeros({0, 0, 0, 0}, 1, DType::f16);
  VanillaMarkovSampleArgs args;
  args.batch = 1;
  args.block_size = 2;
  args.backbone = backbone.view();
  args.w1 = zeros.view();
  args.w2 = zeros.view();
  args.rule = make_sampling_rule(1, 2, 1, TopPRule::water_filling, 4);
  const Proposed got = propose(args, {0}, {0, 0.99f});
  EXPECT_EQ(got.tokens, (std::vector<std::int32_t>{1, 3}));
  const double a = 1 / (1 + std::exp(-1.0));
  const double b = 1 / (1 + std::exp(-2.0));
  const std::vector<double> expected = {0, a, 1 - a, 0, 0, 0, b, 1 - b};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(got.probabilities[i], expected[i], 1e-5);
  }
  EXPECT_EQ(got.status, kOpOk);
}

VanillaMarkovSampleArgs arguments(const ProposalCase& test, const SamplingRule& rule) {
  VanillaMarkovSampleArgs args;
  args.batch = kBatch;
  args.block_size = kSlots;
  args.backbone = test.backbone.view();
  args.logits_stride = kStride;
  args.logits_offset = kOffset;
  args.w1 = test.w1.view();
  args.w2 = test.w2.view();
  args.rule = rule;
  return args;
}

TEST_F(Proposal, VanillaSampleIsItsStepsInARow) {
  ProposalCase test(45);
  for (const SamplingRule& rule :
       {make_sampling_rule(1, 0, 1, TopPRule::water_filling, kVocab),
        make_sampling_rule(0.8, 20, 0.9, TopPRule::water_filling, kVocab),
        make_sampling_rule(1, 0, 0.7, TopPRule::include_crossing, kVocab),
        make_sampling_rule(0, 0, 1, TopPRule::water_filling, kVocab)}) {
    const std::vector<std::int32_t> first = {1, 2, 3};
    const std::vector<float> uniforms = test.random.uniforms(kBatch * kSlots);
    const Proposed got = propose(arguments(test, rule), first, uniforms);
    EXPECT_EQ(got.status, kOpOk);
    std::vector<float> expected;
    for (std::int32_t b = 0; b < kBatch; ++b) {
      std::int32_t previous = first[static_cast<std::size_t>(b)];
      for (std::int32_t step = 0; step < kSlots; ++step) {
        const auto cell = static_cast<std::size_t>(b * kSlots + step);
        const std::vector<float> logits = test.corrected(b, step, previous);
        const RowLaw law = law_of(logits.data(), kVocab, rule);
        std::vector<float> p;
        for (const std::uint64_t mass : masses_of(logits.data(), kVocab, law)) {
          p.push_back(
              static_cast<float>(static_cast<double>(mass) / static_cast<double>(law.total)));
        }
        const Sampled sampled = sample(p, kVocab, {uniforms[cell]});
        previous = sampled.tokens[0];
        EXPECT_EQ(got.tokens[cell], previous);
        EXPECT_EQ(got.distance[cell],
                  rule.greedy ? law.max_logit - law.second_logit : sampled.distance[0]);
        expected.insert(expected.end(), p.begin(), p.end());
      }
    }
    expect_same_bits(got.probabilities, expected);
  }
}

// A whole proposal on tensor cores may be one launch; its steps are always several. A row turns bad
// on the way, and one begins with a bad token.
TEST_F(Proposal, AProposalOnTensorCoresIsItsStepsInARow) {
  constexpr std::int32_t vocab = 9000, slots = 4, rank = 64;
  for (const std::int32_t batch : {1, 3, 8, 9}) {
    Random random(static_cast<std::uint64_t>(batch));
    const auto cells = static_cast<std::size_t>(batch * slots);
    const DeviceMatrix w1(random.normals(std::size_t{vocab} * rank), rank, DType::f16);
    const DeviceMatrix w2(random.normals(std::size_t{vocab} * rank, 0.2f), rank, DType::f16);
    std::vector<float> logits = random.normals(cells * vocab, 2.5f);
    std::vector<std::int32_t> first;
    for (std::int32_t b = 0; b < batch; ++b) first.push_back(random.integer(0, vocab - 1));
    if (batch > 1) {
      logits[(slots + 2) * std::size_t{vocab} + 77] = std::numeric_limits<float>::quiet_NaN();
      first[2] = vocab;
    }
    const DeviceRows backbone(logits, vocab);
    const std::vector<float> uniforms = random.uniforms(cells);

    VanillaMarkovSampleArgs args;
    args.batch = batch;
    args.block_size = slots;
    args.backbone = backbone.view();
    args.w1 = w1.view();
    args.w2 = w2.view();
    args.rule = make_sampling_rule(0.8, 0, 1, TopPRule::water_filling, vocab);
    args.products = Products::tensor;
    const Proposed got = propose(args, first, uniforms);

    const Device<std::int32_t> device_first(first);
    const Device<float> device_uniforms(uniforms);
    const Device<std::int32_t> tokens(cells, -5);
    const Device<float> distance(cells);
    const DeviceRows corrected(batch, vocab), probabilities(batch, vocab);
    const Device<RowLaw> laws(static_cast<std::size_t>(batch));
    const Device<std::uint32_t> status(1);
    const DeviceScratch markov_scratch(build_markov_logits_scratch(batch));
    const DeviceScratch scan_scratch(row_scan_scratch(batch, vocab));
    std::vector<float> expected(cells * vocab);
    for (std::int32_t step = 0; step < slots; ++step) {
      BuildMarkovLogitsArgs markov;
      markov.batch = batch;
      markov.block_size = slots;
      markov.step = step;
      markov.backbone = args.backbone;
      markov.w1 = args.w1;
      markov.w2 = args.w2;
      markov.first_previous = device_first.data();
      markov.draft = tokens.data();
      markov.corrected = corrected.view();
      markov.products = args.products;
      markov.scratch = markov_scratch.view();
      markov.status = status.data();
      backend().build_markov_logits(markov);
      LogitsToProbabilitiesArgs law;
      law.logits = corrected.view();
      law.rule = args.rule;
      law.probabilities = probabilities.view();
      law.laws = laws.data();
      law.status = status.data();
      backend().logits_to_probabilities(law);
      SampleProbabilityRowsArgs pick;
      pick.batch = batch;
      pick.block_size = slots;
      pick.step = step;
      pick.probabilities = probabilities.view();
      pick.uniforms = device_uniforms.data();
      pick.tokens = tokens.data();
      pick.distance = distance.data();
      pick.scratch = scan_scratch.view();
      pick.status = status.data();
      backend().sample_probability_rows(pick);
      const std::vector<float> p = probabilities.dense();
      for (std::int32_t b = 0; b < batch; ++b) {
        std::copy_n(p.begin() + b * std::ptrdiff_t{vocab}, vocab,
                    expected.begin() + (b * slots + step) * std::ptrdiff_t{vocab});
      }
    }
    EXPECT_EQ(got.tokens, tokens.values()) << batch;
    expect_same_bits(got.distance, distance.values());
    expect_same_bits(got.probabilities, expected);
    EXPECT_EQ(got.status, status.values()[0]);
    EXPECT_EQ(got.status, batch > 1 ? kOpBadToken | kOpInvalidRow : kOpOk);
  }
}

TEST_F(Proposal, ABadFirstTokenGivesNoLawAndIsReported) {
  const ProposalCase test(46);
  const Proposed got =
      propose(arguments(test, make_sampling_rule(1, 0, 1, TopPRule::water_filling, kVocab)),
              {1, kVocab, 3}, std::vector<float>(kBatch * kSlots, 0.5f));
  EXPECT_EQ(got.status, kOpBadToken | kOpInvalidRow);
  EXPECT_EQ(got.tokens[kSlots], 0);
  for (std::int32_t v = 0; v < kVocab; ++v) EXPECT_EQ(row(got.probabilities, kSlots, kVocab)[v], 0);
}

TEST_F(Proposal, NoBatchIsNoWork) {
  SampleProbabilityRowsArgs sample_args;
  sample_args.block_size = 1;
  backend().sample_probability_rows(sample_args);
  VanillaMarkovSampleArgs vanilla;
  vanilla.block_size = 1;
  vanilla.rule = make_sampling_rule(1, 0, 1, TopPRule::water_filling, 4);
  backend().vanilla_markov_sample(vanilla);
  backend().fill_uniforms({});
  backend().synchronize();
}

}  // namespace
}  // namespace dspark::test
