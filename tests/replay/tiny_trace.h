// A hand-sized anchors trace with all its numbers at hand, written to a temporary file.
#pragma once

#include <string>
#include <vector>

#include "core/half.h"
#include "trace/trace.h"
#include "trace/writer.h"

namespace dspark {

/// Numbers of a tiny anchors trace with dense logits, a Markov head and a confidence head; every
/// number is exact in f32.
struct TinyTrace {
  std::int32_t vocab = 5, block = 3, hidden = 2, rank = 2;
  double temperature = 1, top_p = 1;
  std::int64_t top_k = 0;
  std::vector<std::int64_t> offsets = {0, 7, 7, 12};
  std::vector<std::int32_t> tokens, last_tokens;
  std::vector<float> draft_logits, target_logits, draft_hidden;  ///< [N, P, V], [N, V], [N, P, H]
  std::vector<float> w1, w2, confidence_weight;                  ///< [V, R], [V, R], [H + R]
  float confidence_bias = 0.25f;
  bool has_confidence = true;  ///< else neither draft_hidden nor a confidence head

  [[nodiscard]] std::int64_t anchors() const { return offsets.back(); }

  /// Fills every array from a small generator; tokens are drawn uniformly (the caller makes them
  /// possible).
  explicit TinyTrace(std::uint32_t seed, std::int32_t vocab_size = 5) : vocab(vocab_size) {
    std::uint32_t state = seed * 2654435761u + 1;
    const auto number = [&](float scale) {  // multiples of scale/16 in [-scale, scale]
      state = state * 1664525u + 1013904223u;
      return (static_cast<float>((state >> 16) % 33) - 16.0f) / 16.0f * scale;
    };
    const auto fill = [&](std::vector<float>& v, std::int64_t count, float scale) {
      for (std::int64_t i = 0; i < count; ++i) v.push_back(number(scale));
    };
    const std::int64_t n = anchors();
    fill(target_logits, n * vocab, 2);
    fill(draft_logits, n * block * vocab, 2);
    fill(draft_hidden, n * block * hidden, 2);
    fill(w1, vocab * rank, 1);
    fill(w2, vocab * rank, 1);
    fill(confidence_weight, hidden + rank, 1);
    for (std::int64_t i = 0; i < n; ++i) {
      state = state * 1664525u + 1013904223u;
      tokens.push_back(
          static_cast<std::int32_t>((state >> 16) % static_cast<std::uint32_t>(vocab)));
    }
    for (std::size_t s = 0; s + 1 < offsets.size(); ++s)
      last_tokens.push_back(static_cast<std::int32_t>(s) % vocab);
  }

  void write(const std::string& path) const {
    TraceHeader header;
    header.kind = TraceKind::anchors;
    header.vocab_size = header.vocab_size_logical = vocab;
    header.hidden_size = hidden;
    header.block_size = block;
    header.temperature = temperature;
    header.top_k = top_k;
    header.top_p = top_p;
    TraceWriter writer(path, header, anchors());
    writer.write(AnchorTokens{offsets, tokens, last_tokens});
    if (has_confidence) {
      writer.create(RowData::draft_hidden, StoredType::f32);
      writer.append(RowData::draft_hidden, draft_hidden.data(), anchors());
    }
    writer.create(RowData::draft_logits, StoredType::f32);
    writer.append(RowData::draft_logits, draft_logits.data(), anchors());
    writer.create(RowData::target_logits, StoredType::f32);
    writer.append(RowData::target_logits, target_logits.data(), anchors());
    const auto head = [&](HeadData data, const std::vector<float>& values, std::int64_t rows) {
      writer.create(data, StoredType::f32, rows, static_cast<std::int64_t>(values.size()) / rows);
      writer.append(data, values.data(), rows);
    };
    head(HeadData::markov_w1, w1, vocab);
    head(HeadData::markov_w2, w2, vocab);
    if (has_confidence) {
      head(HeadData::confidence_weight, confidence_weight, hidden + rank);
      head(HeadData::confidence_bias, {confidence_bias}, 1);
    }
    writer.commit();
  }
};

}  // namespace dspark
