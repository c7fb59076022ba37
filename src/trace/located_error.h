// Errors of this folder: exit code 4, and the place inside the file kept apart so that `inspect`
// can list it.
#pragma once

#include <string>

#include "support/error.h"

namespace dspark {

/// An Error(trace) about `place` (dataset, attribute or row; may be empty) of `file`.
struct LocatedError : Error {
  LocatedError(std::string in_file, std::string place_in_file, const std::string& problem,
               const std::string& remedy);

  std::string file;
  std::string place;
  std::string what_to_show;  ///< problem and remedy, without file and place
};

[[noreturn]] void fail(const std::string& file, const std::string& place,
                       const std::string& problem, const std::string& remedy = {});

}  // namespace dspark
