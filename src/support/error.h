// Errors a user can see: each says what is wrong, where, and what to do, and knows its exit code.
#pragma once

#include <stdexcept>
#include <string>

namespace dspark {

/// Exit codes of the command line tool (README, "Exit codes").
enum class ExitCode : int {
  done = 0,        ///< finished
  internal = 1,    ///< internal error, or writing failed (disk full)
  usage = 2,       ///< bad flags or arguments
  policy = 3,      ///< bad policy, cost or calibration file
  trace = 4,       ///< bad trace or heads file
  device = 5,      ///< no usable device, or out of (device) memory
  incomplete = 6,  ///< finished, but rows were invalid or a gate failed
};

/// The one exception type of this project. `what()` is one line without a trailing newline:
/// "<where>: <what>; <what to do>". Control characters and invalid UTF-8 in any of the three parts
/// are escaped.
class Error : public std::runtime_error {
 public:
  /// `where`: file, dataset, row or line:column; may be empty. `remedy`: what to do; may be empty.
  Error(ExitCode code, const std::string& where, const std::string& what,
        const std::string& remedy = {});

  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// Shorthands for the codes above.
[[nodiscard]] Error internal_error(const std::string& where, const std::string& what,
                                   const std::string& remedy = {});
[[nodiscard]] Error usage_error(const std::string& where, const std::string& what,
                                const std::string& remedy = {});
[[nodiscard]] Error policy_error(const std::string& where, const std::string& what,
                                 const std::string& remedy = {});
[[nodiscard]] Error trace_error(const std::string& where, const std::string& what,
                                const std::string& remedy = {});
[[nodiscard]] Error device_error(const std::string& where, const std::string& what,
                                 const std::string& remedy = {});

}  // namespace dspark
