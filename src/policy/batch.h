// Batch-wide scheduling: which drafts of R requests one step verifies (the paper's Algorithm 1 and
// section 5.2; SGLang, TensorRT-LLM, vLLM). Pure functions of confidences and prices; the batch
// kernel (kernels/schedule/batch_schedule.h) gives the same lengths.
//
// A draft's survival is the product of the confidences up to it. It never rises along a request, so
// the n drafts of largest survival (ties to the earlier position of a request) are prefixes of
// blocks, and no other choice of n drafts promises more tokens: an optimum over all length vectors
// with that total. What is left to choose is the total n, by Θ(n) = (R + Σ survival) / price[n].
//
// Choosing the total (a capacity) and filling it (allocate) are two functions, so that a caller may
// choose by confidences that are one or two steps old, as the engines do, and fill by the current
// ones. A request that was not there then counts as certain: give it confidences of 1.
//
// Lengths count drafts. SGLang's verify lengths count the token before them too
// (with_anchor()). Prices are the caller's: of whole steps, with drafts and buckets charged, in
// any unit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/dspark_ops.h"
#include "core/host_device.h"
#include "policy/survival.h"

namespace dspark {

/// Memory of the functions below, reused from call to call: they allocate only where a step is
/// larger than any before. Holds nothing between calls.
struct BatchWorkspace {
  std::vector<std::uint64_t> keys;
  std::vector<std::uint64_t> other;
};

/// What the survivals of a path are rounded to; ranking is always by f32.
enum class SurvivalPrecision {
  f32,  ///< SGLang, TensorRT-LLM
  f64,  ///< vLLM
};

/// The expected tokens of every total along falling survival.
struct SurvivalPath {
  std::int32_t floor = 0;   ///< drafts verified whatever they promise
  std::int32_t last = 0;    ///< floor and all candidates above it
  std::int32_t drafts = 0;  ///< N = Σ slots
  /// [last - floor + 1] expected tokens of a step of floor + i drafts, in units of kTokenWeight:
  /// R, the floor's survivals and the i largest of the others.
  std::span<const std::uint64_t> tokens;

  /// Expected tokens of `total` drafts, cut to [floor, last].
  [[nodiscard]] std::uint64_t at(std::int32_t total) const;
};

/// The path of a step; it lives in `workspace` until the next call.
[[nodiscard]] SurvivalPath survival_path(const BatchStep& step, const BatchOptions& options,
                                         SurvivalPrecision precision, BatchWorkspace& workspace);

/// Algorithm 1: from the floor on, drafts are admitted in the order of their survival as long as
/// each makes Θ strictly better; the first that does not (or has no price) ends it. So whether a
/// draft is admitted depends on no draft that ranks after it, and the target's distribution is kept
/// whatever the prices.
///
/// `price[n]` for n = 0..N = Σ slots; see BatchStep and BatchOptions.
[[nodiscard]] Capacity algorithm1_capacity(const BatchStep& step, std::span<const double> price,
                                           const BatchOptions& options, BatchWorkspace& workspace);

/// The largest Θ of all totals from the floor to the last draft worth verifying; the smallest of
/// equal ones (last_maximum: the largest). With `min_gain` every draft is verified unless that Θ is
/// at least Θ(N)·(1 + min_gain). Where no total has a price: the floor.
///
/// `tiers` (TensorRT-LLM A, ascending): if not empty, only totals of R·t drafts for a tier t, cut
/// to N, are looked at; a total beyond the drafts worth verifying is priced in full and promises no
/// more.
[[nodiscard]] Capacity global_capacity(const BatchStep& step, std::span<const double> price,
                                       const BatchOptions& options, BatchWorkspace& workspace,
                                       std::span<const std::int32_t> tiers = {},
                                       SurvivalPrecision precision = SurvivalPrecision::f32);

/// SGLang's align flag: a step of R + capacity tokens runs in the smallest captured bucket that
/// holds it, and the rest of the bucket verifies drafts too. `buckets` (tokens) ascending; above
/// the last one nothing changes. `drafts` = N.
DSPARK_HD std::int32_t fill_bucket(std::int32_t capacity, std::int32_t requests,
                                   std::int32_t drafts, const std::int32_t* buckets,
                                   std::int32_t count) {
  if (capacity >= drafts) return capacity;
  for (std::int32_t i = 0; i < count; ++i) {
    if (buckets[i] < requests + capacity) continue;
    return buckets[i] - requests < drafts ? buckets[i] - requests : drafts;
  }
  return capacity;
}
[[nodiscard]] inline std::int32_t fill_bucket(std::int32_t capacity, std::int32_t requests,
                                              std::int32_t drafts,
                                              std::span<const std::int32_t> buckets) {
  return fill_bucket(capacity, requests, drafts, buckets.data(),
                     static_cast<std::int32_t>(buckets.size()));
}

/// SGLang's forced fraction: ⌊fraction · R · P⌋ drafts; a fraction below 0 or NaN counts as 0, one
/// above 1 as 1.
DSPARK_HD std::int32_t budget_fraction_capacity(double fraction, std::int32_t requests,
                                                std::int32_t positions) {
  if (!(fraction > 0)) return 0;
  return static_cast<std::int32_t>((fraction < 1 ? fraction : 1.0) * requests * positions);
}

/// Fills a capacity: the floor of every request, then the drafts of largest survival (ties:
/// options.ties) until there are `capacity` in all; those that are no candidates
/// (BatchOptions::survival_epsilon) are left out even where there is room. length[r] in
/// [0, slots[r]] for r < R.
void allocate(const BatchStep& step, std::int32_t capacity, const BatchOptions& options,
              std::span<std::int32_t> length, BatchWorkspace& workspace);

/// The capacity by `options.rule`, without tiers and from f32 survivals.
[[nodiscard]] Capacity batch_capacity(const BatchStep& step, std::span<const double> price,
                                      const BatchOptions& options, BatchWorkspace& workspace);

/// A length as SGLang counts it: the anchor's token and the drafts after it.
[[nodiscard]] constexpr std::int32_t with_anchor(std::int32_t length) { return length + 1; }

}  // namespace dspark
