// SHA-256, where a file states one.
#pragma once

#include <string>
#include <string_view>

namespace dspark {

/// The SHA-256 of some bytes (FIPS 180-4): 64 hexadecimal digits, lower case. Throws
/// Error(internal) where the machine's library refuses to compute it.
[[nodiscard]] std::string sha256_hex(std::string_view bytes);

}  // namespace dspark
