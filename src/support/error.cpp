#include "support/error.h"

#include "support/text.h"

namespace dspark {
namespace {

std::string join(const std::string& where, const std::string& what, const std::string& remedy) {
  std::string line;
  if (!where.empty()) line += where + ": ";
  line += what;
  if (!remedy.empty()) line += "; " + remedy;
  return escape_text(line);
}

}  // namespace

Error::Error(ExitCode code, const std::string& where, const std::string& what,
             const std::string& remedy)
    : std::runtime_error(join(where, what, remedy)), code_(code) {}

Error internal_error(const std::string& where, const std::string& what, const std::string& remedy) {
  return {ExitCode::internal, where, what, remedy};
}
Error usage_error(const std::string& where, const std::string& what, const std::string& remedy) {
  return {ExitCode::usage, where, what, remedy};
}
Error policy_error(const std::string& where, const std::string& what, const std::string& remedy) {
  return {ExitCode::policy, where, what, remedy};
}
Error trace_error(const std::string& where, const std::string& what, const std::string& remedy) {
  return {ExitCode::trace, where, what, remedy};
}
Error device_error(const std::string& where, const std::string& what, const std::string& remedy) {
  return {ExitCode::device, where, what, remedy};
}

}  // namespace dspark
