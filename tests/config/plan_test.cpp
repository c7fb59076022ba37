// What the keys of a policy file mean.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "config/plan.h"
#include "tests/config/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dspark {
namespace {

std::vector<Policy> policies_of(const std::string& text) {
  std::vector<Policy> out;
  for (const PlanRow& row : parse_plan(text, "p.yaml").rows) out.push_back(row.policy);
  return out;
}

TEST(Plan, NeedsOnlyAVersion) {
  const Plan plan = parse_plan("version: 1\n", "p.yaml");
  EXPECT_EQ(plan.file, "p.yaml");
  EXPECT_TRUE(plan.verification.empty());
  ASSERT_EQ(plan.sampling.size(), 1u);
  EXPECT_FALSE(plan.sampling[0].temperature || plan.sampling[0].top_k || plan.sampling[0].top_p);
  EXPECT_EQ(plan.sampling[0].top_p_rule, TopPRule::water_filling);
  EXPECT_EQ(plan.cost.linear.draft, 0.5);
  EXPECT_EQ(plan.cost.linear.verify_base, 1.0);
  EXPECT_EQ(plan.cost.linear.verify_token, 0.45);
  EXPECT_EQ(plan.cost.linear.accept, 0.02);
  EXPECT_EQ(plan.concurrency, (std::vector<std::int32_t>{1}));
  EXPECT_TRUE(plan.default_sweep);
  EXPECT_TRUE(plan.rows.empty());
}

TEST(Plan, MustHaveTheRightVersion) {
  expect_error("verification: greedy\n", "1:1", "has no 'version'");
  expect_error("version: 2\n", "1:10", "version 2 is not supported");
  expect_error("version: \"1\"\n", "1:10", "the string '1'");
  expect_error("version: 1.0\n", "1:10", "must be an integer");
  expect_error("version: [1]\n", "1:10", "not a list");
  expect_error("version:\n", "1:1", "not nothing");
}

TEST(Plan, NamesUnknownKeysAndTheNearestKnownOne) {
  expect_error(with_version("polices: []"), "2:1", "did you mean 'policies'?");
  expect_error(with_version("polices: []"), "2:1",
               "known keys: version, verification, sampling, cost, concurrency, width, policies");
  expect_error(with_version("xyzzy: 1"), "2:1", "unknown key 'xyzzy'; known keys: version");
  expect_error(with_policy("{policy: fixed, lenght: 3}"), "3:19", "did you mean 'length'?");
  expect_error(with_version("<<: {a: 1}"), "2:1", "unknown key '<<'");
}

TEST(Plan, CutsLongTextsInMessages) {
  const std::string message = plan_error(with_version(std::string(1000, 'k') + ": 1"));
  EXPECT_LT(message.size(), 250u);
  EXPECT_NE(message.find(std::string(40, 'k') + "...'"), std::string::npos);
}

TEST(Plan, EscapesHostileNames) {
  try {
    (void)parse_plan("version: 2\n", "a\n\x1b[2Jb.yaml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("a\\n\\x1b[2Jb.yaml:1:10: policy file"))
        << error.what();
  }
}

TEST(Verification, IsOneWordOrAList) {
  const auto read = [](const std::string& text) {
    return parse_plan(with_version("verification: " + text), "p").verification;
  };
  using V = std::vector<Verification>;
  EXPECT_EQ(read("greedy"), V{Verification::greedy});
  EXPECT_EQ(read("\"greedy\""), V{Verification::greedy});
  EXPECT_EQ(read("[probabilistic, greedy, probabilistic]"),
            (V{Verification::probabilistic, Verification::greedy}));
  const Plan plan = parse_plan(with_version("verification: [greedy]"), "p");
  EXPECT_EQ(plan.verification_position.line, 2);
  EXPECT_EQ(plan.verification_position.column, 15);
}

TEST(Verification, RefusesAnythingElse) {
  expect_error(with_version("verification: gredy"), "2:15", "give greedy or probabilistic");
  expect_error(with_version("verification: []"), "2:15", "empty list");
  expect_error(with_version("verification: [greedy, [greedy]]"), "2:24", "not a list");
  expect_error(with_version("verification:"), "2:1", "not nothing");
}

TEST(Sampling, IsTheProductOfItsAxes) {
  const Plan plan =
      parse_plan(with_version("sampling: {top_p_rule: [include_crossing, water_filling], top_k: 5, "
                              "temperature: [0.7, 1]}"),
                 "p");
  ASSERT_EQ(plan.sampling.size(), 4u);
  EXPECT_EQ(plan.sampling[0].temperature, 0.7);
  EXPECT_EQ(plan.sampling[0].top_p_rule, TopPRule::include_crossing);
  EXPECT_EQ(plan.sampling[1].temperature, 0.7);
  EXPECT_EQ(plan.sampling[1].top_p_rule, TopPRule::water_filling);
  EXPECT_EQ(plan.sampling[3].temperature, 1.0);
  for (const SamplingChoice& choice : plan.sampling) {
    EXPECT_EQ(choice.top_k, 5);
    EXPECT_FALSE(choice.top_p);
    EXPECT_EQ(choice.position.line, 2);
    EXPECT_EQ(choice.position.column, 11);
  }
}

TEST(Sampling, DraftsAreSampledUnlessTheFileSaysGreedy) {
  EXPECT_FALSE(parse_plan(with_version("sampling: {top_k: 5}"), "p").sampling[0].greedy_drafts);
  const Plan plan =
      parse_plan(with_version("sampling: {drafts: [greedy, sampled], temperature: [1, 2]}"), "p");
  ASSERT_EQ(plan.sampling.size(), 4u);
  EXPECT_TRUE(plan.sampling[0].greedy_drafts);
  EXPECT_FALSE(plan.sampling[1].greedy_drafts);
  EXPECT_EQ(plan.sampling[1].temperature, 1);
  EXPECT_EQ(plan.sampling[2].temperature, 2);
}

TEST(Sampling, GivesEqualValuesOnce) {
  EXPECT_EQ(parse_plan(with_version("sampling: {temperature: [1, 1.0, 0x1]}"), "p").sampling.size(),
            1u);
}

TEST(Sampling, ChecksItsRanges) {
  expect_error(with_version("sampling: {temperature: -0.1}"), "2:25", "at least 0");
  expect_error(with_version("sampling: {top_p: 0}"), "2:19", "above 0 and at most 1");
  expect_error(with_version("sampling: {top_p: 1.01}"), "2:19", "above 0 and at most 1");
  expect_error(with_version("sampling: {top_k: -1}"), "2:19", "at least 0");
  expect_error(with_version("sampling: {top_p_rule: exact}"), "2:24",
               "give water_filling or include_crossing");
  expect_error(with_version("sampling: {drafts: argmax}"), "2:20", "give sampled or greedy");
  expect_error(with_version("sampling: {}"), "2:11", "an empty map");
  expect_error(with_version("sampling: 1"), "2:11", "must be a map, not '1'");
  expect_error(with_version("sampling: {temprature: 1}"), "2:12", "did you mean 'temperature'?");
  expect_error(with_version("sampling: {top_k: []}"), "2:19", "empty list");
}

TEST(Sampling, RefusesProbabilisticVerificationAtTemperatureZero) {
  const std::string part = "probabilistic verification needs a temperature of at least 0.001";
  expect_error("version: 1\nverification: probabilistic\nsampling: {temperature: 0}\n", "3:25",
               part);
  expect_error(
      "version: 1\nsampling: {temperature: [1, 0.0009]}\nverification: [greedy, "
      "probabilistic]\n",
      "2:29", part);
  EXPECT_EQ(plan_error("version: 1\nverification: greedy\nsampling: {temperature: 0}\n"), "");
  EXPECT_EQ(plan_error("version: 1\nsampling: {temperature: 0}\n"), "");
  EXPECT_EQ(plan_error("version: 1\nverification: probabilistic\nsampling: {temperature: 0.001}\n"),
            "");
}

TEST(Cost, ReadsTheLinearModel) {
  const LinearCost cost =
      parse_plan(with_version(
                     "cost: {linear: {draft: 0, verify_base: 1.5, verify_token: 2, accept: 3e-1}}"),
                 "p")
          .cost.linear;
  EXPECT_EQ(cost.draft, 0);
  EXPECT_EQ(cost.verify_base, 1.5);
  EXPECT_EQ(cost.verify_token, 2);
  EXPECT_EQ(cost.accept, 0.3);
}

TEST(Cost, ChecksTheLinearModel) {
  const auto linear = [](const std::string& text) {
    return with_version("cost: {linear: {" + text + "}}");
  };
  expect_error(linear("draft: 1, verify_base: 1, verify_token: 1"), "2:16", "has no 'accept'");
  expect_error(linear("draft: -1, verify_base: 1, verify_token: 1, accept: 0"), "2:24",
               "at least 0");
  expect_error(linear("draft: .inf, verify_base: 1, verify_token: 1, accept: 0"), "2:24", "finite");
  expect_error(linear("draft: [1], verify_base: 1, verify_token: 1, accept: 0"), "2:24",
               "no sweep axis");
  expect_error(linear("draft: 0, verify_base: 0, verify_token: 0, accept: 0"), "2:16", "are 0");
  expect_error(linear("draft: 1e308, verify_base: 1e308, verify_token: 1, accept: 0"), "2:16",
               "too large");
  expect_error(linear("draft: 1, verify_base: 1, verify_token: 1, accept: 0, tax: 1"), "2:71",
               "unknown key 'tax' in 'cost.linear'");
  expect_error(with_version("cost: {}"), "2:7", "an empty map");
  expect_error(with_version("cost: {linear: {}}"), "2:16", "an empty map");
  expect_error(with_version("cost: {linear: 3}"), "2:16", "must be a map");
}

class CostTables : public testing::Test {
 protected:
  void SetUp() override {
    write("rows.json", R"({"verify": [{"requests": 1, "tokens": 1, "ms": 2},
                                      {"requests": 1, "tokens": 2, "ms": 3}]})");
  }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_.path() / name).string();
    std::ofstream(path) << text;
    return path;
  }
  test::TemporaryFolder folder_;
};

TEST_F(CostTables, AreRelativeToThePolicyFile) {
  const std::string path = write("p.yaml", "version: 1\ncost: {table: rows.json, draft: 0.5}\n");
  const Plan plan = read_plan(path);
  ASSERT_NE(plan.model.table(), nullptr);
  EXPECT_DOUBLE_EQ(plan.model.plain_step(1), 2);
  EXPECT_DOUBLE_EQ(plan.model.speculative_step(1, 1), 3.5);
  EXPECT_EQ(plan.model.unit(), "ms");
}

TEST_F(CostTables, HaveDraftOverheadAndCapturedSizesOfTheirOwn) {
  const std::string path =
      write("p.yaml",
            "version: 1\ncost: {table: rows.json, draft: {1: 0.5, 3: 1.5}, overhead: 0.25, "
            "buckets: [2, 4]}\n");
  const CostModel model = read_plan(path).model;
  EXPECT_DOUBLE_EQ(model.draft(2), 1);
  EXPECT_DOUBLE_EQ(model.plain_step(1), 3) << "charged for two tokens";
  EXPECT_DOUBLE_EQ(model.speculative_step(1, 1), 0.5 + 3 + 0.25);
}

TEST(Cost, OfTwoKindsOrNoneIsRefused) {
  const std::string linear = "linear: {draft: 1, verify_base: 1, verify_token: 1, accept: 1}";
  expect_error(with_version("cost: {table: t.json, " + linear + "}"), "2:7",
               "must have one of 'linear' and 'table'");
  expect_error(with_version("cost: {overhead: 1}"), "2:7", "must have one of 'linear' and 'table'");
  expect_error(with_version("cost: {draft: 1, " + linear + "}"), "2:15", "goes with a table");
  expect_error(with_version("cost: {entry: a, " + linear + "}"), "2:15", "goes with a table");
  expect_error(with_version("cost: {overhead: [1, 2], " + linear + "}"), "2:18", "no sweep axis");
  expect_error(with_version("cost: {overhead: -1, " + linear + "}"), "2:18", "at least 0");
  expect_error(with_version("cost: {buckets: [4, 2], " + linear + "}"), "2:21", "must increase");
  expect_error(with_version("cost: {table: t.json, draft: {8: 1, 1: 2}}"), "2:37",
               "keys of 'draft' must increase");
  expect_error(with_version("cost: {table: t.json, draft: {0: 1}}"), "2:31", "from 1");
  expect_error(with_version("cost: {table: t.json, draft: {}}"), "2:30", "at least one entry");
  expect_error(with_version("cost: {table: [t.json]}"), "2:15", "must be a text");
}

TEST(Cost, ATableThatIsMissingIsNamed) {
  EXPECT_EQ(
      plan_error(with_version("cost: {table: no/such.json}")),
      "no/such.json: cannot be opened: No such file or directory; give a readable cost table");
}

TEST(Concurrency, IsAnAxisInOrder) {
  const auto concurrency = [](const std::string& text) {
    return parse_plan(with_version("concurrency: " + text), "p").concurrency;
  };
  EXPECT_EQ(concurrency("1"), (std::vector<std::int32_t>{1}));
  EXPECT_EQ(concurrency("[64, 1, 8, 8]"), (std::vector<std::int32_t>{1, 8, 64}));
  expect_error(with_version("concurrency: 0"), "2:14", "from 1");
  expect_error(with_version("concurrency: 4097"), "2:14", "to 4096");
  expect_error(with_version("concurrency: []"), "2:14", "empty list");
  expect_error(with_version("concurrency: [one]"), "2:15", "must be an integer");
}

TEST(Concurrency, CountsTowardsTheRows) {
  expect_error(
      "version: 1\nconcurrency: {from: 1, to: 64, step: 1}\npolicies:\n"
      "- {policy: threshold, threshold: {from: 0, to: 1, step: 0.0005}}\n",
      "4:3", "more than 100000 rows");
  expect_error(with_version("concurrency: {from: 1, to: 65, step: 1}"), "2:14",
               "more than 64 values");
}

TEST(Width, IsOneOfThree) {
  EXPECT_EQ(parse_plan("version: 1\n", "p").width, Width::ragged);
  EXPECT_EQ(parse_plan(with_version("width: uniform"), "p").width, Width::uniform);
  EXPECT_EQ(parse_plan(with_version("width: cap_accept"), "p").width, Width::cap_accept);
  expect_error(with_version("width: wide"), "2:8", "give ragged or uniform or cap_accept");
}

TEST(Policies, AreTheProductOfTheirAxesInOrder) {
  const std::vector<Policy> rows = policies_of(
      with_policy("{policy: threshold, max_length: [0, 5], threshold: [0.3, 0.5], min_length: 2}"));
  const auto rule = [](double t, std::int32_t most) {
    return Policy(Threshold{.threshold = t, .min_length = 2, .max_length = most});
  };
  EXPECT_EQ(rows, (std::vector<Policy>{rule(0.3, 0), rule(0.3, 5), rule(0.5, 0), rule(0.5, 5)}));
}

TEST(Policies, HaveTheDefaultsOfTheEngines) {
  EXPECT_EQ(policies_of(with_policy("{policy: threshold, threshold: 0.5}")),
            (std::vector<Policy>{Threshold{.threshold = 0.5, .min_length = 1}}));
  // The per-position rule may verify nothing.
  EXPECT_EQ(policies_of(with_policy("{policy: threshold, rule: [per_position], threshold: 0.5}")),
            (std::vector<Policy>{Threshold{
                .rule = ThresholdRule::per_position, .threshold = 0.5, .min_length = 0}}));
  EXPECT_EQ(policies_of(with_policy("{policy: sps}")),
            (std::vector<Policy>{Sps{.survival_floor = 0, .min_length = 1}}));
  EXPECT_EQ(policies_of(with_policy("{policy: none}")), (std::vector<Policy>{NoSpeculation{}}));
}

TEST(Policies, GiveEqualRowsOnce) {
  const std::string text =
      "version: 1\npolicies:\n"
      "- {policy: fixed, length: [3, 3, 0x3, 1]}\n"
      "- {policy: fixed, length: {from: 0, to: 3, step: 1}}\n"
      "- {policy: none}\n- {policy: none}\n"
      "- {policy: threshold, threshold: {from: 0.05, to: 0.3, step: 0.05}}\n"
      "- {policy: threshold, threshold: [0.1, 0.15, 0.3], min_length: 1}\n"
      "- {policy: sps, survival_floor: [0, -0.0]}\n";
  const std::vector<Policy> rows = policies_of(text);
  EXPECT_EQ(rows.size(), 4u + 1u + 6u + 1u);
  EXPECT_EQ(rows[0], Policy(FixedLength{3}));
  EXPECT_EQ(rows[1], Policy(FixedLength{1}));
  EXPECT_EQ(rows[2], Policy(FixedLength{0}));
}

TEST(Policies, KnowWhereTheyCameFrom) {
  const Plan plan = parse_plan(
      "version: 1\npolicies:\n- {policy: fixed, length: [3, 5]}\n"
      "- policy: sps\n  min_length: 2\n  max_length: 4\n",
      "p");
  ASSERT_EQ(plan.rows.size(), 3u);
  EXPECT_EQ(plan.rows[1].position.line, 3);
  EXPECT_EQ(plan.rows[1].position.column, 3);
  EXPECT_EQ(plan.rows[1].length_position.column, 31);
  EXPECT_EQ(plan.rows[2].position.line, 4);
  EXPECT_EQ(plan.rows[2].length_position.line, 6);
}

TEST(Policies, CheckTheirRanges) {
  expect_error(with_policy("{policy: fixed}"), "3:3", "policy 'fixed' has no 'length'");
  expect_error(with_policy("{policy: fixed, length: 65}"), "3:27", "from 0 to 64");
  expect_error(with_policy("{policy: fixed, length: -1}"), "3:27", "from 0 to 64");
  expect_error(with_policy("{policy: fixed, length: [1, 2.0]}"), "3:31", "must be an integer");
  expect_error(with_policy("{policy: fixed, length: \"3\"}"), "3:27", "the string '3'");
  expect_error(with_policy("{policy: threshold}"), "3:3", "has no 'threshold'");
  expect_error(with_policy("{policy: threshold, threshold: 1.1}"), "3:34", "at most 1");
  expect_error(with_policy("{policy: threshold, threshold: -0.1}"), "3:34", "at least 0");
  expect_error(with_policy("{policy: threshold, threshold: 1, rule: both}"), "3:43",
               "give cumulative or per_position");
  expect_error(with_policy("{policy: sps, survival_floor: 2}"), "3:33", "at most 1");
  expect_error(with_policy("{policy: sps, min_length: 65}"), "3:29", "from 0 to 64");
  expect_error(with_policy("{policy: none, length: 1}"), "3:18", "unknown key 'length'");
}

TEST(Policies, RefuseAMinimumAboveTheMaximum) {
  expect_error(with_policy("{policy: sps, min_length: 3, max_length: 2}"), "3:29",
               "min_length 3 is above max_length 2");
  expect_error(with_policy("{policy: threshold, threshold: 0.5, min_length: [1, 4], max_length: "
                           "[0, 4, 3]}"),
               "3:55", "min_length 4 is above max_length 3");
  EXPECT_EQ(plan_error(with_policy("{policy: sps, min_length: 3, max_length: 0}")), "");
  EXPECT_EQ(plan_error(with_policy("{policy: sps, min_length: 3, max_length: 3}")), "");
}

TEST(Policies, MustBeAListOfMaps) {
  expect_error(with_version("policies:"), "2:1", "must be a list");
  expect_error(with_version("policies: []"), "2:11", "must be a list");
  expect_error(with_version("policies: {policy: none}"), "2:11", "must be a list");
  expect_error(with_version("policies: [none]"), "2:12", "must be a map");
  expect_error(with_version("policies: [{length: 3}]"), "2:12", "has no 'policy'");
  expect_error(with_version("policies: [{policy: [none, fixed]}]"), "2:21", "must be one name");
  expect_error(with_version("policies: [{}]"), "2:12", "has no 'policy'");
}

TEST(Policies, ThatAreUnknownAreRefusedWithTheKnownOnes) {
  expect_error(with_policy("{policy: fixd, length: 1}"), "3:12",
               "unknown policy 'fixd'; did you mean 'fixed'? known policies: none, fixed, "
               "threshold, sps, oracle, softmax_min, schedule, budget_fraction, count_budget, "
               "algorithm1, global, exact_table, capped_ewma, gate, oracle_confidence");
}

TEST(Policies, OfTheEnginesHaveTheirNumbers) {
  const auto only = [](const std::string& text) {
    const std::vector<Policy> rows = policies_of(with_policy(text));
    EXPECT_EQ(rows.size(), 1u) << text;
    return rows.front();
  };
  EXPECT_EQ(only("{policy: softmax_min, minimum: 0.4}"), Policy(SoftmaxMin{0.4, 0}));
  EXPECT_EQ(only("{policy: schedule, lengths: {1: 4, 4: 2, 8: 0}}"),
            Policy(RequestSchedule{{{1, 4}, {4, 2}, {8, 0}}}));
  EXPECT_EQ(only("{policy: budget_fraction, fraction: 0.5}"), Policy(BudgetFraction{0.5}));
  EXPECT_EQ(only("{policy: count_budget}"), Policy(PromisingBudget{{0.3, 16, 5}}));
  EXPECT_EQ(only("{policy: algorithm1}"), Policy(Algorithm1{0}));
  GlobalBudget global;
  EXPECT_EQ(only("{policy: global}"), Policy(global));
  global.lag = 2;
  global.min_gain = 0.04;
  global.min_length = 1;
  global.tiers = {1, 3, 7};
  EXPECT_EQ(only("{policy: global, lag: 2, min_gain: 0.04, min_length: 1, tiers: [1, 3, 7]}"),
            Policy(global));
  EXPECT_EQ(only("{policy: exact_table}"), Policy(ExactTable{}));
  EXPECT_EQ(only("{policy: exact_table, min_gain: 0.1}"), Policy(ExactTable{0.1}));
  EXPECT_EQ(only("{policy: capped_ewma}"), Policy(CapController{{0.65, 0.02, 1.03, 4, 8}}));
  EXPECT_EQ(only("{policy: gate, window: 8, min_accepted: 0.5, wrap: {policy: sps}}"),
            Policy(Gate{8, 0.5, Sps{}}));
}

TEST(Policies, OfTheEnginesAreAxesToo) {
  EXPECT_EQ(policies_of(with_policy("{policy: global, lag: [0, 1, 2], min_gain: [0, 0.1]}")).size(),
            6u);
  EXPECT_EQ(
      policies_of(with_policy("{policy: count_budget, threshold: [0.2, 0.4], refresh: [1, 16], "
                              "initial: [1, 5]}"))
          .size(),
      8u);
  EXPECT_EQ(
      policies_of(with_policy("{policy: capped_ewma, prior: [0.5, 0.7], probe: [4, 8]}")).size(),
      4u);
  const std::vector<Policy> gates = policies_of(
      with_policy("{policy: gate, window: [2, 4], min_accepted: 1, wrap: [{policy: fixed, length: "
                  "[1, 2]}, {policy: algorithm1}]}"));
  ASSERT_EQ(gates.size(), 6u);
  EXPECT_EQ(gates[0], Policy(Gate{2, 1, FixedLength{1}}));
  EXPECT_EQ(gates[5], Policy(Gate{4, 1, Algorithm1{}}));
}

TEST(Policies, OfTheEnginesCheckTheirFields) {
  expect_error(with_policy("{policy: softmax_min}"), "3:3", "has no 'minimum'");
  expect_error(with_policy("{policy: schedule, lengths: {4: 2}}"), "3:31", "add the key 1");
  expect_error(with_policy("{policy: schedule, lengths: {4: 2, 1: 3}}"), "3:38", "must increase");
  expect_error(with_policy("{policy: schedule, lengths: [1]}"), "3:31", "must be a map");
  expect_error(with_policy("{policy: schedule, lengths: {1: 65}}"), "3:35", "to 64");
  expect_error(with_policy("{policy: budget_fraction, fraction: 1.5}"), "3:39", "at most 1");
  expect_error(with_policy("{policy: algorithm1, min_length: 2}"), "3:36", "to 1");
  expect_error(with_policy("{policy: global, lag: 3}"), "3:25", "to 2");
  expect_error(with_policy("{policy: global, tiers: [3, 1]}"), "3:31", "must increase");
  expect_error(with_policy("{policy: global, fill_buckets: true}"), "3:34", "cost.buckets");
  expect_error(with_policy("{policy: count_budget, refresh: 0}"), "3:35", "from 1");
  expect_error(with_policy("{policy: capped_ewma, hysteresis: 0.9}"), "3:37", "at least 1");
  expect_error(with_policy("{policy: gate, min_accepted: 1, wrap: {policy: sps}}"), "3:3",
               "has no 'window'");
  expect_error(with_policy("{policy: gate, window: 1, min_accepted: 1, wrap: {policy: gate}}"),
               "3:61", "give fixed");
  expect_error(with_policy("{policy: gate, window: 1, min_accepted: 1, wrap: []}"), "3:52",
               "empty list");
  expect_error(with_policy("{policy: sps, lag: 1}"), "3:17", "unknown key 'lag'");
}

TEST(Policies, OracleNamesItsBounds) {
  const Plan plan = parse_plan(with_policy("{policy: oracle, bound: [shortest, no_waste]}"), "p");
  ASSERT_EQ(plan.rows.size(), 2u);
  EXPECT_EQ(plan.rows[0].policy, Policy(Oracle{OracleBound::shortest}));
  EXPECT_EQ(plan.rows[1].policy, Policy(Oracle{OracleBound::no_waste}));
  expect_error(with_policy("{policy: oracle}"), "3:3", "policy 'oracle' has no 'bound'");
  expect_error(with_policy("{policy: oracle, bound: longest}"), "3:27",
               "give no_waste or shortest");
}

TEST(Policies, OracleConfidenceWrapsARuleWithItsAxes) {
  EXPECT_EQ(parse_plan(with_policy("{policy: oracle_confidence}"), "p").rows.at(0).policy,
            Policy(OracleConfidence{}));
  const Plan plan = parse_plan(
      with_policy("{policy: oracle_confidence, wrap: [{policy: threshold, threshold: [0.2, 0.4]}, "
                  "{policy: sps}, {policy: sps, min_length: 1}]}"),
      "p");
  ASSERT_EQ(plan.rows.size(), 3u) << "equal rows are given once";
  EXPECT_EQ(plan.rows[1].policy, Policy(OracleConfidence{Threshold{.threshold = 0.4}}));
  EXPECT_EQ(plan.rows[2].policy, Policy(OracleConfidence{Sps{}}));
  const Plan both = parse_plan(
      "version: 1\npolicies: [{policy: sps}, {policy: oracle_confidence, wrap: {policy: sps}}]",
      "p");
  EXPECT_EQ(both.rows.size(), 2u) << "a rule and its oracle are two rows";
  expect_error(with_policy("{policy: oracle_confidence, wrap: {policy: fixed, length: 1}}"), "3:46",
               "give threshold or sps");
  expect_error(with_policy("{policy: oracle_confidence, wrap: sps}"), "3:37", "must be a policy");
  expect_error(with_policy("{policy: oracle_confidence, wrap: []}"), "3:37", "empty list");
  expect_error(with_policy("{policy: oracle_confidence, wrap: {policy: sps, bound: 1}}"), "3:51",
               "'bound' in policy 'sps'");
}

TEST(SampleConfigs, AllParse) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(DSPARK_SOURCE "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    ++files;
    const Plan plan = read_plan(entry.path().string());
    EXPECT_FALSE(plan.rows.empty()) << entry.path();
  }
  EXPECT_GE(files, 3u);
}

}  // namespace
}  // namespace dspark
