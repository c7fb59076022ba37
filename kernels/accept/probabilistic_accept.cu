#include "kernels/accept/probabilistic_accept.h"

#include "kernels/common/inverse_cdf.cuh"

namespace dspark::kernels {
namespace {

inline constexpr int kLanes = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

/// What the tests of a batch entry decided; the bookkeeping row of the scratch (row_scan_scratch).
struct Decision {
  double distance;        // smallest of the tests
  std::int32_t accepted;  // drafts accepted
  std::int32_t rejected;  // 1: draft number `accepted` was rejected; 0: all passed, a bonus follows
  std::uint64_t reserved[2];
};
static_assert(sizeof(Decision) == 4 * sizeof(std::uint64_t));

/// The call and the parts of its scratch.
struct Accept {
  ProbabilisticAcceptArgs args;
  std::int32_t slices;
  std::uint64_t* sums;  // [B, slices]
  Decision* decisions;  // [B]

  __device__ std::int64_t width() const { return static_cast<std::int64_t>(args.length) + 1; }
  __device__ const float* target_row(std::int64_t b, std::int32_t slot) const {
    return args.target.data + (b * width() + slot) * args.target.stride;
  }
  __device__ const float* draft_row(std::int64_t b, std::int32_t slot) const {
    return args.draft.data + (b * args.draft_stride + slot) * args.draft.stride;
  }
  __device__ const float* uniforms(std::int64_t b) const {
    return args.uniforms + b * (2 * static_cast<std::int64_t>(args.draft_stride) + 1);
  }
  __device__ ProbabilityWeights target_weights(std::int64_t b, std::int32_t slot) const {
    return {target_row(b, slot), args.status};
  }
  __device__ ResidualWeights residual_weights(std::int64_t b, std::int32_t slot) const {
    return {target_row(b, slot), draft_row(b, slot), args.status};
  }
};

/// The accept tests of a batch entry, by one warp: all slots at once, the first rejection counts.
/// `writes`: outputs and status are written too. Lane 0 has the decision.
__device__ Decision decide(const Accept& accept, std::int64_t b, bool writes) {
  const ProbabilisticAcceptArgs& args = accept.args;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int32_t given = args.lengths[b];
  const std::int32_t proposed = max(1, min(args.length, given));
  const std::int32_t* tokens = args.tokens + b * args.draft_stride;
  std::uint32_t problems =
      lane == 0 && (given < 0 || given > args.draft_stride) ? kOpBadLength : kOpOk;
  double distance = __longlong_as_double(0x7FF0000000000000ll);
  std::int32_t count = 0;
  bool rejected = false;
  while (count < proposed && !rejected) {
    const std::int32_t slot = count + lane;
    bool passes = false;
    std::int32_t token = 0;
    std::uint32_t slot_problems = kOpOk;
    double slot_distance = distance;
    if (slot < proposed) {
      token = tokens[slot];
      if (token < 0 || token >= args.target.vocab) {
        slot_problems = kOpBadToken;
      } else {
        const float p = accept.target_row(b, slot)[token];
        const float q = accept.draft_row(b, slot)[token];
        if (p != p || q != q) slot_problems = kOpInvalidRow;
        const std::uint64_t p_weight = probability_weight(p);
        const std::uint64_t q_weight = probability_weight(q);
        const std::uint64_t uniform = uniform_from_float(accept.uniforms(b)[slot]);
        // The test compares in units of 2^-61.
        constexpr int kShift = kProbabilityBits - kMassBits;
        passes = accepts(p_weight << kShift, q_weight << kShift, uniform);
        double ratio = 1.0;
        if (q_weight != 0) {
          ratio = static_cast<double>(p_weight) / static_cast<double>(q_weight);
          ratio = ratio < 1.0 ? ratio : 1.0;
        }
        slot_distance = fabs(fraction(uniform) - ratio);
      }
    }
    const unsigned failures = __ballot_sync(kAllLanes, !passes);
    const int run = failures == 0 ? kLanes : __ffs(static_cast<int>(failures)) - 1;
    // Tests past the first rejection are not made.
    if (lane <= run) {
      problems |= slot_problems;
      distance = slot_distance < distance ? slot_distance : distance;
    }
    if (writes && lane < run) args.accepted[b * accept.width() + slot] = token;
    rejected = run < kLanes && count + run < proposed;
    count += run;
    if (run < kLanes) break;
  }
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    const double other = __shfl_xor_sync(kAllLanes, distance, step);
    distance = other < distance ? other : distance;
  }
  if (writes) report(args.status, problems);
  return {distance, count, rejected ? 1 : 0, {0, 0}};
}

/// Slice sums of the row that gives the last token. Every block makes the tests, which are a few
/// loads, rather than wait for a launch that makes them; the first one of an entry writes.
__global__ void __launch_bounds__(kThreads) sum_kernel(Accept accept) {
  const std::int64_t b = blockIdx.x / accept.slices;
  const std::int32_t slice = static_cast<std::int32_t>(blockIdx.x % accept.slices);
  const std::int32_t vocab = accept.args.target.vocab;
  __shared__ std::int32_t accepted;
  __shared__ std::int32_t rejected;
  if (threadIdx.x < kLanes) {
    const Decision decision = decide(accept, b, slice == 0);
    if (threadIdx.x == 0) {
      accepted = decision.accepted;
      rejected = decision.rejected;
      if (slice == 0) accept.decisions[b] = decision;
    }
  }
  __syncthreads();
  const std::int32_t slot = accepted;
  const std::uint64_t sum = rejected != 0
                                ? sum_slice(accept.residual_weights(b, slot), slice, vocab)
                                : sum_slice(accept.target_weights(b, slot), slice, vocab);
  if (threadIdx.x == 0) accept.sums[b * accept.slices + slice] = sum;
}

__global__ void __launch_bounds__(kThreads) emit_kernel(Accept accept) {
  __shared__ CdfStorage storage;
  const ProbabilisticAcceptArgs& args = accept.args;
  const std::int64_t b = blockIdx.x;
  const std::int32_t vocab = args.target.vocab;
  const Decision decision = accept.decisions[b];
  const std::int32_t count = decision.accepted;
  std::uint64_t* sums = accept.sums + b * accept.slices;
  bool residual = decision.rejected != 0;
  const std::uint64_t uniform = uniform_from_float(
      accept.uniforms(b)[residual ? args.draft_stride + count : 2LL * args.draft_stride]);

  std::uint64_t whole = kUnitMass;
  if (residual) {
    whole = sum_of_slices(sums, accept.slices, storage);
    if (whole == 0) {
      // The draft law covers the target law: a token of the target row itself. Rare, so this block
      // sums the row alone.
      residual = false;
      whole = kUnitMass;
      for (std::int32_t slice = 0; slice < accept.slices; ++slice) {
        const std::uint64_t sum = sum_slice(accept.target_weights(b, count), slice, vocab);
        if (threadIdx.x == 0) sums[slice] = sum;
      }
      __syncthreads();
    }
  }
  const std::uint64_t target = cdf_target(uniform, whole);
  const CdfHit hit =
      residual ? find_token(accept.residual_weights(b, count), vocab, sums, target, storage)
               : find_token(accept.target_weights(b, count), vocab, sums, target, storage);

  std::int32_t* accepted = args.accepted + b * accept.width();
  if (threadIdx.x == 0) {
    accepted[count] = hit.token < 0 ? 0 : hit.token;
    args.accept_length[b] = count + 1;
    if (args.distance != nullptr) {
      const double last = cdf_distance(uniform, hit, whole);
      args.distance[b] = static_cast<float>(last < decision.distance ? last : decision.distance);
    }
  }
  for (std::int64_t i = count + 1 + static_cast<std::int64_t>(threadIdx.x); i < accept.width();
       i += kThreads) {
    accepted[i] = 0;
  }
}

}  // namespace

void probabilistic_accept(const ProbabilisticAcceptArgs& args, cudaStream_t stream) {
  if (args.batch <= 0 || args.target.vocab <= 0) return;
  Accept accept;
  accept.args = args;
  accept.slices = slice_count(args.target.vocab);
  accept.sums = static_cast<std::uint64_t*>(args.scratch.data);
  accept.decisions = reinterpret_cast<Decision*>(
      accept.sums + static_cast<std::int64_t>(args.batch) * accept.slices);
  DSPARK_LAUNCH(sum_kernel, grid_of(static_cast<std::int64_t>(args.batch) * accept.slices),
                kThreads, 0, stream, accept);
  DSPARK_LAUNCH(emit_kernel, grid_of(args.batch), kThreads, 0, stream, accept);
}

}  // namespace dspark::kernels
