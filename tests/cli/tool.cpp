#include "tests/cli/tool.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

extern char** environ;

namespace dspark::test {
namespace {

// File actions of posix_spawn, freed on every way out.
class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  void read_from(const std::string& path) {
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, path.c_str(), O_RDONLY, 0);
  }
  void write_to(int stream, const std::string& path) {
    posix_spawn_file_actions_addopen(&actions_, stream, path.c_str(), O_WRONLY | O_CREAT, 0600);
  }
  void close(int stream) { posix_spawn_file_actions_addclose(&actions_, stream); }
  void duplicate(int from, int to) { posix_spawn_file_actions_adddup2(&actions_, from, to); }
  void enter(const std::string& folder) {
    posix_spawn_file_actions_addchdir_np(&actions_, folder.c_str());
  }
  [[nodiscard]] const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

// The signals of the test's own surroundings (ignored under nohup, say) are not the tool's.
class DefaultSignals {
 public:
  DefaultSignals() {
    posix_spawnattr_init(&attributes_);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) sigaddset(&signals, signal);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  DefaultSignals(const DefaultSignals&) = delete;
  DefaultSignals& operator=(const DefaultSignals&) = delete;
  ~DefaultSignals() { posix_spawnattr_destroy(&attributes_); }
  [[nodiscard]] const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

}  // namespace

Process::Process(const std::string& program, const Invocation& invocation) {
  FileActions actions;
  write_file(streams_.file("in"), invocation.input);
  actions.read_from(streams_.file("in"));
  actions.write_to(STDERR_FILENO, streams_.file("err"));
  int pipe_ends[2] = {-1, -1};
  switch (invocation.out) {
    case Stdout::captured:
      actions.write_to(STDOUT_FILENO, streams_.file("out"));
      break;
    case Stdout::closed:
      actions.close(STDOUT_FILENO);
      break;
    case Stdout::full_disk:
      actions.write_to(STDOUT_FILENO, "/dev/full");
      break;
    case Stdout::broken_pipe:
      if (pipe2(pipe_ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
      close(pipe_ends[0]);
      actions.duplicate(pipe_ends[1], STDOUT_FILENO);
      break;
  }
  if (!invocation.folder.empty()) actions.enter(invocation.folder);

  std::vector<std::string> words = {program};
  words.insert(words.end(), invocation.arguments.begin(), invocation.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const DefaultSignals signals;
  const int error =
      posix_spawn(&id_, program.c_str(), actions.get(), signals.get(), argv.data(), environ);
  if (pipe_ends[1] >= 0) close(pipe_ends[1]);
  if (error != 0) throw std::runtime_error("cannot start " + program);
}

Outcome Process::finish() {
  int status = 0;
  while (waitpid(id_, &status, 0) == -1 && errno == EINTR) {
  }
  Outcome outcome;
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (std::filesystem::exists(streams_.file("out"))) outcome.out = read_file(streams_.file("out"));
  outcome.err = read_file(streams_.file("err"));
  return outcome;
}

Outcome run_tool(const Invocation& invocation) { return Process(DSPARK_TOOL, invocation).finish(); }

Outcome run_tool(const std::vector<std::string>& arguments) {
  return run_tool(Invocation{.arguments = arguments});
}

std::string bundled(const std::string& name) { return std::string(DSPARK_TRACES) + "/" + name; }

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

void expect_error(const Outcome& outcome, int exit_code, const std::vector<std::string>& parts) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  const std::vector<std::string> lines = lines_of(outcome.err);
  ASSERT_EQ(lines.size(), 1U) << outcome.err;
  EXPECT_THAT(lines.front(), testing::StartsWith("dspark-replay: error: "));
  for (const std::string& part : parts) EXPECT_THAT(lines.front(), testing::HasSubstr(part));
}

}  // namespace dspark::test
