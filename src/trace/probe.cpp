#include "trace/probe.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "trace/located_error.h"

namespace dspark {
namespace {

// Processor time, not time by the clock: a slow disk is no damage.
constexpr rlim_t kMaxSeconds = 20;

// Signals are blocked where a thread of the parent waits for them; that thread is not in the child.
void accept_all_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

[[noreturn]] void run_in_child(const std::function<void()>& work, pid_t parent) {
  for (const int fatal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU, SIGINT, SIGTERM}) {
    std::signal(fatal, SIG_DFL);
  }
  accept_all_signals();
  // Whatever ends the parent ends the child, which may be looping.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  const rlimit no_core{0, 0};
  const rlimit seconds{kMaxSeconds, kMaxSeconds};
  setrlimit(RLIMIT_CORE, &no_core);
  setrlimit(RLIMIT_CPU, &seconds);
  // A child that dies has nothing to say to the user.
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) {
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
  }
  try {
    work();
  } catch (...) {  // an error that the parent will find, too
  }
  _exit(0);
}

}  // namespace

void probe(const std::string& file, const std::function<void()>& work) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return;
  if (child == 0) run_in_child(work, parent);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return;
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  // Stopped from outside, as the parent is about to be.
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM)) return;
  fail(file, "", "is damaged so badly that HDF5 crashes or loops on it", "copy or record it again");
}

}  // namespace dspark
