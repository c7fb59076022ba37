// The CPU backend; with DSPARK_TEST_VECTOR_OPS, its version for that instruction set instead of the
// widest.
#include "backends/cpu/isa.h"
#include "tests/kernels/kernel_test.h"

namespace dspark::test {
namespace {

/// Null where this processor does not have it.
const cpu::VectorOps* chosen_vector_ops() {
  const std::vector<const cpu::VectorOps*> available = cpu::available_vector_ops();
#if defined(DSPARK_TEST_VECTOR_OPS)
  for (const cpu::VectorOps* ops : available) {
    if (cpu::vector_ops_name(*ops) == std::string(DSPARK_TEST_VECTOR_OPS)) return ops;
  }
  return nullptr;
#else
  return available.back();
#endif
}

}  // namespace

std::string backend_unavailable_reason() {
  return chosen_vector_ops() != nullptr ? "" : "this processor lacks the instruction set";
}

Backend& backend() {
  static const std::unique_ptr<Backend> instance =
      cpu::make_cpu_backend_with(2, *chosen_vector_ops());
  return *instance;
}

}  // namespace dspark::test
