// Which cases there are, and the bytes and operations that they are held against.
#include "bench/cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "support/error.h"

namespace dspark {
namespace {

using Names = std::vector<std::string>;

BenchCase one_case(const std::string& family, std::int32_t batch) {
  BenchAxes axes;
  axes.batch = {batch};
  axes.products = {Products::exact};
  const Names only = {family};
  return make_cases(only, axes).front();
}

double megabytes(const std::string& family, std::int32_t batch) {
  const BenchCase one = one_case(family, batch);
  return 1e-6 * one.family->bytes(one);
}

TEST(BenchCases, FamiliesHaveNamesOfTheirOwnAndSayWhatTheyAre) {
  std::set<std::string> names;
  for (const Family& family : bench_families()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_FALSE(std::string(family.what).empty());
    EXPECT_FALSE(family.rules.empty()) << family.name;
    EXPECT_NE(family.prepare, nullptr);
    EXPECT_EQ(family.flops != nullptr, family.has_products()) << family.name;
  }
  EXPECT_GT(names.size(), 20u);
}

TEST(BenchCases, AreEachThereOnce) {
  std::set<std::string> texts;
  const std::vector<BenchCase> cases = make_cases({}, {});
  for (const BenchCase& one : cases) {
    EXPECT_TRUE(texts.insert(case_text(one)).second) << case_text(one);
    EXPECT_GT(one.entries(), 0);
    EXPECT_GT(one.family->bytes(one), 0);
  }
}

TEST(BenchCases, ListsMultiplyWhereAFamilyDependsOnThem) {
  BenchAxes axes;
  axes.batch = {1, 2, 3};
  axes.vocab = {100, 200};
  axes.rank = {1, 2, 3, 4, 5};
  axes.top_k = {10, 20};
  const auto count = [&](const char* name) {
    const Names only = {name};
    return make_cases(only, axes).size();
  };
  EXPECT_EQ(count("uniforms"), 3u);
  EXPECT_EQ(count("greedy_accept"), 3u * 2);
  EXPECT_EQ(count("markov_logits"), 3u * 2 * 5 * 2);   // exact and tensor
  EXPECT_EQ(count("row_laws"), 3u * 2 * (1 + 2 + 1));  // top-k has two values
  EXPECT_EQ(count("quantize_fp8"), 2u * 5);
  EXPECT_EQ(count("select_top_k"), 3u * 2 * 2);
  EXPECT_EQ(count("reduce"), 2u * 5 * 2);  // anchors, not a batch
  const Names both = {"uniforms", "reduce"};
  EXPECT_EQ(make_cases(both, axes).size(), 3u + 20);
}

TEST(BenchCases, SizesThatDoNotMatterAreNotThere) {
  const BenchCase uniforms = one_case("uniforms", 4);
  EXPECT_EQ(uniforms.vocab, 0);
  EXPECT_EQ(case_text(uniforms), "uniforms (batch 4, block size 7)");
  EXPECT_EQ(case_text(one_case("markov_logits", 2)),
            "markov_logits (exact, batch 2, vocab 151936, rank 256, block size 7)");
  EXPECT_EQ(case_text(one_case("quantize_fp8", 2)), "quantize_fp8 (vocab 151936, rank 256)");
  EXPECT_EQ(case_text(one_case("sample_top_k", 2)),
            "sample_top_k (batch 2, vocab 151936, top-k 50)");
  EXPECT_STREQ(products_text(uniforms), "-");
  EXPECT_EQ(rule_text(uniforms), "-");
}

TEST(BenchCases, RulesAreWhatTheySay) {
  BenchAxes axes;
  axes.batch = {1};
  const Names only = {"probabilities"};
  std::map<std::string, SamplingRule> rules;
  for (const BenchCase& one : make_cases(only, axes)) rules[rule_text(one)] = one.sampling_rule();
  ASSERT_EQ(rules.size(), 3u);
  EXPECT_EQ(rules.at("plain").top_k, 0);
  EXPECT_EQ(rules.at("plain").top_p, 0u);
  EXPECT_EQ(rules.at("top-p 0.95").top_k, 0);
  EXPECT_GT(rules.at("top-p 0.95").top_p, 0u);
  EXPECT_EQ(rules.at("top-k 50 top-p 0.95").top_k, 50);
  EXPECT_GT(rules.at("top-k 50 top-p 0.95").top_p, 0u);
  EXPECT_TRUE(one_case("greedy_round", 1).sampling_rule().greedy);
}

TEST(BenchCases, ANameThatIsNoneIsAUsageError) {
  const Names only = {"uniforms", "unicorns"};
  try {
    static_cast<void>(make_cases(only, {}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), testing::HasSubstr("'unicorns'"));
  }
}

// By hand, at V = 151936, R = 256, P = 7, H = 4096: a row is 607744 bytes, W2 is 77791232.
TEST(BenchCases, BytesAreTheFewestThatMustMove) {
  const double row = 0.607744;
  const double w2 = 77.791232;
  EXPECT_NEAR(megabytes("greedy_accept", 64), 512 * row, 0.01);
  EXPECT_NEAR(megabytes("probabilities", 64), 1024 * row, 1e-6);
  EXPECT_NEAR(megabytes("row_laws", 1), 8 * row, 0.001);
  EXPECT_NEAR(megabytes("markov_logits", 1), w2 + 2 * row, 0.001);
  EXPECT_NEAR(megabytes("markov_logits", 64), w2 + 128 * row, 0.05);
  EXPECT_NEAR(megabytes("sampled_proposal", 64), 7 * w2 + 2 * 448 * row, 0.3);
  EXPECT_NEAR(megabytes("greedy_proposal", 64), 7 * w2 + 448 * row, 0.3);
  // Half of W2, and two bytes a row.
  EXPECT_NEAR(megabytes("greedy_proposal_fp8", 64), 7 * (w2 / 2 + 0.303872) + 448 * row, 0.3);
  EXPECT_NEAR(megabytes("quantize_fp8", 1), 1.5 * w2 + 0.303872, 1e-6);
  EXPECT_NEAR(megabytes("greedy_round", 64), 7 * w2 + (448 + 512) * row, 4.5);
  EXPECT_NEAR(megabytes("draft_rows", 64), 151936 * 8192e-6 + w2 + 448 * row, 4.5);
  EXPECT_NEAR(megabytes("select_top_k", 64), 64 * (row + 400e-6), 1e-6);
  EXPECT_NEAR(megabytes("sample_top_k", 64), 64 * (50 * 16e-6 + 8e-6), 1e-9);
  EXPECT_NEAR(megabytes("sample_probabilities", 64), 64 * row, 0.001);
  EXPECT_NEAR(megabytes("probabilistic_accept", 64), 128 * row, 0.02);
  EXPECT_NEAR(megabytes("compare_pairs", 1), 14 * row, 0.002);
  EXPECT_NEAR(megabytes("sampled_round", 64), 7 * w2 + (448 + 512) * row, 4.5);
  EXPECT_NEAR(megabytes("sampled_round", 1), 7 * w2 + 15 * row, 0.1);
  EXPECT_NEAR(megabytes("project", 1), 151936.0 * 8192e-6 + 8 * row, 0.1);
  EXPECT_NEAR(megabytes("widen", 1), 1.5 * 8 * row, 1e-6);
  EXPECT_NEAR(megabytes("uniforms", 64), 64 * 15 * 4e-6, 1e-9);
  EXPECT_NEAR(megabytes("confidence", 1), 7 * 8192e-6 + 7 * 512e-6 + 4352 * 4e-6, 0.001);
}

TEST(BenchCases, OperationsCountAMultiplyAddTwice) {
  const BenchCase reduce = one_case("reduce", 1);
  // 250 + 6 target rows, 1750 draft rows, and the Markov bias of the latter.
  const double expected = 2.0 * (256 + 1750) * 151936 * 4096 + 2.0 * 1750 * 151936 * 256;
  EXPECT_DOUBLE_EQ(reduce.family->flops(reduce), expected);
  const BenchCase drafts = one_case("draft_rows", 64);
  EXPECT_DOUBLE_EQ(drafts.family->flops(drafts), 2.0 * 448 * 151936 * (4096 + 256));
  const BenchCase proposal = one_case("sampled_proposal", 64);
  EXPECT_DOUBLE_EQ(proposal.family->flops(proposal), 2.0 * 448 * 151936 * 256);
}

}  // namespace
}  // namespace dspark
