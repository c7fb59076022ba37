// What a calibration is fitted on: the confidences of many blocks, and what became of their drafts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dspark {

/// Longest block a calibration can speak of, as of a trace.
inline constexpr std::int32_t kMaxCalibratedSlots = 64;

/// What a confidence is held against.
enum class LabelKind : std::uint8_t {
  /// c_k against "draft k is accepted", weighted with the probability that the drafts before it
  /// were. What the head was trained to say.
  conditional,
  /// Π_{i≤k} c_i against "drafts 1..k are all accepted". What schedulers rank by; the engines' own.
  cumulative,
};
[[nodiscard]] const char* label_kind_name(LabelKind labels);

/// One draft slot of a block.
struct SampleSlot {
  double logit = 0;   ///< raw, before any temperature; finite
  double label = 0;   ///< in [0, 1]; between them where the outcome itself was integrated out
  double weight = 0;  ///< ≥ 0
};

/// A block: slots 1..slots, at slot_data() of the samples.
struct SampleBlock {
  std::size_t first = 0;
  std::int32_t sequence = 0;
  std::int32_t slots = 0;
};

/// A file that samples come from.
struct SampleInput {
  std::string file;
  std::string domain;
  std::int64_t blocks = 0;
  std::int64_t sequences = 0;
  std::int64_t held_out = 0;  ///< sequences of it that are held out
};

/// Blocks that depend on each other: fitted on or judged on together.
struct SampleSequence {
  std::int32_t input = 0;
  std::int32_t index = 0;  ///< within its input
  bool held_out = false;
};

/// Samples of one label kind. Memory: 24 bytes per slot and 176 per block, the working arrays of
/// fit and judgement included; what would not fit the budget is refused before it is allocated.
class CalibrationSamples {
 public:
  /// `memory_budget` in bytes.
  CalibrationSamples(LabelKind labels, std::uint64_t memory_budget);

  /// Starts an input; sequences and blocks that follow are its.
  void add_input(const std::string& file, const std::string& domain);
  /// Starts the sequence that has this index in the latest input; blocks that follow are its. One
  /// that gets no block does not count.
  void add_sequence(std::int32_t index);
  /// Makes room for this many blocks and slots more. Throws Error(trace) where they would not fit
  /// the budget.
  void make_room(std::size_t blocks, std::size_t slots);
  /// Adds a block to the latest sequence. Slots behind the last one that has a weight are left
  /// out, as is a block without any. Throws as make_room().
  void add_block(std::span<const SampleSlot> slots);
  /// The block size P of the drafter is at least this; longer blocks raise it too.
  void raise_block_size(std::int32_t block_size);

  [[nodiscard]] LabelKind labels() const { return labels_; }
  /// P: positions that the calibration has.
  [[nodiscard]] std::int32_t block_size() const { return block_size_; }
  [[nodiscard]] const std::vector<SampleInput>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<SampleSequence>& sequences() const { return sequences_; }
  [[nodiscard]] const std::vector<SampleBlock>& blocks() const { return blocks_; }
  [[nodiscard]] std::span<const SampleSlot> slots_of(const SampleBlock& block) const {
    return {slots_.data() + block.first, static_cast<std::size_t>(block.slots)};
  }
  /// The domain of each input, each once, in order of appearance.
  [[nodiscard]] std::vector<std::string> domains() const;
  void set_held_out(std::size_t sequence);

 private:
  LabelKind labels_;
  std::uint64_t memory_budget_;
  std::int32_t block_size_ = 0;
  std::int32_t pending_sequence_ = 0;  ///< index of a sequence that has no block yet
  bool sequence_is_open_ = false;
  std::vector<SampleInput> inputs_;
  std::vector<SampleSequence> sequences_;
  std::vector<SampleBlock> blocks_;
  std::vector<SampleSlot> slots_;
};

}  // namespace dspark
