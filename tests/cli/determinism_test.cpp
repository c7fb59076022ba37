// Everything but `run` is the same bytes, whatever the threads, the chunk and the format's
// neighbours.
#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/tiny_trace.h"
#include "tests/cli/tool.h"

namespace dspark::test {
namespace {

// The output of run without its last part, the seconds it took.
std::string stable_part(const std::string& text) {
  std::string out;
  for (const std::string& line : lines_of(text)) {
    if (line.find("\"seconds\"") == std::string::npos) out += line + "\n";
  }
  return out;
}

class Determinism : public testing::Test {
 protected:
  Determinism() { write_tiny_trace(trace_); }
  std::string run(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"run", trace_, "--backend", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run_tool(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_FALSE(outcome.out.empty());
    return outcome.out;
  }

  TemporaryFolder folder_;
  std::string trace_ = folder_.file("tiny.h5");
};

TEST_F(Determinism, ThreadsAndChunksChangeNothing) {
  const std::vector<std::string> both_kinds = {bundled("rounds_code_t1.h5"), "--format", "json"};
  const auto result = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = both_kinds;
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return stable_part(run(arguments));
  };
  const std::string expected = result({"--threads", "1"});
  EXPECT_EQ(result({"--threads", "1"}), expected) << "a second run";
  EXPECT_EQ(result({"--threads", "2"}), expected);
  for (const char* chunk : {"1", "3", "1000"}) {
    EXPECT_EQ(result({"--threads", "2", "--chunk", chunk}), expected) << "chunk " << chunk;
  }
}

TEST_F(Determinism, TablesAndCsvAreTheSameInEveryRun) {
  for (const char* format : {"table", "md", "csv"}) {
    EXPECT_EQ(run({"--format", format, "--threads", "1"}),
              run({"--format", format, "--threads", "2"}))
        << format;
  }
}

TEST_F(Determinism, TheSeedChangesWhatIsSampledAndNothingExact) {
  const auto rows_by_policy = [&](const char* seed) {
    const auto result = nlohmann::json::parse(run({"--format", "json", "--seed", seed}));
    std::map<std::string, nlohmann::json> rows;
    for (const auto& row : result["results"]) {
      rows[row["policy"].dump() + row["parameters"].dump()] = row;
    }
    return rows;
  };
  const auto first = rows_by_policy("1");
  const auto second = rows_by_policy("2");
  ASSERT_GT(first.size(), 0U);
  ASSERT_EQ(first.size(), second.size());
  bool sampled_differs = false;
  for (const auto& [policy, row] : first) {
    const auto& other = second.at(policy);
    EXPECT_EQ(row["tau"], other["tau"]) << policy;
    EXPECT_EQ(row["rounds"], other["rounds"]) << policy;
    sampled_differs = sampled_differs || row["verified_per_round"] != other["verified_per_round"];
  }
  EXPECT_TRUE(sampled_differs);
}

TEST_F(Determinism, AllFormatsHaveTheSameRows) {
  const auto json = nlohmann::json::parse(run({"--format", "json"}));
  const std::size_t rows = json["results"].size();
  ASSERT_GT(rows, 0U);
  EXPECT_EQ(lines_of(run({"--format", "csv"})).size(), rows + 1);

  std::size_t result_lines = 0;
  for (const std::string& line : lines_of(run({"--format", "jsonl"}))) {
    if (nlohmann::json::parse(line)["type"] == "result") ++result_lines;
  }
  EXPECT_EQ(result_lines, rows);

  const std::string table = run({"--format", "table"});
  const std::string md = run({"--format", "md"});
  for (const auto& row : json["results"]) {
    EXPECT_THAT(table, testing::HasSubstr(row["policy"].get<std::string>()));
    EXPECT_THAT(md, testing::HasSubstr(row["policy"].get<std::string>()));
  }
}

TEST_F(Determinism, InspectPrintsTheSameInEveryRun) {
  for (const char* format : {"table", "md", "csv", "json", "jsonl"}) {
    const Outcome first = run_tool({"inspect", trace_, bundled("heads.h5"), "--format", format});
    const Outcome second = run_tool({"inspect", trace_, bundled("heads.h5"), "--format", format});
    EXPECT_EQ(first.exit_code, 0) << first.out;
    EXPECT_EQ(first.out, second.out);
    EXPECT_THAT(first.out, testing::HasSubstr("heads.h5"));
  }
}

}  // namespace
}  // namespace dspark::test
