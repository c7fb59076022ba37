// How much may be held in memory.
#pragma once

#include <cstdint>
#include <string>

namespace dspark {

/// `budget`, or 80 % of what the machine (and its control group) has available where it is 0.
[[nodiscard]] std::uint64_t resolve_memory_budget(std::uint64_t budget);

/// Throws Error(trace) about `place` of `file` if `bytes` are more than `budget` (resolved by the
/// function above). To be called before anything is allocated.
void require_memory(const std::string& file, const std::string& place, std::uint64_t bytes,
                    std::uint64_t budget);

}  // namespace dspark
