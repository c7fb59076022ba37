#include "trace/memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

#include "support/text.h"
#include "trace/located_error.h"

namespace dspark {
namespace {

std::optional<std::uint64_t> number_in(const char* path) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;  // missing, or "max"
}

std::optional<std::uint64_t> available_on_machine() {
  std::ifstream in("/proc/meminfo");
  std::string key;
  std::uint64_t kilobytes = 0;
  std::string rest;
  while (in >> key >> kilobytes && std::getline(in, rest)) {
    if (key == "MemAvailable:") return kilobytes * 1024;
  }
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page_bytes <= 0) return std::nullopt;
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
}

}  // namespace

std::uint64_t resolve_memory_budget(std::uint64_t budget) {
  if (budget != 0) return budget;
  std::uint64_t available =
      available_on_machine().value_or(std::numeric_limits<std::uint64_t>::max());
  // A container sees the machine's memory, but is killed at its own limit.
  const auto limit = number_in("/sys/fs/cgroup/memory.max");
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  if (limit && used) available = std::min(available, *limit > *used ? *limit - *used : 0);
  return std::max<std::uint64_t>(available / 5 * 4, 1);
}

void require_memory(const std::string& file, const std::string& place, std::uint64_t bytes,
                    std::uint64_t budget) {
  if (bytes <= budget) return;
  fail(file, place,
       "needs " + human_bytes(bytes) + " of memory, more than the budget of " + human_bytes(budget),
       "raise the memory budget or use a machine with more memory");
}

}  // namespace dspark
