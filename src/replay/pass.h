// What passes over a trace have in common, whatever its kind.
#pragma once

#include <cstdint>
#include <string>

#include "core/law.h"
#include "policy/policy.h"
#include "replay/device_data.h"
#include "replay/replay.h"

namespace dspark {

/// How rows over `vocab` tokens become laws under a recorded setting; greedy verification is greedy
/// whatever the temperature.
[[nodiscard]] SamplingRule sampling_rule(const SamplingLabel& sampling, Verification verification,
                                         std::int32_t vocab);

/// The rule of the laws whose top probabilities `softmax_min` looks at: the one that is drafted
/// under, `drafts`. Under greedy drafts every law is one-hot and says nothing of how sure the
/// drafter is; what engines then compare (llama.cpp's p_min) is the plain softmax of the logits, at
/// temperature 1 and without filters.
[[nodiscard]] SamplingRule top_probability_rule(const SamplingRule& drafts);

/// The largest probability of a law, as the quotient of two of its integers (so the same bits
/// wherever those are); NaN for an invalid row.
[[nodiscard]] float top_probability(const RowLaw& law);

/// What makes a row with these RowStatus bits invalid: "NaN", "+inf" or "no finite value".
[[nodiscard]] const char* invalid_row_reason(std::uint32_t status);

/// The bound on vocabulary-wide rows in backend memory (ReplayOptions::tile_bytes), in bytes.
[[nodiscard]] std::uint64_t tile_bytes(const Backend& backend, const ReplayOptions& options);

/// Anchors or rounds at a time where each takes `rows` bytes of vocabulary-wide rows and `stored`
/// bytes of the file: what fits tile_bytes(), but at least a handful unless those would be very
/// large, and no more than can be copied in one go.
[[nodiscard]] std::int64_t chunk_within(const Backend& backend, const ReplayOptions& options,
                                        std::uint64_t rows, std::uint64_t stored);

/// What a pass holds in memory, in bytes.
struct PassMemory {
  std::int64_t blocks = 0;   ///< at a time
  std::uint64_t heads = 0;   ///< weights
  std::uint64_t rows = 0;    ///< vocabulary-wide rows
  std::uint64_t stored = 0;  ///< what is read of the file for one chunk
  std::uint64_t table = 0;   ///< numbers of the whole trace
};

/// One line for the user: how much memory a pass over `file` takes, and where.
[[nodiscard]] std::string memory_plan(const Backend& backend, const std::string& file,
                                      const PassMemory& memory);

/// The word in which operations report what is wrong with the ids and rows they are given
/// (OpStatus).
class StatusWord {
 public:
  /// Cleared. `lanes`: copies that download() can keep apart.
  explicit StatusWord(Backend& backend, int lanes = 1);

  [[nodiscard]] std::uint32_t* data() const { return word_.data(); }
  /// Waits. Throws Error(internal) if an operation has met an id, a row index or a length out of
  /// range: the reader has checked those of the trace, so the replay made it. Invalid rows are no
  /// mistake; each law says so itself.
  void require_good_ids() const;

  /// Enqueues a copy of the word behind the operations so far.
  void download(int lane) const;
  /// The same as above for the latest copy, which must have arrived; does not wait.
  void require_good_ids(int lane) const;

 private:
  Backend& backend_;
  DeviceArray<std::uint32_t> word_;
  HostBuffer copies_;
};

}  // namespace dspark
