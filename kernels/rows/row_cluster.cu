#include "kernels/rows/row_cluster.cuh"

namespace dspark::kernels {
namespace {

/// Elements of a block of which two fit a multiprocessor, so that one loads while the other
/// computes.
constexpr std::int32_t kChunk = 20480;
/// Fewer are not worth a block of their own.
constexpr std::int32_t kLeastChunk = 1024;

struct ClusterDevice {
  bool clusters = false;
  std::int64_t multiprocessors = 0;
};

/// The device that is current at the first call; a process uses one.
const ClusterDevice& cluster_device() {
  static const ClusterDevice device = [] {
    int current = 0;
    int major = 0;
    int multiprocessors = 0;
    DSPARK_CUDA_CHECK(cudaGetDevice(&current));
    DSPARK_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, current));
    DSPARK_CUDA_CHECK(
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, current));
    return ClusterDevice{major >= 9, multiprocessors};
  }();
  return device;
}

}  // namespace

ClusterShape cluster_shape(std::int64_t rows, std::int32_t vocab, const SamplingRule& rule) {
  const bool filtered = rule.top_k != 0;
  if (!cluster_device().clusters || rule.top_k > kMostClusterTopK) return {};
  if (rule.top_p != 0 && !filtered) return {};
  const auto chunk_of = [&](int blocks) { return ((vocab + blocks - 1) / blocks + 7) / 8 * 8; };
  ClusterShape shape;
  shape.blocks = 1;
  while (shape.blocks < kMostClusterBlocks &&
         (chunk_of(shape.blocks) > kChunk ||
          (chunk_of(shape.blocks) >= 2 * kLeastChunk &&
           rows * shape.blocks < cluster_device().multiprocessors))) {
    shape.blocks *= 2;
  }
  shape.chunk = chunk_of(shape.blocks);
  shape.shared =
      static_cast<std::size_t>(shape.chunk) * sizeof(float) + (filtered ? sizeof(FilterMemory) : 0);
  return shape.shared <= kMostClusterShared ? shape : ClusterShape{};
}

}  // namespace dspark::kernels
