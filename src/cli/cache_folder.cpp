#include "cli/cache_folder.h"

#include <mutex>

#include "cli/process.h"

namespace dspark {

std::unique_ptr<TableCache> open_cache(const std::optional<std::string>& folder) {
  if (!folder) return nullptr;
  auto cache = std::make_unique<TableCache>(*folder);
  const std::lock_guard lock(temporary_files().mutex);
  temporary_files().others.push_back(cache->temporary_file());
  return cache;
}

}  // namespace dspark
