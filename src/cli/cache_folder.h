// The flag --cache that run and calibrate share.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "replay/cache.h"

namespace dspark {

/// The folder of --cache; null without it. A signal removes what it may leave unfinished. Throws
/// Error(usage) if it cannot be used.
[[nodiscard]] std::unique_ptr<TableCache> open_cache(const std::optional<std::string>& folder);

}  // namespace dspark
