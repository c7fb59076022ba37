// The flag --cache that run and calibrate share.
#pragma once

#include <optional>
#include <string>

#include "replay/cache.h"

namespace dspark {

/// The folder of --cache, if there is one. A signal removes what it may leave unfinished. Throws
/// Error(usage) if it cannot be used.
[[nodiscard]] std::optional<TableCache> open_cache(const std::optional<std::string>& folder);

}  // namespace dspark
