// confidence_rows, confidence_scores, threshold_lengths, sps_lengths, fill_proposal_lengths.
#include <array>
#include <cmath>
#include <limits>

#include "core/exp.h"
#include "tests/kernels/kernel_test.h"
#include "tests/kernels/oracle.h"

namespace dspark::test {
namespace {

class Confidence : public KernelTest {};

std::vector<float> slice(const std::vector<float>& dense, std::int64_t index, std::int64_t cols) {
  return {dense.begin() + index * cols, dense.begin() + (index + 1) * cols};
}

TEST_F(Confidence, RowsAreTheThirtyTwoLaneDotThroughTheSigmoid) {
  Random random(31);
  for (const std::int64_t hidden_size : {1, 31, 32, 33, 200}) {
    for (const std::int64_t rank : {0, 1, 16, 40}) {
      const DType type = std::array{DType::f32, DType::f16,
                                    DType::bf16}[static_cast<std::size_t>(hidden_size + rank) % 3];
      const DeviceMatrix hidden(random.normals(static_cast<std::size_t>(4 * hidden_size)),
                                hidden_size, type, 1);
      const DeviceMatrix w1(random.normals(static_cast<std::size_t>(9 * (rank + 1))), rank + 1,
                            DType::f16, 2);
      Matrix embedding = w1.view();
      embedding.cols = rank;
      const std::vector<float> weight =
          random.normals(static_cast<std::size_t>(hidden_size + rank), 0.2f);
      const std::vector<std::int32_t> rows = {0, 3, 2, 1, 0};
      const std::vector<std::int32_t> previous = {8, 0, 5, -1, 2};
      const Device<float> device_weight(weight);
      const Device<std::int32_t> device_rows(rows);
      const Device<std::int32_t> device_previous(previous);
      const Device<float> out(rows.size());
      const Device<std::uint32_t> status(1);
      ConfidenceRowsArgs args;
      args.hidden = hidden.view();
      args.hidden_row = device_rows.view();
      args.previous = device_previous.view();
      if (rank > 0) args.w1 = embedding;
      args.weight = device_weight.view();
      args.bias = -0.3f;
      args.out = out.array();
      args.status = status.data();
      backend().confidence_rows(args);
      std::vector<float> expected;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        std::vector<float> extra;
        if (previous[i] >= 0) {
          extra = slice(w1.dense(), previous[i], rank + 1);
          extra.resize(static_cast<std::size_t>(rank));
        }
        const float dot =
            confidence_dot_of(slice(hidden.dense(), rows[i], hidden_size), extra, weight);
        expected.push_back(previous[i] < 0 ? std::nanf("") : sigmoid(dot + args.bias));
      }
      SCOPED_TRACE(testing::Message() << hidden_size << " + " << rank);
      expect_same_bits(out.values(), expected);
      EXPECT_EQ(status.values()[0], kOpOk);
    }
  }
}

TEST_F(Confidence, RowsReportBadIdsAndGiveNaN) {
  const DeviceMatrix hidden({1, 2}, 1, DType::f32);
  const DeviceMatrix w1({1, 2, 3}, 1, DType::f32);
  const auto run = [&](std::int32_t row, std::int32_t previous, bool markov) {
    const Device<float> weight(markov ? std::vector<float>{1, 1} : std::vector<float>{1});
    const Device<std::int32_t> rows({row});
    const Device<std::int32_t> ids({previous});
    const Device<float> out(1);
    const Device<std::uint32_t> status(1);
    backend().confidence_rows({hidden.view(), rows.view(), ids.view(), w1.view(), weight.view(), 0,
                               out.array(), status.data()});
    EXPECT_EQ(std::isnan(out.values()[0]), previous < 0 || status.values()[0] != kOpOk);
    return status.values()[0];
  };
  EXPECT_EQ(run(0, 2, true), kOpOk);
  EXPECT_EQ(run(0, 3, true), kOpBadToken);
  EXPECT_EQ(run(0, 3, false), kOpOk);
  EXPECT_EQ(run(2, 0, true), kOpBadRow);
  EXPECT_EQ(run(-1, 7, true), kOpBadRow | kOpBadToken);
  EXPECT_EQ(run(-1, -1, true), kOpOk);
}

/// A call of the score functions without a Markov part, for given hidden states.
struct ScoreCase {
  ScoreCase(std::int32_t batch, std::int32_t slots, const std::vector<float>& hidden_values,
            std::int64_t hidden_size, const std::vector<float>& weight_values, DType type)
      : hidden(hidden_values, hidden_size, type),
        weight(weight_values),
        scores(static_cast<std::size_t>(batch * slots)),
        lengths(static_cast<std::size_t>(batch), -7),
        status(1) {
    args.batch = batch;
    args.block_size = slots;
    args.hidden = hidden.view();
    args.weight = weight.view();
    args.scores = scores.data();
    args.status = status.data();
  }

  std::vector<std::int32_t> threshold(double value, std::int32_t low = 1, std::int32_t high = 0) {
    backend().threshold_lengths({args, value, low, high, lengths.data()});
    return lengths.values();
  }
  std::vector<std::int32_t> sps(double floor, std::int32_t low = 1, std::int32_t high = 0,
                                const LinearCost& cost = {}) {
    backend().sps_lengths({args, floor, low, high, cost, lengths.data()});
    return lengths.values();
  }

  DeviceMatrix hidden;
  Device<float> weight;
  Device<float> scores;
  Device<std::int32_t> lengths;
  Device<std::uint32_t> status;
  ConfidenceScoresArgs args;
};

float logit(double probability) {
  return static_cast<float>(std::log(probability / (1 - probability)));
}

/// One row of slots with these confidences.
ScoreCase confident(const std::vector<double>& confidences) {
  std::vector<float> hidden;
  for (const double c : confidences) hidden.push_back(logit(c));
  return {1, static_cast<std::int32_t>(confidences.size()), hidden, 1, {1.0f}, DType::f32};
}

TEST_F(Confidence, ThresholdCutsTheCumulativeSurvival) {
  ScoreCase test(1, 3, {2, 0, 1, 0, -2, 0}, 2, {1, 0}, DType::f16);
  EXPECT_EQ(test.threshold(0.5, 1, 3), std::vector<std::int32_t>{2});
  const std::vector<float> scores = test.scores.values();
  EXPECT_NEAR(scores[0], 0.880797, 1e-5);
  EXPECT_NEAR(scores[1], 0.731059, 1e-5);
  EXPECT_NEAR(scores[2], 0.119203, 1e-5);
  EXPECT_EQ(test.threshold(0.65), std::vector<std::int32_t>{1});
  EXPECT_EQ(test.threshold(0.07), std::vector<std::int32_t>{3});
}

TEST_F(Confidence, ThresholdLengthsKeepTheirLimits) {
  ScoreCase test = confident({0.9, 0.9, 0.9, 0.1, 0.9});
  EXPECT_EQ(test.threshold(0), std::vector<std::int32_t>{5});
  EXPECT_EQ(test.threshold(-1, 1, 4), std::vector<std::int32_t>{4});
  EXPECT_EQ(test.threshold(0.99), std::vector<std::int32_t>{1});
  EXPECT_EQ(test.threshold(0.99, 3), std::vector<std::int32_t>{3});
  EXPECT_EQ(test.threshold(0.99, -4), std::vector<std::int32_t>{1});
  EXPECT_EQ(test.threshold(0.99, 99), std::vector<std::int32_t>{5});
  EXPECT_EQ(test.threshold(0.5, 1, 2), std::vector<std::int32_t>{2});
  EXPECT_EQ(test.threshold(0.5, 1, 99), std::vector<std::int32_t>{3});
}

TEST_F(Confidence, NaNStopsTheThreshold) {
  ScoreCase test(1, 3, {9, std::nanf(""), 9}, 1, {1}, DType::f32);
  EXPECT_EQ(test.threshold(0.1), std::vector<std::int32_t>{1});
  EXPECT_TRUE(std::isnan(test.scores.values()[1]));
}

TEST_F(Confidence, SpsTakesTheMostExpectedTokensPerCost) {
  ScoreCase test(1, 4, {3, 0, 0, 0}, 1, {1}, DType::f16);
  EXPECT_EQ(test.sps(0), std::vector<std::int32_t>{2});
  EXPECT_NEAR(test.scores.values()[0], 0.952574, 1e-5);
}

TEST_F(Confidence, SpsOfConstantConfidences) {
  const std::vector<std::pair<double, std::int32_t>> expected = {
      {0.50, 1}, {0.55, 2}, {0.70, 2}, {0.75, 3}, {0.80, 3}, {0.85, 4}, {0.90, 6}, {0.95, 7}};
  for (const auto& [confidence, length] : expected) {
    ScoreCase test = confident(std::vector<double>(7, confidence));
    EXPECT_EQ(test.sps(0), std::vector<std::int32_t>{length}) << confidence;
  }
}

TEST_F(Confidence, SpsStopsAtTheFirstSurvivalBelowTheFloorAndKeepsItsLimits) {
  ScoreCase sure = confident(std::vector<double>(7, 0.99));
  EXPECT_EQ(sure.sps(0), std::vector<std::int32_t>{7});
  EXPECT_EQ(sure.sps(0.985), std::vector<std::int32_t>{2});  // 0.9801 is below, and still scored
  EXPECT_EQ(sure.sps(0, 1, 3), std::vector<std::int32_t>{3});
  EXPECT_EQ(confident(std::vector<double>(7, 0.1)).sps(0, 4), std::vector<std::int32_t>{4});
  // Where another draft costs nothing, all are verified.
  EXPECT_EQ(confident(std::vector<double>(7, 0.1)).sps(0, 1, 0, {1, 0, 0, 0}),
            std::vector<std::int32_t>{7});
}

TEST_F(Confidence, ScoresReadEveryBatchRowAtItsStrideAndOffset) {
  constexpr std::int32_t kBatch = 3;
  constexpr std::int32_t kSlots = 4;
  constexpr std::int32_t kHidden = 37;
  constexpr std::int32_t kRank = 5;
  constexpr std::int32_t kVocab = 11;
  constexpr std::int32_t kStride = 6;
  constexpr std::int32_t kOffset = 1;
  Random random(32);
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    const DeviceMatrix hidden(random.normals(kBatch * kStride * kHidden), kHidden, type, 3);
    const DeviceMatrix w1(random.normals(kVocab * kRank), kRank, type, 1);
    const std::vector<float> weight = random.normals(kHidden + kRank, 0.3f);
    const std::vector<std::int32_t> first = {0, 10, 3};
    const std::vector<std::int32_t> draft = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 1};
    const Device<float> device_weight(weight);
    const Device<std::int32_t> device_first(first);
    const Device<std::int32_t> device_draft(draft);
    const Device<float> scores(kBatch * kSlots);
    const Device<std::uint32_t> status(1);
    ConfidenceScoresArgs args;
    args.batch = kBatch;
    args.block_size = kSlots;
    args.hidden = hidden.view();
    args.hidden_stride = kStride;
    args.hidden_offset = kOffset;
    args.w1 = w1.view();
    args.weight = device_weight.view();
    args.bias = 0.25f;
    args.first_previous = device_first.data();
    args.draft = device_draft.data();
    args.scores = scores.data();
    args.status = status.data();
    backend().confidence_scores(args);
    std::vector<float> expected;
    for (std::int32_t b = 0; b < kBatch; ++b) {
      for (std::int32_t j = 0; j < kSlots; ++j) {
        const std::int32_t previous = j == 0 ? first[static_cast<std::size_t>(b)]
                                             : draft[static_cast<std::size_t>(b * kSlots + j - 1)];
        expected.push_back(
            sigmoid(confidence_dot_of(slice(hidden.dense(), b * kStride + j + kOffset, kHidden),
                                      slice(w1.dense(), previous, kRank), weight) +
                    args.bias));
      }
    }
    expect_same_bits(scores.values(), expected);
    EXPECT_EQ(status.values()[0], kOpOk);
  }
}

TEST_F(Confidence, ScoresReportIdsOutsideTheVocabulary) {
  const DeviceMatrix hidden({0, 0, 0}, 1, DType::f32);
  const DeviceMatrix w1({0, 0}, 1, DType::f32);
  const Device<float> weight({1, 1});
  const Device<std::int32_t> first({-1});
  const Device<std::int32_t> draft({1, 2, 0});
  const Device<float> scores(3);
  const Device<std::uint32_t> status(1);
  ConfidenceScoresArgs args;
  args.batch = 1;
  args.block_size = 3;
  args.hidden = hidden.view();
  args.w1 = w1.view();
  args.weight = weight.view();
  args.first_previous = first.data();
  args.draft = draft.data();
  args.scores = scores.data();
  args.status = status.data();
  backend().confidence_scores(args);
  const float nan = std::nanf("");
  expect_same_bits(scores.values(), {nan, 0.5f, nan});
  EXPECT_EQ(status.values()[0], kOpBadToken);
}

TEST_F(Confidence, ProposalLengthsAreFilled) {
  const Device<std::int32_t> lengths(5, -1);
  backend().fill_proposal_lengths({4, 6, lengths.data()});
  EXPECT_EQ(lengths.values(), (std::vector<std::int32_t>{6, 6, 6, 6, -1}));
}

}  // namespace
}  // namespace dspark::test
