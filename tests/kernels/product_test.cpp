// project, widen, markov_rows, draft_rows.
#include <cmath>
#include <limits>

#include "tests/kernels/kernel_test.h"
#include "tests/kernels/oracle.h"

namespace dspark::test {
namespace {

struct Shape {
  std::int64_t rows;
  std::int32_t vocab;
  std::int64_t depth;
};

// Around the sizes that blocked code cuts at, and the smallest.
const std::vector<Shape> kShapes = {{1, 1, 1},     {3, 5, 2},      {8, 33, 17},   {12, 32, 64},
                                    {13, 257, 65}, {7, 300, 256},  {5, 67, 257},  {25, 131, 520},
                                    {2, 1031, 31}, {130, 129, 70}, {1, 4099, 40}, {70, 16, 300}};

class Products : public KernelTest {};

std::vector<float> product_of(const std::vector<float>& a, const std::vector<float>& b,
                              const Shape& shape) {
  std::vector<float> out;
  for (std::int64_t m = 0; m < shape.rows; ++m) {
    for (std::int64_t n = 0; n < shape.vocab; ++n) {
      out.push_back(chain(row(a, m, shape.depth), row(b, n, shape.depth), shape.depth));
    }
  }
  return out;
}

TEST_F(Products, ProjectIsAChainOfFusedMultiplyAddsForEveryShapeAndType) {
  Random random(1);
  for (const Shape& shape : kShapes) {
    for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
      const std::int64_t padding = shape.depth % 3;
      const std::vector<float> a =
          random.normals(static_cast<std::size_t>(shape.rows * shape.depth));
      const DeviceMatrix device_a(a, shape.depth, DType::f32, padding);
      const DeviceMatrix b(random.normals(static_cast<std::size_t>(shape.vocab * shape.depth)),
                           shape.depth, type, 2 * padding);
      const DeviceRows out(shape.rows, shape.vocab, padding);
      backend().project({device_a.view(), b.view(), out.view()});
      SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.vocab << " x " << shape.depth
                                      << ", type " << static_cast<int>(type));
      expect_same_bits(out.dense(), product_of(a, b.dense(), shape));
    }
  }
}

TEST_F(Products, ProjectCarriesInfinitiesAndNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  const DeviceMatrix a({1, 0, infinity, 1, std::nanf(""), 0, -0.0f, 0}, 2, DType::f32);
  const DeviceMatrix b({2, 3, 0, 1, 1e30f, infinity}, 2, DType::f32);
  const DeviceRows out(4, 3);
  backend().project({a.view(), b.view(), out.view()});
  const Shape shape{4, 3, 2};
  expect_same_bits(out.dense(), product_of(a.dense(), b.dense(), shape));
}

TEST_F(Products, NoRowsIsNoWork) {
  const DeviceMatrix b({1, 2, 3, 4}, 2, DType::f16);
  backend().project({{nullptr, DType::f32, 0, 2, 2}, b.view(), {nullptr, 0, 2, 2}});
  backend().widen({{nullptr, DType::f16, 0, 2, 2}, {nullptr, 0, 2, 2}});
  backend().markov_rows(MarkovRowsArgs{});
  backend().draft_rows(DraftRowsArgs{});
  backend().synchronize();
}

TEST_F(Products, WidenIsExactForEveryHalf) {
  std::vector<float> every;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    every.push_back(to_float(Float16{static_cast<std::uint16_t>(bits)}));
  }
  const DeviceMatrix in(every, 1 << 15, DType::f16, 3);
  const DeviceRows out(2, 1 << 15, 5);
  backend().widen({in.view(), out.view()});
  expect_same_bits(out.dense(), every);
}

TEST_F(Products, WidenIsExactForBfloat16AndFloat) {
  Random random(2);
  const std::vector<float> values = random.normals(3 * 77, 1e3f);
  for (const DType type : {DType::bf16, DType::f32}) {
    const DeviceMatrix in(values, 77, type, 1);
    const DeviceRows out(3, 77, 2);
    backend().widen({in.view(), out.view()});
    expect_same_bits(out.dense(), in.dense());
  }
}

/// One call of markov_rows and what it must give.
struct MarkovCase {
  MarkovCase(const Shape& shape, std::int64_t backbone_rows, DType type, std::uint64_t seed)
      : random(seed),
        vocab(shape.vocab),
        rank(shape.depth),
        backbone(random.normals(static_cast<std::size_t>(backbone_rows * vocab), 3), vocab, 3),
        backbone_values(backbone.dense()),
        w1(random.normals(static_cast<std::size_t>(vocab * rank)), rank, type, 1),
        w2(random.normals(static_cast<std::size_t>(vocab * rank)), rank, type, 2),
        out(shape.rows, vocab, 1) {
    for (std::int64_t i = 0; i < shape.rows; ++i) {
      previous.push_back(random.integer(0, vocab - 1));
      backbone_row.push_back(random.integer(0, static_cast<std::int32_t>(backbone_rows) - 1));
    }
  }

  std::uint32_t run(bool head = true) {
    const Device<std::int32_t> device_previous(previous);
    const Device<std::int32_t> device_row(backbone_row);
    const Device<std::uint32_t> status(1);
    MarkovRowsArgs args;
    args.backbone = backbone.view();
    args.backbone_row = device_row.view();
    args.previous = device_previous.view();
    if (head) args.w1 = w1.view();
    if (head) args.w2 = w2.view();
    args.out = out.view();
    args.status = status.data();
    backend().markov_rows(args);
    return status.values()[0];
  }

  std::vector<float> expected(bool head = true) const {
    std::vector<float> values;
    for (std::size_t i = 0; i < previous.size(); ++i) {
      const bool sound =
          previous[i] >= 0 && (!head || previous[i] < vocab) && backbone_row[i] >= 0 &&
          backbone_row[i] < static_cast<std::int32_t>(backbone_values.size()) / vocab;
      for (std::int32_t v = 0; v < vocab; ++v) {
        if (!sound) {
          values.push_back(canary());
          continue;
        }
        const float base = row(backbone_values, backbone_row[i], vocab)[v];
        values.push_back(
            head ? base + chain(row(w1.dense(), previous[i], rank), row(w2.dense(), v, rank), rank)
                 : base);
      }
    }
    return values;
  }

  Random random;
  std::int32_t vocab;
  std::int64_t rank;
  DeviceRows backbone;
  std::vector<float> backbone_values;
  DeviceMatrix w1;
  DeviceMatrix w2;
  DeviceRows out;
  std::vector<std::int32_t> previous;
  std::vector<std::int32_t> backbone_row;
};

TEST_F(Products, MarkovRowsAddTheChainToTheBackboneOnce) {
  for (const Shape& shape : kShapes) {
    for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
      SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.vocab << " x " << shape.depth
                                      << ", type " << static_cast<int>(type));
      MarkovCase test(shape, 4, type, 3);
      EXPECT_EQ(test.run(), kOpOk);
      expect_same_bits(test.out.dense(), test.expected());
    }
  }
}

TEST_F(Products, MarkovRowsWithoutAHeadCopyTheBackboneToTheBit) {
  MarkovCase test({9, 41, 3}, 4, DType::f16, 4);
  test.backbone_values[5] = -0.0f;
  test.backbone = DeviceRows(test.backbone_values, test.vocab, 3);
  test.previous[2] = 1000;  // no table, so nothing to be outside of
  test.previous[3] = -1;
  EXPECT_EQ(test.run(false), kOpOk);
  expect_same_bits(test.out.dense(), test.expected(false));
}

TEST_F(Products, MarkovRowsLeaveUnusedAndBadRowsAloneAndReportTheBad) {
  MarkovCase unused({5, 40, 8}, 3, DType::f16, 5);
  unused.previous[1] = -1;
  unused.backbone_row[1] = 77;  // not looked at
  EXPECT_EQ(unused.run(), kOpOk);
  expect_same_bits(unused.out.dense(), unused.expected());

  MarkovCase bad_token({5, 40, 8}, 3, DType::f16, 6);
  bad_token.previous[4] = 40;
  EXPECT_EQ(bad_token.run(), kOpBadToken);
  expect_same_bits(bad_token.out.dense(), bad_token.expected());

  MarkovCase bad_row({5, 40, 8}, 3, DType::f16, 7);
  bad_row.backbone_row[0] = 3;
  bad_row.backbone_row[2] = -1;
  EXPECT_EQ(bad_row.run(), kOpBadRow);
  expect_same_bits(bad_row.out.dense(), bad_row.expected());
}

/// One call of draft_rows. The states are more than the rows, and stand in another order.
struct DraftCase {
  DraftCase(const Shape& shape, std::int64_t rank, DType hidden_type, DType type,
            std::uint64_t seed)
      : random(seed),
        vocab(shape.vocab),
        depth(shape.depth),
        hidden(normals(shape.rows + 2, depth), depth, hidden_type, 1),
        head(normals(vocab, depth), depth, type, 2),
        w1(normals(vocab + 3, rank), rank, type, 3),
        w2(normals(vocab, rank), rank, type, 1),
        out(shape.rows, vocab, 1) {
    for (std::int64_t i = 0; i < shape.rows; ++i) {
      previous.push_back(random.integer(0, vocab + 2));
      hidden_row.push_back(random.integer(0, static_cast<std::int32_t>(shape.rows) + 1));
    }
  }

  std::vector<float> normals(std::int64_t rows, std::int64_t cols) {
    return random.normals(static_cast<std::size_t>(rows * cols));
  }

  std::uint32_t run(bool markov = true) {
    const Device<std::int32_t> device_previous(previous);
    const Device<std::int32_t> device_row(hidden_row);
    const Device<std::uint32_t> status(1);
    DraftRowsArgs args;
    args.hidden = hidden.view();
    args.hidden_row = device_row.view();
    args.previous = device_previous.view();
    args.head = head.view();
    if (markov) args.w1 = w1.view();
    if (markov) args.w2 = w2.view();
    args.out = out.view();
    args.status = status.data();
    backend().draft_rows(args);
    return status.values()[0];
  }

  std::vector<float> expected(bool markov = true) const {
    std::vector<float> values;
    for (std::size_t i = 0; i < previous.size(); ++i) {
      const std::int64_t rank = w1.view().cols;
      const bool sound = previous[i] >= 0 && (!markov || previous[i] < vocab + 3) &&
                         hidden_row[i] >= 0 && hidden_row[i] < hidden.view().rows;
      for (std::int32_t v = 0; v < vocab; ++v) {
        if (!sound) {
          values.push_back(canary());
          continue;
        }
        const float base =
            chain(row(hidden.dense(), hidden_row[i], depth), row(head.dense(), v, depth), depth);
        values.push_back(markov ? base + chain(row(w1.dense(), previous[i], rank),
                                               row(w2.dense(), v, rank), rank)
                                : base);
      }
    }
    return values;
  }

  Random random;
  std::int32_t vocab;
  std::int64_t depth;
  DeviceMatrix hidden;
  DeviceMatrix head;
  DeviceMatrix w1;
  DeviceMatrix w2;
  DeviceRows out;
  std::vector<std::int32_t> previous;
  std::vector<std::int32_t> hidden_row;
};

TEST_F(Products, DraftRowsAddTheMarkovChainToTheHiddenChainOnce) {
  for (const Shape& shape : kShapes) {
    for (const std::int64_t rank : {1, 24, 300}) {
      for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
        SCOPED_TRACE(testing::Message()
                     << shape.rows << " x " << shape.vocab << " x " << shape.depth << " + " << rank
                     << ", type " << static_cast<int>(type));
        DraftCase test(shape, rank, type == DType::f16 ? DType::f32 : type, type, 8);
        EXPECT_EQ(test.run(), kOpOk);
        expect_same_bits(test.out.dense(), test.expected());
      }
    }
  }
}

TEST_F(Products, DraftRowsAreProjectThenMarkovRows) {
  DraftCase test({70, 300, 520}, 257, DType::f16, DType::f16, 9);
  test.previous[3] = test.previous[69] = -1;
  test.run();

  const DeviceRows backbone(test.hidden.view().rows, test.vocab);
  backend().project({test.hidden.view(), test.head.view(), backbone.view()});
  const DeviceRows out(70, test.vocab);
  const Device<std::int32_t> previous(test.previous);
  const Device<std::int32_t> hidden_row(test.hidden_row);
  MarkovRowsArgs markov;
  markov.backbone = backbone.view();
  markov.backbone_row = hidden_row.view();
  markov.previous = previous.view();
  markov.w1 = test.w1.view();
  markov.w2 = test.w2.view();
  markov.out = out.view();
  backend().markov_rows(markov);
  expect_same_bits(test.out.dense(), out.dense());
}

TEST_F(Products, DraftRowsTakeTheStatesInOrderWithoutAnIndex) {
  DraftCase test({9, 41, 30}, 24, DType::f16, DType::f16, 10);
  for (std::int32_t i = 0; i < 9; ++i) test.hidden_row[static_cast<std::size_t>(i)] = i;
  const Device<std::int32_t> previous(test.previous);
  DraftRowsArgs args;
  args.hidden = test.hidden.view();
  args.hidden.rows = 9;
  args.previous = previous.view();
  args.head = test.head.view();
  args.w1 = test.w1.view();
  args.w2 = test.w2.view();
  args.out = test.out.view();
  backend().draft_rows(args);
  expect_same_bits(test.out.dense(), test.expected());
}

TEST_F(Products, DraftRowsWithoutAMarkovHeadAreTheHiddenChain) {
  DraftCase test({9, 41, 30}, 24, DType::f32, DType::f16, 11);
  test.previous[2] = 1000;  // no table, so nothing to be outside of
  test.previous[3] = -1;
  EXPECT_EQ(test.run(false), kOpOk);
  expect_same_bits(test.out.dense(), test.expected(false));
}

TEST_F(Products, DraftRowsLeaveUnusedAndBadRowsAloneAndReportTheBad) {
  DraftCase unused({5, 40, 16}, 8, DType::f16, DType::f16, 12);
  unused.previous[1] = -1;
  unused.hidden_row[1] = 77;  // not looked at
  EXPECT_EQ(unused.run(), kOpOk);
  expect_same_bits(unused.out.dense(), unused.expected());

  DraftCase bad_token({5, 40, 16}, 8, DType::f16, DType::f16, 13);
  bad_token.previous[4] = 43;
  EXPECT_EQ(bad_token.run(), kOpBadToken);
  expect_same_bits(bad_token.out.dense(), bad_token.expected());

  DraftCase bad_row({5, 40, 16}, 8, DType::f16, DType::f16, 14);
  bad_row.hidden_row[0] = 7;
  bad_row.hidden_row[2] = -1;
  EXPECT_EQ(bad_row.run(), kOpBadRow);
  expect_same_bits(bad_row.out.dense(), bad_row.expected());
}

}  // namespace
}  // namespace dspark::test
