// Which backend runs: --backend.
#pragma once

#include <memory>

#include "replay/backend.h"

namespace dspark {

enum class BackendRequest { automatic, cpu, cuda };

/// Makes the backend that was asked for: `automatic` takes CUDA where a device can be used, else
/// the CPU with `threads` threads. Throws Error(device) with the reason where `cuda` was asked for
/// and cannot be used.
[[nodiscard]] std::unique_ptr<Backend> choose_backend(BackendRequest request, int threads);

}  // namespace dspark
