#include "replay/pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "replay/chunk_stream.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

/// What is read of the file for one chunk at most: page-locking more takes longer than it gains.
constexpr std::uint64_t kMostStoredBytes = std::uint64_t{256} << 20;

}  // namespace

SamplingRule sampling_rule(const SamplingLabel& sampling, Verification verification,
                           std::int32_t vocab) {
  const TopPRule top_p_rule = sampling.top_p_rule == "include_crossing" ? TopPRule::include_crossing
                                                                        : TopPRule::water_filling;
  SamplingRule rule =
      make_sampling_rule(sampling.temperature, sampling.top_k, sampling.top_p, top_p_rule, vocab);
  if (verification == Verification::greedy) rule.greedy = true;
  return rule;
}

SamplingRule top_probability_rule(const SamplingRule& drafts) {
  return drafts.greedy ? SamplingRule{} : drafts;
}

float top_probability(const RowLaw& law) {
  if (law.status != kRowValid) return std::numeric_limits<float>::quiet_NaN();
  const std::uint64_t mass = law_mass(law, law.max_logit, law.argmax);
  return static_cast<float>(static_cast<double>(mass) / static_cast<double>(law.total));
}

const char* invalid_row_reason(std::uint32_t status) {
  if (status & kRowNaN) return "NaN";
  if (status & kRowPlusInfinity) return "+inf";
  return "no finite value";
}

std::uint64_t tile_bytes(const Backend& backend, const ReplayOptions& options) {
  if (options.tile_bytes > 0) return options.tile_bytes;
  if (backend.shares_host_memory()) return kHostTileBytes;
  return std::min<std::uint64_t>(kDeviceTileBytes, backend.free_memory() / 2);
}

namespace {

/// Copies of a chunk of the file that are in backend memory at a time.
std::uint64_t stored_copies(const Backend& backend) {
  return static_cast<std::uint64_t>(backend.shares_host_memory()
                                        ? ChunkStream::host_buffers(backend)
                                        : ChunkStream::device_buffers(backend));
}

void require_good_ids_in(std::uint32_t status) {
  const std::uint32_t bad = status & (kOpBadToken | kOpBadRow | kOpBadLength);
  if (bad == kOpOk) return;
  throw internal_error(
      "replay",
      "an operation was given an id or length out of range (status " + std::to_string(bad) + ")",
      "this is a mistake in the program, report it");
}

}  // namespace

std::int64_t chunk_within(const Backend& backend, const ReplayOptions& options, std::uint64_t rows,
                          std::uint64_t stored) {
  const std::uint64_t tile = tile_bytes(backend, options);
  const std::uint64_t per_block = rows + stored_copies(backend) * stored;
  // At least a handful, so that every weight that is read serves many rows.
  const std::uint64_t handful =
      std::min<std::uint64_t>(16, std::max<std::uint64_t>(1, (tile * 8) / per_block));
  const std::uint64_t most = std::max<std::uint64_t>(1, kMostStoredBytes / stored);
  return static_cast<std::int64_t>(std::min(most, std::max(tile / per_block, handful)));
}

std::string memory_plan(const Backend& backend, const std::string& file, const PassMemory& memory) {
  const auto host = static_cast<std::uint64_t>(ChunkStream::host_buffers(backend)) * memory.stored;
  const std::string device =
      fmt::format("{}: {} blocks at a time; {} memory: {} weights, {} rows", file, memory.blocks,
                  backend.shares_host_memory() ? "host" : "device", human_bytes(memory.heads),
                  human_bytes(memory.rows));
  if (backend.shares_host_memory()) {
    return fmt::format("{}, {} read ahead, {} table", device, human_bytes(host),
                       human_bytes(memory.table));
  }
  return fmt::format("{}, {} copies; host memory: {} read ahead, {} table", device,
                     human_bytes(stored_copies(backend) * memory.stored), human_bytes(host),
                     human_bytes(memory.table));
}

StatusWord::StatusWord(Backend& backend, int lanes)
    : backend_(backend),
      word_(backend, 1),
      copies_(backend.allocate_host(static_cast<std::size_t>(lanes) * sizeof(std::uint32_t))) {
  word_.upload({kOpOk});
}

void StatusWord::download(int lane) const {
  backend_.enqueue_download(static_cast<std::uint32_t*>(copies_.data()) + lane, word_.data(),
                            sizeof(std::uint32_t));
}

void StatusWord::require_good_ids(int lane) const {
  require_good_ids_in(static_cast<const std::uint32_t*>(copies_.data())[lane]);
}

void StatusWord::require_good_ids() const {
  std::vector<std::uint32_t> status;
  word_.download(status, 1);
  require_good_ids_in(status[0]);
}

}  // namespace dspark
