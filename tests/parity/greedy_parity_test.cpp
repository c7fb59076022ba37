#include <string>
#include <vector>

#include "parity.h"

namespace dspark::parity {
namespace {

class GreedyParity : public Parity {};

const std::vector<DType> kHeadTypes = {DType::f16, DType::bf16, DType::f32, DType::e4m3};

std::string head_name(DType type) { return type == DType::e4m3 ? "e4m3" : type_name(type); }

/// What a greedy proposal reads.
struct Inputs {
  std::int32_t batch;
  std::int32_t slots;
  std::int32_t vocab;
  std::int64_t rank;
  std::vector<float> w1;
  std::vector<float> w2;
  std::vector<float> backbone;
  std::vector<std::int32_t> first;

  Inputs(std::int32_t entries, std::int32_t block, std::int32_t size, std::int64_t width)
      : batch(entries), slots(block), vocab(size), rank(width) {
    Numbers numbers(static_cast<std::uint64_t>(entries + size + width));
    w1 = normals(numbers, static_cast<std::size_t>(size * width), 0.5f);
    w2 = normals(numbers, static_cast<std::size_t>(size * width), 0.5f);
    backbone = normals(
        numbers, static_cast<std::size_t>(entries * block) * static_cast<std::size_t>(size), 2);
    for (std::int32_t b = 0; b < entries; ++b) first.push_back(numbers.below(size));
  }

  /// Rows and ids that give no token.
  void spoil() {
    backbone[static_cast<std::size_t>(vocab / 2)] = std::numeric_limits<float>::quiet_NaN();
    backbone.back() = std::numeric_limits<float>::infinity();
    if (batch > 2) first[1] = vocab;
    if (batch > 2) first[2] = -1;
  }

  template <class Args>
  Args arguments(Side& side, DType type, std::int64_t padding, std::size_t skew) const {
    Args args;
    args.batch = batch;
    args.block_size = slots;
    args.backbone = {side.put(backbone), static_cast<std::int64_t>(batch) * slots, vocab, vocab};
    const DType stored = type == DType::e4m3 ? DType::f16 : type;
    args.w1 = put_matrix(side, w1, stored, vocab, rank, rank);
    args.w2 = put_padded(side, stored, padding, skew);
    args.first_previous = side.put(first);
    args.status = side.status();
    if (type != DType::e4m3) return args;
    auto* codes = side.make<Float8>(w2.size(), skew);
    auto* scale = side.make<Float16>(static_cast<std::size_t>(vocab));
    side.backend.quantize_markov_w2({args.w2, codes, scale, args.status});
    side.get("codes", codes, w2.size());
    side.get("scale", scale, static_cast<std::size_t>(vocab));
    args.w2 = float8_matrix(codes, vocab, rank);
    args.w2_scale = scale;
    return args;
  }

  Matrix put_padded(Side& side, DType type, std::int64_t padding, std::size_t skew) const {
    const std::int64_t stride = rank + padding;
    std::vector<float> padded(static_cast<std::size_t>(vocab * stride));
    for (std::int64_t v = 0; v < vocab; ++v) {
      for (std::int64_t r = 0; r < rank; ++r) {
        padded[static_cast<std::size_t>(v * stride + r)] =
            w2[static_cast<std::size_t>(v * rank + r)];
      }
    }
    return put_matrix(side, padded, type, vocab, rank, stride, skew);
  }
};

TEST_F(GreedyParity, QuantizedWeights) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (DType type : {DType::f16, DType::bf16, DType::f32}) {
    for (std::int64_t rank : cases<std::int64_t>({16, 48, 256, 512}, {48})) {
      Inputs inputs(1, 1, 301, rank);
      for (std::int64_t r = 0; r < rank; ++r) {
        inputs.w2[static_cast<std::size_t>(r)] = 0;
        inputs.w2[static_cast<std::size_t>(rank + r)] *= 1e-7f;
        inputs.w2[static_cast<std::size_t>(2 * rank + r)] *= 6e4f;
        inputs.w2[static_cast<std::size_t>(3 * rank + r)] *= 1e-3f;
      }
      inputs.w2[static_cast<std::size_t>(5 * rank + 1)] = std::numeric_limits<float>::quiet_NaN();
      inputs.w2[static_cast<std::size_t>(6 * rank + 2)] = infinity;
      inputs.w2[static_cast<std::size_t>(7 * rank + 3)] = -infinity;
      for (std::int64_t padding : {0, 1, 4}) {
        for (std::size_t skew : {std::size_t{0}, std::size_t{1}}) {
          same(std::string(type_name(type)) + " R=" + std::to_string(rank), [&](Side& side) {
            QuantizeMarkovW2Args args;
            args.w2 = inputs.put_padded(side, type, padding, skew);
            args.codes = side.make<Float8>(inputs.w2.size(), skew);
            args.scale = side.make<Float16>(301);
            args.status = side.status();
            side.backend.quantize_markov_w2(args);
            side.get("codes", args.codes, inputs.w2.size());
            side.get("scale", args.scale, 301);
            side.get("status", args.status, 1);
          });
        }
      }
    }
  }
}

TEST_F(GreedyParity, EveryHalfAsACode) {
  // Every f16 there is, 16 at a time, beside a scale of its own.
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    values.push_back(to_float(Float16{static_cast<std::uint16_t>(bits)}));
  }
  same("all halves", [&](Side& side) {
    QuantizeMarkovW2Args args;
    args.w2 = put_matrix(side, values, DType::f16, 4096, 16, 16);
    args.codes = side.make<Float8>(values.size());
    args.scale = side.make<Float16>(4096);
    side.backend.quantize_markov_w2(args);
    side.get("codes", args.codes, values.size());
    side.get("scale", args.scale, 4096);
  });
}

void steps_of(Side& side, const Inputs& inputs, MarkovGreedyStepArgs args) {
  const auto cells = static_cast<std::size_t>(inputs.batch * inputs.slots);
  args.slots = side.make<std::uint64_t>(cells);
  args.margin = side.make<float>(cells);
  const std::int64_t rows = static_cast<std::int64_t>(inputs.batch) * (inputs.slots + 1);
  const auto size = static_cast<std::size_t>(rows * (inputs.vocab + 1));
  auto* stacked = side.make<float>(size);
  args.stacked = {stacked, rows, inputs.vocab, inputs.vocab + 1};
  args.scratch = side.scratch(markov_greedy_step_scratch(inputs.batch));
  for (args.step = 0; args.step < inputs.slots; ++args.step) side.backend.markov_greedy_step(args);
  auto* tokens = side.make<std::int32_t>(cells);
  side.backend.finalize_greedy_draft_tokens({{args.slots, static_cast<std::int64_t>(cells)},
                                             inputs.vocab,
                                             {tokens, static_cast<std::int64_t>(cells)},
                                             args.status});
  side.get("slots", args.slots, cells);
  side.get("margin", args.margin, cells);
  side.get("stacked", stacked, size);
  side.get("tokens", tokens, cells);
  side.get("status", args.status, 1);
}

TEST_F(GreedyParity, StepsOfEveryBatchAndType) {
  for (DType type : kHeadTypes) {
    for (std::int32_t batch : cases({1, 2, 3, 8, 9, 33, 70, 150}, {3, 9})) {
      for (std::int64_t rank : cases<std::int64_t>({16, 112, 256}, {16})) {
        Inputs inputs(batch, 3, 1031, rank);
        inputs.spoil();
        same(head_name(type) + " B=" + std::to_string(batch) + " R=" + std::to_string(rank),
             [&](Side& side) {
               steps_of(side, inputs, inputs.arguments<MarkovGreedyStepArgs>(side, type, 0, 0));
             });
      }
    }
  }
}

TEST_F(GreedyParity, StepsOfUnalignedHeads) {
  for (DType type : kHeadTypes) {
    for (std::int32_t batch : {2, 20}) {
      const Inputs inputs(batch, 2, 517, 48);
      same(head_name(type), [&](Side& side) {
        steps_of(side, inputs, inputs.arguments<MarkovGreedyStepArgs>(side, type, 1, 1));
      });
    }
  }
}

TEST_F(GreedyParity, StepsWithTiesAndWithoutAHead) {
  for (RowKind kind : kRowKinds) {
    for (std::int32_t vocab : cases({1, 5, 4099, 20011}, {4099})) {
      Inputs inputs(3, 2, vocab, 16);
      Numbers numbers(7);
      for (std::int64_t r = 0; r < 6; ++r) {
        fill_row(numbers, kind, inputs.backbone.data() + r * vocab, vocab);
      }
      std::fill(inputs.w2.begin(), inputs.w2.end(), 0.0f);
      same("V=" + std::to_string(vocab), [&](Side& side) {
        steps_of(side, inputs, inputs.arguments<MarkovGreedyStepArgs>(side, DType::f16, 0, 0));
      });
      same("V=" + std::to_string(vocab) + " without a head", [&](Side& side) {
        auto args = inputs.arguments<MarkovGreedyStepArgs>(side, DType::f16, 0, 0);
        args.w1 = {};
        args.w2 = {};
        steps_of(side, inputs, args);
      });
    }
  }
}

TEST_F(GreedyParity, WholeProposals) {
  for (DType type : kHeadTypes) {
    for (std::int32_t batch : cases({1, 4, 8, 64}, {4})) {
      for (bool spoilt : {false, true}) {
        for (bool head : {true, false}) {
          Inputs inputs(batch, 7, 4001, 64);
          if (spoilt) inputs.spoil();
          same(head_name(type) + " B=" + std::to_string(batch), [&](Side& side) {
            auto args = inputs.arguments<GreedyProposeArgs>(side, type, 0, 0);
            if (!head) args.w1 = {};
            const auto cells = static_cast<std::size_t>(batch * 7);
            args.tokens = side.make<std::int32_t>(cells);
            args.margin = side.make<float>(cells);
            args.scratch = side.scratch(greedy_propose_scratch(batch, 7));
            side.backend.greedy_propose(args);
            side.get("tokens", args.tokens, cells);
            side.get("margin", args.margin, cells);
            side.get("status", args.status, 1);
          });
        }
      }
    }
  }
}

TEST_F(GreedyParity, AProposalOfALargeVocabulary) {
  const Inputs inputs(2, 3, 151936, 64);
  for (DType type : {DType::f16, DType::e4m3}) {
    same(head_name(type), [&](Side& side) {
      auto args = inputs.arguments<GreedyProposeArgs>(side, type, 0, 0);
      args.tokens = side.make<std::int32_t>(6);
      args.margin = side.make<float>(6);
      args.scratch = side.scratch(greedy_propose_scratch(2, 3));
      side.backend.greedy_propose(args);
      side.get("tokens", args.tokens, 6);
      side.get("margin", args.margin, 6);
      side.get("status", args.status, 1);
    });
  }
}

}  // namespace
}  // namespace dspark::parity
