// Files that appear whole or not at all.
#pragma once

#include <string>
#include <string_view>

namespace dspark {

/// Closes on every way out; close() is called by hand where its error matters.
class Descriptor {
 public:
  /// `number` below 0: none.
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  [[nodiscard]] int number() const { return number_; }
  /// Returns what close(2) returns.
  [[nodiscard]] int close();

 private:
  int number_;
};

/// Writes all of `text`. Returns 0 or the error number.
[[nodiscard]] int write_all(int descriptor, std::string_view text);

/// Creates a file beside `target` and removes it. Returns 0 or the error number.
[[nodiscard]] int probe_whole_file(const std::string& target);

/// Writes `text` to a temporary file beside `target`, flushes it to the disk and renames it over
/// `target`, whose permissions it takes. A signal removes the temporary file (prepare_process()).
/// Returns 0, or the error number: then nothing is left behind and `target` is as it was.
[[nodiscard]] int write_whole_file(const std::string& target, std::string_view text);

}  // namespace dspark
