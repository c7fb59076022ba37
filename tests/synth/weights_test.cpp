#include "synth/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "synth/keyed.h"

namespace dspark::synth {
namespace {

SynthOptions options_of(std::int64_t vocab, std::int64_t hidden, std::int64_t rank) {
  SynthOptions options;
  options.vocab_size = vocab;
  options.hidden_size = hidden;
  options.markov_rank = rank;
  return options;
}

std::vector<float> lm_head_row(const Weights& weights, std::int64_t id) {
  std::vector<Float16> half(static_cast<std::size_t>(weights.hidden()));
  weights.lm_head_row(id, half.data());
  std::vector<float> out;
  for (const Float16 value : half) out.push_back(to_float(value));
  return out;
}

TEST(Weights, SplitsTheVocabularyEvenlyAndNotByParity) {
  const Weights weights(options_of(10001, 64, 16));
  const auto& half = weights.half_b();
  const auto in_b = std::count(half.begin(), half.end(), 1);
  EXPECT_GE(in_b, 5000);
  EXPECT_LE(in_b, 5001);
  std::int64_t odd_in_b = 0;
  for (std::size_t v = 1; v < half.size(); v += 2) odd_in_b += half[v];
  EXPECT_NEAR(double(odd_in_b), 2500, 4 * std::sqrt(5000 * 0.25));
}

TEST(Weights, SmallestVocabularyHasOneTokenInEachHalf) {
  const Weights weights(options_of(2, 64, 16));
  EXPECT_EQ(weights.half_b()[0] + weights.half_b()[1], 1);
}

TEST(Weights, MarkovW2IsTheFirstColumnsOfLmHead) {
  for (const std::int64_t rank : {1, 5, 8, 13, 61}) {
    const Weights weights(options_of(40, 64, rank));
    std::vector<float> w2(static_cast<std::size_t>(rank));
    for (std::int64_t id = 0; id < 40; ++id) {
      weights.markov_w2_row(id, w2.data());
      const std::vector<float> row = lm_head_row(weights, id);
      EXPECT_TRUE(std::equal(w2.begin(), w2.end(), row.begin())) << rank << " " << id;
    }
  }
}

// Sizes at which the grids are stretched: many columns, few columns, rank alone.
class WeightsGrid : public testing::TestWithParam<std::pair<std::int64_t, std::int64_t>> {};

TEST_P(WeightsGrid, EveryNumberIsExactInEveryStoredType) {
  const auto [hidden, rank] = GetParam();
  SynthOptions options = options_of(64, hidden, rank);
  for (const double markov_std : {0.1, 1.5, 20.0}) {
    options.markov_std = markov_std;
    const Weights weights(options);
    std::vector<float> w1(static_cast<std::size_t>(rank));
    std::vector<float> state(static_cast<std::size_t>(hidden));
    for (std::int64_t id = 0; id < 64; ++id) {
      weights.markov_w1_row(id, w1.data());
      weights.target_hidden(draw(1, Draw::context, 0, id), state.data());
      std::vector<float> all = lm_head_row(weights, id);
      all.insert(all.end(), state.begin(), state.end());
      all.insert(all.end(), w1.begin(), w1.end());
      for (std::int64_t r = 0; r < rank; ++r) {
        all.push_back(state[static_cast<std::size_t>(r)] - w1[static_cast<std::size_t>(r)]);
      }
      for (const float value : all) {
        ASSERT_EQ(round_to(StoredType::f16, value), value);
        ASSERT_EQ(round_to(StoredType::bf16, value), value);
      }
    }
  }
}

TEST_P(WeightsGrid, LogitsSpreadAsAskedFor) {
  const auto [hidden, rank] = GetParam();
  SynthOptions options = options_of(400, hidden, rank);
  options.logit_std = 2.5;
  const Weights weights(options);
  std::vector<float> state(static_cast<std::size_t>(hidden));
  double sum = 0;
  double squares = 0;
  double count = 0;
  for (std::int64_t row = 0; row < 40; ++row) {
    weights.target_hidden(draw(1, Draw::context, 0, row), state.data());
    for (std::int64_t id = 0; id < 400; ++id) {
      const std::vector<float> head = lm_head_row(weights, id);
      double logit = 0;
      for (std::int64_t j = 0; j < weights.context(); ++j) {
        logit += double(state[static_cast<std::size_t>(j)]) * head[static_cast<std::size_t>(j)];
      }
      sum += logit;
      squares += logit * logit;
      ++count;
    }
  }
  // The few columns of the smallest sizes make the spread itself vary from row to row.
  EXPECT_NEAR(std::sqrt(squares / count), 2.5, hidden < 32 ? 1.0 : 0.25);
  EXPECT_NEAR(sum / count, 0, 0.4);
}

INSTANTIATE_TEST_SUITE_P(Sizes, WeightsGrid,
                         testing::Values(std::pair{4, 1}, std::pair{11, 8}, std::pair{64, 16},
                                         std::pair{67, 64}, std::pair{1024, 2},
                                         std::pair{512, 64}));

TEST(Weights, SeedsGiveDifferentHeads) {
  SynthOptions options = options_of(64, 64, 16);
  const Weights first(options);
  options.seed = 1;
  const Weights second(options);
  EXPECT_NE(lm_head_row(first, 3), lm_head_row(second, 3));
  EXPECT_NE(first.half_b(), second.half_b());
  EXPECT_NE(first.confidence_weight(), second.confidence_weight());
}

TEST(Weights, ConfidenceReadsItsChannelAndLittleElse) {
  const Weights weights(options_of(64, 64, 16));
  const std::vector<float> weight = weights.confidence_weight();
  ASSERT_EQ(weight.size(), 64u + 16u);
  EXPECT_EQ(weight[63], 1.0f);
  EXPECT_EQ(weight[61], 0.0f);
  EXPECT_EQ(weight[62], 0.0f);
  EXPECT_LT(*std::max_element(weight.begin(), weight.begin() + 61), 0.5f);
}

}  // namespace
}  // namespace dspark::synth
