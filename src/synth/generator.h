// What both kinds of synthetic trace share: the heads in backend memory, target rows and their
// gaps, draft hidden states.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "replay/backend.h"
#include "synth/gap.h"
#include "synth/keyed.h"
#include "synth/synth.h"
#include "synth/weights.h"
#include "trace/writer.h"

namespace dspark::synth {

/// Where a target row stands: the part of its key that is not the seed.
struct RowId {
  std::int64_t sequence = 0;  ///< or request
  std::int64_t position = 0;  ///< or round
  std::int64_t slot = 0;      ///< rounds: drafts before it
};

/// What one draft row is to have.
struct SlotTarget {
  double acceptance = 0;  ///< of this very row
  double choice = 0;      ///< RowHalves::gap
};

/// Writes the trace and, if one is named, its heads file; both wait for commit().
class Output {
 public:
  Output(const SynthOptions& options, const std::string& path);
  /// The writer of /anchors and /rounds.
  [[nodiscard]] TraceWriter& trace() { return *trace_; }
  /// The writer of /heads.
  [[nodiscard]] TraceWriter& heads() { return heads_ ? *heads_ : *trace_; }
  [[nodiscard]] std::vector<std::string> temporary_paths() const;
  void commit();

 private:
  std::optional<TraceWriter> trace_, heads_;
};

/// Target rows on the host, and the gaps of the draft rows beside them.
struct TargetRows {
  std::vector<float> hidden;  ///< [rows, H], as stored
  std::vector<float> logits;  ///< [rows, V], rounded to the stored type where logits are stored
  std::vector<Gap> gaps;      ///< one per SlotTarget
};

class Generator {
 public:
  Generator(Backend& backend, const SynthOptions& options);

  [[nodiscard]] Backend& backend() const { return backend_; }
  [[nodiscard]] const SynthOptions& options() const { return options_; }
  [[nodiscard]] const Weights& weights() const { return weights_; }
  [[nodiscard]] const SamplingRule& rule() const { return setting_.rule; }
  [[nodiscard]] bool stores_hidden() const { return options_.store != StoredRows::logits; }
  [[nodiscard]] bool stores_logits() const { return options_.store != StoredRows::hidden; }
  [[nodiscard]] bool stores_draft_hidden() const { return stores_hidden() || options_.confidence; }

  /// Makes `lm_head` in backend memory and writes all heads.
  void write_heads(TraceWriter& writer);
  /// Views of the heads in backend memory: `lm_head` [V, H], and `markov_w2` [V, R] within it.
  [[nodiscard]] Matrix lm_head() const;
  [[nodiscard]] Matrix markov_w2() const;
  /// `markov_w1` [V, R], uploaded on the first call.
  [[nodiscard]] Matrix markov_w1();

  /// Vocabulary-wide rows that may be in work at once when a block needs `rows_per_block` of them;
  /// at least 1 block.
  [[nodiscard]] std::int64_t blocks_at_once(std::int64_t rows_per_block) const;

  /// Draws the contexts of `ids` (greedy: again until every argmax is clear), their logits, and the
  /// gaps of `targets`, which has the same number of entries for each row. Leaves the logits in
  /// `device_logits` as well.
  void draw_rows(std::span<const RowId> ids, std::span<const SlotTarget> targets, TargetRows& rows,
                 Rows device_logits);

  /// logits[i] = lm_head · hidden[i] for host rows [count, H]; `logits.rows` = count.
  void project(const float* hidden, const Rows& logits);
  /// Copies backend rows, one after the other, to the host.
  void download(const Rows& rows, float* out) const;
  /// Rounds rows to the stored type where logits are stored: backend rows and their copy in `host`.
  void store_rounding(const Rows& rows, float* host) const;

  /// What slot `slot` (1-based) of the block at (sequence, position) is to have.
  [[nodiscard]] SlotTarget slot_target(std::int64_t sequence, std::int64_t position,
                                       std::int64_t slot) const;
  /// A draft hidden state: the target's, led to through `previous`, with its own gap and
  /// confidence; to out[H].
  void draft_hidden(const float* target_hidden, std::int32_t previous, const Gap& gap,
                    double acceptance, float* out) const;
  /// The token a sequence or request starts with.
  [[nodiscard]] std::int32_t first_token(std::int64_t sequence) const;

 private:
  Backend& backend_;
  SynthOptions options_;
  Weights weights_;
  GapSetting setting_;
  Buffer lm_head_, markov_w1_, staging_;
};

/// The two kinds; both are called once, after write_heads().
void write_anchors(Generator& generator, TraceWriter& writer, const SynthProgress& progress);
void write_rounds(Generator& generator, TraceWriter& writer, const SynthProgress& progress);

}  // namespace dspark::synth
