// Greedy beside probabilistic: the same policy under both verifications.
#pragma once

#include <string>
#include <vector>

#include "replay/result.h"

namespace dspark {

/// Fills result.pairs from its rows, in their order. Two rows of one policy and concurrency are a
/// pair if one is verified greedily and the other probabilistically, and both are of one trace, or
/// of two traces with the same domain, each replayed as it was recorded. A domain with several
/// greedy or several sampled traces has no pairs across traces, since nothing says which of them
/// belong together: the lines returned tell the user so. Bounds and rows without a tau are left
/// out. Intervals of differences are made from those of the two rows (MOVER; Zou & Donner 2008) as
/// if the two were independent, which is right for two recordings and too wide for one. Call once,
/// when all rows are there.
[[nodiscard]] std::vector<std::string> pair_verifications(ReplayResult& result);

}  // namespace dspark
