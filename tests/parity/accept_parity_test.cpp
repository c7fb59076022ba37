#include <algorithm>
#include <vector>

#include "parity.h"

namespace dspark::parity {
namespace {

class AcceptParity : public Parity {};

TEST_F(AcceptParity, VerifyTokens) {
  for (std::int32_t batch : cases({0, 1, 3, 64}, {3})) {
    for (std::int32_t length : {0, 1, 7, 40}) {
      Numbers numbers(1);
      const std::int32_t stride = length + 2;
      std::vector<std::int32_t> last;
      std::vector<std::int32_t> draft;
      for (std::int32_t b = 0; b < batch; ++b) last.push_back(numbers.below(1000));
      for (std::int32_t i = 0; i < batch * stride; ++i) draft.push_back(numbers.below(1000));
      same("B=" + std::to_string(batch) + " L=" + std::to_string(length), [&](Side& side) {
        const auto size = static_cast<std::size_t>(batch) * static_cast<std::size_t>(length + 1);
        auto* verify = side.make<std::int32_t>(size + 1);
        side.backend.build_verify_tokens(
            {batch, length, stride, side.put(last), side.put(draft), verify});
        side.get("verify", verify, size + 1);
      });
    }
  }
}

TEST_F(AcceptParity, GreedyWithTiesBadRowsAndBadIds) {
  for (std::int32_t vocab : cases({1, 2, 1025, 5003}, {1025})) {
    for (std::int32_t batch : cases({1, 3, 64}, {3})) {
      for (std::int32_t length : cases({1, 7, 35}, {35})) {
        if (batch == 64 && vocab > 2000) continue;
        Numbers numbers(static_cast<std::uint64_t>(vocab + batch + length));
        const std::int32_t width = length + 1;
        const std::int32_t stride = length + 1;
        std::vector<RowKind> kinds;
        for (std::int32_t i = 0; i < batch * width; ++i) {
          // Valid rows mostly, so that runs get long.
          kinds.push_back(kRowKinds[static_cast<std::size_t>(
              numbers.below(20) == 0 ? 11 + numbers.below(5) : numbers.below(11))]);
        }
        const std::vector<float> logits = rows_of(numbers, kinds, vocab, vocab + 1);
        std::vector<std::int32_t> draft;
        std::vector<std::int32_t> lengths;
        for (std::int32_t b = 0; b < batch; ++b) {
          for (std::int32_t slot = 0; slot < stride; ++slot) {
            const std::size_t at = static_cast<std::size_t>(b * width + std::min(slot, length)) *
                                   static_cast<std::size_t>(vocab + 1);
            std::int32_t best = 0;
            for (std::int32_t v = 1; v < vocab; ++v) {
              if (logits[at + static_cast<std::size_t>(v)] >
                  logits[at + static_cast<std::size_t>(best)]) {
                best = v;
              }
            }
            const std::int32_t dice = numbers.below(25);
            draft.push_back(dice == 0 ? -1 : dice == 1 ? vocab : dice == 2 ? 0 : best);
          }
          lengths.push_back(numbers.below(6) == 0 ? numbers.below(3 * length) - length : length);
        }
        same("V=" + std::to_string(vocab) + " B=" + std::to_string(batch) +
                 " L=" + std::to_string(length),
             [&](Side& side) {
               GreedyAcceptArgs args;
               args.batch = batch;
               args.length = length;
               args.draft_stride = stride;
               args.logits = {side.put(logits), static_cast<std::int64_t>(batch) * width, vocab,
                              vocab + 1};
               args.draft = side.put(draft);
               args.lengths = side.put(lengths);
               const auto cells = static_cast<std::size_t>(batch * width);
               const auto entries = static_cast<std::size_t>(batch);
               args.accepted = side.make<std::int32_t>(cells);
               args.accept_length = side.make<std::int32_t>(entries);
               args.margin = side.make<float>(cells);
               args.laws = side.make<RowLaw>(cells);
               args.status = side.status();
               side.backend.greedy_accept(args);
               side.get("accepted", args.accepted, cells);
               side.get("accept_length", args.accept_length, entries);
               side.get("margin", args.margin, cells);
               side.get("status", args.status, 1);
             });
      }
    }
  }
}

TEST_F(AcceptParity, GreedyOnALargeVocabulary) {
  Numbers numbers(2);
  const std::int32_t vocab = 151936;
  const std::vector<RowKind> kinds(8, RowKind::normal);
  const std::vector<float> logits = rows_of(numbers, kinds, vocab, vocab);
  std::vector<std::int32_t> draft;
  for (std::size_t i = 0; i < 7; ++i) {
    const auto* row = logits.data() + i * static_cast<std::size_t>(vocab);
    draft.push_back(static_cast<std::int32_t>(std::max_element(row, row + vocab) - row));
  }
  for (std::int32_t wrong : {0, 3, 6, 7}) {
    std::vector<std::int32_t> tokens = draft;
    if (wrong < 7) tokens[static_cast<std::size_t>(wrong)] ^= 1;
    same("wrong at " + std::to_string(wrong), [&](Side& side) {
      GreedyAcceptArgs args;
      args.batch = 1;
      args.length = 7;
      args.draft_stride = 7;
      args.logits = {side.put(logits), 8, vocab, vocab};
      args.draft = side.put(tokens);
      args.lengths = side.put(std::vector<std::int32_t>{7});
      args.accepted = side.make<std::int32_t>(8);
      args.accept_length = side.make<std::int32_t>(1);
      args.laws = side.make<RowLaw>(8);
      side.backend.greedy_accept(args);
      side.get("accepted", args.accepted, 8);
      side.get("accept_length", args.accept_length, 1);
    });
  }
}

// More batch entries than a launch has tickets for, and every call finds them at 0.
TEST_F(AcceptParity, GreedyOfAVeryLargeBatch) {
  Numbers numbers(5);
  const std::int32_t batch = 9000;
  const std::int32_t vocab = 6;
  const std::int32_t length = 2;
  const std::size_t cells = static_cast<std::size_t>(batch) * (length + 1);
  const std::vector<float> logits = normals(numbers, cells * vocab, 1);
  std::vector<std::int32_t> draft;
  std::vector<std::int32_t> lengths;
  for (std::int32_t b = 0; b < batch; ++b) {
    for (std::int32_t slot = 0; slot < length; ++slot) draft.push_back(numbers.below(vocab));
    lengths.push_back(1 + numbers.below(length));
  }
  same("B=9000", [&](Side& side) {
    GreedyAcceptArgs args;
    args.batch = batch;
    args.length = length;
    args.draft_stride = length;
    args.logits = {side.put(logits), static_cast<std::int64_t>(cells), vocab, vocab};
    args.draft = side.put(draft);
    args.lengths = side.put(lengths);
    args.accepted = side.make<std::int32_t>(cells);
    args.accept_length = side.make<std::int32_t>(static_cast<std::size_t>(batch));
    args.margin = side.make<float>(cells);
    args.laws = side.make<RowLaw>(cells);
    args.status = side.status();
    for (const char* call : {"first", "second"}) {
      side.backend.greedy_accept(args);
      side.get(std::string(call) + " accepted", args.accepted, cells);
      side.get(std::string(call) + " accept_length", args.accept_length,
               static_cast<std::size_t>(batch));
      side.get(std::string(call) + " margin", args.margin, cells);
    }
    side.get("status", args.status, 1);
  });
}

/// Rows of probabilities, some of them strange.
std::vector<float> probability_rows(Numbers& numbers, std::int64_t rows, std::int32_t vocab) {
  std::vector<float> out(static_cast<std::size_t>(rows) * static_cast<std::size_t>(vocab));
  for (std::int64_t i = 0; i < rows; ++i) {
    float* row = out.data() + static_cast<std::size_t>(i) * static_cast<std::size_t>(vocab);
    float sum = 0;
    for (std::int32_t v = 0; v < vocab; ++v) {
      row[v] = numbers.uniform() * numbers.uniform();
      sum += row[v];
    }
    for (std::int32_t v = 0; v < vocab; ++v) row[v] /= sum;
    if (numbers.below(12) == 0) std::fill_n(row, vocab, 0.0f);
    if (numbers.below(20) == 0) {
      row[numbers.below(vocab)] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  return out;
}

TEST_F(AcceptParity, Probabilistic) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (std::int32_t vocab : cases({1, 2, 4097, 9001}, {4097})) {
    for (std::int32_t batch : cases({1, 3, 64}, {3})) {
      for (std::int32_t length : cases({1, 7, 36}, {36})) {
        if (batch == 64 && vocab > 100 && length > 1) continue;
        Numbers numbers(static_cast<std::uint64_t>(vocab * 3 + batch + length));
        const std::int32_t stride = length + 1;
        const std::int64_t target_rows = static_cast<std::int64_t>(batch) * (length + 1);
        const std::int64_t draft_rows = static_cast<std::int64_t>(batch) * stride;
        std::vector<float> target = probability_rows(numbers, target_rows, vocab);
        std::vector<float> draft = probability_rows(numbers, draft_rows, vocab);
        // Some draft rows equal the target's: accepted, or an empty residual.
        for (std::int32_t b = 0; b < batch; ++b) {
          for (std::int32_t slot = 0; slot < length; ++slot) {
            if (numbers.below(3) == 0) continue;
            const auto* from = target.data() + static_cast<std::size_t>(b * (length + 1) + slot) *
                                                   static_cast<std::size_t>(vocab);
            std::copy_n(from, vocab,
                        draft.data() + static_cast<std::size_t>(b * stride + slot) *
                                           static_cast<std::size_t>(vocab));
          }
        }
        std::vector<std::int32_t> tokens;
        std::vector<std::int32_t> lengths;
        std::vector<float> uniforms;
        for (std::int64_t i = 0; i < draft_rows; ++i) {
          const std::int32_t dice = numbers.below(40);
          tokens.push_back(dice == 0 ? -1 : dice == 1 ? vocab : numbers.below(vocab));
        }
        for (std::int32_t b = 0; b < batch; ++b) {
          lengths.push_back(numbers.below(5) == 0 ? numbers.below(3 * length) - length : length);
        }
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(batch) * (2 * stride + 1); ++i) {
          const std::int32_t dice = numbers.below(30);
          uniforms.push_back(dice == 0   ? 1.0f
                             : dice == 1 ? nan
                             : dice == 2 ? 0.0f
                                         : numbers.uniform());
        }
        for (bool with_distance : {true, false}) {
          same("V=" + std::to_string(vocab) + " B=" + std::to_string(batch) +
                   " L=" + std::to_string(length),
               [&](Side& side) {
                 ProbabilisticAcceptArgs args;
                 args.batch = batch;
                 args.length = length;
                 args.draft_stride = stride;
                 args.target = {side.put(target), target_rows, vocab, vocab};
                 args.draft = {side.put(draft), draft_rows, vocab, vocab};
                 args.tokens = side.put(tokens);
                 args.lengths = side.put(lengths);
                 args.uniforms = side.put(uniforms);
                 const auto cells = static_cast<std::size_t>(batch * (length + 1));
                 const auto entries = static_cast<std::size_t>(batch);
                 args.accepted = side.make<std::int32_t>(cells);
                 args.accept_length = side.make<std::int32_t>(entries);
                 if (with_distance) args.distance = side.make<float>(entries);
                 args.scratch = side.scratch(row_scan_scratch(batch, vocab));
                 if (with_distance) args.status = side.status();
                 side.backend.probabilistic_accept(args);
                 side.get("accepted", args.accepted, cells);
                 side.get("accept_length", args.accept_length, entries);
                 if (with_distance) {
                   side.get("distance", args.distance, entries);
                   side.get("status", args.status, 1);
                 }
               });
        }
      }
    }
  }
}

}  // namespace
}  // namespace dspark::parity
