// Where data goes, and what is left behind when that fails.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/process.h"
#include "tests/cli/tiny_trace.h"
#include "tests/cli/tool.h"

namespace dspark::test {
namespace {

class OutputTest : public testing::Test {
 protected:
  OutputTest() { write_tiny_trace(trace_); }
  [[nodiscard]] std::vector<std::string> arguments(
      const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"run", trace_, "--backend", "cpu", "--format", "csv"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  TemporaryFolder folder_;
  std::string trace_ = folder_.file("tiny.h5");
};

TEST_F(OutputTest, AFileHasWhatStandardOutputWouldHave) {
  const Outcome shown = run_tool(arguments());
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  const Outcome written = run_tool(arguments({"-o", folder_.file("out.csv")}));
  EXPECT_EQ(written.exit_code, 0);
  EXPECT_EQ(written.out, "");
  EXPECT_EQ(read_file(folder_.file("out.csv")), shown.out);
  EXPECT_THAT(folder_.names(), testing::ElementsAre("out.csv", "tiny.h5"));
  EXPECT_EQ(run_tool(arguments({"-o", "-"})).out, shown.out);
}

TEST_F(OutputTest, AnExistingFileIsReplacedAndKeepsItsPermissions) {
  const std::string out = folder_.file("out.csv");
  write_file(out, "old");
  ASSERT_EQ(chmod(out.c_str(), 0640), 0);
  EXPECT_EQ(run_tool(arguments({"-o", out})).exit_code, 0);
  EXPECT_THAT(read_file(out), testing::StartsWith("trace,"));
  EXPECT_EQ(std::filesystem::status(out).permissions(), std::filesystem::perms(0640));
}

TEST_F(OutputTest, ASymbolicLinkIsFollowedAndKept) {
  write_file(folder_.file("real.csv"), "old");
  std::filesystem::create_symlink("real.csv", folder_.file("link.csv"));
  EXPECT_EQ(run_tool(arguments({"-o", folder_.file("link.csv")})).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder_.file("link.csv")));
  EXPECT_THAT(read_file(folder_.file("real.csv")), testing::StartsWith("trace,"));
}

TEST_F(OutputTest, ADeviceIsWrittenToAndNotReplaced) {
  EXPECT_EQ(run_tool(arguments({"-o", "/dev/null"})).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  expect_error(run_tool(arguments({"-o", "/dev/full", "--quiet"})), 1,
               {"/dev/full", "writing failed"});
}

TEST_F(OutputTest, AFailedRunLeavesAnExistingFileAsItWas) {
  const std::string out = folder_.file("out.csv");
  write_file(out, "old");
  expect_error(run_tool({"run", folder_.file("none.h5"), "-o", out}), 4, {"none.h5"});
  EXPECT_EQ(read_file(out), "old");
  EXPECT_THAT(folder_.names(), testing::ElementsAre("out.csv", "tiny.h5"));
}

TEST_F(OutputTest, AFullDiskExitsWith1) {
  expect_error(run_tool(Invocation{.arguments = arguments({"--quiet"}), .out = Stdout::full_disk}),
               1, {"standard output", "No space left"});
}

TEST_F(OutputTest, AClosedStandardOutputExitsWith1AndIsNotMistakenForTheTrace) {
  const std::string before = read_file(trace_);
  expect_error(run_tool(Invocation{.arguments = arguments(), .out = Stdout::closed}), 1,
               {"standard output", "closed"});
  EXPECT_EQ(read_file(trace_), before);
}

TEST_F(OutputTest, AClosedStandardOutputDoesNotMatterWhereAFileIsWritten) {
  const Outcome outcome = run_tool(
      Invocation{.arguments = arguments({"-o", folder_.file("out")}), .out = Stdout::closed});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(read_file(folder_.file("out")), testing::StartsWith("trace,"));
}

TEST_F(OutputTest, AReaderThatWentAwayIsNoReasonToComplain) {
  const Outcome outcome =
      run_tool(Invocation{.arguments = arguments({"--quiet"}), .out = Stdout::broken_pipe});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "");
}

TEST_F(OutputTest, NothingButDataIsOnStandardOutputAndNothingButNotesOnStandardError) {
  const Outcome outcome = run_tool(arguments());
  EXPECT_EQ(outcome.exit_code, 0);
  for (const std::string& line : lines_of(outcome.err)) {
    EXPECT_THAT(line, testing::StartsWith("dspark-replay: note: "));
  }
  EXPECT_THAT(outcome.out, testing::StartsWith("trace,"));
  EXPECT_EQ(run_tool(arguments({"--quiet"})).err, "");
}

// Waits on a pipe for its policy file, so that the signal arrives while it runs, whatever the
// machine's speed.
class Interrupted : public testing::TestWithParam<int> {};

TEST_P(Interrupted, LeavesNothingBehindAndSaysWhichSignal) {
  const TemporaryFolder folder;
  const std::string fifo = folder.file("policy");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  Process process(DSPARK_TOOL, {.arguments = {"run", bundled("code_t1.h5"), "-p", fifo, "-o",
                                              folder.file("out")}});
  const int writer = open(fifo.c_str(), O_WRONLY);  // returns once the tool reads
  ASSERT_GE(writer, 0);
  ASSERT_EQ(kill(process.id(), GetParam()), 0);
  const Outcome outcome = process.finish();
  close(writer);
  EXPECT_EQ(outcome.exit_code, 128 + GetParam());
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(folder.names(), testing::ElementsAre("policy"));
}

INSTANTIATE_TEST_SUITE_P(Signals, Interrupted, testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST(TemporaryFile, IsRemovedByASignal) {
  const TemporaryFolder folder;
  const std::string path = folder.file("half-written");
  write_file(path, "half");
  const auto interrupted = [&] {
    prepare_process();
    temporary_files().path = path;
    kill(getpid(), SIGTERM);
    for (;;) pause();
  };
  EXPECT_EXIT(interrupted(), testing::ExitedWithCode(128 + SIGTERM), "");
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Process, KeepsIgnoringASignalThatWasIgnoredWhenItStarted) {
  const auto ignoring = [] {
    signal(SIGHUP, SIG_IGN);
    prepare_process();
    kill(getpid(), SIGHUP);
    kill(getpid(), SIGTERM);
    for (;;) pause();
  };
  EXPECT_EXIT(ignoring(), testing::ExitedWithCode(128 + SIGTERM), "");
}

}  // namespace
}  // namespace dspark::test
