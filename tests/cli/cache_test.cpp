// run --cache: the same bytes without a second pass, whatever happens to the folder.
#include <signal.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/cli/tiny_trace.h"
#include "tests/cli/tool.h"

namespace dspark::test {
namespace {

class CacheFlag : public testing::Test {
 protected:
  CacheFlag() {
    write_tiny_trace(trace_);
    write_file(policy_, "version: 1\npolicies:\n  - {policy: fixed, length: [1, 2]}\n");
  }
  std::vector<std::string> arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"run", trace_, "--backend", "cpu", "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<std::string> cached(std::vector<std::string> more) const {
    more.insert(more.end(), {"--cache", cache_});
    return arguments(more);
  }
  Outcome run(const std::vector<std::string>& all, int exit_code = 0) const {
    Outcome outcome = run_tool(all);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    return outcome;
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(cache_)) {
      names.push_back(entry.path().string());
    }
    return names;
  }

  TemporaryFolder folder_;
  std::string trace_ = folder_.file("tiny.h5");
  std::string policy_ = folder_.file("p.yaml");
  std::string cache_ = folder_.file("cache");
};

// The tiny trace has few rounds, and every run says so once.
constexpr std::size_t kFewRoundsNotes = 1;

TEST_F(CacheFlag, AKeptTableGivesTheSameBytesInEveryFormat) {
  run(cached({}));
  EXPECT_EQ(entries().size(), 1U);
  for (const char* format : {"table", "md", "csv"}) {
    const Outcome without = run(arguments({"--format", format, "-p", policy_}));
    const Outcome with = run(cached({"--format", format, "-p", policy_}));
    EXPECT_EQ(with.out, without.out) << format;
    EXPECT_EQ(with.err, without.err);
  }
  EXPECT_EQ(entries().size(), 1U) << "other policies and formats are no other table";
}

TEST_F(CacheFlag, TheResultSaysInRunWhetherEveryTableWasKept) {
  const auto result = [&](const std::vector<std::string>& all) {
    return nlohmann::json::parse(run(all).out);
  };
  nlohmann::json without = result(arguments({"--format", "json"}));
  nlohmann::json first = result(cached({"--format", "json"}));
  nlohmann::json second = result(cached({"--format", "json"}));
  EXPECT_FALSE(without["run"].contains("cached"));
  EXPECT_EQ(first["run"]["cached"], false);
  EXPECT_EQ(second["run"]["cached"], true);
  const nlohmann::json mixed = result(cached({bundled("rounds_code_t1.h5"), "--format", "json"}));
  EXPECT_EQ(mixed["run"]["cached"], false) << "one of two had to be made";
  for (nlohmann::json* each : {&without, &first, &second}) each->erase("run");
  EXPECT_EQ(first, without);
  EXPECT_EQ(second, without);
}

TEST_F(CacheFlag, ADamagedTableIsToldAndMadeAnew) {
  const std::string expected = run(cached({})).out;
  ASSERT_EQ(entries().size(), 1U);
  const std::string path = entries().front();
  const std::string bytes = read_file(path);
  for (const std::size_t at : {std::size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(~damaged[at]);
    write_file(path, damaged);
    const Outcome outcome = run(cached({}));
    EXPECT_EQ(outcome.out, expected);
    EXPECT_THAT(outcome.err, testing::StartsWith("dspark-replay: note: "));
    EXPECT_THAT(outcome.err, testing::HasSubstr("made anew"));
    EXPECT_EQ(lines_of(outcome.err).size(), 1U + kFewRoundsNotes) << outcome.err;
    EXPECT_EQ(read_file(path), bytes);
    EXPECT_EQ(lines_of(run(cached({})).err).size(), kFewRoundsNotes);
  }
}

TEST_F(CacheFlag, InvalidRowsEndTheSameWayWhenTheTableWasKept) {
  write_tiny_trace(trace_, {.nan_row = 3});
  const Outcome without = run(arguments({}), 6);
  const Outcome first = run(cached({}), 6);
  const Outcome second = run(cached({}), 6);
  EXPECT_THAT(without.err, testing::HasSubstr("invalid rows"));
  EXPECT_EQ(first.err, without.err);
  EXPECT_EQ(second.err, without.err);
  EXPECT_EQ(second.out, without.out);
}

TEST_F(CacheFlag, AFolderThatCannotBeUsedIsRefusedBeforeAnythingIsRead) {
  write_file(folder_.file("file"), "x");
  for (const std::string& bad : {folder_.file("file"), folder_.file("file/below"),
                                 std::string("/proc/no/such"), std::string()}) {
    expect_error(run_tool({"run", folder_.file("missing.h5"), "--cache", bad}), 2, {"--cache"});
  }
  expect_error(run_tool(cached({"--cache", cache_})), 2, {"--cache"});
}

TEST_F(CacheFlag, PrintPolicyMakesNoFolder) {
  run({"run", "--print-policy", "--cache", cache_});
  EXPECT_FALSE(std::filesystem::exists(cache_));
}

TEST_F(CacheFlag, ProcessesShareAFolderAndSurviveEachOthersDeath) {
  const std::string expected = run(arguments({"--format", "csv"})).out;
  const std::vector<std::string> all = cached({"--format", "csv"});
  std::uint32_t random = 12345;
  int finished = 0;
  constexpr int kRounds = 12;
  for (int round = 0; round < kRounds; ++round) {
    if (round % 3 == 0) std::filesystem::remove_all(cache_);
    std::vector<std::unique_ptr<Process>> processes;
    for (int i = 0; i < 4; ++i) {
      processes.push_back(std::make_unique<Process>(DSPARK_TOOL, Invocation{.arguments = all}));
    }
    for (int i = 0; i < 2; ++i) {
      random = random * 1664525U + 1013904223U;
      std::this_thread::sleep_for(std::chrono::microseconds((random >> 16) % 15000));
      kill(processes[static_cast<std::size_t>(i)]->id(), SIGKILL);
    }
    for (std::size_t i = 0; i < processes.size(); ++i) {
      const Outcome outcome = processes[i]->finish();
      if (i < 2 && outcome.exit_code == 128 + SIGKILL) continue;
      ++finished;
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
      EXPECT_EQ(outcome.out, expected);
      EXPECT_EQ(lines_of(outcome.err).size(), kFewRoundsNotes) << "nobody sees a part of a table";
    }
  }
  EXPECT_GE(finished, 2 * kRounds);
  const Outcome after = run(all);
  EXPECT_EQ(after.out, expected);
  EXPECT_EQ(lines_of(after.err).size(), kFewRoundsNotes);
  std::size_t tables = 0;
  for (const std::string& path : entries()) tables += path.ends_with(".table");
  EXPECT_EQ(tables, 1U);
}

}  // namespace
}  // namespace dspark::test
