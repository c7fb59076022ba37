// Acceptance by argmax.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/dspark_ops.h"

namespace dspark::kernels {

/// Words of device memory that greedy_accept needs as 0, and leaves so: no two calls that use the
/// same ones may run at once.
inline constexpr std::int32_t kGreedyAcceptTickets = 4096;

/// `dsparkGreedyAccept`, see GreedyAcceptArgs. Enqueued; one pass over the rows that count, one
/// launch for kGreedyAcceptTickets batch entries. `tickets` [kGreedyAcceptTickets].
void greedy_accept(const GreedyAcceptArgs& args, std::uint32_t* tickets, cudaStream_t stream);

}  // namespace dspark::kernels
