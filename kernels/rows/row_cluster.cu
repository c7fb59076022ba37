#include "kernels/rows/row_cluster.cuh"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

namespace dspark::kernels {
namespace {

/// Elements of a block, but for few rows: as many as fit beside what filters need. Fewer blocks per
/// row are fewer to wait for each other.
constexpr std::int32_t kChunk = 40 * 1024;
/// Fewer are not worth a block of their own.
constexpr std::int32_t kLeastChunk = 1024;

bool rows_at_16_bytes(const Rows& rows) {
  return reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && rows.stride % 4 == 0;
}

}  // namespace

std::size_t most_cluster_shared() {
  // Beside the kernel's own the system keeps 1 KiB.
  const std::int64_t device =
      device_traits().block_memory - static_cast<std::int64_t>(sizeof(ClusterMemory)) - 1024;
  return device <= 0 ? 0 : std::min(kMostClusterShared, static_cast<std::size_t>(device));
}

ClusterShape cluster_shape(const Rows& logits, const SamplingRule& rule) {
  const bool filtered = rule.top_k != 0;
  if (!device_traits().hopper || rule.top_k > kMostClusterTopK) return {};
  if (rule.top_p != 0 && !filtered) return {};
  const auto chunk_of = [&](int blocks) {
    return static_cast<std::int32_t>(
        ((static_cast<std::int64_t>(logits.vocab) + blocks - 1) / blocks + 7) / 8 * 8);
  };
  ClusterShape shape;
  shape.blocks = 1;
  while (shape.blocks < kMostClusterBlocks &&
         (chunk_of(shape.blocks) > kChunk ||
          (chunk_of(shape.blocks) >= 2 * kLeastChunk &&
           logits.rows * shape.blocks < device_traits().multiprocessors))) {
    shape.blocks *= 2;
  }
  shape.chunk = chunk_of(shape.blocks);
  shape.shared =
      static_cast<std::size_t>(shape.chunk) * sizeof(float) + (filtered ? sizeof(FilterMemory) : 0);
  if (shape.chunk > kMostStripes * 4 * kClusterThreads || shape.shared > most_cluster_shared()) {
    return {};
  }
  shape.bulk = rows_at_16_bytes(logits);
  return shape;
}

int resident_clusters(const void* kernel, const ClusterShape& shape) {
  static std::mutex mutex;
  static std::map<std::tuple<const void*, int, std::size_t>, int> known;
  const std::lock_guard lock(mutex);
  int& clusters = known[{kernel, shape.blocks, shape.shared}];
  if (clusters == 0) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(shape.blocks);
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid_of(shape.blocks);
    config.blockDim = dim3(kClusterThreads);
    config.dynamicSmemBytes = shape.shared;
    config.attrs = &attribute;
    config.numAttrs = 1;
    DSPARK_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
    if (clusters <= 0)
      throw_launch_error("row clusters", "no cluster of this shape fits the device");
  }
  return clusters;
}

}  // namespace dspark::kernels
