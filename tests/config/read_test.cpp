// What a policy file may be at all: text, YAML, scalars, ranges.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "config/plan.h"
#include "support/error.h"
#include "tests/config/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace dspark {
namespace {

class PlanFile : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = folder_.file(name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  static std::string error_of(const std::string& path) {
    try {
      (void)read_plan(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::policy);
      return error.what();
    }
    return "";
  }

  test::TemporaryFolder folder_;
};

TEST_F(PlanFile, IsReadFromDisk) {
  const std::string path = write("a.yaml", "version: 1\npolicies: [{policy: none}]\n");
  const Plan plan = read_plan(path);
  EXPECT_EQ(plan.file, path);
  EXPECT_EQ(plan.rows.size(), 1u);
}

TEST_F(PlanFile, NamesItsPathLineAndColumnInErrors) {
  const std::string path = write("a.yaml", "version: 1\npolices: []\n");
  EXPECT_EQ(error_of(path).substr(0, path.size() + 6), path + ":2:1: ");
}

TEST_F(PlanFile, ThatIsMissingIsAPolicyError) {
  const std::string path = folder_.file("none.yaml");
  EXPECT_NE(error_of(path).find(path + ": cannot be opened: No such file"), std::string::npos);
}

TEST_F(PlanFile, ThatIsADirectoryIsAPolicyError) {
  EXPECT_NE(error_of(folder_.path().string()).find("is a directory"), std::string::npos);
}

TEST_F(PlanFile, ThatIsTooLargeIsRefused) {
  const std::string path = write("big.yaml", std::string((std::size_t{16} << 20) + 1, '#'));
  EXPECT_NE(error_of(path).find("larger than"), std::string::npos);
}

TEST_F(PlanFile, IsReadFromStandardInput) {
  const std::string path = write("a.yaml", "version: 1\nconcurrency: [0]\n");
  std::FILE* file = std::fopen(path.c_str(), "rb");
  ASSERT_NE(file, nullptr);
  const int saved = dup(0);
  ASSERT_GE(saved, 0);
  dup2(fileno(file), 0);
  EXPECT_EQ(error_of("-").substr(0, 14), "<stdin>:2:15: ");
  dup2(saved, 0);
  close(saved);
  std::fclose(file);
}

TEST(PlanText, WithoutContentIsRefused) {
  for (const char* text : {"", "\n", "# only a comment\n", "---\n", "---\n...\n"}) {
    EXPECT_NE(plan_error(text), "") << text;
  }
}

TEST(PlanText, MustBeAMap) {
  expect_error("[1, 2]\n", "1:1", "must be a map");
  expect_error("version\n", "1:1", "must be a map");
}

TEST(PlanText, HoldsOneDocument) {
  expect_error("version: 1\n---\nversion: 1\n", "2:1", "second document");
  EXPECT_EQ(plan_error("%YAML 1.2\n---\nversion: 1\n...\n"), "");
}

TEST(PlanText, MustBeValidYaml) {
  EXPECT_NE(plan_error("version: [1\n").find("not valid YAML"), std::string::npos);
  EXPECT_NE(plan_error("version: 1\n  a: 2\n").find("not valid YAML"), std::string::npos);
  EXPECT_NE(plan_error("version: *a\n").find("not valid YAML"), std::string::npos);
}

TEST(PlanText, MustBeUtf8) {
  expect_error("version: 1\n# caf\xe9\n", "2:6", "0xe9 is not UTF-8");
  EXPECT_EQ(plan_error("# café\nversion: 1\n"), "");
  EXPECT_EQ(plan_error("\xEF\xBB\xBFversion: 1\n"), "");  // byte order mark
  EXPECT_EQ(plan_error("version: 1\r\nverification: greedy\r\n"), "");
}

TEST(PlanText, HasNoControlCharacters) {
  expect_error(std::string("version: 1\n\0", 12), "2:1", "control character 0x00");
  // The parser would take this one for the end of the file.
  expect_error("version: 1\n\x04garbage: 1\n", "2:1", "control character 0x04");
}

TEST(PlanText, CountsColumnsInCharacters) {
  expect_error("version: 1\n\"é\": 1\n", "2:1", "unknown key");
  expect_error("version: 1\nsampling: {\"é\": 1, top_k: 1}\n", "2:12", "unknown key");
  expect_error("version: 1\npolicies: [{policy: fixed, \"length\": 1 , \"é\": 1}]\n", "2:42",
               "unknown key");
  expect_error("{\"version\": 1, \"verification\": \"é\", \"widths\": 2}\n", "1:37", "widths");
}

TEST(PlanText, RefusesTags) {
  for (const char* value : {"!!int 1", "!int 1", "! 1", "&a ! 1", "!!str \"1\"", "! \"1\""}) {
    expect_error(std::string("version: ") + value + "\n", "1:10", "tags are not allowed");
  }
  expect_error("!!map {version: 1}\n", "1:1", "tags are not allowed");
  expect_error("version: 1\npolicies: !!seq [{policy: none}]\n", "2:11", "tags are not allowed");
}

TEST(PlanText, RefusesAKeyThatIsGivenTwice) {
  expect_error("version: 1\nversion: 1\n", "2:1", "key 'version' is given twice");
  expect_error("version: 1\n\"version\": 1\n", "2:1", "given twice");
  expect_error(with_policy("{policy: fixed, length: 1, length: 2}"), "3:30", "given twice");
}

TEST(PlanText, RefusesKeysThatAreNoWords) {
  expect_error("? [a]\n: 1\n", "1:3", "as a key");
  expect_error("version: 1\n~: 1\n", "2:1", "not a word");
}

TEST(PlanText, RefusesDeepNesting) {
  const std::string deep = std::string(40, '[') + "1" + std::string(40, ']');
  EXPECT_NE(plan_error(with_version("policies: " + deep)).find("levels of nesting"),
            std::string::npos);
  const std::string deeper = std::string(100000, '[') + "1" + std::string(100000, ']');
  EXPECT_NE(plan_error(with_version("policies: " + deeper)), "");
}

TEST(PlanText, ReplacesAliases) {
  const Plan plan = parse_plan(
      "version: 1\n"
      "policies:\n"
      "- {policy: threshold, threshold: &t [0.25, 0.5]}\n"
      "- {policy: sps, survival_floor: *t}\n",
      "p.yaml");
  ASSERT_EQ(plan.rows.size(), 4u);
  EXPECT_EQ(std::get<Sps>(plan.rows[3].policy).survival_floor, 0.5);
}

TEST(PlanText, PointsAtTheAliasWhereItsValueDoesNotFit) {
  expect_error("version: &one 1\nverification: *one\n", "2:15", "'verification' is '1'");
}

TEST(PlanText, RefusesAnAliasInsideItsOwnNode) {
  expect_error("version: 1\npolicies: &a [*a]\n", "2:15", "alias inside");
}

TEST(PlanText, RefusesAliasesThatGrowWithoutBound) {
  std::string text = "version: 1\na0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 40; ++i) {
    const std::string alias = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + alias;
    for (int j = 0; j < 9; ++j) text += ", " + alias;
    text += "]\n";
  }
  EXPECT_NE(plan_error(text).find("more than 10000 nodes"), std::string::npos);
}

TEST(PlanText, AllowsTenThousandNodesWithAliases) {
  const auto text = [](int values) {
    // 15 nodes (maps, lists, keys, words, the alias) besides the values.
    std::string list = "[0.5";
    for (int i = 1; i < values; ++i) list += ", 0.5";
    return "version: 1\nverification: &g greedy\npolicies: [{policy: threshold, threshold: " +
           list + "]}, {policy: *g}]\n";
  };
  // The file is refused for its second policy's name, unless it has too many nodes before.
  EXPECT_NE(plan_error(text(9985)).find("unknown policy 'greedy'"), std::string::npos);
  EXPECT_NE(plan_error(text(9986)).find("more than 10000 nodes"), std::string::npos);
}

TEST(PlanText, NeedsNoBoundOnNodesWithoutAliases) {
  std::string list = "[0";
  for (int i = 1; i < 20000; ++i) list += ", " + std::to_string(i / 20000.0);
  EXPECT_EQ(plan_error(with_policy("{policy: threshold, threshold: " + list + "]}")), "");
}

TEST(PlanNumbers, FollowYaml12) {
  const auto threshold = [](const std::string& text) {
    const Plan plan = parse_plan(with_policy("{policy: threshold, threshold: " + text + "}"), "p");
    return std::get<Threshold>(plan.rows.at(0).policy).threshold;
  };
  EXPECT_EQ(threshold("0.25"), 0.25);
  EXPECT_EQ(threshold("+.25"), 0.25);
  EXPECT_EQ(threshold("1"), 1);
  EXPECT_EQ(threshold("1."), 1);
  EXPECT_EQ(threshold("25e-2"), 0.25);
  EXPECT_EQ(threshold("2.5E-1"), 0.25);
  EXPECT_EQ(threshold("0x1"), 1);
  EXPECT_EQ(threshold("0o1"), 1);
  EXPECT_FALSE(std::signbit(threshold("-0.0")));
}

TEST(PlanNumbers, AreNothingElse) {
  for (const char* text :
       {"yes", "true", "null", "~",   "",    "0.5x", "1_000", "1e",      ".",     "e5",
        "0x",  "--1",  "+-1",  "1,5", "0b1", "inf",  "nan",   "\"0.5\"", "'0.5'", "a"}) {
    expect_error(
        with_version(std::string("sampling:\n  temperature: ") + text),
        std::string(text).empty() || text[0] == '~' || std::string(text) == "null" ? "3:3" : "3:16",
        "'temperature' must be a finite number");
  }
  for (const char* text : {".inf", "-.inf", "+.Inf", ".nan", ".NaN", "1e999", "-1"}) {
    expect_error(with_version(std::string("sampling: {temperature: ") + text + "}"), "2:25",
                 "'temperature' is '");
  }
}

TEST(PlanIntegers, FollowYaml12) {
  const auto top_k = [](const std::string& text) {
    return *parse_plan(with_version("sampling: {top_k: " + text + "}"), "p").sampling.at(0).top_k;
  };
  EXPECT_EQ(top_k("40"), 40);
  EXPECT_EQ(top_k("+40"), 40);
  EXPECT_EQ(top_k("0040"), 40);  // no octal but 0o
  EXPECT_EQ(top_k("0x2A"), 42);
  EXPECT_EQ(top_k("0o17"), 15);
  EXPECT_EQ(top_k("9223372036854775807"), INT64_MAX);
}

TEST(PlanIntegers, AreNothingElse) {
  for (const char* text : {"3.0", "3.", "3e0", "true", "\"3\"", "0o8", "0xG", "0x-1", "1_0", "-"}) {
    const std::string message =
        plan_error(with_version(std::string("sampling: {top_k: ") + text + "}"));
    EXPECT_NE(message, "") << text;
  }
  expect_error(with_version("sampling: {top_k: 3.0}"), "2:19", "must be an integer");
  expect_error(with_version("sampling: {top_k: \"3\"}"), "2:19", "the string '3'");
  expect_error(with_version("sampling: {top_k: -1}"), "2:19", "at least 0");
  expect_error(with_version("sampling: {top_k: 9223372036854775808}"), "2:19", "at least 0");
}

TEST(PlanRanges, HaveTheValuesAPersonMeans) {
  const Plan plan = parse_plan(
      with_policy("{policy: threshold, threshold: {from: 0.05, to: 0.95, step: 0.05}}"), "p");
  ASSERT_EQ(plan.rows.size(), 19u);
  for (int i = 0; i < 19; ++i) {
    const auto& rule = std::get<Threshold>(plan.rows[static_cast<std::size_t>(i)].policy);
    EXPECT_EQ(rule.threshold, (i + 1) / 20.0) << i;  // the double nearest to the decimal
  }
}

TEST(PlanRanges, IncludeTheirEndWhereItIsMet) {
  const auto count = [](const std::string& range) {
    return parse_plan(with_policy("{policy: threshold, threshold: " + range + "}"), "p")
        .rows.size();
  };
  EXPECT_EQ(count("{from: 0, to: 1, step: 0.1}"), 11u);
  EXPECT_EQ(count("{from: 0, to: 0.99, step: 0.1}"), 10u);
  EXPECT_EQ(count("{from: 0.5, to: 0.5, step: 0.1}"), 1u);
  EXPECT_EQ(count("{from: 0, to: 1, step: 5}"), 1u);
  EXPECT_EQ(count("{step: 0.001, to: 1, from: 0}"), 1001u);
}

TEST(PlanRanges, NeverPassTheirEnd) {
  for (const char* step : {"0.1", "0.07", "0.003", "0.05", "0.0001"}) {
    const Plan plan = parse_plan(
        with_policy(std::string("{policy: threshold, threshold: {from: 0, to: 0.7, step: ") + step +
                    "}}"),
        "p");
    double last = -1;
    for (const PlanRow& row : plan.rows) {
      const double value = std::get<Threshold>(row.policy).threshold;
      EXPECT_GT(value, last);
      last = value;
    }
    EXPECT_LE(last, 0.7);
  }
}

TEST(PlanRanges, OfIntegersAreExact) {
  const Plan plan =
      parse_plan(with_policy("{policy: fixed, length: {from: 1, to: 8, step: 3}}"), "p");
  ASSERT_EQ(plan.rows.size(), 3u);
  EXPECT_EQ(std::get<FixedLength>(plan.rows[2].policy).length, 7);
}

TEST(PlanRanges, MustMakeSense) {
  const auto range = [](const std::string& text) {
    return with_policy("{policy: threshold, threshold: " + text + "}");
  };
  expect_error(range("{from: 0, to: 1}"), "3:34", "has no 'step'");
  expect_error(range("{from: 0, to: 1, step: 0.1, by: 2}"), "3:62", "unknown key 'by'");
  expect_error(range("{from: 0, to: 1, step: 0}"), "3:57", "'step' is '0'");
  expect_error(range("{from: 0, to: 1, step: -0.1}"), "3:57", "'step' is '-0.1'");
  expect_error(range("{from: 0.5, to: 0.1, step: 0.1}"), "3:41", "'from' is above 'to'");
  expect_error(range("{from: 0, to: 2, step: 0.1}"), "3:48", "'threshold' is '2'");
  expect_error(range("{from: [0], to: 1, step: 0.1}"), "3:41", "not a list");
  expect_error(range("{}"), "3:34", "an empty map");
  expect_error(with_policy("{policy: fixed, length: {from: 0, to: 4, step: 0.5}}"), "3:50",
               "must be an integer");
  expect_error(with_version("verification: {from: 0, to: 1, step: 1}"), "2:15", "not a map");
}

TEST(PlanRanges, AreRefusedBeforeTheyAreExpanded) {
  expect_error(with_policy("{policy: threshold, threshold: {from: 0, to: 1, step: 1e-6}}"), "3:34",
               "more than 100000 values");
  expect_error(with_policy("{policy: threshold, threshold: {from: 0, to: 1, step: 1e-300}}"),
               "3:34", "more than 100000 values");
  expect_error(with_version("sampling: {top_k: {from: 0, to: 9223372036854775807, step: 1}}"),
               "2:19", "more than 100000 values");
}

TEST(PlanRows, AreCountedAsAProductBeforeTheyAreMade) {
  const std::string axis = "{from: 0, to: 1, step: 0.0001}";
  expect_error(with_policy("{policy: threshold, threshold: " + axis +
                           ", min_length: {from: 0, to: 20, step: 1}}"),
               "3:3", "more than 100000 rows");
  // Sampling settings and verifications multiply, policies add.
  expect_error(
      "version: 1\nsampling: {temperature: {from: 1, to: 3, step: 0.1}}\npolicies:\n- "
      "{policy: threshold, threshold: " +
          axis + "}\n",
      "4:3", "more than 100000 rows");
  std::string many = "version: 1\npolicies:\n";
  for (int i = 0; i < 11; ++i) many += "- {policy: threshold, threshold: " + axis + "}\n";
  expect_error(many, "12:3", "more than 100000 rows");
}

TEST(PlanRows, CannotOverflowTheirCount) {
  const std::string axis = "{from: 0.5, to: 1, step: 0.00001}";
  expect_error(with_version("sampling: {temperature: " + axis + ", top_p: " + axis +
                            ", top_k: {from: 1, to: 50000, step: 1}}"),
               "2:109", "more than 100000 rows");
}

}  // namespace
}  // namespace dspark
