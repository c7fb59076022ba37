// select_top_k, normalize_top_k_rows, store_draft_step_top1, sample_top_k_rows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/random.h"
#include "tests/kernels/kernel_test.h"
#include "tests/kernels/oracle.h"

namespace dspark::test {
namespace {

class SparseProposal : public KernelTest {};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingRule temperature(double t) {
  return make_sampling_rule(t, 0, 1, TopPRule::water_filling, kMaxTopK);
}

// --- selection ---

struct Selected {
  std::vector<float> values;
  std::vector<std::int32_t> ids;
  std::uint32_t status;
};

Selected select(const std::vector<float>& logits, std::int32_t vocab, std::int32_t k) {
  const DeviceRows rows(logits, vocab, 1);
  const std::int64_t count = rows.view().rows;
  const DeviceRows values(count, k, 2);
  const Device<std::int32_t> ids(static_cast<std::size_t>(count * k), -5);
  const DeviceScratch scratch(select_top_k_scratch(count, vocab, k));
  const Device<std::uint32_t> status(1);
  backend().select_top_k({rows.view(), values.view(), ids.data(), scratch.view(), status.data()});
  return {values.dense(), ids.values(), status.values()[0]};
}

void expect_sorted(const std::vector<float>& logits, std::int32_t vocab, std::int32_t k,
                   const std::string& what) {
  const Selected got = select(logits, vocab, k);
  EXPECT_EQ(got.status, kOpOk) << what;
  std::vector<float> values;
  std::vector<std::int32_t> ids;
  for (std::size_t r = 0; r < logits.size() / static_cast<std::size_t>(vocab); ++r) {
    const float* const from = row(logits, static_cast<std::int64_t>(r), vocab);
    std::vector<std::int32_t> ranked(static_cast<std::size_t>(vocab));
    std::iota(ranked.begin(), ranked.end(), 0);
    std::stable_sort(ranked.begin(), ranked.end(),
                     [&](std::int32_t a, std::int32_t b) { return from[a] > from[b]; });
    for (std::int32_t i = 0; i < k; ++i) {
      const std::int32_t id = ranked[static_cast<std::size_t>(i)];
      ids.push_back(id);
      values.push_back(from[id] == 0 ? 0.0f : from[id]);
    }
  }
  EXPECT_EQ(got.ids, ids) << what;
  expect_same_bits(got.values, values);
}

TEST_F(SparseProposal, TheBestTokensInOrder) {
  Random random(51);
  for (const std::int32_t vocab : {1, 2, 5, 130, 4095, 4096, 4097, 12300, 70001}) {
    for (const std::int32_t k : {1, 2, 3, 50, 128, 1000, kMaxTopK}) {
      if (k > vocab) continue;
      const std::string what = "V=" + std::to_string(vocab) + " K=" + std::to_string(k);
      const auto size = static_cast<std::size_t>(2 * vocab);
      std::vector<float> logits = random.normals(size, 3);
      expect_sorted(logits, vocab, k, what + " normal");
      for (float& x : logits) x = static_cast<float>(random.integer(-3, 3)) * 0.5f;
      expect_sorted(logits, vocab, k, what + " steps");
      for (std::size_t i = 0; i < size; ++i) logits[i] = random.integer(0, 1) == 0 ? 0.0f : -0.0f;
      expect_sorted(logits, vocab, k, what + " zeros");
      for (std::size_t i = 0; i < size; ++i) logits[i] = static_cast<float>(i) * 1e-3f;
      expect_sorted(logits, vocab, k, what + " ascending");
      for (std::size_t i = 0; i < size; ++i) logits[i] = -static_cast<float>(i) * 1e-3f;
      expect_sorted(logits, vocab, k, what + " descending");
      std::fill(logits.begin(), logits.end(), -kInfinity);
      for (std::size_t i = 0; i < 2; ++i) logits[i * static_cast<std::size_t>(vocab)] = -2;
      for (std::size_t i = 0; i < size; i += 7) logits[i] = random.normal();
      expect_sorted(logits, vocab, k, what + " masked");
    }
  }
}

TEST_F(SparseProposal, RowsWithoutALawAreNotSelectedFrom) {
  std::vector<float> logits;
  for (int r = 0; r < 4; ++r) {
    for (int v = 0; v < 5000; ++v) logits.push_back(static_cast<float>(v % 100));
  }
  logits[4500] = std::nanf("");
  logits[5000 + 3] = kInfinity;
  std::fill_n(logits.begin() + 10000, 5000, -kInfinity);
  const Selected got = select(logits, 5000, 3);
  EXPECT_EQ(got.status, kOpInvalidRow);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_TRUE(std::isnan(got.values[i]));
    EXPECT_EQ(got.ids[i], -1);
  }
  EXPECT_EQ(std::vector<std::int32_t>(got.ids.begin() + 9, got.ids.end()),
            (std::vector<std::int32_t>{99, 199, 299}));
}

// --- laws ---

/// The probabilities of a row of values by their definition; empty for an invalid row.
std::vector<float> law_of_values(const std::vector<float>& values,
                                 const std::vector<std::int32_t>& ids, const SamplingRule& rule) {
  float largest = -kInfinity;
  for (const float x : values) {
    if (std::isnan(x) || x == kInfinity) return {};
    largest = std::max(largest, x);
  }
  if (largest == -kInfinity) return {};
  std::vector<std::uint64_t> masses;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t mass = unfiltered_mass(values[i], largest, rule.inverse_temperature);
    if (rule.greedy) {
      mass = 1;
      for (std::size_t j = 0; j < values.size(); ++j) {
        if (values[j] > values[i] || (values[j] == values[i] && ids[j] < ids[i])) mass = 0;
      }
    }
    masses.push_back(mass);
  }
  const auto total = std::accumulate(masses.begin(), masses.end(), std::uint64_t{0});
  std::vector<float> out;
  for (const std::uint64_t mass : masses) {
    out.push_back(static_cast<float>(static_cast<double>(mass) / static_cast<double>(total)));
  }
  return out;
}

std::vector<std::int32_t> shuffled_ids(Random& random, std::int32_t k) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(k));
  std::iota(ids.begin(), ids.end(), 0);
  for (std::int32_t i = k - 1; i > 0; --i) {
    std::swap(ids[static_cast<std::size_t>(i)],
              ids[static_cast<std::size_t>(random.integer(0, i))]);
  }
  return ids;
}

TEST_F(SparseProposal, NormalizedRowsOfTheReference) {
  const DeviceRows values({2, 1, 3, 1}, 2);
  const DeviceRows probabilities(2, 2);
  backend().normalize_top_k_rows(
      {values.view(), nullptr, temperature(1), probabilities.view(), nullptr});
  const std::vector<float> got = probabilities.dense();
  const double a = 1 / (1 + std::exp(-1.0));
  const double b = 1 / (1 + std::exp(-2.0));
  const std::vector<double> expected = {a, 1 - a, b, 1 - b};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i], expected[i], 1e-5);
}

TEST_F(SparseProposal, NormalizedRowsFollowTheirDefinition) {
  Random random(52);
  for (const std::int32_t k : {1, 2, 31, 32, 33, 128, kMaxTopK}) {
    for (const double t : {1.0, 0.3, 4.0, 0.0}) {
      constexpr std::int32_t kRows = 9;
      std::vector<float> values = random.normals(static_cast<std::size_t>(kRows * k), 3);
      for (float& x : values) {
        if (random.integer(0, 9) == 0) x = -kInfinity;
        if (random.integer(0, 2) == 0) x = std::floor(x);  // ties
      }
      for (std::int32_t r = 0; r < kRows; ++r) values[static_cast<std::size_t>(r * k)] = 5;
      std::vector<std::int32_t> ids;
      std::vector<float> expected;
      for (std::int32_t r = 0; r < kRows; ++r) {
        const std::vector<std::int32_t> own = shuffled_ids(random, k);
        ids.insert(ids.end(), own.begin(), own.end());
        const float* const from = row(values, r, k);
        const std::vector<float> law =
            law_of_values(std::vector<float>(from, from + k), own, temperature(t));
        expected.insert(expected.end(), law.begin(), law.end());
      }
      const DeviceRows device_values(values, k, 1);
      const Device<std::int32_t> device_ids(ids);
      const DeviceRows out(kRows, k, 3);
      const Device<std::uint32_t> status(1);
      backend().normalize_top_k_rows(
          {device_values.view(), device_ids.data(), temperature(t), out.view(), status.data()});
      expect_same_bits(out.dense(), expected);
      EXPECT_EQ(status.values()[0], kOpOk);
      // In place.
      backend().normalize_top_k_rows(
          {device_values.view(), device_ids.data(), temperature(t), device_values.view(), nullptr});
      expect_same_bits(device_values.dense(), expected);
    }
  }
}

TEST_F(SparseProposal, GreedyTiesGoToTheLowestIdOrWithoutIdsToTheFirstSlot) {
  const DeviceRows values({1, 4, 4, 4, -0.0f, 0.0f, -1, -1}, 4);
  const Device<std::int32_t> ids({7, 9, 3, 5, 8, 2, 0, 1});
  const DeviceRows out(2, 4);
  backend().normalize_top_k_rows({values.view(), ids.data(), temperature(0), out.view(), nullptr});
  EXPECT_EQ(out.dense(), (std::vector<float>{0, 0, 1, 0, 0, 1, 0, 0}));
  backend().normalize_top_k_rows({values.view(), nullptr, temperature(0), out.view(), nullptr});
  EXPECT_EQ(out.dense(), (std::vector<float>{0, 1, 0, 0, 1, 0, 0, 0}));
}

TEST_F(SparseProposal, InvalidRowsHaveNoProbabilities) {
  for (const double t : {1.0, 0.0}) {
    const DeviceRows values({1, std::nanf(""), 1, kInfinity, -kInfinity, -kInfinity, 1, 1}, 2);
    const DeviceRows out(4, 2);
    const Device<std::uint32_t> status(1);
    backend().normalize_top_k_rows(
        {values.view(), nullptr, temperature(t), out.view(), status.data()});
    std::vector<float> expected = {0, 0, 0, 0, 0, 0, 0.5f, 0.5f};
    if (t == 0) expected = {0, 0, 0, 0, 0, 0, 1, 0};
    EXPECT_EQ(out.dense(), expected);
    EXPECT_EQ(status.values()[0], kOpInvalidRow);
  }
}

// --- the best token alone ---

TEST_F(SparseProposal, TheBestTokenIsStoredInItsStep) {
  const Device<std::int32_t> ids({4, 1, 9, 10, 2, 0, -1, 3, 5});
  const Device<std::int32_t> tokens(9, -5);
  const Device<std::uint32_t> status(1);
  StoreDraftStepTop1Args args;
  args.batch = 3;
  args.block_size = 3;
  args.step = 1;
  args.vocab = 10;
  args.ids = ids.data();
  args.ids_stride = 3;
  args.tokens = tokens.data();
  args.status = status.data();
  backend().store_draft_step_top1(args);
  EXPECT_EQ(tokens.values(), (std::vector<std::int32_t>{-5, 4, -5, -5, -1, -5, -5, -1, -5}));
  EXPECT_EQ(status.values()[0], kOpBadToken);
}

// --- sampling ---

struct Sampled {
  std::vector<float> probabilities;
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> tokens;
  std::vector<float> distance;
  std::uint32_t status;
};

/// One row per uniform, in step 1 of blocks of 2.
Sampled sample(const std::vector<float>& values, const std::vector<std::int32_t>& ids,
               std::int32_t vocab, const std::vector<float>& uniforms, const SamplingRule& rule) {
  const std::size_t batch = uniforms.size();
  const auto k = static_cast<std::int32_t>(ids.size() / batch);
  const DeviceRows device_values(values, k, 1);
  const Device<std::int32_t> device_ids(ids);
  std::vector<float> padded;
  for (const float u : uniforms) padded.insert(padded.end(), {0.5f, u});
  const Device<float> device_uniforms(padded);
  const DeviceRows probabilities(static_cast<std::int64_t>(batch) * 2, k, 2);
  const Device<std::int32_t> stored(2 * ids.size(), -5);
  const Device<std::int32_t> tokens(2 * batch, -5);
  const Device<float> distance(2 * batch, -5.0f);
  const Device<std::uint32_t> status(1);
  SampleTopKRowsArgs args;
  args.batch = static_cast<std::int32_t>(batch);
  args.block_size = 2;
  args.step = 1;
  args.vocab = vocab;
  args.values = device_values.view();
  args.ids = device_ids.data();
  args.uniforms = device_uniforms.data();
  args.rule = rule;
  args.probabilities = probabilities.view();
  args.stored_ids = stored.data();
  args.tokens = tokens.data();
  args.distance = distance.data();
  args.status = status.data();
  backend().sample_top_k_rows(args);
  Sampled out;
  out.status = status.values()[0];
  const std::vector<float> all = probabilities.dense();
  const std::vector<std::int32_t> all_ids = stored.values();
  const auto width = static_cast<std::ptrdiff_t>(k);
  for (std::ptrdiff_t b = 0; b < static_cast<std::ptrdiff_t>(batch); ++b) {
    const auto from = (2 * b + 1) * width;
    out.probabilities.insert(out.probabilities.end(), all.begin() + from,
                             all.begin() + from + width);
    out.ids.insert(out.ids.end(), all_ids.begin() + from, all_ids.begin() + from + width);
    out.tokens.push_back(tokens.values()[static_cast<std::size_t>(2 * b + 1)]);
    out.distance.push_back(distance.values()[static_cast<std::size_t>(2 * b + 1)]);
    // The other step is left alone.
    EXPECT_EQ(tokens.values()[static_cast<std::size_t>(2 * b)], -5);
    EXPECT_EQ(all_ids[static_cast<std::size_t>(2 * b * width)], -5);
    EXPECT_EQ(std::memcmp(&all[static_cast<std::size_t>(2 * b * width)], &kCanary, 4), 0);
  }
  return out;
}

TEST_F(SparseProposal, SamplesOfTheReference) {
  const Sampled got = sample({2, 1, 3, 1}, {1, 2, 2, 3}, 4, {0, 0.99f}, temperature(1));
  EXPECT_EQ(got.tokens, (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(got.ids, (std::vector<std::int32_t>{1, 2, 2, 3}));
  const double a = 1 / (1 + std::exp(-1.0));
  const double b = 1 / (1 + std::exp(-2.0));
  const std::vector<double> expected = {a, 1 - a, b, 1 - b};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(got.probabilities[i], expected[i], 1e-5);
  EXPECT_EQ(got.status, kOpOk);
}

TEST_F(SparseProposal, SamplesAreTheInverseCdfInSlotOrder) {
  Random random(53);
  for (const std::int32_t k : {1, 2, 32, 33, 100, kMaxTopK}) {
    for (const double t : {1.0, 3.0, 0.0}) {
      std::vector<float> uniforms = {0, 0.99999994f, 1, -1, std::nanf("")};
      for (int i = 0; i < 20; ++i) uniforms.push_back(random.uniform());
      std::vector<float> values;
      std::vector<std::int32_t> ids;
      for (std::size_t b = 0; b < uniforms.size(); ++b) {
        std::vector<float> own = random.normals(static_cast<std::size_t>(k), 2);
        std::sort(own.begin(), own.end(), std::greater<>());
        values.insert(values.end(), own.begin(), own.end());
        const std::vector<std::int32_t> own_ids = shuffled_ids(random, k);
        ids.insert(ids.end(), own_ids.begin(), own_ids.end());
      }
      const SamplingRule rule = temperature(t);
      const Sampled got = sample(values, ids, k, uniforms, rule);
      EXPECT_EQ(got.status, kOpOk);
      EXPECT_EQ(got.ids, ids);
      for (std::size_t b = 0; b < uniforms.size(); ++b) {
        const auto index = static_cast<std::int64_t>(b);
        const std::vector<float> own(row(values, index, k), row(values, index, k) + k);
        const std::vector<std::int32_t> own_ids(ids.begin() + index * k,
                                                ids.begin() + (index + 1) * k);
        const std::vector<float> p = law_of_values(own, own_ids, rule);
        expect_same_bits(std::vector<float>(row(got.probabilities, index, k),
                                            row(got.probabilities, index, k) + k),
                         p);
        const std::uint64_t uniform = uniform_from_float(uniforms[b]);
        const std::uint64_t target = uniform >> 24;
        std::uint64_t running = 0;
        std::uint64_t lower = 0;
        std::int32_t chosen = -1;
        for (std::size_t i = 0; i < p.size() && running <= target; ++i) {
          const auto weight = static_cast<std::uint64_t>(std::llrint(std::ldexp(p[i], 40)));
          if (weight == 0) continue;
          chosen = own_ids[i];
          lower = running;
          running += weight;
        }
        EXPECT_EQ(got.tokens[b], chosen) << "K=" << k << " u=" << uniforms[b];
        const double u = std::ldexp(static_cast<double>(uniform), -64);
        const double below = u - std::ldexp(static_cast<double>(lower), -40);
        const double above = std::ldexp(static_cast<double>(running), -40) - u;
        const float margin = k > 1 ? own[0] - own[1] : kInfinity;
        EXPECT_EQ(got.distance[b],
                  rule.greedy ? margin : static_cast<float>(std::min(below, above)));
      }
    }
  }
}

TEST_F(SparseProposal, IdsOutsideTheVocabularyHaveNoProbability) {
  const Sampled got = sample({3, 2, 2, 9, 1, 1}, {5, 1, 0, -1, 4, 2}, 5, {0, 0}, temperature(1));
  EXPECT_EQ(got.status, kOpBadToken);
  EXPECT_EQ(got.probabilities, (std::vector<float>{0, 0.5f, 0.5f, 0, 0.5f, 0.5f}));
  EXPECT_EQ(got.ids, (std::vector<std::int32_t>{-1, 1, 0, -1, 4, 2}));
  EXPECT_EQ(got.tokens, (std::vector<std::int32_t>{1, 4}));
  // A NaN beside an id that is not looked at does not count either.
  const Sampled nan = sample({std::nanf(""), 2}, {5, 1}, 5, {0.5f}, temperature(0));
  EXPECT_EQ(nan.status, kOpBadToken);
  EXPECT_EQ(nan.tokens, std::vector<std::int32_t>{1});
  // Greedy ties go to the lowest id.
  EXPECT_EQ(sample({2, 2}, {3, 1}, 5, {0.0f}, temperature(0)).tokens, std::vector<std::int32_t>{1});
}

TEST_F(SparseProposal, AnInvalidRowDrawsNoToken) {
  const Sampled got =
      sample({1, std::nanf(""), kInfinity, 1, -kInfinity, -kInfinity, 1, 0, 1, 0},
             {0, 1, 0, 1, 0, 1, 7, 8, 1, 0}, 2, {0.5f, 0.5f, 0.5f, 0.5f, 0.5f}, temperature(1));
  EXPECT_EQ(got.status, kOpInvalidRow | kOpBadToken);
  EXPECT_EQ(got.tokens, (std::vector<std::int32_t>{-1, -1, -1, -1, 1}));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(got.probabilities[i], 0.0f);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(got.distance[i], 0.0f);
}

TEST_F(SparseProposal, SelectedRowsBecomeASparseProposal) {
  Random random(54);
  const std::int32_t vocab = 5000;
  const std::int32_t k = 40;
  const std::vector<float> logits = random.normals(3 * vocab, 3);
  const Selected best = select(logits, vocab, k);
  const Sampled got = sample(best.values, best.ids, vocab, {0.1f, 0.6f, 0.95f}, temperature(1));
  EXPECT_EQ(got.status, kOpOk);
  for (std::int64_t b = 0; b < 3; ++b) {
    // The same law as the dense row's top-k, in another order.
    const RowLaw law = law_of(row(logits, b, vocab), vocab,
                              make_sampling_rule(1, k, 1, TopPRule::water_filling, vocab));
    for (std::int32_t i = 0; i < k; ++i) {
      const auto at = static_cast<std::size_t>(b * k + i);
      const std::int32_t id = best.ids[at];
      const std::uint64_t mass = law_mass(law, row(logits, b, vocab)[id], id);
      EXPECT_EQ(got.probabilities[at],
                static_cast<float>(static_cast<double>(mass) / static_cast<double>(law.total)));
    }
    EXPECT_EQ(std::count(best.ids.begin() + b * k, best.ids.begin() + (b + 1) * k,
                         got.tokens[static_cast<std::size_t>(b)]),
              1);
  }
}

TEST_F(SparseProposal, NoRowsAreNoWork) {
  backend().select_top_k({});
  backend().normalize_top_k_rows({});
  StoreDraftStepTop1Args top1;
  top1.block_size = 1;
  backend().store_draft_step_top1(top1);
  SampleTopKRowsArgs sampled;
  sampled.block_size = 1;
  backend().sample_top_k_rows(sampled);
  backend().synchronize();
}

}  // namespace
}  // namespace dspark::test
