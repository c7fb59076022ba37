#include "calibration/samples.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

// A block's own entry, and what walk.h and reliability.h hold of it while they look at one
// position.
constexpr std::uint64_t kBytesPerBlock = 176;

template <class T>
std::size_t capacity_for(const std::vector<T>& items, std::size_t more) {
  const std::size_t needed = items.size() + more;
  if (needed <= items.capacity()) return items.capacity();
  return std::max(needed, items.capacity() + items.capacity() / 2);
}

}  // namespace

const char* label_kind_name(LabelKind labels) {
  return labels == LabelKind::conditional ? "conditional" : "cumulative";
}

CalibrationSamples::CalibrationSamples(LabelKind labels, std::uint64_t memory_budget)
    : labels_(labels), memory_budget_(memory_budget) {}

void CalibrationSamples::add_input(const std::string& file, const std::string& domain) {
  inputs_.push_back({.file = file, .domain = domain});
  sequence_is_open_ = false;
}

void CalibrationSamples::add_sequence(std::int32_t index) {
  pending_sequence_ = index;
  sequence_is_open_ = false;
}

void CalibrationSamples::make_room(std::size_t blocks, std::size_t slots) {
  const std::size_t block_capacity = capacity_for(blocks_, blocks);
  const std::size_t slot_capacity = capacity_for(slots_, slots);
  if (block_capacity == blocks_.capacity() && slot_capacity == slots_.capacity()) return;
  // While a list grows, the old one and the new one are both there.
  const std::uint64_t bytes = block_capacity * kBytesPerBlock +
                              (slot_capacity + slots_.size()) * sizeof(SampleSlot) +
                              blocks_.size() * sizeof(SampleBlock);
  if (bytes > memory_budget_) {
    throw trace_error(inputs_.empty() ? "" : inputs_.back().file,
                      fmt::format("its calibration samples would take {}, more than the memory "
                                  "budget of {}",
                                  human_bytes(bytes), human_bytes(memory_budget_)),
                      "raise --memory-budget, or give fewer --repeats or less text");
  }
  blocks_.reserve(block_capacity);
  slots_.reserve(slot_capacity);
}

void CalibrationSamples::add_block(std::span<const SampleSlot> slots) {
  while (!slots.empty() && !(slots.back().weight > 0)) slots = slots.first(slots.size() - 1);
  if (slots.empty()) return;
  make_room(1, slots.size());
  SampleInput& input = inputs_.back();
  if (!sequence_is_open_) {
    sequences_.push_back(
        {.input = static_cast<std::int32_t>(inputs_.size()) - 1, .index = pending_sequence_});
    input.sequences += 1;
    sequence_is_open_ = true;
  }
  blocks_.push_back({.first = slots_.size(),
                     .sequence = static_cast<std::int32_t>(sequences_.size()) - 1,
                     .slots = static_cast<std::int32_t>(slots.size())});
  slots_.insert(slots_.end(), slots.begin(), slots.end());
  input.blocks += 1;
  raise_block_size(static_cast<std::int32_t>(slots.size()));
}

void CalibrationSamples::raise_block_size(std::int32_t block_size) {
  block_size_ = std::max(block_size_, block_size);
}

std::vector<std::string> CalibrationSamples::domains() const {
  std::vector<std::string> domains;
  for (const SampleInput& input : inputs_) {
    if (std::find(domains.begin(), domains.end(), input.domain) == domains.end()) {
      domains.push_back(input.domain);
    }
  }
  return domains;
}

void CalibrationSamples::set_held_out(std::size_t sequence) {
  SampleSequence& held = sequences_[sequence];
  if (held.held_out) return;
  held.held_out = true;
  inputs_[static_cast<std::size_t>(held.input)].held_out += 1;
}

}  // namespace dspark
