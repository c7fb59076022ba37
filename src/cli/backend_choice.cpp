#include "cli/backend_choice.h"

#include <fmt/format.h>

#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/isa.h"
#include "support/error.h"
#if defined(DSPARK_CUDA)
#include "backends/cuda/cuda_backend.h"
#endif

namespace dspark {
namespace {

#if defined(DSPARK_CUDA)
std::string why_not_cuda() { return cuda_unavailable_reason(); }
std::unique_ptr<Backend> make_cuda() { return make_cuda_backend(); }
#else
std::string why_not_cuda() { return "this build has no CUDA backend"; }
std::unique_ptr<Backend> make_cuda() {
  throw internal_error("make_cuda", "called in a build without CUDA");
}
#endif

}  // namespace

void tell_plan(const Backend& backend, const std::string& line, Messages& messages) {
  if (backend.shares_host_memory()) {
    messages.show(line);
  } else {
    messages.tell(line);
  }
}

std::unique_ptr<Backend> choose_backend(BackendRequest request, int threads) {
  if (request == BackendRequest::cpu) return make_cpu_backend(threads);
  const std::string reason = why_not_cuda();
  if (reason.empty()) return make_cuda();
  if (request == BackendRequest::cuda) {
    throw device_error("--backend cuda", reason,
                       "use --backend cpu, or auto to take what there is");
  }
  return make_cpu_backend(threads);
}

ReferenceBackend make_reference_backend(bool beside_cpu, int threads) {
  const std::vector<const cpu::VectorOps*> available = cpu::available_vector_ops();
  const bool narrower = beside_cpu && available.size() >= 3;
  const cpu::VectorOps& ops = narrower ? **(available.end() - 2) : *available.back();
  const bool same = beside_cpu && !narrower;
  return {cpu::make_cpu_backend_with(threads, ops),
          fmt::format("cpu backend ({}{})", cpu::vector_ops_name(ops),
                      same ? ", the same loops that are timed" : "")};
}

}  // namespace dspark
