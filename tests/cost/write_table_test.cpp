#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cost/cost_table.h"
#include "support/error.h"
#include "tests/cost/examples.h"

namespace dspark::test {
namespace {

const std::vector<std::string> kWritable = {"sglang_1d", "sglang_2d", "trtllm", "vllm_ascend",
                                            "h200_qwen3_8b_shape"};

void expect_same(const CostTable& a, const CostTable& b) {
  EXPECT_EQ(a.format, b.format);
  EXPECT_EQ(a.constant, b.constant);
  EXPECT_EQ(a.requests, b.requests);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.rates, b.rates);
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.draft, b.draft);
  EXPECT_EQ(a.draft_tokens, b.draft_tokens);
  EXPECT_EQ(a.overhead, b.overhead);
  EXPECT_EQ(a.max_batch_tokens, b.max_batch_tokens);
  EXPECT_EQ(a.min_predicted_gain, b.min_predicted_gain);
  EXPECT_EQ(a.carried, b.carried);
}

TEST(WriteCostTable, ReadsBackWithoutLossAndWritesTheSameBytesAgain) {
  for (const std::string& name : kWritable) {
    SCOPED_TRACE(name);
    const CostTable table = example(name);
    const std::string text = write_cost_table(table);
    const CostTable again = parsed(text);
    expect_same(table, again);
    EXPECT_EQ(write_cost_table(again), text);
  }
}

TEST(WriteCostTable, KeepsNumbersThatAreHardToWrite) {
  CostTable table = example("trtllm");
  table.tokens = {{1, 3, 999'999'999}, {0.1 + 0.2, 1.0 / 3, 123456.789e-12}};
  expect_same(parsed(write_cost_table(table)), table);
}

TEST(WriteCostTable, KeepsWhatHasNoPartInTheCost) {
  EXPECT_THAT(write_cost_table(example("vllm_ascend")),
              testing::AllOf(testing::HasSubstr("\"tensor_parallel_size\":1"),
                             testing::HasSubstr("confidence_temperatures")));
  EXPECT_THAT(write_cost_table(example("trtllm")), testing::HasSubstr("\"lookup\":\"interp\""));
  EXPECT_THAT(write_cost_table(example("h200_qwen3_8b_shape")),
              testing::HasSubstr("one NVIDIA H200"));
}

TEST(WriteCostTable, HasTheKeysOfTheEngine) {
  const auto keys = [](const std::string& name) {
    std::vector<std::string> names;
    const auto document = nlohmann::json::parse(write_cost_table(example(name)));
    for (const auto& entry : document.items()) names.push_back(entry.key());
    return names;
  };
  EXPECT_THAT(keys("sglang_1d"), testing::ElementsAre("max_batch_tokens", "sample_batch_tokens",
                                                      "sample_steps_per_sec"));
  EXPECT_THAT(keys("sglang_2d"), testing::ElementsAre("alpha_seconds", "bias_seconds", "bs_probes",
                                                      "m_probes", "theta_seconds"));
}

TEST(WriteCostTable, FilesThatBelongToAMachineAreWrittenBackButMadeFromNothing) {
  for (const char* name : {"mlx", "trtllm_exact"}) {
    SCOPED_TRACE(name);
    const CostTable table = example(name);
    const std::string text = write_cost_table(table);
    const CostTable again = parsed(text);
    expect_same(table, again);
    EXPECT_EQ(table.drain_guard, again.drain_guard);
    EXPECT_EQ(table.max_draft_len, again.max_draft_len);
    EXPECT_EQ(write_cost_table(again), text);
    CostTable made = table;
    made.document.clear();
    EXPECT_THROW((void)write_cost_table(made), Error);
  }
}

}  // namespace
}  // namespace dspark::test
