#include "cli/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

namespace dspark {
namespace {

// Opens the wrong way round: reading standard input and writing the other two must fail, not
// succeed into nothing.
void occupy_closed_streams() {
  constexpr int modes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
  for (int stream = 0; stream < 3; ++stream) {
    if (fcntl(stream, F_GETFD) == -1) {
      // The lowest free number is `stream`: all below it are open. Without a null device there is
      // nothing to occupy it with, and the first write reports that.
      [[maybe_unused]] const int opened = open("/dev/null", modes[stream]);
    }
  }
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

[[noreturn]] void end_by_signal(int signal) {
  const std::lock_guard lock(temporary_files().mutex);
  if (!temporary_files().path.empty()) unlink(temporary_files().path.c_str());
  for (const std::string& path : temporary_files().others) unlink(path.c_str());
  _exit(128 + signal);
}

// Signals are taken by a thread of their own: it may lock and unlink, which a signal handler may
// not.
void watch_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!is_ignored(signal)) sigaddset(&signals, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    int signal = 0;
    while (sigwait(&signals, &signal) != 0) {
    }
    end_by_signal(signal);
  }).detach();
}

}  // namespace

TemporaryFiles& temporary_files() {
  static auto* const file =
      new TemporaryFiles;  // never destroyed: the signal thread may outlive main
  return *file;
}

void prepare_process() {
  occupy_closed_streams();
  signal(SIGPIPE, SIG_IGN);
  watch_signals();
}

}  // namespace dspark
