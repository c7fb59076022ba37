#include <algorithm>

#include "support/error.h"
#include "synth/generator.h"

namespace dspark::synth {
namespace {

/// Rows in work at most, whatever the vocabulary: keeps progress alive on small ones.
constexpr std::int64_t kRowsAtOnce = 1024;

/// Writes the sequences one after the other. A block at position n needs target rows n .. n+P-1:
/// rows are drawn in chunks in ascending order, and the last P-1 of each chunk wait for the next
/// one. The rows that the last blocks of a sequence need beyond its end are drawn like all others,
/// and not recorded.
class AnchorsWriter {
 public:
  AnchorsWriter(Generator& generator, TraceWriter& writer, const SynthProgress& progress)
      : generator_(generator),
        writer_(writer),
        progress_(progress),
        options_(generator.options()),
        vocab_(options_.vocab_size),
        hidden_(options_.hidden_size),
        block_(options_.block_size) {
    const std::int64_t rows = options_.length + block_ - 1;
    row_step_ = std::min({generator.blocks_at_once(1), kRowsAtOnce, rows});
    block_step_ = std::min({generator.blocks_at_once(block_), kRowsAtOnce, options_.length});
    const std::int64_t logit_rows =
        generator.stores_logits() ? std::max(row_step_, block_step_ * block_) : row_step_;
    logits_ =
        generator.backend().allocate(static_cast<std::size_t>(logit_rows * vocab_) * sizeof(float));
    const auto step = static_cast<std::size_t>(row_step_);
    laws_ = generator.backend().allocate(step * sizeof(RowLaw));
    uniforms_ = generator.backend().allocate(step * sizeof(std::uint64_t));
    indices_ = generator.backend().allocate(step * sizeof(std::int32_t));
    sampled_ = generator.backend().allocate(step * sizeof(std::int32_t));
    std::vector<std::int32_t> indices(step);
    for (std::size_t i = 0; i < step; ++i) indices[i] = static_cast<std::int32_t>(i);
    generator.backend().upload(indices_.data(), indices.data(), step * sizeof(std::int32_t));
  }

  void write() {
    if (generator_.stores_draft_hidden()) writer_.create(RowData::draft_hidden, options_.type);
    if (generator_.stores_logits()) writer_.create(RowData::draft_logits, options_.type);
    if (generator_.stores_hidden()) writer_.create(RowData::target_hidden, options_.type);
    if (generator_.stores_logits()) writer_.create(RowData::target_logits, options_.type);
    tokens_.sequence_offsets.push_back(0);
    for (std::int64_t s = 0; s < options_.sequences; ++s) {
      write_sequence(s);
      tokens_.sequence_offsets.push_back(static_cast<std::int64_t>(tokens_.tokens.size()));
    }
    writer_.write(tokens_);
  }

 private:
  /// A target row that blocks still need.
  struct Waiting {
    std::vector<float> hidden;  ///< [rows, H]
    std::vector<std::int32_t> previous;
    std::vector<Gap> gaps;  ///< [rows, P]: of slot k of the block k-1 positions before
    void drop(std::int64_t rows, std::int64_t width, std::int64_t block) {
      hidden.erase(hidden.begin(), hidden.begin() + rows * width);
      previous.erase(previous.begin(), previous.begin() + rows);
      gaps.erase(gaps.begin(), gaps.begin() + rows * block);
    }
  };

  void write_sequence(std::int64_t sequence) {
    const std::int64_t length = options_.length;
    const std::int64_t rows = length + block_ - 1;
    Waiting waiting;
    std::int64_t next_block = 0;
    std::int32_t token = generator_.first_token(sequence);
    for (std::int64_t first = 0; first < rows; first += row_step_) {
      const std::int64_t count = std::min(row_step_, rows - first);
      draw_rows(sequence, first, count);
      const std::vector<std::int32_t> drawn = sample(sequence, first, count);

      const std::int64_t recorded = std::clamp<std::int64_t>(length - first, 0, count);
      if (generator_.stores_hidden()) {
        writer_.append(RowData::target_hidden, rows_.hidden.data(), recorded);
      }
      if (generator_.stores_logits()) {
        writer_.append(RowData::target_logits, rows_.logits.data(), recorded);
      }
      waiting.hidden.insert(waiting.hidden.end(), rows_.hidden.begin(), rows_.hidden.end());
      waiting.gaps.insert(waiting.gaps.end(), rows_.gaps.begin(), rows_.gaps.end());
      for (std::int64_t i = 0; i < count; ++i) {
        waiting.previous.push_back(token);
        if (first + i < length) tokens_.tokens.push_back(token);
        token = drawn[static_cast<std::size_t>(i)];
        if (first + i + 1 == length) tokens_.last_tokens.push_back(token);
      }

      const std::int64_t complete = std::min(first + count - block_ + 1, length);
      while (next_block < complete) {
        const std::int64_t blocks = std::min(block_step_, complete - next_block);
        write_blocks(sequence, next_block, blocks, waiting);
        waiting.drop(blocks, hidden_, block_);
        next_block += blocks;
        done_ += blocks;
        if (progress_) progress_(done_, options_.sequences * length);
      }
    }
  }

  void draw_rows(std::int64_t sequence, std::int64_t first, std::int64_t count) {
    std::vector<RowId> ids;
    std::vector<SlotTarget> targets;
    for (std::int64_t m = first; m < first + count; ++m) {
      ids.push_back({sequence, m, 0});
      for (std::int64_t k = 1; k <= block_; ++k) {
        const std::int64_t n = m - k + 1;
        targets.push_back(n >= 0 ? generator_.slot_target(sequence, n, k) : SlotTarget{});
      }
    }
    generator_.draw_rows(ids, targets, rows_, logit_rows(count));
  }

  /// The tokens after the rows in `logits_`, drawn from them under the recorded setting.
  std::vector<std::int32_t> sample(std::int64_t sequence, std::int64_t first, std::int64_t count) {
    Backend& backend = generator_.backend();
    std::vector<std::uint64_t> uniforms;
    for (std::int64_t m = first; m < first + count; ++m) {
      uniforms.push_back(draw(options_.seed, Draw::token, sequence, m));
    }
    backend.upload(uniforms_.data(), uniforms.data(), uniforms.size() * sizeof uniforms[0]);
    backend.row_laws({logit_rows(count), generator_.rule(), laws_.as<RowLaw>(count)});
    backend.sample_rows(
        {logit_rows(count), laws_.as<const RowLaw>(count), indices_.as<const std::int32_t>(count),
         uniforms_.as<const std::uint64_t>(count), sampled_.as<std::int32_t>(count)});
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
    backend.download(tokens.data(), sampled_.data(), tokens.size() * sizeof tokens[0]);
    for (const std::int32_t token : tokens) {
      if (token < 0 || token >= vocab_) {
        throw internal_error("synth", "a target row gave no token");
      }
    }
    return tokens;
  }

  /// Blocks [first, first + count), whose rows stand at the front of `waiting`.
  void write_blocks(std::int64_t sequence, std::int64_t first, std::int64_t count,
                    const Waiting& waiting) {
    blocks_.resize(static_cast<std::size_t>(count * block_ * hidden_));
#pragma omp parallel for num_threads(options_.threads) schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t k = 1; k <= block_; ++k) {
        const std::int64_t row = i + k - 1;
        generator_.draft_hidden(waiting.hidden.data() + row * hidden_,
                                waiting.previous[static_cast<std::size_t>(row)],
                                waiting.gaps[static_cast<std::size_t>(row * block_ + k - 1)],
                                generator_.slot_target(sequence, first + i, k).acceptance,
                                blocks_.data() + (i * block_ + k - 1) * hidden_);
      }
    }
    if (generator_.stores_draft_hidden()) {
      writer_.append(RowData::draft_hidden, blocks_.data(), count);
    }
    if (generator_.stores_logits()) {
      const Rows logits = logit_rows(count * block_);
      generator_.project(blocks_.data(), logits);
      block_logits_.resize(static_cast<std::size_t>(logits.rows * vocab_));
      generator_.download(logits, block_logits_.data());
      writer_.append(RowData::draft_logits, block_logits_.data(), count);
    }
  }

  [[nodiscard]] Rows logit_rows(std::int64_t count) const {
    return {static_cast<float*>(logits_.data()), count, static_cast<std::int32_t>(vocab_), vocab_};
  }

  Generator& generator_;
  TraceWriter& writer_;
  const SynthProgress& progress_;
  const SynthOptions& options_;
  std::int64_t vocab_, hidden_, block_;
  std::int64_t row_step_, block_step_;
  std::int64_t done_ = 0;
  Buffer logits_, laws_, uniforms_, indices_, sampled_;
  TargetRows rows_;
  std::vector<float> blocks_, block_logits_;
  AnchorTokens tokens_;
};

}  // namespace

void write_anchors(Generator& generator, TraceWriter& writer, const SynthProgress& progress) {
  AnchorsWriter(generator, writer, progress).write();
}

}  // namespace dspark::synth
