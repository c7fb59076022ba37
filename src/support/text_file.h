// Whole text files in memory, with a bound.
#pragma once

#include <cstddef>
#include <string>

namespace dspark {

/// What messages call the file at `path`: "<stdin>" for "-".
[[nodiscard]] std::string text_file_name(const std::string& path);

/// The bytes of a settings file ("-": standard input), read to the end or to the first 64 KiB
/// beyond `max_bytes`: the caller, who knows what to say, refuses more than that. `what` stands in
/// messages ("policy file"). Throws Error(policy) where the file cannot be read.
[[nodiscard]] std::string read_text_file(const std::string& path, std::size_t max_bytes,
                                         const std::string& what);

}  // namespace dspark
