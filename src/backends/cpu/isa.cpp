#include "backends/cpu/isa.h"

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/vector_ops.h"

namespace dspark {
namespace cpu {

std::vector<const VectorOps*> available_vector_ops() {
  std::vector<const VectorOps*> available = {&baseline::kVectorOps};
#if defined(DSPARK_X86_64)
  if (__builtin_cpu_supports("x86-64-v3")) available.push_back(&x86_64_v3::kVectorOps);
  if (__builtin_cpu_supports("x86-64-v4")) available.push_back(&x86_64_v4::kVectorOps);
#endif
  return available;
}

const char* vector_ops_name(const VectorOps& ops) { return ops.name; }

}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(int threads) {
  return cpu::make_cpu_backend_with(threads, *cpu::available_vector_ops().back());
}

}  // namespace dspark
