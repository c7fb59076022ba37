#include "kernels/rows/row_cluster.cuh"

namespace dspark::kernels {
namespace {

/// Elements of a block of which two fit a multiprocessor, so that one loads while the other
/// computes.
constexpr std::int32_t kChunk = 20480;
/// Fewer are not worth a block of their own.
constexpr std::int32_t kLeastChunk = 1024;

}  // namespace

ClusterShape cluster_shape(std::int64_t rows, std::int32_t vocab, const SamplingRule& rule) {
  const bool filtered = rule.top_k != 0;
  if (device_traits().major < 9 || rule.top_k > kMostClusterTopK) return {};
  if (rule.top_p != 0 && !filtered) return {};
  const auto chunk_of = [&](int blocks) { return ((vocab + blocks - 1) / blocks + 7) / 8 * 8; };
  ClusterShape shape;
  shape.blocks = 1;
  while (shape.blocks < kMostClusterBlocks &&
         (chunk_of(shape.blocks) > kChunk ||
          (chunk_of(shape.blocks) >= 2 * kLeastChunk &&
           rows * shape.blocks < device_traits().multiprocessors))) {
    shape.blocks *= 2;
  }
  shape.chunk = chunk_of(shape.blocks);
  shape.shared =
      static_cast<std::size_t>(shape.chunk) * sizeof(float) + (filtered ? sizeof(FilterMemory) : 0);
  return shape.shared <= kMostClusterShared ? shape : ClusterShape{};
}

}  // namespace dspark::kernels
