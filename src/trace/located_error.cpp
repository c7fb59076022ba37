#include "trace/located_error.h"

#include <utility>

namespace dspark {

LocatedError::LocatedError(std::string in_file, std::string place_in_file,
                           const std::string& problem, const std::string& remedy)
    : Error(ExitCode::trace, place_in_file.empty() ? in_file : in_file + ": " + place_in_file,
            problem, remedy),
      file(std::move(in_file)),
      place(std::move(place_in_file)),
      what_to_show(remedy.empty() ? problem : problem + "; " + remedy) {}

void fail(const std::string& file, const std::string& place, const std::string& problem,
          const std::string& remedy) {
  throw LocatedError(file, place, problem, remedy);
}

}  // namespace dspark
