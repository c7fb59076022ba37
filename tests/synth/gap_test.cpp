#include "synth/gap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "synth/keyed.h"

namespace dspark::synth {
namespace {

constexpr float kWall = 128;

/// A row in which B stands `kWall` below.
struct TestRow {
  std::vector<float> logits;
  std::vector<std::uint8_t> half_b;
};

TestRow make_row(std::uint64_t seed, std::int64_t vocab, double std) {
  TestRow row;
  for (std::int64_t v = 0; v < vocab; ++v) {
    double normal = -6;
    for (int i = 0; i < 12; ++i) normal += as_double(draw(seed, Draw::context, v, i));
    row.half_b.push_back(static_cast<std::uint8_t>(v % 2));
    row.logits.push_back(static_cast<float>(std * normal) - (v % 2 ? kWall : 0));
  }
  return row;
}

GapSetting make_setting(double temperature, std::int64_t top_k, double top_p, std::int64_t vocab) {
  GapSetting setting;
  setting.rule = make_sampling_rule(temperature, top_k, top_p, TopPRule::water_filling,
                                    static_cast<std::int32_t>(vocab));
  setting.temperature = setting.rule.greedy ? 1 : temperature;
  setting.top_p = setting.rule.top_p == 0 ? 1.0 : double(setting.rule.top_p) * 0x1p-32;
  setting.type = StoredType::f32;
  setting.wall = kWall;
  setting.margin = setting.rule.greedy ? 0.25f : 0;
  return setting;
}

/// The law of `logits`, token by token, by sorting.
std::vector<double> brute_law(const std::vector<double>& logits, const GapSetting& setting) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (setting.rule.top_k > 0) order.resize(static_cast<std::size_t>(setting.rule.top_k));
  std::vector<double> law(logits.size(), 0.0);
  double total = 0;
  for (const std::size_t v : order) {
    law[v] = std::exp((logits[v] - logits[order[0]]) / setting.temperature);
    total += law[v];
  }
  if (setting.rule.top_p > 0) {
    double left = total * setting.top_p;
    total = left;
    for (const std::size_t v : order) {
      law[v] = std::clamp(left, 0.0, law[v]);
      left -= law[v];
    }
  }
  for (double& p : law) p /= total;
  return law;
}

double brute_overlap(const TestRow& row, const GapSetting& setting, double gap) {
  std::vector<double> target;
  std::vector<double> draft;
  for (std::size_t v = 0; v < row.logits.size(); ++v) {
    target.push_back(double(row.logits[v]));
    draft.push_back(double(row.logits[v]) + (row.half_b[v] ? double(kWall) - gap : 0));
  }
  const std::vector<double> p = brute_law(target, setting);
  const std::vector<double> q = brute_law(draft, setting);
  double overlap = 0;
  for (std::size_t v = 0; v < p.size(); ++v) overlap += std::min(p[v], q[v]);
  return overlap;
}

struct Case {
  double temperature;
  std::int64_t top_k;
  double top_p;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << "temperature " << c.temperature << ", top-k " << c.top_k << ", top-p " << c.top_p;
}
class GapOfRow : public testing::TestWithParam<Case> {};

TEST_P(GapOfRow, OverlapIsThatOfTheTwoLaws) {
  const auto [temperature, top_k, top_p] = GetParam();
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const TestRow row = make_row(seed, 101, 2.5);
    const GapSetting setting = make_setting(temperature, top_k, top_p, 101);
    RowHalves halves(setting);
    halves.load(row.logits, row.half_b);
    for (const double gap : {-128.0, -9.3, -2.1, -0.4, 0.0, 0.7, 1.9, 5.2, 128.0}) {
      EXPECT_NEAR(halves.overlap(gap), brute_overlap(row, setting, gap), 2e-5)
          << "seed " << seed << " gap " << gap;
    }
  }
}

TEST_P(GapOfRow, GapsMeetTheAcceptanceInTheMean) {
  const auto [temperature, top_k, top_p] = GetParam();
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const TestRow row = make_row(seed, 101, 2.5);
    const GapSetting setting = make_setting(temperature, top_k, top_p, 101);
    RowHalves halves(setting);
    halves.load(row.logits, row.half_b);
    for (const double acceptance : {0.0, 0.05, 0.37, 0.5, 0.81, 0.99, 1.0}) {
      double mean = 0;
      constexpr int kChoices = 2000;
      for (int i = 0; i < kChoices; ++i) {
        mean += halves.overlap(halves.gap(acceptance, (i + 0.5) / kChoices).sum()) / kChoices;
      }
      EXPECT_NEAR(mean, acceptance, 1e-3) << "seed " << seed;
      if (top_k == 0 && top_p == 1) {
        EXPECT_NEAR(halves.overlap(halves.gap(acceptance, 0.5).sum()), acceptance, 1e-6);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, GapOfRow,
                         testing::Values(Case{1, 0, 1}, Case{0.7, 0, 1}, Case{0.05, 0, 1},
                                         Case{3, 0, 1}, Case{1, 1, 1}, Case{1, 5, 1},
                                         Case{0.7, 20, 1}, Case{1, 80, 1}, Case{1, 0, 0.9},
                                         Case{0.7, 0, 0.3}, Case{1, 0, 0.001}, Case{1, 20, 0.95},
                                         Case{1, 80, 0.5}));

TEST(Gap, GreedyGapsLeadByTheMarginEitherWay) {
  const TestRow row = make_row(7, 101, 2.5);
  RowHalves halves(make_setting(0, 0, 1, 101));
  halves.load(row.logits, row.half_b);
  float best_a = -1000;
  float best_b = -1000;
  for (std::size_t v = 0; v < row.logits.size(); ++v) {
    float& best = row.half_b[v] ? best_b : best_a;
    best = std::max(best, row.logits[v] + (row.half_b[v] ? kWall : 0));
  }
  EXPECT_NEAR(double(best_a) - (double(best_b) - halves.gap(0.3, 0.29).sum()), 0.25, 1e-5);
  EXPECT_NEAR(double(best_a) - (double(best_b) - halves.gap(0.3, 0.31).sum()), -0.25, 1e-5);
}

TEST(Gap, GreedyRowsAreClearOnlyIfBothHalvesHaveALeader) {
  const std::vector<std::uint8_t> half_b = {0, 1, 0, 1};
  RowHalves halves(make_setting(0, 0, 1, 4));
  halves.load(std::vector<float>{3, 2 - kWall, 1, 0 - kWall}, half_b);
  EXPECT_TRUE(halves.clear());
  halves.load(std::vector<float>{3, 2 - kWall, 2.9f, 0 - kWall}, half_b);
  EXPECT_FALSE(halves.clear());
  halves.load(std::vector<float>{3, 2 - kWall, 1, 1.9f - kWall}, half_b);
  EXPECT_FALSE(halves.clear());
}

TEST(Gap, TwoPartsHoldWhatOneStoredNumberLoses) {
  for (const double gap : {3.14159265, -17.77, 0.0123, 128.0}) {
    EXPECT_NEAR(split_gap(StoredType::f16, gap).sum(), gap, std::abs(gap) * 0x1p-21 + 0x1p-25);
    EXPECT_NEAR(split_gap(StoredType::bf16, gap).sum(), gap, std::abs(gap) * 0x1p-15);
    EXPECT_NEAR(split_gap(StoredType::f32, gap).sum(), gap, std::abs(gap) * 0x1p-40);
  }
}

}  // namespace
}  // namespace dspark::synth
