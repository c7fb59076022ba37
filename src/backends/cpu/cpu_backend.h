// The CPU backend.
#pragma once

#include <memory>

#include "replay/backend.h"

namespace dspark {

/// A backend on the host's cores, with the widest instruction set that this processor has.
/// `threads` in [1, 4096]; results do not depend on it, nor on the instruction set. All calls are
/// done when they return. One thread at a time may call it. Throws Error(internal) for another
/// number of threads.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(int threads);

}  // namespace dspark
