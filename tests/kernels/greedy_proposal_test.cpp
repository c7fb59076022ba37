// quantize_markov_w2, markov_greedy_step, finalize_greedy_draft_tokens, greedy_propose.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/kernel_test.h"
#include "tests/kernels/oracle.h"

namespace dspark::test {
namespace {

class GreedyProposal : public KernelTest {};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_F(GreedyProposal, SupportedRanks) {
  for (const std::int64_t rank : {8, 16, 24, 256, 512}) {
    EXPECT_TRUE(dspark_fused_greedy_supported(rank)) << rank;
  }
  for (const std::int64_t rank : {-8, 0, 1, 12, 520, 1024}) {
    EXPECT_FALSE(dspark_fused_greedy_supported(rank)) << rank;
  }
  EXPECT_TRUE(fused_greedy_supported(1, DType::f16));
  EXPECT_TRUE(fused_greedy_supported(1000, DType::f32));
  EXPECT_FALSE(fused_greedy_supported(0, DType::bf16));
  EXPECT_TRUE(fused_greedy_supported(48, DType::e4m3));
  EXPECT_FALSE(fused_greedy_supported(0, DType::e4m3));
  EXPECT_FALSE(fused_greedy_supported(24, DType::e4m3));
}

// --- quantising ---

struct Quantized {
  std::vector<Float8> codes;
  std::vector<Float16> scale;
  std::uint32_t status;
};

Quantized quantize(const Matrix& w2) {
  const Device<Float8> codes(static_cast<std::size_t>(w2.rows * w2.cols), Float8{0x55});
  const Device<Float16> scale(static_cast<std::size_t>(w2.rows), Float16{0x5555});
  const Device<std::uint32_t> status(1);
  backend().quantize_markov_w2({w2, codes.data(), scale.data(), status.data()});
  return {codes.values(), scale.values(), status.values()[0]};
}

TEST_F(GreedyProposal, QuantizedRowsFollowTheirDefinition) {
  Random random(71);
  for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
    for (const std::int64_t rank : {16, 48, 256}) {
      for (const std::int64_t padding : {0, 1, 4}) {
        constexpr std::int64_t kRows = 37;
        std::vector<float> values = random.normals(static_cast<std::size_t>(kRows * rank), 0.3f);
        for (std::int64_t i = 0; i < rank; ++i) {
          values[static_cast<std::size_t>(i)] = 0;              // scale 1
          values[static_cast<std::size_t>(rank + i)] *= 1e-6f;  // the smallest scale
          values[static_cast<std::size_t>(2 * rank + i)] *= 1e4f;
        }
        const DeviceMatrix w2(values, rank, type, padding);
        const Quantized got = quantize(w2.view());
        EXPECT_EQ(got.status, kOpOk);
        for (std::int64_t r = 0; r < kRows; ++r) {
          const float* const weights = row(w2.dense(), r, rank);
          float largest = 0;
          for (std::int64_t i = 0; i < rank; ++i) {
            largest = std::max(largest, std::fabs(weights[i]));
          }
          Float16 scale = largest > 0 ? to_float16(largest / 448) : to_float16(1);
          if (scale.bits == 0) scale.bits = 1;
          ASSERT_EQ(got.scale[static_cast<std::size_t>(r)].bits, scale.bits) << r;
          for (std::int64_t i = 0; i < rank; ++i) {
            ASSERT_EQ(got.codes[static_cast<std::size_t>(r * rank + i)].bits,
                      to_float8(weights[i] / to_float(scale)).bits)
                << r << " " << i;
          }
        }
        EXPECT_EQ(to_float(got.scale[0]), 1.0f);
        if (type == DType::f32) {
          EXPECT_EQ(got.scale[1].bits, 1);
        }
      }
    }
  }
}

TEST_F(GreedyProposal, WeightsThatCannotBeQuantizedAreReported) {
  const auto with = [](float weight) {
    std::vector<float> values(32, 1.0f);
    values[17] = weight;
    return quantize(DeviceMatrix(values, 16, DType::f32).view());
  };
  EXPECT_EQ(with(kFloat8LargestWeight).status, kOpOk);
  Quantized got = with(std::nanf(""));
  EXPECT_EQ(got.status, kOpInvalidRow);
  EXPECT_TRUE(std::isnan(to_float(got.codes[17])));
  EXPECT_EQ(to_float(got.codes[18]), 448.0f);
  got = with(-kInfinity);
  EXPECT_EQ(got.status, kOpInvalidRow);
  EXPECT_EQ(to_float(got.codes[17]), -448.0f);
  EXPECT_EQ(got.scale[1].bits, got.scale[0].bits);
  got = with(1e30f);
  EXPECT_EQ(got.status, kOpInvalidRow);
  EXPECT_EQ(to_float(got.codes[17]), 448.0f);
  EXPECT_EQ(to_float(got.scale[1]), 65504.0f);
}

// --- steps ---

/// A head of any type, and the logits it is added to.
class Case {
 public:
  Case(std::uint64_t seed, std::int32_t entries, std::int32_t slots, std::int32_t size,
       std::int64_t width, DType type, std::int64_t padding = 1)
      : Case(Random(seed), entries, slots, size, width, type, padding) {}

  Case(Random random, std::int32_t entries, std::int32_t slots, std::int32_t size,
       std::int64_t width, DType type, std::int64_t padding)
      : batch(entries),
        block_size(slots),
        vocab(size),
        rank(width),
        backbone_values(random.normals(static_cast<std::size_t>(entries * (slots + 1) * size), 2)),
        w1(random.normals(static_cast<std::size_t>(size * width)), width,
           type == DType::e4m3 ? DType::f16 : type, padding),
        w2(random.normals(static_cast<std::size_t>(size * width), 0.4f), width,
           type == DType::e4m3 ? DType::f16 : type),
        fp8(type == DType::e4m3),
        codes(fp8 ? static_cast<std::size_t>(size * width) : 1),
        scale(static_cast<std::size_t>(size)) {
    for (std::int32_t b = 0; b < batch; ++b) first.push_back(random.integer(0, vocab - 1));
    if (fp8) backend().quantize_markov_w2({w2.view(), codes.data(), scale.data(), nullptr});
  }

  /// Rows of a batch entry lie block_size + 1 apart, behind one that is not used.
  template <class Args>
  Args arguments(const DeviceRows& backbone) const {
    Args args;
    args.batch = batch;
    args.block_size = block_size;
    args.backbone = backbone.view();
    args.logits_stride = block_size + 1;
    args.logits_offset = 1;
    args.w1 = w1.view();
    args.w2 = fp8 ? float8_matrix(codes.data(), vocab, rank) : w2.view();
    args.w2_scale = fp8 ? scale.data() : nullptr;
    args.products = products;
    return args;
  }

  float* backbone_row(std::int32_t b, std::int32_t step) {
    return backbone_values.data() + (b * (block_size + 1) + step + 1) * vocab;
  }

  /// The logits of a row by their definition.
  std::vector<float> logits(std::int32_t b, std::int32_t step, std::int32_t previous) const {
    const float* const backbone = row(backbone_values, b * (block_size + 1) + step + 1, vocab);
    const std::vector<Float8> stored_codes = fp8 ? codes.values() : std::vector<Float8>{};
    const std::vector<Float16> stored_scale = scale.values();
    std::vector<float> out;
    for (std::int32_t v = 0; v < vocab; ++v) {
      float product = 0;
      if (fp8) {
        std::vector<float> weights;
        for (std::int64_t r = 0; r < rank; ++r) {
          weights.push_back(to_float(stored_codes[static_cast<std::size_t>(v * rank + r)]));
        }
        product = chain(row(w1.dense(), previous, rank), weights.data(), rank) *
                  to_float(stored_scale[static_cast<std::size_t>(v)]);
      } else {
        product = chain(row(w1.dense(), previous, rank), row(w2.dense(), v, rank), rank);
      }
      out.push_back(backbone[v] + product);
    }
    return out;
  }

  /// A logit in 64 bits, and how far one that was accumulated in f32, in any order and with sums
  /// cut off rather than rounded, may lie from it.
  struct Logit {
    double value;
    double bound;
  };
  std::vector<Logit> close_logits(std::int32_t b, std::int32_t step, std::int32_t previous) const {
    const float* const backbone = row(backbone_values, b * (block_size + 1) + step + 1, vocab);
    const std::vector<Float8> stored_codes = fp8 ? codes.values() : std::vector<Float8>{};
    const std::vector<Float16> stored_scale = fp8 ? scale.values() : std::vector<Float16>{};
    const float* const factors = row(w1.dense(), previous, rank);
    std::vector<Logit> out;
    for (std::int32_t v = 0; v < vocab; ++v) {
      double product = 0;
      double size = 0;
      const double unit = fp8 ? to_float(stored_scale[static_cast<std::size_t>(v)]) : 1.0;
      for (std::int64_t r = 0; r < rank; ++r) {
        const float weight = fp8 ? to_float(stored_codes[static_cast<std::size_t>(v * rank + r)])
                                 : row(w2.dense(), v, rank)[r];
        product += static_cast<double>(factors[r]) * weight * unit;
        size += std::abs(static_cast<double>(factors[r]) * weight * unit);
      }
      out.push_back({backbone[v] + product, 0x1p-20 * (size + std::abs(backbone[v])) + 1e-40});
    }
    return out;
  }

  std::int32_t batch;
  std::int32_t block_size;
  std::int32_t vocab;
  std::int64_t rank;
  Products products = Products::exact;
  std::vector<float> backbone_values;
  DeviceMatrix w1;
  DeviceMatrix w2;
  bool fp8;
  Device<Float8> codes;
  Device<Float16> scale;
  std::vector<std::int32_t> first;
};

/// The best token of a row by its definition; 0 for an invalid one.
std::uint64_t best_key(const std::vector<float>& logits) {
  std::uint64_t best = 0;
  bool finite = false;
  for (std::size_t v = 0; v < logits.size(); ++v) {
    if (std::isnan(logits[v]) || logits[v] == kInfinity) return 0;
    finite = finite || std::isfinite(logits[v]);
    best = std::max(best, token_key(logits[v], static_cast<std::int32_t>(v)));
  }
  return finite ? best : 0;
}

/// Best less second best.
float margin_of(std::vector<float> logits) {
  std::sort(logits.begin(), logits.end(), std::greater<>());
  return logits.size() > 1 ? logits[0] - logits[1] : kInfinity;
}

struct Slots {
  std::vector<std::uint64_t> slots;
  std::vector<float> margin;
  std::vector<float> stacked;
  std::uint32_t status;

  [[nodiscard]] std::int32_t token(std::int32_t cell) const {
    const std::uint64_t slot = slots[static_cast<std::size_t>(cell)];
    return slot == 0 ? -1 : token_of_key(slot);
  }
};

constexpr std::uint64_t kUnwritten = 0xABCDABCDABCDABCDull;

/// Steps 0 to `steps` of a case.
Slots run_steps(const Case& test, MarkovGreedyStepArgs args, std::int32_t steps) {
  const auto cells = static_cast<std::size_t>(test.batch * test.block_size);
  const Device<std::int32_t> first(test.first);
  const Device<std::uint64_t> slots(cells, kUnwritten);
  const Device<float> margin(cells, canary());
  const DeviceRows stacked(test.batch * (test.block_size + 1), test.vocab, 1);
  const DeviceScratch scratch(markov_greedy_step_scratch(test.batch));
  const Device<std::uint32_t> status(1);
  args.first_previous = first.data();
  args.slots = slots.data();
  args.margin = margin.data();
  args.stacked = stacked.view();
  args.scratch = scratch.view();
  args.status = status.data();
  for (args.step = 0; args.step < steps; ++args.step) backend().markov_greedy_step(args);
  return {slots.values(), margin.values(), stacked.dense(), status.values()[0]};
}

Slots run_steps(const Case& test, std::int32_t steps) {
  const DeviceRows backbone(test.backbone_values, test.vocab, 2);
  return run_steps(test, test.arguments<MarkovGreedyStepArgs>(backbone), steps);
}

void expect_definition(const Case& test, const Slots& got, std::int32_t steps) {
  std::vector<float> stacked(
      static_cast<std::size_t>(test.batch * (test.block_size + 1) * test.vocab), canary());
  for (std::int32_t b = 0; b < test.batch; ++b) {
    std::int32_t previous = test.first[static_cast<std::size_t>(b)];
    for (std::int32_t step = 0; step < test.block_size; ++step) {
      const auto cell = static_cast<std::size_t>(b * test.block_size + step);
      if (step >= steps) {
        EXPECT_EQ(got.slots[cell], kUnwritten);
        continue;
      }
      const std::vector<float> logits = test.logits(b, step, previous);
      ASSERT_EQ(got.slots[cell], best_key(logits)) << "entry " << b << " step " << step;
      EXPECT_EQ(got.margin[cell], margin_of(logits));
      std::copy(logits.begin(), logits.end(),
                stacked.begin() + (b * (test.block_size + 1) + step + 1) * test.vocab);
      previous = token_of_key(got.slots[cell]);
    }
  }
  expect_same_bits(got.stacked, stacked);
  EXPECT_EQ(got.status, kOpOk);
}

TEST_F(GreedyProposal, StepsAreTheBestTokenOfTheCorrectedRow) {
  for (const DType type : {DType::f16, DType::bf16, DType::f32, DType::e4m3}) {
    for (const std::int32_t batch : {1, 2, 3, 8, 9, 40, 70, 130}) {
      const Case test(static_cast<std::uint64_t>(batch), batch, 3, 300, 32, type);
      expect_definition(test, run_steps(test, 2), 2);
    }
  }
}

TEST_F(GreedyProposal, AnyRankAndVocabulary) {
  for (const std::int64_t rank : {1, 7, 16, 100, 256, 512}) {
    for (const std::int32_t vocab : {1, 2, 127, 129, 257}) {
      for (const std::int32_t batch : {1, 5, 12}) {
        const Case test(static_cast<std::uint64_t>(rank + vocab), batch, 2, vocab, rank,
                        DType::f16);
        expect_definition(test, run_steps(test, 2), 2);
        if (!fused_greedy_supported(rank, DType::e4m3)) continue;
        const Case coded(static_cast<std::uint64_t>(rank + vocab), batch, 2, vocab, rank,
                         DType::e4m3);
        expect_definition(coded, run_steps(coded, 2), 2);
      }
    }
  }
}

TEST_F(GreedyProposal, ALongVocabularyHasManyBlocks) {
  for (const DType type : {DType::f16, DType::e4m3}) {
    for (const std::int32_t batch : {2, 20}) {
      const Case test(5, batch, 1, 20011, 16, type);
      expect_definition(test, run_steps(test, 1), 1);
    }
  }
}

// --- steps on tensor cores (Products::tensor); elsewhere they are exact ---

/// Holds steps against logits in 64 bits: each logit is close to its value; and the slot is the
/// best of the logits that were stacked, to the bit, so that it differs from the best of the values
/// only where two are as close as the bounds.
void expect_close(const Case& test, const Slots& got, std::int32_t steps) {
  for (std::int32_t b = 0; b < test.batch; ++b) {
    std::int32_t previous = test.first[static_cast<std::size_t>(b)];
    for (std::int32_t step = 0; step < steps; ++step) {
      const std::vector<Case::Logit> expected = test.close_logits(b, step, previous);
      const float* const logits =
          row(got.stacked, b * (test.block_size + 1) + step + 1, test.vocab);
      std::size_t best = 0;
      for (std::size_t v = 0; v < expected.size(); ++v) {
        ASSERT_NEAR(logits[v], expected[v].value, expected[v].bound)
            << "entry " << b << " step " << step << " token " << v;
        if (expected[v].value > expected[best].value) best = v;
      }
      const std::vector<float> all(logits, logits + test.vocab);
      const std::int32_t cell = b * test.block_size + step;
      ASSERT_EQ(got.slots[static_cast<std::size_t>(cell)], best_key(all))
          << "entry " << b << " step " << step;
      EXPECT_EQ(got.margin[static_cast<std::size_t>(cell)], margin_of(all));
      previous = got.token(cell);
      const Case::Logit& chosen = expected[static_cast<std::size_t>(previous)];
      if (static_cast<std::size_t>(previous) != best) {
        EXPECT_LE(expected[best].value - chosen.value, expected[best].bound + chosen.bound);
      }
    }
  }
  EXPECT_EQ(got.status, kOpOk);
}

TEST_F(GreedyProposal, StepsOnTensorCoresAreTheBestTokenUnlessTwoAreClose) {
  for (const DType type : {DType::f16, DType::bf16, DType::e4m3}) {
    for (const std::int32_t batch : {1, 3, 8, 9, 33, 64, 70}) {
      for (const std::int32_t vocab : {1, 17, 129, 300}) {
        SCOPED_TRACE(testing::Message()
                     << batch << " x " << vocab << ", type " << static_cast<int>(type));
        Case test(static_cast<std::uint64_t>(batch + vocab), batch, 3, vocab, 48, type, 8);
        test.products = Products::tensor;
        expect_close(test, run_steps(test, 3), 3);
        if (HasFailure()) return;
      }
    }
    for (const std::int64_t rank : {16, 80, 256, 272, 512}) {
      for (const std::int32_t batch : {2, 12}) {
        SCOPED_TRACE(testing::Message()
                     << batch << " of rank " << rank << ", type " << static_cast<int>(type));
        Case test(static_cast<std::uint64_t>(rank + batch), batch, 2, 150, rank, type, 0);
        test.products = Products::tensor;
        expect_close(test, run_steps(test, 2), 2);
        if (HasFailure()) return;
      }
    }
  }
  // Every block of a large device has work, and some warps more than they have on their way.
  Case test(31, 2, 2, 70001, 16, DType::e4m3, 0);
  test.products = Products::tensor;
  expect_close(test, run_steps(test, 2), 2);
}

TEST_F(GreedyProposal, SlotsOnTensorCoresDoNotDependOnTheOtherRows) {
  for (const DType type : {DType::f16, DType::bf16, DType::e4m3}) {
    for (const std::int64_t rank : {64, 272}) {
      Case test(33, 75, 3, 200, rank, type, 0);
      test.products = Products::tensor;
      const Slots all = run_steps(test, 3);
      for (const std::int32_t count : {1, 8, 9, 64, 65}) {
        for (const std::int64_t padding : {0, 1}) {
          SCOPED_TRACE(testing::Message() << count << " rows of rank " << rank << ", type "
                                          << static_cast<int>(type) << ", padding " << padding);
          constexpr std::int32_t kFirst = 7;
          Case few(33, 75, 3, 200, rank, type, 0);
          few.products = Products::tensor;
          few.batch = count;
          few.first.assign(test.first.begin() + kFirst, test.first.begin() + kFirst + count);
          few.backbone_values.assign(test.backbone_values.begin() + kFirst * 4 * 200,
                                     test.backbone_values.begin() + (kFirst + count) * 4 * 200);
          const DeviceRows backbone(few.backbone_values, few.vocab, padding);
          const Slots got = run_steps(few, few.arguments<MarkovGreedyStepArgs>(backbone), 3);
          EXPECT_EQ(got.slots,
                    (std::vector<std::uint64_t>(all.slots.begin() + kFirst * 3,
                                                all.slots.begin() + (kFirst + count) * 3)));
          EXPECT_EQ(got.margin, (std::vector<float>(all.margin.begin() + kFirst * 3,
                                                    all.margin.begin() + (kFirst + count) * 3)));
        }
      }
    }
  }
}

TEST_F(GreedyProposal, BadTokensAndRowsOnTensorCores) {
  for (const DType type : {DType::f16, DType::e4m3}) {
    for (const std::int32_t batch : {4, 12}) {
      Case test(34, batch, 2, 50, 16, type, 0);
      test.products = Products::tensor;
      test.first[1] = 50;
      test.backbone_row(2, 0)[49] = std::nanf("");
      test.backbone_row(3, 1)[0] = kInfinity;
      const Slots got = run_steps(test, 2);
      EXPECT_EQ(got.status, kOpBadToken | kOpInvalidRow);
      for (const std::size_t cell : {2, 3, 4, 5, 7}) EXPECT_EQ(got.slots[cell], 0u) << cell;
      for (const std::size_t cell : {0, 1, 6}) EXPECT_NE(got.slots[cell], 0u) << cell;
      EXPECT_TRUE(std::isnan(row(got.stacked, 4, 50)[7]));
      EXPECT_FALSE(std::isnan(row(got.stacked, 7, 50)[48]));
      EXPECT_TRUE(std::isnan(row(got.stacked, 7, 50)[49]));
    }
  }
}

/// A head that adds nothing, over rows that are given.
Case bare(const std::vector<float>& rows, std::int32_t batch, std::int32_t slots) {
  const auto vocab = static_cast<std::int32_t>(rows.size()) / (batch * slots);
  Case test(9, batch, slots, vocab, 1, DType::f32);
  test.w2 = DeviceMatrix(std::vector<float>(static_cast<std::size_t>(vocab), 0.0f), 1, DType::f32);
  test.w1 = DeviceMatrix(std::vector<float>(static_cast<std::size_t>(vocab), 0.0f), 1, DType::f32);
  for (std::int32_t b = 0; b < batch; ++b) {
    for (std::int32_t step = 0; step < slots; ++step) {
      std::copy_n(rows.begin() + (b * slots + step) * vocab, vocab, test.backbone_row(b, step));
    }
  }
  return test;
}

TEST_F(GreedyProposal, TiesGoToTheLowestIdAndZerosAreEqual) {
  const Case test = bare({1, 3, 3, 2, -1, -0.0f, 0.0f, -5}, 2, 1);
  const Slots got = run_steps(test, 1);
  EXPECT_EQ(got.token(0), 1);
  EXPECT_EQ(got.token(1), 1);
  EXPECT_EQ(got.slots[1], token_key(0.0f, 1));
  EXPECT_EQ(got.margin, (std::vector<float>{0, 0}));
  EXPECT_EQ(got.status, kOpOk);
}

TEST_F(GreedyProposal, ABlockEndsAtItsFirstInvalidRow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Case test =
      bare({1,          2,  3,          2, nan, 9, 1,          2,          3,  // NaN at step 1
            1,          2,  kInfinity,  3, 2,   1, 1,          2,          3,  // +inf at step 0
            3,          2,  1,          1, 3,   2, -kInfinity, -kInfinity, -kInfinity,
            -kInfinity, -7, -kInfinity, 5, 5,   5, 0,          0,          1},
           4, 3);
  const Slots got = run_steps(test, 3);
  const std::vector<std::int32_t> expected = {2, -1, -1, -1, -1, -1, 0, 1, -1, 1, 0, 2};
  for (std::int32_t cell = 0; cell < 12; ++cell) {
    EXPECT_EQ(got.token(cell), expected[static_cast<std::size_t>(cell)]) << cell;
    if (expected[static_cast<std::size_t>(cell)] < 0) {
      EXPECT_EQ(got.slots[static_cast<std::size_t>(cell)], 0u);
      EXPECT_EQ(got.margin[static_cast<std::size_t>(cell)], 0.0f);
    }
  }
  EXPECT_EQ(got.margin[9], kInfinity);
  EXPECT_EQ(got.status, kOpInvalidRow | kOpBadToken);
  // The logits of an invalid row are stored as they are; a row without a previous token has none.
  EXPECT_EQ(row(got.stacked, 2, 3)[2], 9);
  EXPECT_TRUE(std::isnan(row(got.stacked, 3, 3)[0]));
  EXPECT_TRUE(std::isnan(row(got.stacked, 3, 3)[2]));
}

TEST_F(GreedyProposal, ABadPreviousTokenIsReportedAndItsSlotIsEmpty) {
  for (const DType type : {DType::f16, DType::e4m3}) {
    for (const std::int32_t bad : {-1, 50}) {
      for (const std::int32_t batch : {3, 12}) {
        Case test(77, batch, 2, 50, 16, type);
        const std::int32_t good = test.first[0];
        test.first[1] = bad;
        const Slots got = run_steps(test, 2);
        EXPECT_EQ(got.status, kOpBadToken);
        EXPECT_EQ(got.slots[0], best_key(test.logits(0, 0, good)));
        EXPECT_EQ(got.slots[2], 0u);
        EXPECT_EQ(got.slots[3], 0u);
        EXPECT_NE(got.slots[4], 0u);
        for (std::int32_t v = 0; v < 50; ++v) {
          EXPECT_TRUE(std::isnan(row(got.stacked, 4, 50)[v]));
          EXPECT_TRUE(std::isnan(row(got.stacked, 5, 50)[v]));
        }
      }
    }
  }
}

TEST_F(GreedyProposal, ASlotThatHoldsNoTokenOfTheVocabularyIsReported) {
  const Case test(78, 1, 2, 50, 16, DType::f16);
  const DeviceRows backbone(test.backbone_values, test.vocab, 2);
  const Device<std::uint64_t> slots({token_key(1.0f, 50), kUnwritten});
  const DeviceScratch scratch(markov_greedy_step_scratch(1));
  const Device<std::uint32_t> status(1);
  auto args = test.arguments<MarkovGreedyStepArgs>(backbone);
  args.step = 1;
  args.slots = slots.data();
  args.scratch = scratch.view();
  args.status = status.data();
  backend().markov_greedy_step(args);
  EXPECT_EQ(slots.values(), (std::vector<std::uint64_t>{token_key(1.0f, 50), 0}));
  EXPECT_EQ(status.values()[0], kOpBadToken);
}

TEST_F(GreedyProposal, LogitsMayBeStackedInAnotherRow) {
  const Case test(79, 2, 2, 30, 8, DType::f16);
  const DeviceRows backbone(test.backbone_values, test.vocab, 2);
  auto args = test.arguments<MarkovGreedyStepArgs>(backbone);
  args.stacked_row = 0;
  const Slots got = run_steps(test, args, 1);
  for (std::int32_t b = 0; b < 2; ++b) {
    const std::vector<float> logits = test.logits(b, 0, test.first[static_cast<std::size_t>(b)]);
    for (std::int32_t v = 0; v < 30; ++v) {
      EXPECT_EQ(row(got.stacked, b * 3, 30)[v], logits[static_cast<std::size_t>(v)]);
      const float other = row(got.stacked, b * 3 + 1, 30)[v];
      EXPECT_EQ(std::memcmp(&other, &kCanary, sizeof other), 0);
    }
  }
}

TEST_F(GreedyProposal, WithoutAHeadRowsAreTheBackboneAndIdsAreNotRead) {
  for (const std::int32_t vocab : {1, 5, 4099}) {
    Case test(80, 3, 2, vocab, 1, DType::f32);
    test.backbone_row(1, 0)[vocab / 2] = std::nanf("");
    const DeviceRows backbone(test.backbone_values, test.vocab, 2);
    auto args = test.arguments<MarkovGreedyStepArgs>(backbone);
    args.w1 = {};
    args.w2 = {};
    test.first = {-1, -1, 99};
    const Slots got = run_steps(test, args, 2);
    EXPECT_EQ(got.status, kOpInvalidRow);
    for (std::int32_t b = 0; b < 3; ++b) {
      for (std::int32_t step = 0; step < 2; ++step) {
        const float* const from = test.backbone_row(b, step);
        const std::vector<float> logits(from, from + vocab);
        EXPECT_EQ(got.slots[static_cast<std::size_t>(b * 2 + step)], best_key(logits));
        const float* const stacked = row(got.stacked, b * 3 + step + 1, vocab);
        expect_same_bits(std::vector<float>(stacked, stacked + vocab), logits);
      }
    }
  }
}

// --- the reference's own tests ---

std::vector<float> wave(std::size_t count, float amplitude, float (*function)(float), float rate) {
  std::vector<float> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(amplitude * function(rate * static_cast<float>(i)));
  }
  return out;
}

float sine(float x) { return std::sin(x); }
float cosine(float x) { return std::cos(x); }

TEST_F(GreedyProposal, StepsOfTheReference) {
  constexpr std::int32_t kVocab = 131;
  constexpr std::int32_t kRank = 512;
  const std::vector<float> backbone_values = wave(2 * 3 * kVocab, 5, sine, 0.61f);
  const DeviceRows backbone(backbone_values, kVocab);
  const DeviceMatrix w1(wave(kVocab * kRank, 1, cosine, 0.29f), kRank, DType::f16);
  const DeviceMatrix w2(wave(kVocab * kRank, 0.4f, sine, 0.83f), kRank, DType::f16);
  const Device<std::int32_t> first({3, 77});
  const Device<std::uint64_t> slots(6, kUnwritten);
  const DeviceRows stacked(2 * 4, kVocab);
  const DeviceScratch scratch(markov_greedy_step_scratch(2));
  const Device<std::uint32_t> status(1);
  MarkovGreedyStepArgs args;
  args.batch = 2;
  args.block_size = 3;
  args.backbone = backbone.view();
  args.w1 = w1.view();
  args.w2 = w2.view();
  args.first_previous = first.data();
  args.slots = slots.data();
  args.stacked = stacked.view();
  args.scratch = scratch.view();
  args.status = status.data();
  for (args.step = 0; args.step < 3; ++args.step) backend().markov_greedy_step(args);
  EXPECT_EQ(status.values()[0], kOpOk);
  for (std::int32_t b = 0; b < 2; ++b) {
    std::int32_t previous = b == 0 ? 3 : 77;
    for (std::int32_t step = 0; step < 3; ++step) {
      const std::vector<float> all = stacked.dense();
      const float* const got = row(all, b * 4 + step + 1, kVocab);
      std::vector<double> expected;
      for (std::int32_t v = 0; v < kVocab; ++v) {
        double sum = row(backbone_values, b * 3 + step, kVocab)[v];
        for (std::int32_t r = 0; r < kRank; ++r) {
          sum += static_cast<double>(row(w1.dense(), previous, kRank)[r]) *
                 row(w2.dense(), v, kRank)[r];
        }
        expected.push_back(sum);
        EXPECT_NEAR(got[v], sum, 2e-3);
      }
      previous = token_of_key(slots.values()[static_cast<std::size_t>(b * 3 + step)]);
      ASSERT_GE(previous, 0);
      ASSERT_LT(previous, kVocab);
      EXPECT_NEAR(expected[static_cast<std::size_t>(previous)],
                  *std::max_element(expected.begin(), expected.end()), 2e-3);
    }
  }
}

TEST_F(GreedyProposal, CodedStepsOfTheReference) {
  constexpr std::int32_t kVocab = 103;
  constexpr std::int32_t kRank = 512;
  std::vector<float> backbone_values = wave(2 * 2 * kVocab, 3, cosine, 0.41f);
  for (std::int32_t b = 0; b < 2; ++b) {
    for (std::int32_t step = 0; step < 2; ++step) {
      backbone_values[static_cast<std::size_t>((b * 2 + step) * kVocab + 7 + 13 * b + 17 * step)] +=
          1000;
    }
  }
  const DeviceRows backbone(backbone_values, kVocab);
  const DeviceMatrix w1(wave(kVocab * kRank, 1, sine, 0.67f), kRank, DType::f16);
  const DeviceMatrix w2(wave(kVocab * kRank, 0.4f, cosine, 1.19f), kRank, DType::f16);
  const Device<Float8> codes(kVocab * kRank);
  const Device<Float16> scale(kVocab);
  backend().quantize_markov_w2({w2.view(), codes.data(), scale.data(), nullptr});
  const Device<std::int32_t> first({9, 55});
  const auto run = [&](const Matrix& head, const Float16* head_scale) {
    const Device<std::uint64_t> slots(4, kUnwritten);
    const DeviceRows stacked(2 * 3, kVocab);
    const DeviceScratch scratch(markov_greedy_step_scratch(2));
    MarkovGreedyStepArgs args;
    args.batch = 2;
    args.block_size = 2;
    args.backbone = backbone.view();
    args.w1 = w1.view();
    args.w2 = head;
    args.w2_scale = head_scale;
    args.first_previous = first.data();
    args.slots = slots.data();
    args.stacked = stacked.view();
    args.scratch = scratch.view();
    for (args.step = 0; args.step < 2; ++args.step) backend().markov_greedy_step(args);
    const Device<std::int32_t> tokens(4);
    backend().finalize_greedy_draft_tokens({slots.view(), kVocab, tokens.array(), nullptr});
    EXPECT_EQ(tokens.values(), (std::vector<std::int32_t>{7, 24, 20, 37}));
    return stacked.dense();
  };
  const std::vector<float> halves = run(w2.view(), nullptr);
  const std::vector<float> coded = run(float8_matrix(codes.data(), kVocab, kRank), scale.data());
  float largest = 0;
  for (const float weight : w2.dense()) largest = std::max(largest, std::fabs(weight));
  for (std::int32_t r = 0; r < 6; ++r) {
    if (r % 3 == 0) continue;  // the root's row is not written
    for (std::int32_t v = 0; v < kVocab; ++v) {
      EXPECT_NEAR(row(coded, r, kVocab)[v], row(halves, r, kVocab)[v], kRank * largest * 0x1p-3f);
    }
  }
}

// --- tokens of slots, and whole proposals ---

TEST_F(GreedyProposal, SlotsBecomeTokens) {
  const Device<std::uint64_t> slots(
      {token_key(1.5f, 7), 0, token_key(-kInfinity, 0), token_key(0.0f, 10), token_key(2.0f, 9)});
  const Device<std::int32_t> tokens(5, -5);
  const Device<std::uint32_t> status(1);
  backend().finalize_greedy_draft_tokens({slots.view(), 10, tokens.array(), status.data()});
  EXPECT_EQ(tokens.values(), (std::vector<std::int32_t>{7, -1, 0, -1, 9}));
  EXPECT_EQ(status.values()[0], kOpBadToken);
  const Device<std::uint32_t> clean(1);
  backend().finalize_greedy_draft_tokens({{slots.data(), 2}, 10, {tokens.data(), 2}, clean.data()});
  EXPECT_EQ(clean.values()[0], kOpOk);  // an empty slot was reported by its step
}

struct Proposal {
  std::vector<std::int32_t> tokens;
  std::vector<float> margin;
  std::uint32_t status;
};

Proposal propose(const Case& test, bool head = true) {
  const DeviceRows backbone(test.backbone_values, test.vocab, 2);
  const auto cells = static_cast<std::size_t>(test.batch * test.block_size);
  const Device<std::int32_t> first(test.first);
  const Device<std::int32_t> tokens(cells, -5);
  const Device<float> margin(cells, canary());
  const DeviceScratch scratch(greedy_propose_scratch(test.batch, test.block_size));
  const Device<std::uint32_t> status(1);
  auto args = test.arguments<GreedyProposeArgs>(backbone);
  if (!head) args.w1 = args.w2 = {};
  args.first_previous = first.data();
  args.tokens = tokens.data();
  args.margin = margin.data();
  args.scratch = scratch.view();
  args.status = status.data();
  backend().greedy_propose(args);
  return {tokens.values(), margin.values(), status.values()[0]};
}

void expect_its_steps(const Case& test) {
  const Slots steps = run_steps(test, test.block_size);
  const Proposal got = propose(test);
  for (std::int32_t cell = 0; cell < test.batch * test.block_size; ++cell) {
    EXPECT_EQ(got.tokens[static_cast<std::size_t>(cell)], steps.token(cell));
  }
  expect_same_bits(got.margin, steps.margin);
  EXPECT_EQ(got.status, kOpOk);
}

TEST_F(GreedyProposal, AProposalIsItsStepsInARow) {
  for (const DType type : {DType::f16, DType::e4m3}) {
    for (const std::int32_t batch : {1, 3, 33}) {
      expect_its_steps({static_cast<std::uint64_t>(90 + batch), batch, 5, 200, 16, type});
    }
  }
}

TEST_F(GreedyProposal, AProposalOnTensorCoresIsItsStepsInARow) {
  for (const DType type : {DType::f16, DType::bf16, DType::e4m3}) {
    for (const std::int32_t batch : {1, 3, 33, 70}) {
      Case test(static_cast<std::uint64_t>(90 + batch), batch, 5, 3000, 16, type, 0);
      test.products = Products::tensor;
      expect_its_steps(test);
    }
  }
}

TEST_F(GreedyProposal, AProposalEndsAtItsFirstInvalidRow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Case test = bare({1, 2, 3, 2, nan, 9, 1, 2, 3, 3, 2, 1, 1, 3, 2, 0, 1, nan}, 2, 3);
  Proposal got = propose(test);
  EXPECT_EQ(got.tokens, (std::vector<std::int32_t>{2, -1, -1, 0, 1, -1}));
  EXPECT_EQ(got.margin, (std::vector<float>{1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(got.status, kOpInvalidRow | kOpBadToken);
  // Without a head each row stands alone.
  got = propose(test, false);
  EXPECT_EQ(got.tokens, (std::vector<std::int32_t>{2, -1, 2, 0, 1, -1}));
  EXPECT_EQ(got.status, kOpInvalidRow);
  // Nothing follows the last row, so nobody misses its token.
  test = bare({1, 2, 3, nan, 1, 2}, 1, 2);
  EXPECT_EQ(propose(test).status, kOpInvalidRow);
}

TEST_F(GreedyProposal, ABadFirstTokenGivesNoTokens) {
  Case test(95, 3, 2, 40, 16, DType::bf16);
  test.first[2] = 40;
  const Proposal got = propose(test);
  EXPECT_GE(got.tokens[0], 0);
  EXPECT_GE(got.tokens[3], 0);
  EXPECT_EQ(got.tokens[4], -1);
  EXPECT_EQ(got.tokens[5], -1);
  EXPECT_EQ(got.status, kOpBadToken);
}

TEST_F(GreedyProposal, NoBatchIsNoWork) {
  MarkovGreedyStepArgs step;
  step.block_size = 1;
  backend().markov_greedy_step(step);
  GreedyProposeArgs whole;
  whole.block_size = 1;
  backend().greedy_propose(whole);
  backend().finalize_greedy_draft_tokens({});
  backend().quantize_markov_w2({});
  backend().synchronize();
}

}  // namespace
}  // namespace dspark::test
