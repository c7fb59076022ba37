// Where data goes: standard output or a file that appears whole or not at all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dspark {

/// Thrown when the reader of standard output has gone away. Nobody is left to tell, so there is no
/// message.
struct ReaderGone {};

/// The destination of a command's data, checked before any work is done.
///
/// A regular file is written to a temporary file beside it, flushed to the disk and renamed over
/// it; a symbolic link is followed first, and an existing file keeps its permissions. Devices and
/// pipes are written to directly.
class Output {
 public:
  /// `path` "-" is standard output. Throws Error(usage), which names `flag`, if `path` cannot be
  /// created.
  explicit Output(const std::string& path, const std::string& flag = "-o");

  /// Throws Error(usage) if one of `inputs` is this output (the same device and inode).
  void refuse_inputs(const std::vector<std::string>& inputs) const;

  /// Writes `text`, all of it. Call once. Throws Error(internal) where that fails, and then leaves
  /// no file behind; ReaderGone where standard output is a pipe that nobody reads.
  void write(std::string_view text) const;

 private:
  enum class Kind { standard_output, regular_file, device };
  Kind kind_ = Kind::standard_output;
  std::string flag_;    ///< that gave the path, for messages
  std::string given_;   ///< as the user gave it, for messages
  std::string target_;  ///< `given_` with symbolic links followed
};

/// True if both paths name the same existing file (device and inode).
[[nodiscard]] bool same_file(const std::string& a, const std::string& b);

/// True if what is written to both paths ends up in one file: same_file, or one name in one folder,
/// whether it exists or not.
[[nodiscard]] bool same_destination(const std::string& a, const std::string& b);

/// What standard output has open.
enum class Stream { other, regular_file, pipe_or_socket, terminal_or_device };

/// What kind of thing `path` names if standard output has the same one open; else `other`.
[[nodiscard]] Stream as_standard_output(const std::string& path);

}  // namespace dspark
