#include <algorithm>
#include <string>
#include <vector>

#include "parity.h"

namespace dspark::parity {
namespace {

class SparseParity : public Parity {};

SamplingRule temperature(double t) {
  return make_sampling_rule(t, 0, 1, TopPRule::water_filling, kMaxTopK);
}

TEST_F(SparseParity, SelectionFromEveryKindOfRow) {
  for (std::int32_t vocab : cases({1, 3, 129, 4096, 4097, 20011, 151936}, {5003})) {
    for (std::int32_t k : {1, 2, 50, 128, kMaxTopK}) {
      if (k > vocab) continue;
      Numbers numbers(static_cast<std::uint64_t>(vocab));
      const std::vector<float> logits = rows_of(numbers, kRowKinds, vocab, vocab + 1);
      same("V=" + std::to_string(vocab) + " K=" + std::to_string(k), [&](Side& side) {
        const auto rows = static_cast<std::int64_t>(kRowKinds.size());
        SelectTopKArgs args;
        args.logits = {side.put(logits), rows, vocab, vocab + 1};
        const auto size = kRowKinds.size() * static_cast<std::size_t>(k + 1);
        auto* values = side.make<float>(size);
        args.values = {values, rows, k, k + 1};
        args.ids = side.make<std::int32_t>(kRowKinds.size() * static_cast<std::size_t>(k));
        args.scratch = side.scratch(select_top_k_scratch(rows, vocab, k));
        args.status = side.status();
        side.backend.select_top_k(args);
        side.get("values", values, size);
        side.get("ids", args.ids, kRowKinds.size() * static_cast<std::size_t>(k));
        side.get("status", args.status, 1);
      });
    }
  }
}

TEST_F(SparseParity, SelectionFromManyRows) {
  for (std::int64_t rows : cases<std::int64_t>({1, 7, 300}, {7})) {
    Numbers numbers(static_cast<std::uint64_t>(rows));
    const std::int32_t vocab = 9001;
    const std::vector<float> logits = normals(numbers, static_cast<std::size_t>(rows * vocab), 3);
    same(std::to_string(rows) + " rows", [&](Side& side) {
      SelectTopKArgs args;
      args.logits = {side.put(logits), rows, vocab, vocab};
      const auto size = static_cast<std::size_t>(rows * 64);
      auto* values = side.make<float>(size);
      args.values = {values, rows, 64, 64};
      args.ids = side.make<std::int32_t>(size);
      args.scratch = side.scratch(select_top_k_scratch(rows, vocab, 64));
      side.backend.select_top_k(args);
      side.get("values", values, size);
      side.get("ids", args.ids, size);
    });
  }
}

/// Rows of K values of every kind, and ids some of which lie outside [0, vocab).
struct SparseRows {
  std::vector<float> values;
  std::vector<std::int32_t> ids;

  SparseRows(Numbers& numbers, std::int32_t k, std::int32_t vocab)
      : values(rows_of(numbers, kRowKinds, k, k + 1)) {
    for (std::size_t i = 0; i < kRowKinds.size() * static_cast<std::size_t>(k); ++i) {
      ids.push_back(numbers.below(20) == 0 ? vocab + numbers.below(2) : numbers.below(vocab));
    }
  }
};

TEST_F(SparseParity, LawsOfEveryKindOfRow) {
  const auto rows = static_cast<std::int64_t>(kRowKinds.size());
  for (std::int32_t k : cases({1, 2, 31, 32, 33, 128, kMaxTopK}, {33})) {
    for (double t : {1.0, 0.2, 5.0, 0.0}) {
      for (bool with_ids : {true, false}) {
        Numbers numbers(static_cast<std::uint64_t>(k));
        const SparseRows sparse(numbers, k, 1000);
        same("K=" + std::to_string(k) + " T=" + std::to_string(t), [&](Side& side) {
          NormalizeTopKRowsArgs args;
          args.values = {side.put(sparse.values), rows, k, k + 1};
          if (with_ids) args.ids = side.put(sparse.ids);
          args.rule = temperature(t);
          const auto size = kRowKinds.size() * static_cast<std::size_t>(k);
          auto* out = side.make<float>(size);
          args.probabilities = {out, rows, k, k};
          args.status = side.status();
          side.backend.normalize_top_k_rows(args);
          side.get("probabilities", out, size);
          side.get("status", args.status, 1);
        });
      }
    }
  }
}

TEST_F(SparseParity, SamplesOfEveryKindOfRow) {
  const auto batch = static_cast<std::int32_t>(kRowKinds.size());
  const float corner[] = {0.0f, 0.99999994f, 1.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()};
  for (std::int32_t k : cases({1, 2, 31, 32, 33, 128, kMaxTopK}, {33})) {
    for (double t : {1.0, 0.2, 5.0, 0.0}) {
      for (std::uint64_t repeat = 0; repeat < 4; ++repeat) {
        Numbers numbers(static_cast<std::uint64_t>(k) + 1000 * repeat);
        const SparseRows sparse(numbers, k, 1000);
        std::vector<float> uniforms;
        for (std::int32_t i = 0; i < batch * 3; ++i) {
          uniforms.push_back(numbers.below(2) == 0 ? numbers.uniform() : corner[numbers.below(5)]);
        }
        same("K=" + std::to_string(k) + " T=" + std::to_string(t), [&](Side& side) {
          SampleTopKRowsArgs args;
          args.batch = batch;
          args.block_size = 3;
          args.step = 2;
          args.vocab = 1000;
          args.values = {side.put(sparse.values), batch, k, k + 1};
          args.ids = side.put(sparse.ids);
          args.uniforms = side.put(uniforms);
          args.rule = temperature(t);
          const auto cells = static_cast<std::size_t>(batch * 3);
          const std::size_t size = cells * static_cast<std::size_t>(k + 2);
          auto* out = side.make<float>(size);
          args.probabilities = {out, static_cast<std::int64_t>(batch) * 3, k, k + 2};
          const std::size_t stored = cells * static_cast<std::size_t>(k);
          args.stored_ids = side.make<std::int32_t>(stored);
          args.tokens = side.make<std::int32_t>(cells);
          args.distance = side.make<float>(cells);
          args.status = side.status();
          side.backend.sample_top_k_rows(args);
          side.get("probabilities", out, size);
          side.get("stored_ids", args.stored_ids, stored);
          side.get("tokens", args.tokens, cells);
          side.get("distance", args.distance, cells);
          side.get("status", args.status, 1);
        });
      }
    }
  }
}

TEST_F(SparseParity, TheBestTokenOfAStep) {
  for (std::int32_t batch : cases({1, 3, 700}, {3})) {
    Numbers numbers(11);
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < batch * 5; ++i) ids.push_back(numbers.below(1010) - 5);
    same("B=" + std::to_string(batch), [&](Side& side) {
      StoreDraftStepTop1Args args;
      args.batch = batch;
      args.block_size = 4;
      args.step = 3;
      args.vocab = 1000;
      args.ids = side.put(ids);
      args.ids_stride = 5;
      args.tokens = side.make<std::int32_t>(static_cast<std::size_t>(batch * 4));
      args.status = side.status();
      side.backend.store_draft_step_top1(args);
      side.get("tokens", args.tokens, static_cast<std::size_t>(batch * 4));
      side.get("status", args.status, 1);
    });
  }
}

}  // namespace
}  // namespace dspark::parity
