#include "kernels/sparse/top_k_rows.h"

#include "core/random.h"
#include "kernels/common/inverse_cdf.cuh"
#include "kernels/common/launch.cuh"
#include "kernels/common/reduce.cuh"
#include "kernels/common/visit.cuh"
#include "kernels/rows/top_two.cuh"

namespace dspark::kernels {
namespace {

/// A row of K values as a law, with the lanes of a warp on neighbouring slots.
struct TopKRow {
  const float* values;
  const std::int32_t* ids;  // null: the slots are the ids
  std::int32_t k;
  std::int32_t vocab;  // a slot whose id lies outside [0, vocab) counts as -inf; < 0: not checked

  __device__ bool usable(std::int32_t i) const {
    return vocab < 0 || (ids[i] >= 0 && ids[i] < vocab);
  }
  __device__ float value(std::int32_t i) const {
    return usable(i) ? values[i] : -__int_as_float(0x7F800000);
  }
  __device__ std::int32_t id(std::int32_t i) const { return ids == nullptr ? i : ids[i]; }
};

/// The best slot of a row and the second best value (kernels/common/reduce.cuh).
struct BestSlot {
  struct Part {
    std::uint64_t key;
    std::uint32_t slot;
    std::uint32_t second;  // order code
    std::uint32_t bad;     // a NaN or +inf was seen
    std::uint32_t unused;
  };
  __device__ static Part merge(const Part& a, const Part& b) {
    // Equal keys are possible (an id that is given twice): the earlier slot is kept.
    const bool first = a.key > b.key || (a.key == b.key && a.slot < b.slot);
    const std::uint32_t loser = static_cast<std::uint32_t>((first ? b.key : a.key) >> 32);
    return {first ? a.key : b.key, first ? a.slot : b.slot, max(loser, max(a.second, b.second)),
            a.bad | b.bad, 0};
  }
};

__device__ BestSlot::Part best_slot(const TopKRow& row, int lane) {
  BestSlot::Part best = {0, 0xFFFFFFFFu, 0, 0, 0};
  for (std::int32_t i = lane; i < row.k; i += kWarp) {
    const float value = row.value(i);
    const std::uint32_t code = order_code(value);
    best = BestSlot::merge(best, {token_key(value, row.id(i)), static_cast<std::uint32_t>(i), 0,
                                  code == 0 || code == kPlusInfinityCode ? 1u : 0u, 0});
  }
  return merge_lanes<BestSlot, kWarp>(best);
}

__device__ std::uint64_t sum_of_lanes(std::uint64_t value) {
#pragma unroll
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += exchange(value, mask);
  return value;
}

/// What is known of a row.
struct TopKLaw {
  bool valid;
  float largest;
  float second;
};

/// Writes the probabilities of the row's law, which may take the place of the values; zeros if it
/// is invalid. Lane i mod 32 writes slot i.
__device__ TopKLaw normalize(const TopKRow& row, const SamplingRule& rule, int lane,
                             float* probabilities) {
  const BestSlot::Part best = best_slot(row, lane);
  const std::uint32_t code = static_cast<std::uint32_t>(best.key >> 32);
  const bool valid = best.bad == 0 && code > kMinusInfinityCode;
  const TopKLaw law = {valid, float_from_order_code(code),
                       float_from_order_code(best.second != 0 ? best.second : kMinusInfinityCode)};
  if (!valid || rule.greedy) {
    for (std::int32_t i = lane; i < row.k; i += kWarp) {
      probabilities[i] = valid && static_cast<std::uint32_t>(i) == best.slot ? 1.0f : 0.0f;
    }
    return law;
  }
  std::uint64_t total = 0;
  for (std::int32_t i = lane; i < row.k; i += kWarp) {
    total += unfiltered_mass(row.value(i), law.largest, rule.inverse_temperature);
  }
  const double whole = static_cast<double>(sum_of_lanes(total));
  for (std::int32_t i = lane; i < row.k; i += kWarp) {
    const std::uint64_t mass = unfiltered_mass(row.value(i), law.largest, rule.inverse_temperature);
    probabilities[i] = static_cast<float>(static_cast<double>(mass) / whole);
  }
  return law;
}

__global__ void __launch_bounds__(kThreads) normalize_kernel(NormalizeTopKRowsArgs args) {
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (row >= args.values.rows) return;  // the whole warp
  const std::int32_t k = args.values.vocab;
  const TopKRow values = {args.values.data + row * args.values.stride,
                          args.ids == nullptr ? nullptr : args.ids + row * k, k, -1};
  const TopKLaw law =
      normalize(values, args.rule, lane, args.probabilities.data + row * args.probabilities.stride);
  if (lane == 0 && !law.valid) report(args.status, kOpInvalidRow);
}

__global__ void __launch_bounds__(kThreads) top1_kernel(StoreDraftStepTop1Args args) {
  const std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (b >= args.batch) return;
  const std::int32_t id = args.ids[b * args.ids_stride];
  const bool good = id >= 0 && id < args.vocab;
  if (!good) report(args.status, kOpBadToken);
  args.tokens[b * args.block_size + args.step] = good ? id : -1;
}

/// The slot at which the running weight first exceeds `target`, or the last one of positive weight;
/// the row has one. In all lanes.
__device__ CdfHit find_slot(const float* probabilities, std::int32_t k, std::uint64_t target,
                            int lane) {
  CdfHit hit = {-1, 0, 0};
  std::uint64_t before = 0;
  for (std::int32_t base = 0; base < k && hit.upper <= target; base += kWarp) {
    const std::int32_t i = base + lane;
    const std::uint64_t weight = i < k ? probability_weight(probabilities[i]) : 0;
    std::uint64_t through = weight;
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const std::uint64_t other = __shfl_up_sync(
          kAllLanes, static_cast<unsigned long long>(through), static_cast<unsigned>(distance));
      if (lane >= distance) through += other;
    }
    through += before;
    const unsigned positive = __ballot_sync(kAllLanes, weight != 0);
    const unsigned beyond = __ballot_sync(kAllLanes, weight != 0 && through > target);
    before = __shfl_sync(kAllLanes, static_cast<unsigned long long>(through), kWarp - 1);
    if (positive == 0) continue;
    const int chosen = beyond != 0 ? __ffs(static_cast<int>(beyond)) - 1
                                   : kWarp - 1 - __clz(static_cast<int>(positive));
    hit.token = base + chosen;
    hit.upper = __shfl_sync(kAllLanes, static_cast<unsigned long long>(through), chosen);
    hit.lower = hit.upper - __shfl_sync(kAllLanes, static_cast<unsigned long long>(weight), chosen);
  }
  return hit;
}

__global__ void __launch_bounds__(kThreads) sample_kernel(SampleTopKRowsArgs args) {
  const std::int64_t b = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (b >= args.batch) return;  // the whole warp
  const std::int32_t k = args.values.vocab;
  const std::int64_t cell = b * args.block_size + args.step;
  const TopKRow row = {args.values.data + b * args.values.stride, args.ids + b * k, k, args.vocab};
  float* probabilities = args.probabilities.data + cell * args.probabilities.stride;
  std::int32_t* stored = args.stored_ids + cell * k;
  for (std::int32_t i = lane; i < k; i += kWarp) {
    if (!row.usable(i)) report(args.status, kOpBadToken);
    stored[i] = row.usable(i) ? row.ids[i] : -1;
  }
  const TopKLaw law = normalize(row, args.rule, lane, probabilities);
  if (!law.valid) {
    if (lane == 0) {
      report(args.status, kOpInvalidRow);
      args.tokens[cell] = -1;
      if (args.distance != nullptr) args.distance[cell] = 0.0f;
    }
    return;
  }
  // Each lane reads back what it wrote itself.
  const std::uint64_t uniform = uniform_from_float(args.uniforms[cell]);
  const CdfHit hit = find_slot(probabilities, k, cdf_target(uniform, kUnitMass), lane);
  if (lane != 0) return;
  args.tokens[cell] = row.ids[hit.token];
  if (args.distance == nullptr) return;
  args.distance[cell] = args.rule.greedy
                            ? law.largest - law.second
                            : static_cast<float>(cdf_distance(uniform, hit, kUnitMass));
}

}  // namespace

void normalize_top_k_rows(const NormalizeTopKRowsArgs& args, cudaStream_t stream) {
  if (args.values.rows <= 0) return;
  DSPARK_LAUNCH(normalize_kernel, grid_for_items(args.values.rows * kWarp), kThreads, 0, stream,
                args);
}

void store_draft_step_top1(const StoreDraftStepTop1Args& args, cudaStream_t stream) {
  if (args.batch <= 0) return;
  DSPARK_LAUNCH(top1_kernel, grid_for_items(args.batch), kThreads, 0, stream, args);
}

void sample_top_k_rows(const SampleTopKRowsArgs& args, cudaStream_t stream) {
  if (args.batch <= 0) return;
  DSPARK_LAUNCH(sample_kernel, grid_for_items(static_cast<std::int64_t>(args.batch) * kWarp),
                kThreads, 0, stream, args);
}

}  // namespace dspark::kernels
