// The version of the tool, and the commit it was built from.
#pragma once

namespace dspark {

/// "major.minor.patch".
[[nodiscard]] const char* version();

/// What `git describe --always --dirty` said of the source tree when the build was configured
/// (again after every commit); empty where the tree is no repository.
[[nodiscard]] const char* commit();

}  // namespace dspark
