// What the user is told on standard error: notes, progress, errors. Data never goes here.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_set>

namespace dspark {

/// Notes and progress of one command. Both are silent if `quiet`; progress also unless standard
/// error is a terminal.
class Messages {
 public:
  explicit Messages(bool quiet);
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages();

  /// One line, "dspark-replay: note: <text>"; the same text is told once.
  void note(const std::string& text);

  /// Shows how far `what` is, at most ten times a second, on one line that goes away again.
  void progress(const std::string& what, std::int64_t done, std::int64_t total);

 private:
  void clear_progress();
  bool quiet_;
  bool show_progress_;
  bool progress_shown_ = false;
  std::chrono::steady_clock::time_point last_progress_;
  std::unordered_set<std::string> told_;
};

/// One line, "dspark-replay: error: <text>".
void print_error(const std::string& text);

}  // namespace dspark
