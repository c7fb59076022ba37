// Printers of what `bench` measured, in the five formats.
#pragma once

#include <string>

#include "bench/bench.h"
#include "report/render.h"

namespace dspark {

/// The result as one text that ends in a newline. JSON is `dspark-bench`, version 1: an object with
/// `device` and `cases`; what does not exist is null. jsonl has a header line and one line per
/// case; csv one row per case, and one per refused case, whose last cell says why. Times are in
/// microseconds, sizes in bytes, rates in powers of 1000.
[[nodiscard]] std::string render_bench(const BenchResult& result, OutputFormat format);

/// The families: names, sizes they depend on, what they time.
[[nodiscard]] std::string render_bench_families(OutputFormat format);

}  // namespace dspark
