// The version of the tool.
#pragma once

namespace dspark {

/// "major.minor.patch".
[[nodiscard]] const char* version();

}  // namespace dspark
