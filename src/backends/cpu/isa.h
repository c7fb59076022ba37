// The instruction sets of the CPU backend's inner loops. For tests and benchmarks; make_cpu_backend
// chooses by itself.
#pragma once

#include <memory>
#include <vector>

#include "replay/backend.h"

namespace dspark::cpu {

struct VectorOps;

/// The versions that this build has and this processor can run, from the plainest to the widest;
/// never empty.
[[nodiscard]] std::vector<const VectorOps*> available_vector_ops();

/// The name of a version, e.g. "x86-64-v3".
[[nodiscard]] const char* vector_ops_name(const VectorOps& ops);

/// make_cpu_backend with one of the available versions.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend_with(int threads, const VectorOps& ops);

}  // namespace dspark::cpu
