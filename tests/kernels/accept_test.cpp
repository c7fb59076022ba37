// build_verify_tokens, greedy_accept, probabilistic_accept.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/random.h"
#include "tests/kernels/kernel_test.h"
#include "tests/kernels/oracle.h"

namespace dspark::test {
namespace {

class Accept : public KernelTest {};

TEST_F(Accept, VerifyTokensAreTheLastTokenAndTheDrafts) {
  const auto build = [](std::int32_t batch, std::int32_t length, std::int32_t stride,
                        const std::vector<std::int32_t>& last,
                        const std::vector<std::int32_t>& draft) {
    const Device<std::int32_t> device_last(last);
    const Device<std::int32_t> device_draft(draft);
    const Device<std::int32_t> verify(static_cast<std::size_t>(batch * (length + 1)), -1);
    backend().build_verify_tokens(
        {batch, length, stride, device_last.data(), device_draft.data(), verify.data()});
    return verify.values();
  };
  EXPECT_EQ(build(1, 1, 3, {5}, {7, 8, 9}), (std::vector<std::int32_t>{5, 7}));
  EXPECT_EQ(build(2, 2, 3, {5, 6}, {1, 2, 3, 4, 5, 6}),
            (std::vector<std::int32_t>{5, 1, 2, 6, 4, 5}));
  EXPECT_EQ(build(2, 0, 3, {5, 6}, {1, 2, 3, 4, 5, 6}), (std::vector<std::int32_t>{5, 6}));
}

// --- greedy ---

struct GreedyResult {
  std::vector<std::int32_t> accepted;
  std::vector<std::int32_t> lengths;
  std::vector<float> margin;
  std::uint32_t status;
};

GreedyResult greedy(std::int32_t length, std::int32_t stride, const std::vector<float>& logits,
                    std::int32_t vocab, const std::vector<std::int32_t>& draft,
                    const std::vector<std::int32_t>& proposed) {
  const auto batch = static_cast<std::int32_t>(proposed.size());
  const auto cells = static_cast<std::size_t>(batch * (length + 1));
  const DeviceRows rows(logits, vocab, 1);
  const Device<std::int32_t> device_draft(draft);
  const Device<std::int32_t> device_proposed(proposed);
  const Device<std::int32_t> accepted(cells, -5);
  const Device<std::int32_t> accept_length(proposed.size(), -5);
  const Device<float> margin(cells, -5);
  const Device<RowLaw> laws(cells);
  const Device<std::uint32_t> status(1);
  GreedyAcceptArgs args;
  args.batch = batch;
  args.length = length;
  args.draft_stride = stride;
  args.logits = rows.view();
  args.draft = device_draft.data();
  args.lengths = device_proposed.data();
  args.accepted = accepted.data();
  args.accept_length = accept_length.data();
  args.margin = margin.data();
  args.laws = laws.data();
  args.status = status.data();
  backend().greedy_accept(args);
  return {accepted.values(), accept_length.values(), margin.values(), status.values()[0]};
}

/// Rows over 4 tokens whose argmax is given, by a margin of 2.
std::vector<float> peaked(const std::vector<std::int32_t>& argmax) {
  std::vector<float> out;
  for (const std::int32_t id : argmax) {
    for (std::int32_t v = 0; v < 4; ++v) out.push_back(v == id ? 3.0f : 1.0f);
  }
  return out;
}

TEST_F(Accept, GreedyAcceptsWhileTheDraftIsTheArgmaxAndCorrects) {
  const GreedyResult got = greedy(3, 3, peaked({2, 1, 0, 3}), 4, {2, 1, 3}, {3});
  EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{2, 1, 0, 0}));
  EXPECT_EQ(got.lengths, std::vector<std::int32_t>{3});
  EXPECT_EQ(got.margin, (std::vector<float>{2, 2, 2, 2}));
  EXPECT_EQ(got.status, kOpOk);
}

TEST_F(Accept, GreedyGivesABonusAfterAFullBlock) {
  const GreedyResult got = greedy(3, 3, peaked({2, 1, 3, 2}), 4, {2, 1, 3}, {3});
  EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{2, 1, 3, 2}));
  EXPECT_EQ(got.lengths, std::vector<std::int32_t>{4});
}

TEST_F(Accept, GreedyClampsLengthsAndReportsImpossibleOnes) {
  const std::vector<float> logits = peaked({2, 1, 3, 2, 1, 3, 2, 1, 3});
  const GreedyResult got = greedy(2, 3, logits, 4, {2, 1, 0, 2, 1, 0, 2, 1, 0}, {3, 0, 1});
  EXPECT_EQ(got.lengths, (std::vector<std::int32_t>{3, 2, 2}));
  EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{2, 1, 3, 2, 1, 0, 2, 1, 0}));
  EXPECT_EQ(got.margin, (std::vector<float>{2, 2, 2, 2, 2, 0, 2, 2, 0}));
  EXPECT_EQ(got.status, kOpOk);
  EXPECT_EQ(greedy(1, 1, peaked({2, 1}), 4, {2}, {-1}).status, kOpBadLength);
  EXPECT_EQ(greedy(1, 1, peaked({2, 1}), 4, {2}, {2}).status, kOpBadLength);
}

TEST_F(Accept, GreedyReadsDraftsAtTheirStride) {
  const std::vector<float> logits = peaked({0, 1, 2, 3, 3, 3});
  const GreedyResult got = greedy(2, 4, logits, 4, {0, 1, 9, 9, 3, 2, 9, 9}, {2, 2});
  EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{0, 1, 2, 3, 3, 0}));
  EXPECT_EQ(got.lengths, (std::vector<std::int32_t>{3, 2}));
  EXPECT_EQ(got.status, kOpOk);
}

TEST_F(Accept, GreedyTiesGoToTheLowestId) {
  const std::vector<float> logits = {-1, 0, -0.0f, -2, 5, 5, 5, 5};
  const GreedyResult got = greedy(1, 1, logits, 4, {1}, {1});
  EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(got.margin, (std::vector<float>{0, 0}));
}

TEST_F(Accept, AnInvalidRowStopsGreedyAcceptanceBeforeIt) {
  std::vector<float> logits = peaked({2, 1, 3, 2});
  logits[6] = std::nanf("");
  GreedyResult got = greedy(3, 3, logits, 4, {2, 1, 3}, {3});
  EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{2, 0, 0, 0}));
  EXPECT_EQ(got.lengths, std::vector<std::int32_t>{2});
  EXPECT_EQ(got.margin, (std::vector<float>{2, 0, 2, 2}));
  EXPECT_EQ(got.status, kOpInvalidRow);
  // A draft of -1 is not the argmax of an invalid row.
  got = greedy(3, 3, logits, 4, {2, -1, 3}, {3});
  EXPECT_EQ(got.lengths, std::vector<std::int32_t>{2});
}

TEST_F(Accept, GreedyDoesNotReadRowsPastTheLength) {
  std::vector<float> logits = peaked({2, 1, 3, 2});
  logits[8] = std::nanf("");  // row 2
  EXPECT_EQ(greedy(3, 3, logits, 4, {2, 1, 3}, {1}).status, kOpOk);
  EXPECT_EQ(greedy(3, 3, logits, 4, {2, 1, 3}, {2}).status, kOpInvalidRow);
}

TEST_F(Accept, GreedyReportsDraftIdsOutsideTheVocabulary) {
  const GreedyResult got = greedy(2, 2, peaked({2, 1, 3}), 4, {4, 1}, {2});
  EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{2, 0, 0}));
  EXPECT_EQ(got.status, kOpBadToken);
  EXPECT_EQ(greedy(2, 2, peaked({2, 1, 3}), 4, {3, -9}, {2}).status, kOpOk);  // not reached
}

// --- probabilistic ---

struct AcceptResult {
  std::vector<std::int32_t> accepted;
  std::vector<std::int32_t> lengths;
  std::vector<float> distance;
  std::uint32_t status;
};

struct AcceptCase {
  std::int32_t length;
  std::int32_t stride;
  std::int32_t vocab;
  std::vector<float> target;
  std::vector<float> draft;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> proposed;
  std::vector<float> uniforms;
};

AcceptResult accept(const AcceptCase& test) {
  const auto batch = static_cast<std::int32_t>(test.proposed.size());
  const DeviceRows target(test.target, test.vocab, 1);
  const DeviceRows draft(test.draft, test.vocab, 2);
  const Device<std::int32_t> tokens(test.tokens);
  const Device<std::int32_t> proposed(test.proposed);
  const Device<float> uniforms(test.uniforms);
  const Device<std::int32_t> accepted(static_cast<std::size_t>(batch * (test.length + 1)), -5);
  const Device<std::int32_t> accept_length(test.proposed.size(), -5);
  const Device<float> distance(test.proposed.size(), -5);
  const DeviceScratch scratch(row_scan_scratch(batch, test.vocab));
  const Device<std::uint32_t> status(1);
  ProbabilisticAcceptArgs args;
  args.batch = batch;
  args.length = test.length;
  args.draft_stride = test.stride;
  args.target = target.view();
  args.draft = draft.view();
  args.tokens = tokens.data();
  args.lengths = proposed.data();
  args.uniforms = uniforms.data();
  args.accepted = accepted.data();
  args.accept_length = accept_length.data();
  args.distance = distance.data();
  args.scratch = scratch.view();
  args.status = status.data();
  backend().probabilistic_accept(args);
  return {accepted.values(), accept_length.values(), distance.values(), status.values()[0]};
}

TEST_F(Accept, ProbabilisticResidualOfTheReference) {
  const AcceptResult got =
      accept({2,
              2,
              4,
              {.1f, .8f, .05f, .05f, .5f, .2f, .1f, .2f, .25f, .25f, .25f, .25f},
              {.2f, .4f, .2f, .2f, .2f, .3f, .5f, 0},
              {1, 2},
              {2},
              {.5f, .9f, 0, .7f, 0}});
  EXPECT_EQ(got.lengths, std::vector<std::int32_t>{2});
  EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{1, 3, 0}));
  EXPECT_EQ(got.status, kOpOk);
}

TEST_F(Accept, ProbabilisticBonusOfTheReference) {
  const AcceptResult got = accept({2,
                                   2,
                                   4,
                                   {.1f, .8f, .05f, .05f, .1f, .2f, .6f, .1f, .1f, .2f, .3f, .4f},
                                   {.1f, .4f, .4f, .1f, .2f, .2f, .2f, .4f},
                                   {1, 2},
                                   {2},
                                   {.9f, .9f, 0, 0, .75f}});
  EXPECT_EQ(got.lengths, std::vector<std::int32_t>{3});
  EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{1, 2, 3}));
}

TEST_F(Accept, ProbabilisticReadsDraftsAndUniformsAtTheirStride) {
  const AcceptResult got = accept({1,
                                   2,
                                   4,
                                   {.1f, .8f, .05f, .05f, .1f, .2f, .3f, .4f},
                                   {.1f, .4f, .4f, .1f, .25f, .25f, .25f, .25f},
                                   {1, 2},
                                   {1},
                                   {.9f, 0, 0, 0, .75f}});
  EXPECT_EQ(got.lengths, std::vector<std::int32_t>{2});
  EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{1, 3}));
}

TEST_F(Accept, ATokenTheTargetCannotEmitIsRejectedEvenAtUniformZero) {
  const AcceptResult got = accept(
      {1, 1, 4, {.7f, .3f, 0, 0, .6f, .4f, 0, 0}, {.2f, .8f, 0, 0}, {2}, {1}, {0, .5f, .5f}});
  EXPECT_EQ(got.lengths, std::vector<std::int32_t>{1});
  EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{0, 0}));
}

TEST_F(Accept, ADraftOfProbabilityZeroThatTheTargetCanEmitIsAccepted) {
  const AcceptResult got =
      accept({1, 1, 2, {.5f, .5f, .5f, .5f}, {1, 0}, {1}, {1}, {.99999994f, 0, 0}});
  EXPECT_EQ(got.lengths, std::vector<std::int32_t>{2});
}

TEST_F(Accept, WithoutAnExcessTheResidualIsTheTarget) {
  // p is below q everywhere, as sparse targets are; rejected at 0.5 > 0.2 / 0.5.
  const AcceptResult got =
      accept({1, 1, 2, {.2f, .4f, .5f, .5f}, {.5f, .5f}, {0}, {1}, {.5f, .3f, 0}});
  EXPECT_EQ(got.lengths, std::vector<std::int32_t>{1});
  EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{1, 0}));
}

TEST_F(Accept, ProbabilisticClampsLengthsAndReportsImpossibleOnes) {
  AcceptCase test{2,
                  2,
                  2,
                  {.5f, .5f, .5f, .5f, .5f, .5f},
                  {.5f, .5f, .5f, .5f},
                  {0, 1},
                  {0},
                  {0, 0, 0, 0, .75f}};
  AcceptResult got = accept(test);
  EXPECT_EQ(got.lengths, std::vector<std::int32_t>{2});
  EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{0, 1, 0}));
  EXPECT_EQ(got.status, kOpOk);
  test.proposed = {9};
  got = accept(test);
  EXPECT_EQ(got.lengths, std::vector<std::int32_t>{3});
  EXPECT_EQ(got.status, kOpBadLength);
}

TEST_F(Accept, ADraftIdOutsideTheVocabularyIsRejectedAndReported) {
  for (const std::int32_t bad : {-1, 2}) {
    const AcceptResult got =
        accept({1, 1, 2, {.25f, .75f, .5f, .5f}, {.5f, .5f}, {bad}, {1}, {0, .1f, 0}});
    EXPECT_EQ(got.lengths, std::vector<std::int32_t>{1});
    EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{1, 0}));
    EXPECT_EQ(got.status, kOpBadToken);
    EXPECT_FLOAT_EQ(got.distance[0], 0.1f);
  }
}

TEST_F(Accept, NaNProbabilitiesHaveNoWeightAndAreReported) {
  const float nan = std::nanf("");
  AcceptResult got = accept({1, 1, 2, {nan, .75f, .5f, .5f}, {.5f, .5f}, {0}, {1}, {0, .1f, 0}});
  EXPECT_EQ(got.accepted, (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(got.status, kOpInvalidRow);
  // In a row that nothing reads it is not seen.
  got = accept({1, 1, 2, {.25f, .75f, nan, .5f}, {.5f, .5f}, {0}, {1}, {.9f, .1f, 0}});
  EXPECT_EQ(got.status, kOpOk);
}

TEST_F(Accept, DistancesAreThoseOfTheClosestDecision) {
  const std::vector<float> target = {.25f, .75f, .5f, .5f};
  const std::vector<float> draft = {.5f, .5f};
  // Accepted at 0.4 with ratio 0.5; the bonus at 0.3 is 0.2 below a boundary.
  EXPECT_FLOAT_EQ(accept({1, 1, 2, target, draft, {0}, {1}, {.4f, 0, .3f}}).distance[0], 0.1f);
  EXPECT_FLOAT_EQ(accept({1, 1, 2, target, draft, {0}, {1}, {.25f, 0, .45f}}).distance[0], 0.05f);
  // Rejected at 0.75; the residual is all of token 1.
  EXPECT_FLOAT_EQ(accept({1, 1, 2, target, draft, {0}, {1}, {.75f, .125f, 0}}).distance[0], 0.125f);
}

/// Random laws with zeros in them, of float probabilities that sum to about 1.
std::vector<float> random_law(Random& random, std::int32_t vocab) {
  std::vector<float> weights;
  float sum = 0;
  for (std::int32_t v = 0; v < vocab; ++v) {
    const float weight = random.integer(0, 3) == 0 ? 0.0f : random.uniform() + 0.01f;
    weights.push_back(weight);
    sum += weight;
  }
  if (sum == 0) {
    weights[0] = sum = 1;
  }
  for (float& weight : weights) weight /= sum;
  return weights;
}

std::uint64_t weight_of(float p) {
  const double clamped = std::isnan(p) ? 0 : std::clamp(static_cast<double>(p), 0.0, 1.0);
  return static_cast<std::uint64_t>(std::nearbyint(clamped * 0x1p40));
}

TEST_F(Accept, ProbabilisticAgreesWithItsDefinitionForBatches) {
  Random random(51);
  for (const std::int32_t vocab : {2, 5, 300, 4100}) {
    for (const std::int32_t batch : {1, 3, 20}) {
      AcceptCase test;
      test.length = 3;
      test.stride = 4;
      test.vocab = vocab;
      for (std::int32_t b = 0; b < batch; ++b) {
        for (std::int32_t i = 0; i <= test.length; ++i) {
          const std::vector<float> p = random_law(random, vocab);
          test.target.insert(test.target.end(), p.begin(), p.end());
        }
        for (std::int32_t i = 0; i < test.stride; ++i) {
          std::vector<float> q = random_law(random, vocab);
          const float* const p =
              row(test.target, b * (test.length + 1) + std::min(i, test.length), vocab);
          // Near the target, so that blocks get long.
          for (std::int32_t v = 0; v < vocab; ++v) {
            q[static_cast<std::size_t>(v)] = 0.8f * p[v] + 0.2f * q[static_cast<std::size_t>(v)];
          }
          std::vector<std::uint64_t> weights;
          for (const float value : q) weights.push_back(weight_of(value));
          test.tokens.push_back(std::max(0, pick_of(weights, random.bits())));
          test.draft.insert(test.draft.end(), q.begin(), q.end());
        }
        test.proposed.push_back(random.integer(0, 4));
      }
      test.uniforms = random.uniforms(static_cast<std::size_t>(batch * (2 * test.stride + 1)));
      const AcceptResult got = accept(test);

      for (std::int32_t b = 0; b < batch; ++b) {
        const float* const u = test.uniforms.data() + b * (2 * test.stride + 1);
        const std::int32_t n =
            std::clamp(test.proposed[static_cast<std::size_t>(b)], 1, test.length);
        std::vector<std::int32_t> expected;
        std::vector<std::uint64_t> weights;
        std::uint64_t uniform = uniform_from_float(u[2 * test.stride]);
        for (std::int32_t i = 0; i < n; ++i) {
          const float* const p = row(test.target, b * (test.length + 1) + i, vocab);
          const float* const q = row(test.draft, b * test.stride + i, vocab);
          const std::int32_t token = test.tokens[static_cast<std::size_t>(b * test.stride + i)];
          const double ratio = weight_of(q[token]) == 0
                                   ? 1.0
                                   : static_cast<double>(weight_of(p[token])) /
                                         static_cast<double>(weight_of(q[token]));
          if (weight_of(p[token]) > 0 && static_cast<double>(u[i]) <= ratio) {
            expected.push_back(token);
            continue;
          }
          for (std::int32_t v = 0; v < vocab; ++v) {
            weights.push_back(weight_of(p[v]) > weight_of(q[v]) ? weight_of(p[v]) - weight_of(q[v])
                                                                : 0);
          }
          uniform = uniform_from_float(u[test.stride + i]);
          break;
        }
        if (weights.empty()) {
          const auto accepted = static_cast<std::int32_t>(expected.size());
          std::uint64_t running = 0;
          std::int32_t bonus = 0;
          const float* const p = row(test.target, b * (test.length + 1) + accepted, vocab);
          for (std::int32_t v = 0; v < vocab && running <= (uniform >> 24); ++v) {
            if (weight_of(p[v]) > 0) bonus = v;
            running += weight_of(p[v]);
          }
          expected.push_back(bonus);
        } else {
          expected.push_back(pick_of(weights, uniform));
        }
        EXPECT_EQ(got.lengths[static_cast<std::size_t>(b)],
                  static_cast<std::int32_t>(expected.size()));
        expected.resize(static_cast<std::size_t>(test.length) + 1, 0);
        const auto from = got.accepted.begin() + b * (test.length + 1);
        EXPECT_EQ(std::vector<std::int32_t>(from, from + test.length + 1), expected)
            << "batch row " << b << ", vocabulary " << vocab;
      }
      EXPECT_EQ(got.status, kOpOk);
    }
  }
}

TEST_F(Accept, NoBatchIsNoWork) {
  GreedyAcceptArgs greedy_args;
  greedy_args.length = greedy_args.draft_stride = 1;
  backend().greedy_accept(greedy_args);
  ProbabilisticAcceptArgs accept_args;
  accept_args.length = accept_args.draft_stride = 1;
  backend().probabilistic_accept(accept_args);
  backend().build_verify_tokens({});
  backend().synchronize();
}

}  // namespace
}  // namespace dspark::test
