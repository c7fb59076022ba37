#include <vector>

#include "parity.h"

namespace dspark::parity {
namespace {

class ProposalParity : public Parity {};

struct Head {
  std::int32_t vocab;
  std::int64_t rank;
  std::vector<float> w1;
  std::vector<float> w2;

  Head(Numbers& numbers, std::int32_t size, std::int64_t width)
      : vocab(size),
        rank(width),
        w1(normals(numbers, static_cast<std::size_t>(size * width), 0.5f)),
        w2(normals(numbers, static_cast<std::size_t>(size * width), 0.5f)) {}
};

TEST_F(ProposalParity, MarkovLogitsOfAStep) {
  for (std::int32_t batch : cases({1, 3, 64}, {3})) {
    for (bool has_head : {true, false}) {
      for (std::int32_t step : {0, 2}) {
        Numbers numbers(static_cast<std::uint64_t>(batch));
        const Head head(numbers, 517, 16);
        const std::int32_t slots = 4;
        const std::int64_t rows = static_cast<std::int64_t>(batch) * (slots + 1);
        const std::vector<float> backbone =
            normals(numbers, static_cast<std::size_t>(rows * head.vocab), 2);
        std::vector<std::int32_t> first;
        std::vector<std::int32_t> draft;
        for (std::int32_t b = 0; b < batch; ++b) first.push_back(numbers.below(head.vocab));
        for (std::int32_t i = 0; i < batch * slots; ++i) draft.push_back(numbers.below(head.vocab));
        if (batch > 1) {
          first[1] = -1;
          draft[static_cast<std::size_t>(slots + 1)] = head.vocab;
        }
        same("B=" + std::to_string(batch) + " step " + std::to_string(step), [&](Side& side) {
          BuildMarkovLogitsArgs args;
          args.batch = batch;
          args.block_size = slots;
          args.step = step;
          args.backbone = {side.put(backbone), rows, head.vocab, head.vocab};
          args.logits_stride = slots + 1;
          args.logits_offset = 1;
          if (has_head) {
            args.w1 = put_matrix(side, head.w1, DType::f16, head.vocab, head.rank, head.rank);
            args.w2 = put_matrix(side, head.w2, DType::f16, head.vocab, head.rank, head.rank);
          }
          args.first_previous = side.put(first);
          args.draft = side.put(draft);
          const auto size = static_cast<std::size_t>(batch * head.vocab);
          auto* out = side.make<float>(size);
          args.corrected = {out, batch, head.vocab, head.vocab};
          args.scratch = side.scratch(build_markov_logits_scratch(batch));
          args.status = side.status();
          side.backend.build_markov_logits(args);
          side.get("corrected", out, size);
          side.get("status", args.status, 1);
        });
      }
    }
  }
}

TEST_F(ProposalParity, StoredStepProbabilities) {
  for (std::int32_t batch : cases({1, 3, 64}, {3})) {
    Numbers numbers(6);
    const std::int32_t vocab = 1031;
    const std::vector<float> source =
        normals(numbers, static_cast<std::size_t>(batch * (vocab + 1)), 1);
    same("B=" + std::to_string(batch), [&](Side& side) {
      StoreDraftStepProbabilitiesArgs args;
      args.batch = batch;
      args.block_size = 3;
      args.step = 1;
      args.source = {side.put(source), batch, vocab, vocab + 1};
      const auto size = static_cast<std::size_t>(batch * 3 * (vocab + 2));
      auto* out = side.make<float>(size);
      args.destination = {out, static_cast<std::int64_t>(batch) * 3, vocab, vocab + 2};
      side.backend.store_draft_step_probabilities(args);
      side.get("destination", out, size);
    });
  }
}

class SampledProposal : public ProposalParity {
 protected:
  static void same_proposal(std::int32_t batch, std::int32_t vocab, std::int32_t slots,
                            bool has_head, bool bad, const SamplingRule& rule) {
    Numbers numbers(static_cast<std::uint64_t>(batch + vocab));
    const Head head(numbers, vocab, 16);
    const std::int64_t rows = static_cast<std::int64_t>(batch) * slots;
    std::vector<float> backbone = normals(numbers, static_cast<std::size_t>(rows * vocab), 2);
    std::vector<std::int32_t> first;
    std::vector<float> uniforms;
    for (std::int32_t b = 0; b < batch; ++b) first.push_back(numbers.below(vocab));
    for (std::int64_t i = 0; i < rows; ++i) uniforms.push_back(numbers.uniform());
    if (bad) {
      first[0] = vocab;
      backbone.back() = std::numeric_limits<float>::quiet_NaN();
    }
    same("B=" + std::to_string(batch) + " V=" + std::to_string(vocab) + " " + rule_text(rule),
         [&](Side& side) {
           VanillaMarkovSampleArgs args;
           args.batch = batch;
           args.block_size = slots;
           args.backbone = {side.put(backbone), rows, vocab, vocab};
           if (has_head) {
             args.w1 = put_matrix(side, head.w1, DType::bf16, vocab, head.rank, head.rank);
             args.w2 = put_matrix(side, head.w2, DType::bf16, vocab, head.rank, head.rank);
           }
           args.first_previous = side.put(first);
           args.uniforms = side.put(uniforms);
           args.rule = rule;
           args.tokens = side.make<std::int32_t>(uniforms.size());
           args.distance = side.make<float>(uniforms.size());
           const auto size = static_cast<std::size_t>(rows * (vocab + 1));
           auto* out = side.make<float>(size);
           args.draft_probabilities = {out, rows, vocab, vocab + 1};
           args.scratch = side.scratch(vanilla_markov_sample_scratch(batch, vocab));
           args.status = side.status();
           side.backend.vanilla_markov_sample(args);
           side.get("tokens", args.tokens, uniforms.size());
           side.get("distance", args.distance, uniforms.size());
           side.get("probabilities", out, size);
           side.get("status", args.status, 1);
         });
  }
};

TEST_F(SampledProposal, UnderEveryRule) {
  for (std::int32_t batch : cases({1, 3}, {3})) {
    for (const SamplingRule& rule : rules_for(4099))
      same_proposal(batch, 4099, 3, true, false, rule);
  }
}

TEST_F(SampledProposal, WithoutAHeadWithBadIdsAndInBatches) {
  const SamplingRule plain;
  const SamplingRule greedy = make_sampling_rule(0, 0, 1, TopPRule::water_filling, 300);
  same_proposal(3, 300, 4, false, false, plain);
  same_proposal(3, 300, 4, true, true, plain);
  same_proposal(3, 300, 4, true, true, greedy);
  same_proposal(1, 1, 2, true, false, plain);
  same_proposal(64, 300, 7, true, false, plain);
}

}  // namespace
}  // namespace dspark::parity
