// The CUDA backend.
#pragma once

#include <memory>
#include <string>

#include "replay/backend.h"

namespace dspark {

/// Empty if a CUDA device can be used, else the reason why not (one line, no trailing stop). Never
/// throws.
[[nodiscard]] std::string cuda_unavailable_reason();

/// A backend on CUDA device 0 of this process. Throws Error(device) with the reason where there is
/// none.
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend();

}  // namespace dspark
