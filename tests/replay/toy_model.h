// A target and a drafter small enough to enumerate: four tokens, two draft slots, every number
// written out. Laws depend on the last committed token alone, so a trace with every possible text
// is the whole model.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "policy/policy.h"
#include "replay/outcome_table.h"
#include "tests/replay/law.h"
#include "tests/replay/tiny_trace.h"

namespace dspark {

/// The setting that laws are taken under.
struct ToySetting {
  double temperature = 1;
  std::int64_t top_k = 0;
  bool greedy_target = false;
  bool greedy_drafts = false;
};

class ToyModel {
 public:
  static constexpr std::int32_t kVocab = 4;
  static constexpr std::int32_t kBlock = 2;
  static constexpr std::int32_t kHidden = 1;
  static constexpr std::int32_t kRank = 1;
  /// Tokens of a text beside the first, which is always token 0.
  static constexpr std::int64_t kTokens = 3;
  using Text = std::vector<std::int32_t>;

  /// The law of the token after `last`.
  [[nodiscard]] static Law target(const ToySetting& setting, std::int32_t last) {
    const std::vector<double> logits = widened(kTarget[index(last)]);
    if (setting.greedy_target) return greedy_law(logits);
    return law_of(logits, setting.temperature, setting.top_k, 1, TopPRule::water_filling);
  }
  /// The law of the draft at `slot` (1-based) of the block that starts at token `anchor`, after the
  /// draft `previous` (slot 1: the anchor).
  [[nodiscard]] static Law draft(const ToySetting& setting, std::int32_t anchor, int slot,
                                 std::int32_t previous) {
    std::vector<double> logits = widened(kDraft[index(anchor)][index(slot - 1)]);
    for (std::size_t v = 0; v < logits.size(); ++v) {
      logits[v] += static_cast<double>(kW1[index(previous)]) * static_cast<double>(kW2[v]);
    }
    if (setting.greedy_drafts) return greedy_law(logits);
    return law_of(logits, setting.temperature, setting.top_k, 1, TopPRule::water_filling);
  }
  [[nodiscard]] static float confidence(std::int32_t anchor, int slot, std::int32_t previous) {
    const double z =
        static_cast<double>(kConfidenceWeight[0]) *
            static_cast<double>(kHiddenState[index(anchor)][index(slot - 1)]) +
        static_cast<double>(kConfidenceWeight[1]) * static_cast<double>(kW1[index(previous)]);
    return static_cast<float>(1 / (1 + std::exp(-z)));
  }
  /// What `policy` sees of that draft: its confidence, or the largest probability of its law (of
  /// the plain softmax where drafts are greedy).
  [[nodiscard]] static float seen(const Policy& policy, const ToySetting& setting,
                                  std::int32_t anchor, int slot, std::int32_t previous) {
    if (!uses_top_probability(policy)) return confidence(anchor, slot, previous);
    const Law law = draft(setting.greedy_drafts ? ToySetting{} : setting, anchor, slot, previous);
    return static_cast<float>(*std::max_element(law.begin(), law.end()));
  }
  [[nodiscard]] static double probability(const ToySetting& setting, const Text& text) {
    double p = 1;
    for (std::size_t i = 0; i + 1 < text.size(); ++i) {
      p *= target(setting, text[i])[index(text[i + 1])];
    }
    return p;
  }

  /// Every text of `tokens` tokens after token 0.
  [[nodiscard]] static std::vector<Text> texts(std::int64_t tokens = kTokens) {
    std::vector<Text> out = {{0}};
    for (std::int64_t i = 0; i < tokens; ++i) {
      std::vector<Text> longer;
      for (const Text& text : out) {
        for (std::int32_t v = 0; v < kVocab; ++v) {
          longer.push_back(text);
          longer.back().push_back(v);
        }
      }
      out = std::move(longer);
    }
    return out;
  }

  /// One sequence per text, in the order of texts().
  [[nodiscard]] static TinyTrace trace(const ToySetting& recorded, const std::vector<Text>& texts) {
    TinyTrace out(1, kVocab);
    out.block = kBlock;
    out.hidden = kHidden;
    out.rank = kRank;
    out.temperature = recorded.temperature;
    out.top_k = recorded.top_k;
    out.offsets = {0};
    for (auto* data : {&out.draft_logits, &out.target_logits, &out.draft_hidden}) data->clear();
    out.tokens.clear();
    out.last_tokens.clear();
    for (const Text& text : texts) {
      for (std::size_t n = 0; n + 1 < text.size(); ++n) {
        const std::size_t last = index(text[n]);
        out.tokens.push_back(text[n]);
        append(out.target_logits, kTarget[last]);
        for (const auto& row : kDraft[last]) append(out.draft_logits, row);
        append(out.draft_hidden, kHiddenState[last]);
      }
      out.last_tokens.push_back(text.back());
      out.offsets.push_back(static_cast<std::int64_t>(out.tokens.size()));
    }
    out.w1.assign(kW1.begin(), kW1.end());
    out.w2.assign(kW2.begin(), kW2.end());
    out.confidence_weight.assign(kConfidenceWeight.begin(), kConfidenceWeight.end());
    out.confidence_bias = 0;
    return out;
  }

 private:
  using Row = std::array<float, 4>;
  static constexpr std::array<Row, 4> kTarget = {{{1.0f, 0.25f, -0.5f, 0.0f},
                                                  {-1.0f, 1.5f, 0.5f, 0.25f},
                                                  {0.0f, -0.75f, 1.25f, 0.5f},
                                                  {0.75f, 0.5f, 0.0f, -1.25f}}};
  static constexpr std::array<std::array<Row, 2>, 4> kDraft = {
      {{{{0.5f, 0.75f, -1.0f, 0.0f}, {0.25f, 0.0f, 0.5f, -0.5f}}},
       {{{-0.5f, 1.0f, 1.25f, 0.0f}, {1.0f, -0.25f, 0.0f, 0.5f}}},
       {{{0.0f, 0.5f, 0.75f, 1.0f}, {-1.0f, 0.5f, 0.25f, 0.0f}}},
       {{{1.5f, 0.0f, 0.25f, -0.5f}, {0.0f, 0.75f, -0.25f, 0.5f}}}}};
  static constexpr Row kW1 = {0.5f, -1.0f, 1.25f, -0.25f};
  static constexpr Row kW2 = {1.0f, -0.5f, 0.75f, -1.25f};
  static constexpr std::array<std::array<float, 2>, 4> kHiddenState = {
      {{1.0f, -0.5f}, {0.25f, 0.75f}, {-0.75f, 1.25f}, {0.5f, 0.0f}}};
  static constexpr std::array<float, 2> kConfidenceWeight = {0.75f, 1.5f};

  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  static std::vector<double> widened(const Row& row) { return {row.begin(), row.end()}; }
  template <class Values>
  static void append(std::vector<float>& to, const Values& values) {
    to.insert(to.end(), values.begin(), values.end());
  }
};

/// The part of a table that belongs to sequence `s`, as a table of its own.
inline OutcomeTable only_sequence(const OutcomeTable& table, std::size_t s) {
  OutcomeTable out = table;
  const std::int64_t first = table.sequence_offsets[s], end = table.sequence_offsets[s + 1];
  const auto cut = [&](auto& values, std::int64_t per_anchor) {
    if (values.empty()) return;
    values = {values.begin() + first * per_anchor, values.begin() + end * per_anchor};
  };
  out.sequence_offsets = {0, end - first};
  cut(out.slots, 1);
  for (auto* values : {&out.beta, &out.alpha, &out.importance}) cut(*values, table.block_size);
  for (auto* values : {&out.confidence, &out.top_probability}) cut(*values, table.block_size);
  cut(out.agreement, table.block_size);
  for (auto* values : {&out.world_confidence, &out.world_top_probability}) {
    cut(*values, table.repeats * worlds_per_repeat(table.block_size));
  }
  return out;
}

}  // namespace dspark
