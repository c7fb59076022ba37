// Batch-wide scheduling by survival.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "core/dspark_ops.h"

namespace dspark::kernels {

/// Bytes of `workspace` that batch_schedule needs; 0 for a step that one block schedules.
[[nodiscard]] std::size_t batch_schedule_workspace(const BatchScheduleArgs& args);

/// See BatchScheduleArgs. Up to 4096 drafts are one launch of one block; more are sorted by the
/// whole device. Enqueued; no requests still give a capacity.
void batch_schedule(const BatchScheduleArgs& args, const Scratch& workspace, cudaStream_t stream);

}  // namespace dspark::kernels
