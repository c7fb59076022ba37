#include "replay/pricing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>

namespace dspark {
namespace {

/// A staircase: 1 per started 4 tokens, measured at every total.
CostModel staircase(std::int64_t most_tokens) {
  std::string json = R"({"token_counts": [)";
  std::string times;
  for (std::int64_t tokens = 1; tokens <= most_tokens; ++tokens) {
    json += (tokens > 1 ? "," : "") + std::to_string(tokens);
    times += (tokens > 1 ? "," : "") + std::to_string((tokens + 3) / 4);
  }
  return CostModel(parse_cost_table(json + R"(], "step_time_ms": [)" + times + "]}", "stairs"));
}

/// Calls visit(lengths, probability) for every combination of R independent lengths.
void for_each_combination(
    const std::vector<double>& share, std::int32_t requests,
    const std::function<void(const std::vector<std::int32_t>&, double)>& visit) {
  std::vector<std::int32_t> lengths;
  const std::function<void(double)> choose = [&](double probability) {
    if (static_cast<std::int32_t>(lengths.size()) == requests) {
      visit(lengths, probability);
      return;
    }
    for (std::size_t l = 0; l < share.size(); ++l) {
      lengths.push_back(static_cast<std::int32_t>(l));
      choose(probability * share[l]);
      lengths.pop_back();
    }
  };
  choose(1);
}

class EveryWidth : public testing::TestWithParam<Width> {};

TEST_P(EveryWidth, IsTheMeanOverAllCombinationsOfLengths) {
  const std::vector<double> share = {0.4, 0.1, 0.3, 0.2};
  for (const std::int32_t requests : {1, 2, 4}) {
    CostModel model = staircase(32);
    model.set_overhead(0.25);
    model.set_draft(0.125);
    model.set_buckets({2, 3, 6, 9, 16});
    const StepPrices prices(model, GetParam(), requests, 3);
    double cost = 0, padding = 0, drafts = 0;
    for_each_combination(share, requests, [&](const auto& lengths, double probability) {
      const std::int32_t total = std::accumulate(lengths.begin(), lengths.end(), 0);
      const std::int32_t longest = *std::max_element(lengths.begin(), lengths.end());
      const std::int32_t submitted = GetParam() == Width::ragged    ? total
                                     : GetParam() == Width::uniform ? requests * longest
                                                                    : requests * 3;
      std::int64_t tokens = requests + submitted;
      for (const std::int64_t bucket : {2, 3, 6, 9, 16}) {
        if (tokens <= bucket) {
          tokens = bucket;
          break;
        }
      }
      cost += probability * (0.25 + 0.125 + static_cast<double>((tokens + 3) / 4));
      padding += probability * static_cast<double>(tokens - requests - total);
      drafts += probability * total;
    });
    const ExpectedStep step = expected_step(prices, share);
    EXPECT_NEAR(step.cost, cost, 1e-12) << requests;
    EXPECT_NEAR(step.padding, padding, 1e-12) << requests;
    EXPECT_NEAR(step.drafts, drafts, 1e-12) << requests;
    double by_length = 0;
    for (std::size_t l = 0; l < share.size(); ++l) by_length += share[l] * step.by_length[l];
    EXPECT_NEAR(by_length, cost / requests, 1e-12);
  }
}

TEST_P(EveryWidth, SaysToFirstOrderWhatOtherSharesWouldCost) {
  const std::vector<double> share = {0.4, 0.1, 0.3, 0.2};
  const std::vector<double> other = {0.399, 0.1005, 0.2995, 0.201};
  const StepPrices prices(staircase(32), GetParam(), 4, 3);
  const ExpectedStep before = expected_step(prices, share);
  const double after = expected_step(prices, other).cost / 4;
  double linear = 0;
  for (std::size_t l = 0; l < other.size(); ++l) linear += other[l] * before.by_length[l];
  EXPECT_NEAR(linear, after, 1e-5);
  if (GetParam() != Width::cap_accept) {
    EXPECT_GT(std::abs(after - before.cost / 4), 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, EveryWidth,
                         testing::Values(Width::ragged, Width::uniform, Width::cap_accept),
                         [](const auto& param) { return std::string(width_name(param.param)); });

TEST(ExpectedStep, OfTheLinearModelIsTheCostOfTheMean) {
  const LinearCost linear{0.5, 1, 0.45, 0.02};
  const StepPrices prices(CostModel(linear), Width::ragged, 64, 7);
  const std::vector<double> share = {0.2, 0.3, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05};
  double mean = 0;
  for (std::size_t l = 0; l < share.size(); ++l) mean += static_cast<double>(l) * share[l];
  const ExpectedStep step = expected_step(prices, share);
  EXPECT_NEAR(step.cost, 0.5 + 1 + 0.45 * 64 * (1 + mean) + 0.02 * 64 * mean, 1e-9);
  EXPECT_EQ(step.padding, 0);
}

TEST(ExpectedStep, OfManyRequestsKeepsAllOfTheMass) {
  const StepPrices prices(CostModel(LinearCost{0, 0, 1, 0}), Width::ragged, kMaxConcurrency, 7);
  const std::vector<double> share = {0.5, 0, 0, 0.25, 0, 0, 0, 0.25};
  EXPECT_NEAR(expected_step(prices, share).cost / kMaxConcurrency, 1 + 2.5, 1e-9);
}

TEST(ExpectedStep, ThatCannotBePricedHasNoCost) {
  CostTable table = parse_cost_table(R"({"token_counts": [1], "step_time_ms": [1]})", "one");
  table.format = CostFormat::trtllm_exact;
  table.max_draft_len = 2;
  table.rows = {{1, {{0, 2}, {3.0, 2.0}}}};  // native, and two tokens
  const StepPrices prices(CostModel(table), Width::ragged, 1, 2);
  EXPECT_DOUBLE_EQ(expected_step(prices, std::vector<double>{0, 0.5, 0.5}).cost, 2.5);
  EXPECT_TRUE(std::isnan(expected_step(prices, std::vector<double>{0.5, 0.5, 0}).cost));
}

}  // namespace
}  // namespace dspark
