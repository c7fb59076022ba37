// Text that is safe to show: escaping of hostile strings, and numbers that look the same
// everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dspark {

/// Bytes of the valid UTF-8 sequence that starts at text[i]; 0 where there is none, or a C1 control
/// character. ASCII, its control characters included, is 1 byte.
[[nodiscard]] std::size_t utf8_length(std::string_view text, std::size_t i);

/// Returns `text` with control characters and bytes that are not valid UTF-8 shown as \xNN (newline
/// as \n, tab as \t).
[[nodiscard]] std::string escape_text(std::string_view text);

/// The shortest decimal text that reads back as the same double; locale-free. Infinities and NaN
/// never get here: a number that does not exist is an empty optional upstream.
[[nodiscard]] std::string shortest(double value);

/// `bytes` in a unit a person reads ("1.24 GB", "512 B"); powers of 1000.
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);

/// "1 row", "2 rows".
[[nodiscard]] std::string counted(std::int64_t count, std::string_view noun);

}  // namespace dspark
