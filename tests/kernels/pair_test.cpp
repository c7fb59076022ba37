// compare_pairs, sample_rows, sample_excess.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/kernel_test.h"
#include "tests/kernels/oracle.h"

namespace dspark::test {
namespace {

class Pairs : public KernelTest {};

/// Target and draft rows with their laws, on the backend and off it.
struct Case {
  Case(std::int32_t vocab_size, const SamplingRule& rule, std::uint64_t seed)
      : vocab(vocab_size),
        target_values(values(seed)),
        draft_values(values(seed + 1)),
        target(target_values, vocab, 1),
        draft(draft_values, vocab, 2),
        target_laws(kRows),
        draft_laws(kRows) {
    backend().row_laws({target.view(), rule, target_laws.array()});
    backend().row_laws({draft.view(), rule, draft_laws.array()});
    target_law_values = target_laws.values();
    draft_law_values = draft_laws.values();
  }

  std::vector<float> values(std::uint64_t seed) const {
    Random random(seed);
    std::vector<float> out = random.normals(static_cast<std::size_t>(kRows * vocab), 2);
    // Few values in the second row, so that boundaries fall among ties; masked tokens in the third.
    for (std::int32_t v = 0; v < vocab; ++v) {
      out[static_cast<std::size_t>(vocab + v)] = static_cast<float>(random.integer(0, 4)) * 0.5f;
      if (v % 3 == 1) {
        out[static_cast<std::size_t>(2 * vocab + v)] = -std::numeric_limits<float>::infinity();
      }
    }
    out[static_cast<std::size_t>((kRows - 1) * vocab)] = std::nanf("");  // the last row is invalid
    return out;
  }

  bool valid(const RowPair& pair) const {
    const auto sound = [](std::int32_t index) { return index >= 0 && index < kRows - 1; };
    return sound(pair.target_row) && sound(pair.draft_row);
  }
  std::vector<std::uint64_t> p(std::int32_t index) const {
    return probabilities_of(row(target_values, index, vocab), vocab,
                            target_law_values[static_cast<std::size_t>(index)]);
  }
  std::vector<std::uint64_t> q(std::int32_t index) const {
    return probabilities_of(row(draft_values, index, vocab), vocab,
                            draft_law_values[static_cast<std::size_t>(index)]);
  }

  static constexpr std::int32_t kRows = 5;
  std::int32_t vocab;
  std::vector<float> target_values;
  std::vector<float> draft_values;
  DeviceRows target;
  DeviceRows draft;
  Device<RowLaw> target_laws;
  Device<RowLaw> draft_laws;
  std::vector<RowLaw> target_law_values;
  std::vector<RowLaw> draft_law_values;
};

std::vector<RowPair> every_pair(std::int32_t vocab) {
  std::vector<RowPair> pairs;
  for (std::int32_t t = -1; t <= Case::kRows; ++t) {
    for (std::int32_t d = -1; d <= Case::kRows; ++d) {
      pairs.push_back({t, d, (t * 7 + d * 3 + 10) % vocab});
    }
  }
  pairs.push_back({0, 0, -1});
  pairs.push_back({0, 0, vocab});
  pairs.push_back({0, 0, vocab - 1});
  return pairs;
}

std::vector<SamplingRule> rules(std::int32_t vocab) {
  return {make_sampling_rule(1, 0, 1, TopPRule::water_filling, vocab),
          make_sampling_rule(0.7, 20, 1, TopPRule::water_filling, vocab),
          make_sampling_rule(1, 0, 0.8, TopPRule::water_filling, vocab),
          make_sampling_rule(1, 150, 0.9, TopPRule::include_crossing, vocab),
          make_sampling_rule(0, 0, 1, TopPRule::water_filling, vocab)};
}

TEST_F(Pairs, OutcomesAgreeWithTheirDefinition) {
  for (const std::int32_t vocab : {1, 2, 37, 256, 1000, 5003}) {
    for (const SamplingRule& rule : rules(vocab)) {
      const Case test(vocab, rule, 21);
      const std::vector<RowPair> pairs = every_pair(vocab);
      const Device<RowPair> device_pairs(pairs);
      const Device<PairOutcome> out(pairs.size());
      backend().compare_pairs({test.target.view(), test.target_laws.view(), test.draft.view(),
                               test.draft_laws.view(), device_pairs.view(), out.array()});
      const std::vector<PairOutcome> got = out.values();
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        PairOutcome expected = {};
        if (test.valid(pairs[i]) && pairs[i].token >= 0 && pairs[i].token < vocab) {
          const std::vector<std::uint64_t> p = test.p(pairs[i].target_row);
          const std::vector<std::uint64_t> q = test.q(pairs[i].draft_row);
          const auto token = static_cast<std::size_t>(pairs[i].token);
          for (std::size_t v = 0; v < p.size(); ++v) expected.alpha += std::min(p[v], q[v]);
          expected.target_token = p[token];
          expected.draft_token = q[token];
          expected.target_logit = row(test.target_values, pairs[i].target_row, vocab)[token];
          expected.valid = 1;
        }
        EXPECT_EQ(got[i].alpha, expected.alpha) << "pair " << i << " of " << vocab;
        EXPECT_EQ(got[i].target_token, expected.target_token);
        EXPECT_EQ(got[i].draft_token, expected.draft_token);
        EXPECT_EQ(got[i].target_logit, expected.target_logit);
        EXPECT_EQ(got[i].valid, expected.valid);
      }
    }
  }
}

TEST_F(Pairs, ALawOverlapsWithItselfWholly) {
  const std::int32_t vocab = 700;
  const Case test(vocab, make_sampling_rule(1, 0, 1, TopPRule::water_filling, vocab), 22);
  const Device<RowPair> pairs({{0, 0, 3}});
  const Device<PairOutcome> out(1);
  backend().compare_pairs({test.target.view(), test.target_laws.view(), test.target.view(),
                           test.target_laws.view(), pairs.view(), out.array()});
  // Each probability is rounded down by less than one unit, besides the scale's own 2^-40.
  EXPECT_NEAR(static_cast<double>(out.values()[0].alpha), static_cast<double>(kUnitProbability),
              static_cast<double>(kUnitProbability) * 0x1p-39 + vocab);
}

std::vector<std::uint64_t> edge_uniforms(Random& random) {
  std::vector<std::uint64_t> out = {0, 1, ~std::uint64_t{0}, std::uint64_t{1} << 63};
  for (int i = 0; i < 12; ++i) out.push_back(random.bits());
  return out;
}

TEST_F(Pairs, SamplesAreTheInverseOfTheRunningMass) {
  Random random(23);
  for (const std::int32_t vocab : {1, 2, 37, 256, 1000, 4096, 9001}) {
    for (const SamplingRule& rule : rules(vocab)) {
      const Case test(vocab, rule, 24);
      std::vector<std::int32_t> rows;
      std::vector<std::uint64_t> uniforms;
      for (std::int32_t r = -2; r <= Case::kRows; ++r) {
        for (const std::uint64_t uniform : edge_uniforms(random)) {
          rows.push_back(r);
          uniforms.push_back(uniform);
        }
      }
      const Device<std::int32_t> device_rows(rows);
      const Device<std::uint64_t> device_uniforms(uniforms);
      const Device<std::int32_t> tokens(rows.size());
      backend().sample_rows({test.target.view(), test.target_laws.view(), device_rows.view(),
                             device_uniforms.view(), tokens.array()});
      const std::vector<std::int32_t> got = tokens.values();
      for (std::size_t i = 0; i < rows.size(); ++i) {
        std::int32_t expected = -1;
        if (rows[i] >= 0 && rows[i] < Case::kRows - 1) {
          expected = pick_of(masses_of(row(test.target_values, rows[i], vocab), vocab,
                                       test.target_law_values[static_cast<std::size_t>(rows[i])]),
                             uniforms[i]);
        }
        EXPECT_EQ(got[i], expected) << "row " << rows[i] << " of " << vocab;
      }
    }
  }
}

TEST_F(Pairs, ExcessSamplesAreTheInverseOfTheRunningExcess) {
  Random random(25);
  for (const std::int32_t vocab : {1, 2, 37, 1000, 4097}) {
    for (const SamplingRule& rule : rules(vocab)) {
      const Case test(vocab, rule, 26);
      const std::vector<RowPair> pairs = every_pair(vocab);
      std::vector<std::int32_t> pair;
      std::vector<std::uint64_t> uniforms;
      for (std::int32_t i = -1; i <= static_cast<std::int32_t>(pairs.size()); ++i) {
        for (int repeat = 0; repeat < 3; ++repeat) {
          pair.push_back(i);
          uniforms.push_back(repeat == 0 ? 0 : repeat == 1 ? ~std::uint64_t{0} : random.bits());
        }
      }
      const Device<RowPair> device_pairs(pairs);
      const Device<std::int32_t> device_pair(pair);
      const Device<std::uint64_t> device_uniforms(uniforms);
      const Device<std::int32_t> tokens(pair.size());
      backend().sample_excess({test.target.view(), test.target_laws.view(), test.draft.view(),
                               test.draft_laws.view(), device_pairs.view(), device_pair.view(),
                               device_uniforms.view(), tokens.array()});
      const std::vector<std::int32_t> got = tokens.values();
      for (std::size_t i = 0; i < pair.size(); ++i) {
        std::int32_t expected = -1;
        if (pair[i] >= 0 && pair[i] < static_cast<std::int32_t>(pairs.size()) &&
            test.valid(pairs[static_cast<std::size_t>(pair[i])])) {
          const RowPair& rows = pairs[static_cast<std::size_t>(pair[i])];
          const std::vector<std::uint64_t> p = test.p(rows.target_row);
          std::vector<std::uint64_t> excess = test.q(rows.draft_row);
          for (std::size_t v = 0; v < p.size(); ++v) {
            excess[v] = excess[v] > p[v] ? excess[v] - p[v] : 0;
          }
          expected = pick_of(excess, uniforms[i]);
        }
        EXPECT_EQ(got[i], expected) << "pair " << pair[i] << " of " << vocab;
      }
    }
  }
}

TEST_F(Pairs, NoExcessGivesNoToken) {
  const std::int32_t vocab = 50;
  const Case test(vocab, make_sampling_rule(1, 0, 1, TopPRule::water_filling, vocab), 27);
  const Device<RowPair> pairs({{1, 1, 0}});
  const Device<std::int32_t> pair({0});
  const Device<std::uint64_t> uniform({12345});
  const Device<std::int32_t> token(1, 99);
  backend().sample_excess({test.target.view(), test.target_laws.view(), test.target.view(),
                           test.target_laws.view(), pairs.view(), pair.view(), uniform.view(),
                           token.array()});
  EXPECT_EQ(token.values()[0], -1);
}

TEST_F(Pairs, NothingToDoIsNoWork) {
  backend().compare_pairs(ComparePairsArgs{});
  backend().sample_rows(SampleRowsArgs{});
  backend().sample_excess(SampleExcessArgs{});
  backend().synchronize();
}

}  // namespace
}  // namespace dspark::test
