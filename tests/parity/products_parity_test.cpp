#include <algorithm>
#include <cmath>
#include <vector>

#include "parity.h"

namespace dspark::parity {
namespace {

class ProductsParity : public Parity {};

constexpr DType kTypes[] = {DType::f16, DType::bf16, DType::f32};

struct Shape {
  std::int64_t m, n, k;
};

std::string text(const Shape& shape) {
  return "M=" + std::to_string(shape.m) + " N=" + std::to_string(shape.n) +
         " K=" + std::to_string(shape.k);
}

/// Numbers of very different size, so that another order of summation would show.
std::vector<float> factors(Numbers& numbers, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& value : out) {
    value = numbers.normal(1.0f);
    if (numbers.below(9) == 0) value *= 1e3f;
    if (numbers.below(11) == 0) value *= 1e-4f;
  }
  return out;
}

TEST_F(ProductsParity, ProjectionsOfEveryShapeAndType) {
  const Shape shapes[] = {{1, 1, 1},    {1, 130, 33},  {2, 257, 64},   {3, 100, 200}, {4, 129, 128},
                          {5, 300, 70}, {8, 128, 256}, {9, 131, 40},   {31, 129, 17}, {33, 260, 16},
                          {64, 64, 65}, {65, 140, 31}, {129, 257, 48}, {200, 5, 100}};
  for (const Shape& shape : shapes) {
    for (DType type : kTypes) {
      for (std::int64_t pad : cases<std::int64_t>({0, 3, 8}, {8})) {
        for (std::size_t skew : {0, 1}) {
          Numbers numbers(static_cast<std::uint64_t>(shape.m * 1000 + shape.k));
          const std::int64_t stride = shape.k + pad;
          const std::vector<float> a = factors(numbers, shape.m * stride);
          const std::vector<float> b = factors(numbers, shape.n * stride);
          same(text(shape) + " " + type_name(type) + " pad " + std::to_string(pad),
               [&](Side& side) {
                 ProjectArgs args;
                 args.a = put_matrix(side, a, DType::f32, shape.m, shape.k, stride, skew);
                 args.b = put_matrix(side, b, type, shape.n, shape.k, stride, skew);
                 const auto size = static_cast<std::size_t>(shape.m * (shape.n + pad));
                 auto* out = side.make<float>(size, skew);
                 args.out = {out, shape.m, static_cast<std::int32_t>(shape.n), shape.n + pad};
                 side.backend.project(args);
                 side.get("out", out, size);
               });
        }
      }
    }
  }
}

TEST_F(ProductsParity, ProjectionsKeepTheSignOfTinySums) {
  // Products that underflow to -0: adding padding zeros would turn them into +0.
  same("tiny", [&](Side& side) {
    for (std::int64_t m : {1, 12, 70}) {
      const std::vector<float> a(static_cast<std::size_t>(m) * 5, -1e-30f);
      const std::vector<float> b(static_cast<std::size_t>(20) * 5, 1e-30f);
      ProjectArgs args;
      args.a = put_matrix(side, a, DType::f32, m, 5, 5);
      args.b = put_matrix(side, b, DType::f32, 20, 5, 5);
      auto* out = side.make<float>(static_cast<std::size_t>(m) * 20);
      args.out = {out, m, 20, 20};
      side.backend.project(args);
      side.get("out " + std::to_string(m), out, static_cast<std::size_t>(m) * 20);
    }
  });
}

TEST_F(ProductsParity, ProjectionOfALargeVocabulary) {
  for (std::int64_t m : {1, 7, 20}) {
    Numbers numbers(5);
    const std::int64_t n = 151936;
    const std::int64_t k = 40;
    const std::vector<float> a = factors(numbers, m * k);
    const std::vector<float> b = factors(numbers, n * k);
    same("M=" + std::to_string(m), [&](Side& side) {
      ProjectArgs args;
      args.a = put_matrix(side, a, DType::f32, m, k, k);
      args.b = put_matrix(side, b, DType::f16, n, k, k);
      auto* out = side.make<float>(static_cast<std::size_t>(m * n));
      args.out = {out, m, static_cast<std::int32_t>(n), n};
      side.backend.project(args);
      side.get("out", out, static_cast<std::size_t>(m * n));
    });
  }
}

TEST_F(ProductsParity, WidensEveryTypeAtEveryAlignment) {
  for (DType type : kTypes) {
    for (std::int64_t cols : {1, 4, 7, 1030}) {
      for (std::int64_t pad : {0, 1}) {
        for (std::size_t skew : {0, 1}) {
          Numbers numbers(3);
          const std::int64_t rows = 3;
          std::vector<float> in = factors(numbers, rows * (cols + pad));
          in[0] = -0.0f;
          in[static_cast<std::size_t>(cols / 2)] = 1e-7f;
          in.back() = std::numeric_limits<float>::infinity();
          same(std::string(type_name(type)) + " " + std::to_string(cols), [&](Side& side) {
            const auto size = static_cast<std::size_t>(rows * (cols + pad));
            auto* out = side.make<float>(size, skew);
            side.backend.widen({put_matrix(side, in, type, rows, cols, cols + pad, skew),
                                {out, rows, static_cast<std::int32_t>(cols), cols + pad}});
            side.get("out", out, size);
          });
        }
      }
    }
  }
}

TEST_F(ProductsParity, MarkovRowsWithUnusedAndBadRows) {
  for (std::int64_t m : cases<std::int64_t>({1, 3, 8, 40, 70, 140}, {3, 40})) {
    for (DType type : kTypes) {
      for (bool head : {true, false}) {
        for (bool bad : {false, true}) {
          Numbers numbers(static_cast<std::uint64_t>(m));
          const std::int32_t vocab = 517;
          const std::int64_t rank = 24;
          const std::int64_t backbones = 9;
          const std::vector<float> backbone =
              normals(numbers, static_cast<std::size_t>(backbones * (vocab + 3)), 2);
          const std::vector<float> w1 = factors(numbers, vocab * rank);
          const std::vector<float> w2 = factors(numbers, vocab * rank);
          std::vector<std::int32_t> previous;
          std::vector<std::int32_t> row;
          for (std::int64_t i = 0; i < m; ++i) {
            previous.push_back(numbers.below(5) == 0 ? -1 : numbers.below(vocab));
            row.push_back(numbers.below(static_cast<std::int32_t>(backbones)));
          }
          if (bad) {
            previous[0] = vocab;
            row.back() = static_cast<std::int32_t>(backbones);
            if (m > 2) row[1] = -1;
          }
          same("M=" + std::to_string(m) + " " + type_name(type) + (head ? "" : " without a head"),
               [&](Side& side) {
                 MarkovRowsArgs args;
                 args.backbone = {side.put(backbone), backbones, vocab, vocab + 3};
                 args.backbone_row = {side.put(row), m};
                 args.previous = {side.put(previous), m};
                 if (head) {
                   args.w1 = put_matrix(side, w1, type, vocab, rank, rank);
                   args.w2 = put_matrix(side, w2, type, vocab, rank, rank);
                 }
                 const auto size = static_cast<std::size_t>(m * vocab);
                 auto* out = side.make<float>(size);
                 args.out = {out, m, vocab, vocab};
                 args.status = side.status();
                 side.backend.markov_rows(args);
                 side.get("out", out, size);
                 side.get("status", args.status, 1);
               });
        }
      }
    }
  }
}

TEST_F(ProductsParity, DraftRowsWithUnusedAndBadRows) {
  for (std::int64_t m : cases<std::int64_t>({1, 3, 8, 40, 70, 140}, {3, 40})) {
    for (DType type : kTypes) {
      for (std::int64_t rank : {0, 24, 300}) {
        for (bool bad : {false, true}) {
          Numbers numbers(static_cast<std::uint64_t>(m));
          const std::int32_t vocab = 517;
          const std::int64_t depth = 72;
          const std::int64_t states = 9;
          const std::vector<float> hidden = factors(numbers, states * (depth + 3));
          const std::vector<float> head = factors(numbers, vocab * depth);
          const std::vector<float> w1 = factors(numbers, vocab * rank);
          const std::vector<float> w2 = factors(numbers, vocab * rank);
          std::vector<std::int32_t> previous;
          std::vector<std::int32_t> row;
          for (std::int64_t i = 0; i < m; ++i) {
            previous.push_back(numbers.below(5) == 0 ? -1 : numbers.below(vocab));
            row.push_back(numbers.below(static_cast<std::int32_t>(states)));
          }
          if (bad) {
            previous[0] = vocab;
            row.back() = static_cast<std::int32_t>(states);
            if (m > 2) row[1] = -1;
          }
          same("M=" + std::to_string(m) + " " + type_name(type) + " R=" + std::to_string(rank),
               [&](Side& side) {
                 DraftRowsArgs args;
                 args.hidden = put_matrix(side, hidden, type, states, depth, depth + 3);
                 args.hidden_row = {side.put(row), m};
                 args.previous = {side.put(previous), m};
                 args.head = put_matrix(side, head, type, vocab, depth, depth);
                 if (rank > 0) {
                   args.w1 = put_matrix(side, w1, type, vocab, rank, rank);
                   args.w2 = put_matrix(side, w2, type, vocab, rank, rank);
                 }
                 const auto size = static_cast<std::size_t>(m * vocab);
                 auto* out = side.make<float>(size);
                 args.out = {out, m, vocab, vocab};
                 args.status = side.status();
                 side.backend.draft_rows(args);
                 side.get("out", out, size);
                 side.get("status", args.status, 1);
               });
        }
      }
    }
  }
}

TEST_F(ProductsParity, TensorProductsAreCloseToTheChain) {
  // The only results that may differ: the order of summation is the device's own.
  Numbers numbers(6);
  const std::int64_t m = 150;
  const std::int32_t n = 3001;
  const std::int64_t depth = 1024;
  const std::int64_t rank = 104;
  const std::vector<float> hidden = normals(numbers, static_cast<std::size_t>(m * depth), 1);
  const std::vector<float> head = normals(numbers, static_cast<std::size_t>(n * depth), 1);
  const std::vector<float> table = normals(numbers, static_cast<std::size_t>(n * rank), 1);
  std::vector<std::int32_t> previous;
  for (std::int64_t i = 0; i < m; ++i) previous.push_back(numbers.below(n));
  for (const DType type : {DType::f16, DType::bf16}) {
    const auto run = [&](Backend& backend, std::vector<float>& projected,
                         std::vector<float>& drafts) {
      Side side(backend);
      DraftRowsArgs args;
      args.hidden = put_matrix(side, hidden, type, m, depth, depth);
      args.previous = {side.put(previous), m};
      args.head = put_matrix(side, head, type, n, depth, depth);
      args.w1 = args.w2 = put_matrix(side, table, type, n, rank, rank);
      args.products = Products::tensor;
      args.status = side.status();
      const auto size = static_cast<std::size_t>(m * n);
      args.out = {side.make<float>(size), m, n, n};
      ASSERT_TRUE(tensor_products_apply(args));
      backend.draft_rows(args);
      drafts.resize(size);
      backend.download(drafts.data(), args.out.data, size * sizeof(float));
      backend.project({args.hidden, args.head, args.out, Products::tensor});
      projected.resize(size);
      backend.download(projected.data(), args.out.data, size * sizeof(float));
    };
    std::vector<float> chain[2];
    std::vector<float> tensor[2];
    run(*cpu_backend(), chain[0], chain[1]);
    run(*cuda_backend(), tensor[0], tensor[1]);
    for (int which = 0; which < 2; ++which) {
      // A product of two such numbers has a mean size of 2 / pi; both sums may be off by 2^-20 of
      // all of them.
      const double bound = 2 * 0x1p-20 * 0.7 * static_cast<double>(depth + which * rank);
      double worst = 0;
      for (std::size_t i = 0; i < chain[which].size(); ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(chain[which][i]) - tensor[which][i]));
      }
      EXPECT_LE(worst, bound) << type_name(type) << (which == 0 ? " project" : " draft_rows");
    }
  }
}

TEST_F(ProductsParity, ConfidencesOfRows) {
  for (std::int64_t hidden_size : cases<std::int64_t>({1, 31, 32, 33, 512, 2560}, {33})) {
    for (std::int64_t rank : {0, 1, 24, 256}) {
      Numbers numbers(static_cast<std::uint64_t>(hidden_size + rank));
      const std::int64_t rows = 6;
      const std::int64_t vocab = 40;
      const std::vector<float> hidden =
          normals(numbers, static_cast<std::size_t>(rows * (hidden_size + 1)), 1);
      const std::vector<float> w1 = normals(numbers, static_cast<std::size_t>(vocab * rank), 1);
      const std::vector<float> weight =
          normals(numbers, static_cast<std::size_t>(hidden_size + rank), 0.1f);
      const std::vector<std::int32_t> row = {0, 1, 2, 5, 3, 6, -1, 4};
      const std::vector<std::int32_t> previous = {0, 39, -1, 7, 40, 2, 2, 1};
      const DType type = rank == 1 ? DType::f32 : (rank == 24 ? DType::bf16 : DType::f16);
      same("H=" + std::to_string(hidden_size) + " R=" + std::to_string(rank), [&](Side& side) {
        ConfidenceRowsArgs args;
        args.hidden = put_matrix(side, hidden, type, rows, hidden_size, hidden_size + 1);
        args.hidden_row = {side.put(row), 8};
        args.previous = {side.put(previous), 8};
        if (rank > 0) args.w1 = put_matrix(side, w1, DType::f16, vocab, rank, rank);
        args.weight = {side.put(weight), hidden_size + rank};
        args.bias = 0.25f;
        auto* out = side.make<float>(8);
        args.out = {out, 8};
        args.status = side.status();
        side.backend.confidence_rows(args);
        side.get("out", out, 8);
        side.get("status", args.status, 1);
      });
    }
  }
}

TEST_F(ProductsParity, ScoresAndLengths) {
  for (std::int32_t batch : cases({1, 3, 64}, {3})) {
    for (std::int32_t slots : cases({1, 7, 40}, {40})) {
      for (std::int64_t rank : {0, 24}) {
        Numbers numbers(static_cast<std::uint64_t>(batch + slots));
        const std::int64_t hidden_size = 96;
        const std::int64_t vocab = 40;
        const std::int64_t rows = static_cast<std::int64_t>(batch) * (slots + 1);
        const std::vector<float> hidden =
            normals(numbers, static_cast<std::size_t>(rows * hidden_size), 1);
        const std::vector<float> w1 = normals(numbers, static_cast<std::size_t>(vocab * rank), 1);
        const std::vector<float> weight =
            normals(numbers, static_cast<std::size_t>(hidden_size + rank), 0.3f);
        std::vector<std::int32_t> first;
        std::vector<std::int32_t> draft;
        for (std::int32_t b = 0; b < batch; ++b) first.push_back(numbers.below(40));
        for (std::int32_t i = 0; i < batch * slots; ++i) {
          draft.push_back(numbers.below(30) == 0 ? 40 : numbers.below(40));
        }
        if (batch > 1) first[1] = -1;
        for (float threshold : {0.0f, 0.2f, 0.6f}) {
          for (std::int32_t least : {0, 2}) {
            same("B=" + std::to_string(batch) + " P=" + std::to_string(slots), [&](Side& side) {
              ConfidenceScoresArgs scores;
              scores.batch = batch;
              scores.block_size = slots;
              scores.hidden = put_matrix(side, hidden, DType::bf16, rows, hidden_size, hidden_size);
              scores.hidden_stride = slots + 1;
              scores.hidden_offset = 1;
              if (rank > 0) scores.w1 = put_matrix(side, w1, DType::f32, vocab, rank, rank);
              scores.weight = {side.put(weight), hidden_size + rank};
              scores.bias = 0.7f;
              scores.first_previous = side.put(first);
              scores.draft = side.put(draft);
              const auto cells = static_cast<std::size_t>(batch * slots);
              const auto entries = static_cast<std::size_t>(batch);
              scores.scores = side.make<float>(cells);
              scores.status = side.status();
              side.backend.confidence_scores(scores);
              side.get("scores", scores.scores, cells);
              auto* lengths = side.make<std::int32_t>(entries);
              side.backend.threshold_lengths({scores, threshold, least, 5, lengths});
              side.get("threshold lengths", lengths, entries);
              side.backend.sps_lengths({scores, threshold, least, 0, LinearCost{}, lengths});
              side.get("sps lengths", lengths, entries);
              side.backend.fill_proposal_lengths({batch, 4, lengths});
              side.get("filled lengths", lengths, entries);
              side.get("scores again", scores.scores, cells);
              side.get("status", scores.status, 1);
            });
          }
        }
      }
    }
  }
}

// Rows that come in one part and in several, at every place of 16 bytes, from 8 slots on in several
// turns of the same blocks.
TEST_F(ProductsParity, ScoresOfEveryTypeSizeAndPlace) {
  const std::int32_t batch = 2;
  const std::int32_t slots = 9;
  const std::int64_t vocab = 30;
  const std::int64_t rows = std::int64_t{batch} * slots;
  for (const DType type : kTypes) {
    for (const std::int64_t hidden_size :
         cases<std::int64_t>({1, 7, 255, 257, 4096, 20001}, {255})) {
      for (const std::int64_t rank : cases<std::int64_t>({0, 5, 256, 2100}, {5})) {
        for (const std::size_t skew : {0, 1, 3}) {
          Numbers numbers(static_cast<std::uint64_t>(hidden_size + rank));
          const std::int64_t pad = static_cast<std::int64_t>(skew);
          const std::vector<float> hidden =
              normals(numbers, static_cast<std::size_t>(rows * (hidden_size + pad)), 1);
          const std::vector<float> w1 =
              normals(numbers, static_cast<std::size_t>(vocab * (rank + pad)), 1);
          const std::vector<float> weight =
              normals(numbers, static_cast<std::size_t>(hidden_size + rank),
                      1 / std::sqrt(static_cast<float>(hidden_size + rank)));
          std::vector<std::int32_t> draft;
          for (std::int64_t i = 0; i < rows; ++i) draft.push_back(numbers.below(30));
          draft[3] = 30;
          same(type_name(type) + std::string(" H=") + std::to_string(hidden_size) +
                   " R=" + std::to_string(rank) + " skew " + std::to_string(skew),
               [&](Side& side) {
                 ConfidenceScoresArgs scores;
                 scores.batch = batch;
                 scores.block_size = slots;
                 scores.hidden =
                     put_matrix(side, hidden, type, rows, hidden_size, hidden_size + pad, skew);
                 if (rank > 0) {
                   scores.w1 = put_matrix(side, w1, type == DType::f32 ? DType::f16 : type, vocab,
                                          rank, rank + pad, skew);
                 }
                 scores.weight = {side.put(weight, skew), hidden_size + rank};
                 scores.bias = 0.7f;
                 scores.first_previous = side.put(std::vector<std::int32_t>{1, 29});
                 scores.draft = side.put(draft);
                 const auto cells = static_cast<std::size_t>(rows);
                 scores.scores = side.make<float>(cells);
                 scores.status = side.status();
                 side.backend.confidence_scores(scores);
                 side.get("scores", scores.scores, cells);
                 auto* lengths = side.make<std::int32_t>(2);
                 scores.scores = side.make<float>(cells);
                 side.backend.sps_lengths({scores, 0.0, 1, 0, LinearCost{}, lengths});
                 side.get("sps lengths", lengths, 2);
                 side.get("scores with lengths", scores.scores, cells);
                 side.get("status", scores.status, 1);
                 if (type != DType::f32) return;
                 ConfidenceRowsArgs by_row;
                 by_row.hidden = scores.hidden;
                 by_row.hidden_row = {side.put(std::vector<std::int32_t>{17, 0, 3}), 3};
                 by_row.previous = {side.put(std::vector<std::int32_t>{2, -1, 29}), 3};
                 by_row.w1 = scores.w1;
                 by_row.weight = scores.weight;
                 by_row.bias = 0.7f;
                 auto* out = side.make<float>(3);
                 by_row.out = {out, 3};
                 by_row.status = side.status();
                 side.backend.confidence_rows(by_row);
                 side.get("rows", out, 3);
               });
        }
      }
    }
  }
}

// More rows than blocks: a block takes several, and keeps the weights.
TEST_F(ProductsParity, ConfidencesOfManyRows) {
  Numbers numbers(11);
  const std::int64_t hidden_size = 100;
  const std::int64_t rank = 40;
  const std::int64_t vocab = 50;
  const std::int64_t rows = 200;
  const std::size_t count = 5000;
  const std::vector<float> hidden =
      normals(numbers, static_cast<std::size_t>(rows * hidden_size), 1);
  const std::vector<float> w1 = normals(numbers, static_cast<std::size_t>(vocab * rank), 1);
  const std::vector<float> weight =
      normals(numbers, static_cast<std::size_t>(hidden_size + rank), 0.1f);
  std::vector<std::int32_t> row;
  std::vector<std::int32_t> previous;
  for (std::size_t i = 0; i < count; ++i) {
    row.push_back(numbers.below(50) == 0 ? 200 : numbers.below(200));
    previous.push_back(numbers.below(20) == 0 ? -1 : numbers.below(51));
  }
  same("5000 rows", [&](Side& side) {
    ConfidenceRowsArgs args;
    args.hidden = put_matrix(side, hidden, DType::f32, rows, hidden_size, hidden_size);
    args.hidden_row = {side.put(row), static_cast<std::int64_t>(count)};
    args.previous = {side.put(previous), static_cast<std::int64_t>(count)};
    args.w1 = put_matrix(side, w1, DType::f16, vocab, rank, rank);
    args.weight = {side.put(weight), hidden_size + rank};
    args.bias = -0.25f;
    auto* out = side.make<float>(count);
    args.out = {out, static_cast<std::int64_t>(count)};
    args.status = side.status();
    side.backend.confidence_rows(args);
    side.get("out", out, count);
    side.get("status", args.status, 1);
  });
}

}  // namespace
}  // namespace dspark::parity
