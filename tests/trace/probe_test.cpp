// Opening in another process: what becomes of that process.
#include "trace/probe.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/trace/raw_file.h"

namespace dspark::test {
namespace {

TEST(Probe, WorkThatEndsOrThrowsIsNoDamage) {
  EXPECT_NO_THROW(probe("x.h5", [] {}));
  EXPECT_NO_THROW(probe("x.h5", [] { throw 1; }));
}

TEST(Probe, ACrashIsDamage) {
  expect_trace_error({"x.h5", "damaged"}, [] { probe("x.h5", [] { abort(); }); });
}

// A loop in a damaged file must not outlive the tool: the child holds a pipe open while it runs.
TEST(Probe, TheChildEndsWithItsParentThoughSignalsAreBlockedThere) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t tool = fork();
  ASSERT_GE(tool, 0);
  if (tool == 0) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, nullptr);
    close(ends[0]);
    probe("x.h5", [&] {
      [[maybe_unused]] const ssize_t written = write(ends[1], "r", 1);
      for (;;) pause();
    });
    _exit(0);
  }
  close(ends[1]);
  char running = 0;
  ASSERT_EQ(read(ends[0], &running, 1), 1);
  ASSERT_EQ(kill(tool, SIGKILL), 0);
  ASSERT_EQ(waitpid(tool, nullptr, 0), tool);
  pollfd end = {.fd = ends[0], .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&end, 1, 10'000), 1) << "the child still runs";
  EXPECT_EQ(read(ends[0], &running, 1), 0);
  close(ends[0]);
}

}  // namespace
}  // namespace dspark::test
