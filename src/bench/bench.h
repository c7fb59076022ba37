// Times cases on a backend, after their outputs have been held against another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/statistics.h"
#include "replay/backend.h"

namespace dspark {

/// Most bytes of a case's inputs, outputs and weights together, where nothing else is asked for.
inline constexpr std::size_t kBenchBudget = std::size_t{16} << 30;

struct BenchOptions {
  std::vector<std::string> only;  ///< families; empty: all
  BenchAxes axes;
  int samples = 50;
  /// A case whose samples take longer together has fewer of them, but at least 5.
  double case_milliseconds = 1000;
  std::size_t budget = kBenchBudget;
  std::uint64_t seed = 0;
  int threads = 1;  ///< of the host, to make the inputs
  /// Cases on tensor cores are left out, not refused, where their products would be exact.
  bool tensor_where_possible = false;
};

/// What one case came to; times in microseconds per call.
struct CaseResult {
  BenchCase what;
  Spread time;
  int samples = 0;
  std::int64_t repeats = 0;  ///< calls in a sample
  std::int64_t sets = 0;     ///< inputs that calls rotate through
  bool cold = false;         ///< the sets together are more than twice the cache
  bool graph = false;        ///< calls are replays of CUDA graphs
  double bytes = 0;          ///< fewest that a call must read and write
  double flops = 0;          ///< of its products; 0: none
  std::string checked;       ///< "bits", or the bounds
};

/// A case that does not fit in memory, whose operations do not take its sizes, or whose products
/// would not run on the tensor cores that it asks for.
struct RefusedCase {
  BenchCase what;
  std::string why;
};

struct BenchResult {
  std::string backend;
  std::string device;
  std::string reference;  ///< what outputs were held against
  DeviceFacts facts;
  double copy_bytes = 0;             ///< read and written by a copy that measured the bandwidth
  double copy_bytes_per_second = 0;  ///< read and written, in the median
  std::vector<CaseResult> cases;
  std::vector<RefusedCase> refused;
};

/// Called before each case: its text, how many are done, how many there are.
using BenchProgress = std::function<void(const std::string&, std::int64_t, std::int64_t)>;

/// Runs the cases of `options` on `device`. Each is first run on the same inputs, cut to a few
/// entries, on `reference`, and its outputs must agree, before it is timed and after: bit for bit,
/// or within the bounds of cases.h where its products are accumulated on tensor cores. Throws
/// Error(usage) for a family that does not exist, Error(device) naming the case where outputs
/// differ or the device fails. A case that does not fit into the budget or the memory, or whose
/// operations do not take its sizes, or that asks for tensor cores which its products would not run
/// on (why_not_tensor), is refused, and the others go on.
[[nodiscard]] BenchResult run_bench(Backend& device, Backend& reference,
                                    const BenchOptions& options, const BenchProgress& progress);

}  // namespace dspark
