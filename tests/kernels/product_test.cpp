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

/// Elements after each row of the operands of markov_rows.
struct MarkovPadding {
  std::int64_t backbone = 3;
  std::int64_t w1 = 1;
  std::int64_t w2 = 2;
  std::int64_t out = 1;
};

/// One call of markov_rows and what it must give.
struct MarkovCase {
  MarkovCase(const Shape& shape, std::int64_t backbone_rows, DType type, std::uint64_t seed,
             const MarkovPadding& padding = {})
      : random(seed),
        vocab(shape.vocab),
        rank(shape.depth),
        backbone(random.normals(static_cast<std::size_t>(backbone_rows * vocab), 3), vocab,
                 padding.backbone),
        backbone_values(backbone.dense()),
        w1(random.normals(static_cast<std::size_t>(vocab * rank)), rank, type, padding.w1),
        w2(random.normals(static_cast<std::size_t>(vocab * rank)), rank, type, padding.w2),
        out(shape.rows, vocab, padding.out) {
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
    args.products = products;
    args.status = status.data();
    backend().markov_rows(args);
    return status.values()[0];
  }

  bool sound(std::size_t i, bool head = true) const {
    return previous[i] >= 0 && (!head || previous[i] < vocab) && backbone_row[i] >= 0 &&
           backbone_row[i] < static_cast<std::int32_t>(backbone_values.size()) / vocab;
  }

  std::vector<float> expected(bool head = true) const {
    std::vector<float> values;
    for (std::size_t i = 0; i < previous.size(); ++i) {
      for (std::int32_t v = 0; v < vocab; ++v) {
        if (!sound(i, head)) {
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
  dspark::Products products = dspark::Products::exact;
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

// --- products on tensor cores (Products::tensor); elsewhere they are the chain -------------------

// Around the sizes that tiles cut at: 16 in depth, 64 and 128 rows, 128 and 256 columns.
const std::vector<Shape> kTensorShapes = {
    {1, 1, 1},       {3, 5, 2},      {8, 33, 17},   {64, 256, 64},  {65, 257, 65},
    {128, 300, 256}, {129, 513, 72}, {1, 1031, 31}, {260, 40, 100}, {300, 700, 520}};

/// Padding that makes the rows of a 16-bit matrix start at multiples of 16 bytes.
std::int64_t padding_to_16_bytes(std::int64_t depth) { return (depth + 7) / 8 * 8 - depth; }

/// Σ a · b and Σ |a · b| of 16-bit values in 64 bits.
struct ReferenceSum {
  double value = 0;
  double size = 0;

  void add(const float* a, const float* b, std::int64_t depth) {
    for (std::int64_t k = 0; k < depth; ++k) {
      const double product = static_cast<double>(a[k]) * b[k];
      value += product;
      size += std::abs(product);
    }
  }
  /// Accumulated in f32, whose sums may be cut off rather than rounded: far above what random
  /// numbers give, far below what a wrong or lost product would.
  void expect_close(float got) const { EXPECT_NEAR(got, value, 0x1p-20 * size + 1e-40); }
};

TEST_F(Products, TensorProjectionsAreCloseForEveryShapeAndType) {
  Random random(20);
  for (const Shape& shape : kTensorShapes) {
    for (const DType type : {DType::f16, DType::bf16}) {
      SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.vocab << " x " << shape.depth
                                      << ", type " << static_cast<int>(type));
      const std::int64_t padding = padding_to_16_bytes(shape.depth);
      const DeviceMatrix a(random.normals(static_cast<std::size_t>(shape.rows * shape.depth)),
                           shape.depth, type, padding + 8);
      const DeviceMatrix b(random.normals(static_cast<std::size_t>(shape.vocab * shape.depth)),
                           shape.depth, type, padding);
      const DeviceRows out(shape.rows, shape.vocab, shape.depth % 3);
      const ProjectArgs args{a.view(), b.view(), out.view(), dspark::Products::tensor};
      ASSERT_TRUE(tensor_products_apply(args));
      backend().project(args);
      const std::vector<float> got = out.dense();
      for (std::int64_t m = 0; m < shape.rows; ++m) {
        for (std::int64_t n = 0; n < shape.vocab; ++n) {
          ReferenceSum sum;
          sum.add(row(a.dense(), m, shape.depth), row(b.dense(), n, shape.depth), shape.depth);
          sum.expect_close(row(got, m, shape.vocab)[n]);
        }
      }
      if (HasFailure()) return;
    }
  }
}

TEST_F(Products, TensorProjectionsOfARowDoNotDependOnTheOthers) {
  Random random(21);
  const Shape shape{300, 700, 520};
  const DeviceMatrix a(random.normals(static_cast<std::size_t>(shape.rows * shape.depth)),
                       shape.depth, DType::f16);
  const DeviceMatrix b(random.normals(static_cast<std::size_t>(shape.vocab * shape.depth)),
                       shape.depth, DType::f16);
  const DeviceRows all(shape.rows, shape.vocab);
  backend().project({a.view(), b.view(), all.view(), dspark::Products::tensor});
  const std::vector<float> expected = all.dense();
  for (const std::int64_t first : {0, 1, 63, 170, 299}) {
    for (const std::int64_t count : {1, 7, 64, 129}) {
      if (first + count > shape.rows) continue;
      Matrix part = a.view();
      part.data = static_cast<const std::uint16_t*>(part.data) + first * part.stride;
      part.rows = count;
      const DeviceRows out(count, shape.vocab, 3);
      backend().project({part, b.view(), out.view(), dspark::Products::tensor});
      SCOPED_TRACE(testing::Message() << count << " rows from " << first);
      expect_same_bits(out.dense(), {row(expected, first, shape.vocab),
                                     row(expected, first + count, shape.vocab)});
    }
  }
}

TEST_F(Products, TensorProjectionsOfTokensDoNotDependOnTheOthers) {
  Random random(22);
  const Shape shape{40, 600, 136};
  const DeviceMatrix a(random.normals(static_cast<std::size_t>(shape.rows * shape.depth)),
                       shape.depth, DType::bf16);
  const DeviceMatrix b(random.normals(static_cast<std::size_t>(shape.vocab * shape.depth)),
                       shape.depth, DType::bf16);
  const DeviceRows all(shape.rows, shape.vocab);
  backend().project({a.view(), b.view(), all.view(), dspark::Products::tensor});
  Matrix part = b.view();
  part.data = static_cast<const std::uint16_t*>(part.data) + 277 * part.stride;
  part.rows = 300;
  const DeviceRows out(shape.rows, 300);
  backend().project({a.view(), part, out.view(), dspark::Products::tensor});
  const std::vector<float> got = out.dense();
  const std::vector<float> whole = all.dense();
  for (std::int64_t m = 0; m < shape.rows; ++m) {
    const float* const expected = row(whole, m, shape.vocab) + 277;
    expect_same_bits({row(got, m, 300), row(got, m + 1, 300)}, {expected, expected + 300});
  }
}

TEST_F(Products, TensorProductsOfOtherOperandsAreTheChain) {
  Random random(23);
  const Shape shape{20, 130, 40};
  const std::vector<float> a = random.normals(static_cast<std::size_t>(shape.rows * shape.depth));
  const std::vector<float> b = random.normals(static_cast<std::size_t>(shape.vocab * shape.depth));
  struct Operands {
    DType a, b;
    std::int64_t padding;
  };
  for (const Operands& operands :
       {Operands{DType::f32, DType::f32, 0}, Operands{DType::f32, DType::f16, 0},
        Operands{DType::f16, DType::bf16, 0}, Operands{DType::f16, DType::f16, 1}}) {
    const DeviceMatrix device_a(a, shape.depth, operands.a, operands.padding);
    const DeviceMatrix device_b(b, shape.depth, operands.b);
    const DeviceRows out(shape.rows, shape.vocab);
    const ProjectArgs args{device_a.view(), device_b.view(), out.view(), dspark::Products::tensor};
    EXPECT_FALSE(tensor_products_apply(args));
    backend().project(args);
    expect_same_bits(out.dense(), product_of(device_a.dense(), device_b.dense(), shape));
  }
}

// Around the sizes that the kernels change at (8 and 64 rows, rank 256) and that their tiles cut at
// (16, 128 and 256 tokens).
const std::vector<Shape> kMarkovShapes = {
    {1, 1, 8},     {1, 300, 256},  {3, 17, 64},   {8, 257, 24},  {8, 130, 512}, {9, 16, 8},
    {12, 515, 40}, {33, 129, 264}, {64, 384, 72}, {65, 33, 256}, {70, 259, 16}, {200, 131, 512}};

TEST_F(Products, TensorMarkovRowsAreCloseAndLeaveUnusedAndBadRowsAlone) {
  for (const Shape& shape : kMarkovShapes) {
    for (const DType type : {DType::f16, DType::bf16}) {
      // Logits whose rows begin at multiples of 16 bytes, and others.
      const std::int64_t aligned = (4 - shape.vocab % 4) % 4;
      for (const MarkovPadding& padding :
           {MarkovPadding{aligned, 0, 8, aligned + 4}, MarkovPadding{3, 8, 0, 1},
            MarkovPadding{aligned, 0, 0, aligned + 1}}) {
        SCOPED_TRACE(testing::Message()
                     << shape.rows << " x " << shape.vocab << " x " << shape.depth << ", type "
                     << static_cast<int>(type) << ", padding " << padding.out);
        MarkovCase test(shape, 5, type, 23, padding);
        test.products = dspark::Products::tensor;
        std::uint32_t problems = kOpOk;
        if (shape.rows > 2) {
          test.previous[1] = -1;
          test.backbone_row[1] = -7;  // not looked at
          test.previous[2] = test.vocab;
          test.backbone_row.back() = 5;
          problems = kOpBadToken | kOpBadRow;
        }
        EXPECT_EQ(test.run(), problems);
        const std::vector<float> got = test.out.dense();
        for (std::size_t i = 0; i < test.previous.size(); ++i) {
          for (std::int32_t v = 0; v < test.vocab; ++v) {
            const float value = row(got, static_cast<std::int64_t>(i), test.vocab)[v];
            if (!test.sound(i)) {
              expect_same_bits({value}, {canary()});
              continue;
            }
            const float one = 1.0f;
            ReferenceSum sum;
            sum.add(row(test.backbone_values, test.backbone_row[i], test.vocab) + v, &one, 1);
            sum.add(row(test.w1.dense(), test.previous[i], test.rank),
                    row(test.w2.dense(), v, test.rank), test.rank);
            sum.expect_close(value);
          }
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(Products, TensorMarkovRowsDependOnTheirOwnOperandsAlone) {
  for (const std::int64_t rank : {136, 264}) {
    MarkovCase test({200, 300, rank}, 7, DType::bf16, 24, {0, 0, 0, 0});
    test.products = dspark::Products::tensor;
    EXPECT_EQ(test.run(), kOpOk);
    const std::vector<float> all = test.out.dense();
    const std::vector<std::int32_t> previous = test.previous;
    const std::vector<std::int32_t> backbone_row = test.backbone_row;
    // Parts of the rows, in every kernel, and in rows that are cut differently.
    for (const std::int64_t count : {1, 8, 9, 40, 64, 65}) {
      for (const std::int64_t padding : {0, 1}) {
        SCOPED_TRACE(testing::Message() << count << " rows of rank " << rank);
        const std::int64_t first = 13;
        test.previous.assign(previous.begin() + first, previous.begin() + first + count);
        test.backbone_row.assign(backbone_row.begin() + first,
                                 backbone_row.begin() + first + count);
        test.out = DeviceRows(count, test.vocab, padding);
        EXPECT_EQ(test.run(), kOpOk);
        expect_same_bits(test.out.dense(), {row(all, first, 300), row(all, first + count, 300)});
      }
    }
  }
}

/// One call of draft_rows. The states are more than the rows, and stand in another order.
struct DraftCase {
  /// Padding of rows of so many elements.
  using Padding = std::int64_t (*)(std::int64_t);

  DraftCase(
      const Shape& shape, std::int64_t rank, DType hidden_type, DType type, std::uint64_t seed,
      Padding padding = [](std::int64_t size) { return 1 + size % 3; })
      : random(seed),
        vocab(shape.vocab),
        depth(shape.depth),
        hidden(normals(shape.rows + 2, depth), depth, hidden_type, padding(depth)),
        head(normals(vocab, depth), depth, type, padding(depth)),
        w1(normals(vocab + 3, rank), rank, type, padding(rank)),
        w2(normals(vocab, rank), rank, type, padding(rank)),
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
    args.products = products;
    args.status = status.data();
    applies = tensor_products_apply(args);
    backend().draft_rows(args);
    return status.values()[0];
  }

  bool sound(std::size_t i, bool markov = true) const {
    return previous[i] >= 0 && (!markov || previous[i] < vocab + 3) && hidden_row[i] >= 0 &&
           hidden_row[i] < hidden.view().rows;
  }

  /// Holds the outputs against sums in 64 bits.
  void expect_close(bool markov = true) const {
    const std::vector<float> got = out.dense();
    const std::int64_t rank = w1.view().cols;
    for (std::size_t i = 0; i < previous.size(); ++i) {
      for (std::int32_t v = 0; v < vocab; ++v) {
        const float value = row(got, static_cast<std::int64_t>(i), vocab)[v];
        if (!sound(i, markov)) {
          expect_same_bits({value}, {canary()});
          continue;
        }
        ReferenceSum sum;
        sum.add(row(hidden.dense(), hidden_row[i], depth), row(head.dense(), v, depth), depth);
        if (markov) sum.add(row(w1.dense(), previous[i], rank), row(w2.dense(), v, rank), rank);
        sum.expect_close(value);
      }
    }
  }

  std::vector<float> expected(bool markov = true) const {
    std::vector<float> values;
    for (std::size_t i = 0; i < previous.size(); ++i) {
      const std::int64_t rank = w1.view().cols;
      for (std::int32_t v = 0; v < vocab; ++v) {
        if (!sound(i, markov)) {
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
  dspark::Products products = dspark::Products::exact;
  bool applies = false;  ///< tensor_products_apply of the last call
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

TEST_F(Products, TensorDraftRowsAreCloseAndLeaveUnusedAndBadRowsAlone) {
  for (const Shape& shape : kTensorShapes) {
    for (const std::int64_t rank : {1, 24, 300}) {
      for (const DType type : {DType::f16, DType::bf16}) {
        SCOPED_TRACE(testing::Message()
                     << shape.rows << " x " << shape.vocab << " x " << shape.depth << " + " << rank
                     << ", type " << static_cast<int>(type));
        DraftCase test(shape, rank, type, type, 15, padding_to_16_bytes);
        test.products = dspark::Products::tensor;
        std::uint32_t problems = kOpOk;
        if (shape.rows > 2) {
          test.previous[1] = -1;
          test.hidden_row[1] = -7;  // not looked at
          test.previous[2] = test.vocab + 3;
          test.hidden_row.back() = static_cast<std::int32_t>(shape.rows) + 2;
          problems = kOpBadToken | kOpBadRow;
        }
        EXPECT_EQ(test.run(), problems);
        ASSERT_TRUE(test.applies);
        test.expect_close();
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(Products, TensorDraftRowsWithoutAMarkovHead) {
  DraftCase test({9, 41, 30}, 24, DType::f16, DType::f16, 16, padding_to_16_bytes);
  test.products = dspark::Products::tensor;
  test.previous[2] = 1000;  // no table, so nothing to be outside of
  test.previous[3] = -1;
  EXPECT_EQ(test.run(false), kOpOk);
  ASSERT_TRUE(test.applies);
  test.expect_close(false);
}

TEST_F(Products, TensorDraftRowsDependOnTheirOwnOperandsAlone) {
  DraftCase test({200, 300, 136}, 40, DType::f16, DType::f16, 17, padding_to_16_bytes);
  test.products = dspark::Products::tensor;
  test.run();
  const std::vector<float> all = test.out.dense();

  // The rows backwards and fewer: each as before.
  const std::vector<std::int32_t> previous = test.previous;
  const std::vector<std::int32_t> hidden_row = test.hidden_row;
  test.previous.assign(previous.rbegin(), previous.rbegin() + 3);
  test.hidden_row.assign(hidden_row.rbegin(), hidden_row.rbegin() + 3);
  test.out = DeviceRows(3, test.vocab, 2);
  test.run();
  const std::vector<float> few = test.out.dense();
  for (std::int64_t i = 0; i < 3; ++i) {
    expect_same_bits({row(few, i, 300), row(few, i + 1, 300)},
                     {row(all, 199 - i, 300), row(all, 200 - i, 300)});
  }

  // The states in order, in place.
  Matrix states = test.hidden.view();
  states.rows = 3;
  const Device<std::int32_t> device_previous(test.previous);
  const DeviceRows in_place(3, test.vocab);
  DraftRowsArgs args;
  args.hidden = states;
  args.previous = device_previous.view();
  args.head = test.head.view();
  args.w1 = test.w1.view();
  args.w2 = test.w2.view();
  args.out = in_place.view();
  args.products = dspark::Products::tensor;
  backend().draft_rows(args);
  test.hidden_row = {0, 1, 2};
  test.run();
  expect_same_bits(in_place.dense(), test.out.dense());
}

}  // namespace
}  // namespace dspark::test
