// Which backend runs: --backend.
#pragma once

#include <memory>
#include <string>

#include "cli/messages.h"
#include "replay/backend.h"

namespace dspark {

enum class BackendRequest { automatic, cpu, cuda };

/// Makes the backend that was asked for: `automatic` takes CUDA where a device can be used, else
/// the CPU with `threads` threads. Throws Error(device) with the reason where `cuda` was asked for
/// and cannot be used.
[[nodiscard]] std::unique_ptr<Backend> choose_backend(BackendRequest request, int threads);

/// A backend that outputs are held against, and how it is told: "cpu backend (x86-64-v3)", or that
/// its instruction set is the one that is timed.
struct ReferenceBackend {
  std::unique_ptr<Backend> backend;
  std::string text;
};

/// The CPU backend that another one's outputs are held against. `beside_cpu`: that one is the CPU
/// backend too; then the next narrower instruction set is taken where the processor has three, so
/// that the loops are not the same (the narrowest is left alone: it is far too slow). With fewer
/// they are the same, and the text says so.
[[nodiscard]] ReferenceBackend make_reference_backend(bool beside_cpu, int threads);

/// Tells how much memory a pass takes: always for a device, whose memory may be others' too, and on
/// the host whoever watches.
void tell_plan(const Backend& backend, const std::string& line, Messages& messages);

}  // namespace dspark
