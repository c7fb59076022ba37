#include <vector>

#include "parity.h"

namespace dspark::parity {
namespace {

class SamplingParity : public Parity {};

TEST_F(SamplingParity, ProbabilitiesOfEveryKindOfRow) {
  for (std::int32_t vocab : cases({1, 3, 4096, 5003}, {5003})) {
    for (std::int64_t pad : {0, 1}) {
      Numbers numbers(static_cast<std::uint64_t>(vocab));
      const std::vector<float> logits = rows_of(numbers, kRowKinds, vocab, vocab + pad);
      for (const SamplingRule& rule : rules_for(vocab)) {
        same("V=" + std::to_string(vocab) + " " + rule_text(rule), [&](Side& side) {
          const auto rows = static_cast<std::int64_t>(kRowKinds.size());
          LogitsToProbabilitiesArgs args;
          args.logits = {side.put(logits), rows, vocab, vocab + pad};
          args.rule = rule;
          const auto size = kRowKinds.size() * static_cast<std::size_t>(vocab + 2 * pad);
          auto* out = side.make<float>(size);
          args.probabilities = {out, rows, vocab, vocab + 2 * pad};
          args.laws = side.make<RowLaw>(kRowKinds.size());
          args.status = side.status();
          side.backend.logits_to_probabilities(args);
          side.get("probabilities", out, size);
          side.get("status", args.status, 1);
        });
      }
    }
  }
}

TEST_F(SamplingParity, ProbabilitiesOfALargeVocabulary) {
  Numbers numbers(4);
  const std::int32_t vocab = 151936;
  const std::vector<RowKind> kinds = {RowKind::normal, RowKind::peaked, RowKind::zeros};
  const std::vector<float> logits = rows_of(numbers, kinds, vocab, vocab);
  for (const SamplingRule& rule : rules_for(vocab)) {
    same(rule_text(rule), [&](Side& side) {
      LogitsToProbabilitiesArgs args;
      args.logits = {side.put(logits), 3, vocab, vocab};
      args.rule = rule;
      auto* out = side.make<float>(logits.size());
      args.probabilities = {out, 3, vocab, vocab};
      args.laws = side.make<RowLaw>(3);
      side.backend.logits_to_probabilities(args);
      side.get("probabilities", out, logits.size());
    });
  }
}

TEST_F(SamplingParity, UniformsOfAnyLength) {
  for (std::int64_t count : {0, 1, 255, 256, 257, 100000}) {
    same(std::to_string(count), [&](Side& side) {
      auto* out = side.make<float>(static_cast<std::size_t>(count) + 1);
      side.backend.fill_uniforms({{out, count}, 0x44535041524B2026ull, 56});
      side.get("uniforms", out, static_cast<std::size_t>(count) + 1);
    });
  }
}

TEST_F(SamplingParity, TokensOfStoredProbabilities) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> corner = {0.0f, 0.99999994f, 1.0f, 2.0f, -1.0f, nan, 1e-12f, 0.5f};
  for (std::int32_t vocab : cases({1, 2, 4096, 4097, 20011}, {4097})) {
    for (std::int32_t batch : cases({1, 3, 64}, {9})) {
      Numbers numbers(static_cast<std::uint64_t>(vocab + batch));
      std::vector<float> rows(static_cast<std::size_t>(batch) * static_cast<std::size_t>(vocab));
      for (std::int32_t b = 0; b < batch; ++b) {
        float* row = rows.data() + static_cast<std::size_t>(b) * static_cast<std::size_t>(vocab);
        const float share = 1.0f / static_cast<float>(vocab);
        for (std::int32_t v = 0; v < vocab; ++v) row[v] = share * 2.0f * numbers.uniform();
        if (b % 7 == 1) std::fill_n(row, vocab, 0.0f);                          // nothing to draw
        if (b % 7 == 2) std::fill_n(row + vocab / 3, vocab - vocab / 3, 0.0f);  // sum far below 1
        if (b % 7 == 3) row[numbers.below(vocab)] = nan;
        if (b % 7 == 4) row[numbers.below(vocab)] = 7.0f;
        if (b % 7 == 5) row[numbers.below(vocab)] = -1.0f;
      }
      const std::int32_t slots = 3;
      std::vector<float> uniforms;
      for (std::int32_t i = 0; i < batch * slots; ++i) {
        uniforms.push_back(numbers.below(2) == 0
                               ? numbers.uniform()
                               : corner[static_cast<std::size_t>(numbers.below(8))]);
      }
      for (std::int32_t step = 0; step < slots; ++step) {
        same("V=" + std::to_string(vocab) + " B=" + std::to_string(batch), [&](Side& side) {
          SampleProbabilityRowsArgs args;
          args.batch = batch;
          args.block_size = slots;
          args.step = step;
          args.probabilities = {side.put(rows), batch, vocab, vocab};
          args.uniforms = side.put(uniforms);
          args.tokens = side.make<std::int32_t>(uniforms.size());
          args.distance = side.make<float>(uniforms.size());
          args.scratch = side.scratch(row_scan_scratch(batch, vocab));
          args.status = side.status();
          side.backend.sample_probability_rows(args);
          side.get("tokens", args.tokens, uniforms.size());
          side.get("distance", args.distance, uniforms.size());
          side.get("status", args.status, 1);
        });
      }
    }
  }
}

}  // namespace
}  // namespace dspark::parity
