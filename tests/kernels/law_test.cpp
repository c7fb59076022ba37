// row_laws and logits_to_probabilities.
#include <cmath>
#include <limits>

#include "tests/kernels/kernel_test.h"
#include "tests/kernels/oracle.h"

namespace dspark::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Laws : public KernelTest {};

std::vector<RowLaw> laws_of(const DeviceRows& rows, const SamplingRule& rule) {
  const Device<RowLaw> laws(static_cast<std::size_t>(rows.view().rows));
  backend().row_laws({rows.view(), rule, laws.array()});
  return laws.values();
}

RowLaw law_of_row(const std::vector<float>& logits, const SamplingRule& rule) {
  return laws_of(DeviceRows(logits, static_cast<std::int32_t>(logits.size()), 1), rule)[0];
}

SamplingRule plain() { return make_sampling_rule(1, 0, 1, TopPRule::water_filling, 1 << 20); }

/// Every filter, for a vocabulary of that size.
std::vector<SamplingRule> rules(std::int32_t vocab) {
  std::vector<SamplingRule> out = {make_sampling_rule(0, 2, 0.5, TopPRule::water_filling, vocab)};
  for (const double temperature : {1.0, 0.1}) {
    for (const std::int32_t top_k : {0, 1, 2, 50, 200, vocab - 1, vocab}) {
      const auto add = [&](double top_p, TopPRule rule) {
        out.push_back(make_sampling_rule(temperature, top_k, top_p, rule, vocab));
      };
      add(1, TopPRule::water_filling);
      for (const double top_p : {0.95, 0.5, 1e-9}) {
        add(top_p, TopPRule::water_filling);
        add(top_p, TopPRule::include_crossing);
      }
    }
  }
  return out;
}

void expect_laws(const std::vector<float>& logits, std::int32_t vocab) {
  const DeviceRows rows(logits, vocab, 3);
  for (const SamplingRule& rule : rules(vocab)) {
    const std::vector<RowLaw> got = laws_of(rows, rule);
    for (std::size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(testing::Message()
                   << "row " << i << " of " << vocab << ", 1/T " << rule.inverse_temperature
                   << ", top-k " << rule.top_k << ", top-p " << rule.top_p << ", rule "
                   << static_cast<int>(rule.top_p_rule));
      expect_equal(got[i], law_of(row(logits, static_cast<std::int64_t>(i), vocab), vocab, rule));
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_F(Laws, AgreeWithSortingForEveryFilterAndShape) {
  Random random(11);
  for (const std::int32_t vocab : {1, 2, 3, 15, 16, 17, 63, 255, 256, 257, 777, 4097}) {
    expect_laws(random.normals(static_cast<std::size_t>(2 * vocab), 3), vocab);
  }
}

TEST_F(Laws, AgreeWithSortingWhereLogitsTie) {
  Random random(12);
  for (const std::int32_t vocab : {5, 64, 300, 1025}) {
    std::vector<float> logits;
    for (std::int32_t v = 0; v < 3 * vocab; ++v) {
      // Few values, both zeros, masked tokens and extremes.
      constexpr float kValues[] = {-kInfinity, -1, -0.0f, 0, 0.5f, 0.5f, -60, -3.4e38f};
      logits.push_back(kValues[random.integer(0, 7)]);
    }
    for (std::int32_t r = 0; r < 3; ++r) logits[static_cast<std::size_t>(r * vocab)] = -0.0f;
    expect_laws(logits, vocab);
  }
}

TEST_F(Laws, AgreeWithSortingForFlatSteepAndMaskedRows) {
  constexpr std::int32_t kVocab = 515;
  std::vector<float> logits(kVocab, 2.5f);          // flat
  logits.insert(logits.end(), kVocab, -kInfinity);  // one token left
  logits[kVocab + 400] = -7;
  for (std::int32_t v = 0; v < kVocab; ++v) logits.push_back(static_cast<float>(v) * 3e36f);
  for (std::int32_t v = 0; v < kVocab; ++v) logits.push_back(static_cast<float>(-v) * 1e-40f);
  expect_laws(logits, kVocab);
}

TEST_F(Laws, AgreeWithSortingForALargeVocabulary) {
  constexpr std::int32_t kVocab = 151936;
  Random random(13);
  const std::vector<float> logits = random.normals(kVocab, 2);
  const DeviceRows rows(logits, kVocab);
  for (const SamplingRule& rule :
       {plain(), make_sampling_rule(1, 50, 0.95, TopPRule::water_filling, kVocab),
        make_sampling_rule(0.8, 0, 0.9, TopPRule::include_crossing, kVocab),
        make_sampling_rule(1, 5000, 1, TopPRule::water_filling, kVocab)}) {
    expect_equal(laws_of(rows, rule)[0], law_of(logits.data(), kVocab, rule));
  }
}

TEST_F(Laws, TiesGoToTheLowestIdAndZerosAreEqual) {
  const RowLaw law = law_of_row({-1, -0.0f, 0, -2}, plain());
  EXPECT_EQ(law.argmax, 1);
  EXPECT_EQ(bits_from_float(law.max_logit), 0u);
  EXPECT_EQ(bits_from_float(law.second_logit), 0u);
  EXPECT_EQ(law_of_row({3, 7, 7, 7}, plain()).argmax, 1);
  EXPECT_EQ(law_of_row({3, 7, 7, 7}, plain()).second_logit, 7);
}

TEST_F(Laws, TheTwoLargestAreFoundWhereverTheyStand) {
  // Every distance between the two, in both orders, with a third that comes after or before them.
  constexpr std::int32_t kVocab = 150;
  std::vector<float> logits;
  std::vector<std::int32_t> largest;
  for (const std::int32_t first : {0, 21, 149}) {
    for (std::int32_t second = 0; second < kVocab; ++second) {
      if (second == first) continue;
      std::vector<float> one(kVocab, 0.5f);
      for (std::int32_t v = 0; v < kVocab; v += 3) one[static_cast<std::size_t>(v)] = -1;
      one[static_cast<std::size_t>(first)] = 4;
      one[static_cast<std::size_t>(second)] = 2;
      logits.insert(logits.end(), one.begin(), one.end());
      largest.push_back(first);
    }
  }
  const std::vector<RowLaw> laws = laws_of(DeviceRows(logits, kVocab, 1), plain());
  for (std::size_t i = 0; i < laws.size(); ++i) {
    EXPECT_EQ(laws[i].argmax, largest[i]);
    EXPECT_EQ(laws[i].max_logit, 4);
    EXPECT_EQ(laws[i].second_logit, 2) << "row " << i;
  }
}

TEST_F(Laws, ARowOfOneTokenHasNoSecond) {
  const RowLaw law = law_of_row({4}, plain());
  EXPECT_EQ(law.status, kRowValid);
  EXPECT_EQ(law.total, kUnitMass);
  EXPECT_EQ(law.second_logit, -kInfinity);
}

TEST_F(Laws, InvalidRowsSayWhy) {
  const float nan = std::nanf("");
  const auto status = [](std::vector<float> logits) {
    const RowLaw law = law_of_row(logits, plain());
    EXPECT_EQ(law.argmax, -1);
    EXPECT_EQ(law.total, 0u);
    EXPECT_EQ(law.scale, 0u);
    EXPECT_EQ(law.boundary_key, 0u);
    return law.status;
  };
  EXPECT_EQ(status({1, nan, 2}), kRowNaN);
  EXPECT_EQ(status({1, -nan, 2}), kRowNaN);
  EXPECT_EQ(status({1, kInfinity, 2}), kRowPlusInfinity);
  EXPECT_EQ(status({-kInfinity, -kInfinity}), kRowNoFinite);
  EXPECT_EQ(status({nan, kInfinity, 1}), kRowNaN | kRowPlusInfinity);
  EXPECT_EQ(status({nan, -kInfinity}), kRowNaN | kRowNoFinite);
  EXPECT_EQ(status({kInfinity}), kRowPlusInfinity | kRowNoFinite);
  EXPECT_EQ(law_of_row({1, -kInfinity, 2}, plain()).status, kRowValid);
}

TEST_F(Laws, AnInvalidElementIsSeenWhereverItStands) {
  constexpr std::int32_t kVocab = 1100;
  std::vector<float> logits;
  Random random(14);
  for (std::int32_t r = 0; r < kVocab; r += 13) {
    std::vector<float> one = random.normals(kVocab);
    one[static_cast<std::size_t>(r)] = r % 2 == 0 ? std::nanf("") : kInfinity;
    logits.insert(logits.end(), one.begin(), one.end());
  }
  std::int32_t r = 0;
  for (const RowLaw& law : laws_of(DeviceRows(logits, kVocab), plain())) {
    EXPECT_EQ(law.status, r % 2 == 0 ? kRowNaN : kRowPlusInfinity) << "at " << r;
    r += 13;
  }
}

TEST_F(Laws, AOneHotTopPLawHasTheFormOfAGreedyOne) {
  const std::vector<float> logits = {-1, 0.5f, 4, 3};
  for (const TopPRule rule : {TopPRule::water_filling, TopPRule::include_crossing}) {
    RowLaw law = law_of_row(logits, make_sampling_rule(1, 0, 0.3, rule, 4));
    const RowLaw greedy = law_of_row(logits, make_sampling_rule(0, 0, 1, rule, 4));
    EXPECT_EQ(law.total, kUnitMass);
    expect_equal(law, greedy);
    EXPECT_EQ(law_probability(law, 4, 2), kUnitProbability);
  }
}

TEST_F(Laws, NoRowsIsNoWork) {
  backend().row_laws({{nullptr, 0, 100, 100}, plain(), {}});
  backend().synchronize();
}

// --- logits_to_probabilities ---

struct Probabilities {
  std::vector<float> values;
  std::uint32_t status;
};

Probabilities probabilities(const std::vector<float>& logits, std::int32_t vocab,
                            const SamplingRule& rule) {
  const DeviceRows in(logits, vocab, 2);
  const DeviceRows out(in.view().rows, vocab, 5);
  const Device<RowLaw> laws(static_cast<std::size_t>(in.view().rows));
  const Device<std::uint32_t> status(1);
  LogitsToProbabilitiesArgs args;
  args.logits = in.view();
  args.rule = rule;
  args.probabilities = out.view();
  args.laws = laws.data();
  args.status = status.data();
  backend().logits_to_probabilities(args);
  return {out.dense(), status.values()[0]};
}

void expect_near(const std::vector<float>& got, const std::vector<double>& expected,
                 double tolerance = 1e-5) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << i;
}

TEST_F(Laws, ProbabilitiesOfTopK) {
  const Probabilities got =
      probabilities({3, 2, 1, 0}, 4, make_sampling_rule(1, 2, 1, TopPRule::water_filling, 4));
  expect_near(got.values, {0.731059, 0.268941, 0, 0});
  EXPECT_EQ(got.status, kOpOk);
}

TEST_F(Laws, ProbabilitiesOfATopPThatOneTokenReaches) {
  expect_near(
      probabilities({-1, 0.5f, 4, 3}, 4, make_sampling_rule(1, 0, 0.5, TopPRule::water_filling, 4))
          .values,
      {0, 0, 1, 0});
}

TEST_F(Laws, ProbabilitiesOfBothTopPRules) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f),
                                     std::log(0.05f)};
  expect_near(
      probabilities(logits, 4, make_sampling_rule(1, 0, 0.75, TopPRule::water_filling, 4)).values,
      {2.0 / 3, 1.0 / 3, 0, 0});
  expect_near(
      probabilities(logits, 4, make_sampling_rule(1, 0, 0.75, TopPRule::include_crossing, 4))
          .values,
      {0.625, 0.375, 0, 0});
}

TEST_F(Laws, TopPWorksWithinTopK) {
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f),
                                     std::log(0.1f)};
  // The top 2 hold 0.7; half of it is reached by the first token, 0.9 of it within the second.
  expect_near(
      probabilities(logits, 4, make_sampling_rule(1, 2, 0.9, TopPRule::water_filling, 4)).values,
      {0.4 / 0.63, 0.23 / 0.63, 0, 0});
  expect_near(
      probabilities(logits, 4, make_sampling_rule(1, 2, 0.9, TopPRule::include_crossing, 4)).values,
      {4.0 / 7, 3.0 / 7, 0, 0});
}

TEST_F(Laws, ALowTemperatureIsOneHotOnTheLowestArgmax) {
  const Probabilities got = probabilities(
      {1, 9, 9, 0}, 4, make_sampling_rule(9e-4, 3, 0.5, TopPRule::include_crossing, 4));
  EXPECT_EQ(got.values, (std::vector<float>{0, 1, 0, 0}));
}

TEST_F(Laws, ProbabilitiesAreTheSoftmaxOfFloat64) {
  constexpr std::int32_t kVocab = 1003;
  Random random(15);
  const std::vector<float> logits = random.normals(3 * kVocab, 2);
  for (const double temperature : {1.0, 0.6}) {
    const std::vector<float> got =
        probabilities(logits, kVocab,
                      make_sampling_rule(temperature, 0, 1, TopPRule::water_filling, kVocab))
            .values;
    for (std::int64_t r = 0; r < 3; ++r) {
      double sum = 0;
      for (std::int32_t v = 0; v < kVocab; ++v) {
        sum += std::exp(static_cast<double>(row(logits, r, kVocab)[v]) / temperature);
      }
      for (std::int32_t v = 0; v < kVocab; ++v) {
        const double p =
            std::exp(static_cast<double>(row(logits, r, kVocab)[v]) / temperature) / sum;
        EXPECT_NEAR(row(got, r, kVocab)[v], p, 1e-6 * p + 1e-11);
      }
    }
  }
}

TEST_F(Laws, ProbabilitiesAreMassOverTotal) {
  constexpr std::int32_t kVocab = 331;
  Random random(16);
  std::vector<float> logits = random.normals(2 * kVocab, 2);
  for (std::int32_t v = 0; v < kVocab; ++v) {  // the second row has few values: boundaries tie
    logits[static_cast<std::size_t>(kVocab + v)] = static_cast<float>(v * v % 5) * 0.5f;
  }
  for (const SamplingRule& rule : rules(kVocab)) {
    std::vector<float> expected;
    for (std::int64_t r = 0; r < 2; ++r) {
      const RowLaw law = law_of(row(logits, r, kVocab), kVocab, rule);
      for (const std::uint64_t mass : masses_of(row(logits, r, kVocab), kVocab, law)) {
        expected.push_back(
            static_cast<float>(static_cast<double>(mass) / static_cast<double>(law.total)));
      }
    }
    expect_same_bits(probabilities(logits, kVocab, rule).values, expected);
    if (HasFailure()) return;
  }
}

TEST_F(Laws, AnInvalidRowHasNoProbabilityAndIsReported) {
  const Probabilities got = probabilities({1, std::nanf(""), 0, 0, kInfinity, 0, 5, 5}, 2, plain());
  EXPECT_EQ(got.values, (std::vector<float>{0, 0, 0.5f, 0.5f, 0, 0, 0.5f, 0.5f}));
  EXPECT_EQ(got.status, kOpInvalidRow);
}

}  // namespace
}  // namespace dspark::test
