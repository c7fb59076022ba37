#include "cli/cache_folder.h"

#include <mutex>

#include "cli/process.h"

namespace dspark {

std::optional<TableCache> open_cache(const std::optional<std::string>& folder) {
  if (!folder) return std::nullopt;
  std::optional<TableCache> cache(*folder);
  const std::lock_guard lock(temporary_files().mutex);
  temporary_files().others.push_back(cache->temporary_file());
  return cache;
}

}  // namespace dspark
