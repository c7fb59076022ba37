#include "cli/messages.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "support/text.h"

namespace dspark {
namespace {

constexpr auto kProgressInterval = std::chrono::milliseconds(100);

void write_to_stderr(const std::string& text) {
  // Nothing is left to do where standard error fails.
  [[maybe_unused]] const std::size_t written = std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace

Messages::Messages(bool quiet) : quiet_(quiet), show_progress_(!quiet && isatty(STDERR_FILENO)) {}

Messages::~Messages() { clear_progress(); }

void Messages::note(const std::string& text) {
  if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) notes_.push_back(text);
  tell(text);
}

void Messages::tell(const std::string& text) {
  if (!quiet_) insist(text);
}

void Messages::insist(const std::string& text) {
  if (!told_.insert(text).second) return;
  clear_progress();
  write_to_stderr(fmt::format("dspark-replay: note: {}\n", escape_text(text)));
}

void Messages::show(const std::string& text) {
  if (show_progress_) tell(text);
}

void Messages::progress(const std::string& what, std::int64_t done, std::int64_t total) {
  if (!show_progress_ || total <= 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_progress_ < kProgressInterval) return;
  last_progress_ = now;
  progress_shown_ = true;
  write_to_stderr(fmt::format("\r\x1b[K{}: {:.0f} %", escape_text(what),
                              100.0 * static_cast<double>(done) / static_cast<double>(total)));
}

void Messages::clear_progress() {
  if (!progress_shown_) return;
  progress_shown_ = false;
  write_to_stderr("\r\x1b[K");
}

void print_error(const std::string& text) {
  write_to_stderr(fmt::format("dspark-replay: error: {}\n", escape_text(text)));
}

}  // namespace dspark
