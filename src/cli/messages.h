// What the user is told on standard error: notes, progress, errors. Data never goes here.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace dspark {

/// Notes and progress of one command. Both are silent if `quiet`, but for insist(); progress also
/// unless standard error is a terminal.
class Messages {
 public:
  explicit Messages(bool quiet);
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages();

  /// One line, "dspark-replay: note: <text>"; the same text is told once.
  void tell(const std::string& text);
  /// The same, for what belongs to the numbers: it is kept for the result too, even if `quiet`.
  void note(const std::string& text);
  /// What note() was called with, each once.
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  /// One line as tell() writes it, even if quiet: what an exit code other than 0 comes from.
  void insist(const std::string& text);

  /// One line as above for whoever watches: silent where progress is.
  void show(const std::string& text);

  /// Shows how far `what` is, at most ten times a second, on one line that goes away again.
  void progress(const std::string& what, std::int64_t done, std::int64_t total);

 private:
  void clear_progress();
  bool quiet_;
  bool show_progress_;
  bool progress_shown_ = false;
  std::chrono::steady_clock::time_point last_progress_;
  std::unordered_set<std::string> told_;
  std::vector<std::string> notes_;
};

/// One line, "dspark-replay: error: <text>".
void print_error(const std::string& text);

}  // namespace dspark
