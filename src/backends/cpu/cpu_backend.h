// The CPU backend.
#pragma once

#include <memory>

#include "replay/backend.h"

namespace dspark {

/// A backend on the host's cores. `threads` ≥ 1; results do not depend on it.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace dspark
