// The host-side argument checks: each mistake is an internal error that names the function.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>

#include "backends/cpu/cpu_backend.h"
#include "support/error.h"

namespace dspark {
namespace {

/// check(args) throws an internal error whose text has both words.
template <class Args>
void expect_refused(const Args& args, const std::string& function, const std::string& word) {
  try {
    check(args);
    ADD_FAILURE() << function << " took it; expected a complaint about " << word;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::internal);
    const std::string what = error.what();
    EXPECT_EQ(what.rfind(function + ": ", 0), 0u) << what;
    EXPECT_NE(what.find(word), std::string::npos) << what;
  }
}

// Memory that nothing reads: checks look at pointers, not through them.
std::array<float, 4> memory;
std::array<std::int32_t, 4> ids;
std::array<std::uint64_t, 4> uniforms;
std::array<RowLaw, 4> laws;
std::array<RowPair, 4> row_pairs;

Matrix matrix(std::int64_t rows, std::int64_t cols, DType type = DType::f32) {
  return {memory.data(), type, rows, cols, cols};
}
Rows rows(std::int64_t count, std::int32_t vocab) { return {memory.data(), count, vocab, vocab}; }
Array<const std::int32_t> id_array(std::int64_t size) { return {ids.data(), size}; }
Array<const RowLaw> law_array(std::int64_t size) { return {laws.data(), size}; }
SamplingRule rule() { return make_sampling_rule(1, 0, 1, TopPRule::water_filling, 100); }

TEST(Check, ViewsMustBeWhole) {
  const ProjectArgs good{matrix(3, 5), matrix(7, 5, DType::f16), rows(3, 7)};
  EXPECT_NO_THROW(check(good));
  ProjectArgs bad = good;
  bad.a.data = nullptr;
  expect_refused(bad, "project", "a is null");
  bad = good;
  bad.b.stride = 4;
  expect_refused(bad, "project", "b has a stride of 4");
  bad = good;
  bad.a.rows = -1;
  expect_refused(bad, "project", "a has a negative size");
  bad = good;
  bad.b.stride = std::int64_t{1} << 60;
  expect_refused(bad, "project", "b is too large");
  bad = good;
  bad.b.type = static_cast<DType>(9);
  expect_refused(bad, "project", "element type");
}

TEST(Check, ShapesMustAgree) {
  const ProjectArgs good{matrix(3, 5), matrix(7, 5), rows(3, 7)};
  ProjectArgs bad = good;
  bad.out.rows = 2;
  expect_refused(bad, "project", "out: rows is 2 where 3 is needed");
  bad = good;
  bad.out = rows(3, 8);
  expect_refused(bad, "project", "out: columns");
  bad = good;
  bad.b = matrix(7, 6);
  expect_refused(bad, "project", "b: columns");
  expect_refused(WidenArgs{matrix(3, 5), rows(3, 4)}, "widen", "out: columns");
  EXPECT_NO_THROW(check(WidenArgs{matrix(3, 5), rows(3, 5)}));
}

TEST(Check, MarkovRows) {
  MarkovRowsArgs good;
  good.backbone = rows(9, 7);
  good.out = rows(3, 7);
  good.backbone_row = good.previous = id_array(3);
  good.w1 = good.w2 = matrix(7, 2, DType::f16);
  EXPECT_NO_THROW(check(good));
  MarkovRowsArgs bad = good;
  bad.previous = id_array(2);
  expect_refused(bad, "markov_rows", "previous has 2 elements where 3");
  bad = good;
  bad.w2 = matrix(6, 2);
  expect_refused(bad, "markov_rows", "w2: rows");
  bad.w1 = {};
  EXPECT_NO_THROW(check(bad));  // without a head, w2 is not looked at
  bad = good;
  bad.backbone = rows(9, 8);
  expect_refused(bad, "markov_rows", "out: columns");
}

TEST(Check, DraftRows) {
  DraftRowsArgs good;
  good.hidden = matrix(9, 5, DType::bf16);
  good.head = matrix(7, 5, DType::f16);
  good.out = rows(3, 7);
  good.hidden_row = good.previous = id_array(3);
  good.w1 = good.w2 = matrix(7, 2, DType::f16);
  EXPECT_NO_THROW(check(good));
  EXPECT_NO_THROW(check(DraftRowsArgs{}));
  DraftRowsArgs bad = good;
  bad.previous = id_array(2);
  expect_refused(bad, "draft_rows", "previous has 2 elements where 3");
  bad = good;
  bad.hidden_row = id_array(4);
  expect_refused(bad, "draft_rows", "hidden_row has 4 elements where 3");
  bad.hidden_row = {};  // the rows in order: as many as are asked for
  expect_refused(bad, "draft_rows", "hidden: rows is 9 where 3");
  bad.hidden.rows = 3;
  EXPECT_NO_THROW(check(bad));
  bad = good;
  bad.head = matrix(8, 5);
  expect_refused(bad, "draft_rows", "head: rows");
  bad.head = matrix(7, 6);
  expect_refused(bad, "draft_rows", "head: columns");
  bad = good;
  bad.w2 = matrix(7, 3);
  expect_refused(bad, "draft_rows", "w2: columns");
  bad.w1 = {};
  EXPECT_NO_THROW(check(bad));  // without a head, w2 is not looked at
  bad = good;
  bad.hidden.stride = 4;
  expect_refused(bad, "draft_rows", "hidden has a stride of 4");
}

TEST(TensorProducts, ApplyToSixteenBitOperandsOfOneTypeInAlignedRows) {
  alignas(16) static std::array<std::uint16_t, 64> values;
  const auto half = [](DType type, std::int64_t stride = 8) {
    return Matrix{values.data(), type, 3, 5, stride};
  };
  ProjectArgs project{half(DType::f16), half(DType::f16), rows(3, 3), Products::tensor};
  EXPECT_TRUE(tensor_products_apply(project));
  project.products = Products::exact;
  EXPECT_FALSE(tensor_products_apply(project));
  const auto applies = [&](const Matrix& a, const Matrix& b) {
    return tensor_products_apply(ProjectArgs{a, b, rows(3, 3), Products::tensor});
  };
  EXPECT_TRUE(applies(half(DType::bf16), half(DType::bf16)));
  EXPECT_FALSE(applies(half(DType::f16), half(DType::bf16)));
  EXPECT_FALSE(applies(half(DType::f32), half(DType::f32)));
  EXPECT_FALSE(applies(half(DType::f16, 12), half(DType::f16)));
  EXPECT_FALSE(applies(half(DType::f16), half(DType::f16, 12)));
  Matrix moved = half(DType::f16);
  moved.data = values.data() + 4;
  EXPECT_FALSE(applies(half(DType::f16), moved));

  DraftRowsArgs draft;
  draft.hidden = draft.head = half(DType::f16);
  draft.products = Products::tensor;
  EXPECT_TRUE(tensor_products_apply(draft));
  draft.w1 = draft.w2 = half(DType::f16);
  EXPECT_TRUE(tensor_products_apply(draft));
  draft.w1 = draft.w2 = half(DType::bf16);
  EXPECT_FALSE(tensor_products_apply(draft));
  draft.w1 = half(DType::f16);
  EXPECT_FALSE(tensor_products_apply(draft));
}

TEST(Check, ConfidenceRows) {
  ConfidenceRowsArgs good;
  good.hidden = matrix(3, 5);
  good.hidden_row = good.previous = id_array(2);
  good.w1 = matrix(7, 2, DType::f16);
  good.weight = {memory.data(), 7};
  good.out = {memory.data(), 2};
  EXPECT_NO_THROW(check(good));
  ConfidenceRowsArgs bad = good;
  bad.weight.size = 6;
  expect_refused(bad, "confidence_rows", "weight: size");
  bad.weight.size = 5;
  bad.w1 = {};
  EXPECT_NO_THROW(check(bad));
  bad.weight.size = 7;
  expect_refused(bad, "confidence_rows", "w1 is null");
}

TEST(Check, Laws) {
  const RowLawsArgs good{rows(3, 7), rule(), {laws.data(), 3}};
  EXPECT_NO_THROW(check(good));
  RowLawsArgs bad = good;
  bad.laws.size = 4;
  expect_refused(bad, "row_laws", "laws has 4 elements");
  bad = good;
  bad.rule.inverse_temperature = 0;
  expect_refused(bad, "row_laws", "temperature");
  bad.rule.inverse_temperature = std::numeric_limits<float>::quiet_NaN();
  expect_refused(bad, "row_laws", "temperature");
  bad = good;
  bad.rule.top_k = -1;
  expect_refused(bad, "row_laws", "top_k");
  bad = good;
  bad.rule.top_p = std::uint64_t{1} << 32;
  expect_refused(bad, "row_laws", "top_p");
  bad = good;
  bad.logits = rows(3, kMaxMassVocab + 1);
  expect_refused(bad, "row_laws", "largest vocabulary");
}

TEST(Check, PairsAndSamples) {
  ComparePairsArgs compare;
  compare.target = rows(3, 7);
  compare.target_laws = law_array(3);
  compare.draft = rows(2, 7);
  compare.draft_laws = law_array(2);
  compare.pairs = {row_pairs.data(), 4};
  std::array<PairOutcome, 4> outcomes;
  compare.out = {outcomes.data(), 4};
  EXPECT_NO_THROW(check(compare));
  compare.draft_laws = law_array(3);
  expect_refused(compare, "compare_pairs", "draft_laws has 3");
  compare.draft_laws = law_array(2);
  compare.draft = rows(2, 8);
  expect_refused(compare, "compare_pairs", "draft: columns");

  SampleRowsArgs sample{
      rows(3, 7), law_array(3), id_array(2), {uniforms.data(), 2}, {ids.data(), 2}};
  EXPECT_NO_THROW(check(sample));
  sample.uniform.size = 1;
  expect_refused(sample, "sample_rows", "uniform");

  SampleExcessArgs excess;
  excess.target = excess.draft = rows(3, 7);
  excess.target_laws = excess.draft_laws = law_array(3);
  excess.pairs = {row_pairs.data(), 1};
  excess.pair = id_array(2);
  excess.uniform = {uniforms.data(), 2};
  excess.token = {ids.data(), 2};
  EXPECT_NO_THROW(check(excess));
  excess.pair.data = nullptr;
  expect_refused(excess, "sample_excess", "pair is null");
}

TEST(Check, TokensAndLengths) {
  BuildVerifyTokensArgs verify{2, 3, 3, ids.data(), ids.data(), ids.data()};
  EXPECT_NO_THROW(check(verify));
  verify.draft_stride = 2;
  expect_refused(verify, "build_verify_tokens", "draft_stride");
  expect_refused(BuildVerifyTokensArgs{1, -1, 3, ids.data(), ids.data(), ids.data()},
                 "build_verify_tokens", "negative");
  expect_refused(FillProposalLengthsArgs{2, 1, nullptr}, "fill_proposal_lengths", "null");
  expect_refused(FillUniformsArgs{{nullptr, 3}, 1, 2}, "fill_uniforms", "null");
  expect_refused(FillUniformsArgs{{nullptr, -3}, 1, 2}, "fill_uniforms", "impossible size");
}

TEST(Check, BlocksMustLieInTheirArrays) {
  ConfidenceScoresArgs scores;
  scores.batch = 2;
  scores.block_size = 3;
  scores.hidden = matrix(8, 5, DType::f16);
  scores.hidden_stride = 4;
  scores.hidden_offset = 1;
  scores.weight = {memory.data(), 5};
  scores.scores = memory.data();
  EXPECT_NO_THROW(check(scores));
  EXPECT_NO_THROW(check(ThresholdLengthsArgs{scores, 0.5, 1, 0, ids.data()}));
  expect_refused(ThresholdLengthsArgs{scores, 0.5, 1, 0, nullptr}, "threshold_lengths", "null");
  expect_refused(SpsLengthsArgs{scores, 0, 1, 0, {}, nullptr}, "sps_lengths", "null");
  scores.hidden_offset = 2;
  expect_refused(scores, "confidence_scores", "rows 2 to 8");
  scores.hidden_offset = -1;
  expect_refused(scores, "confidence_scores", "rows -1 to 5");
  scores.hidden_offset = 0;
  scores.hidden_stride = 0;
  EXPECT_NO_THROW(check(scores));
  scores.weight.size = 7;
  scores.w1 = matrix(7, 2);
  expect_refused(scores, "confidence_scores", "first_previous is null");
}

TEST(Check, BatchSchedules) {
  const double price = 1;
  BatchScheduleArgs good;
  good.step = {2, 2, 2, memory.data(), ids.data()};
  good.price = {&price, 1};
  good.lengths = ids.data();
  EXPECT_NO_THROW(check(good));
  EXPECT_NO_THROW(check(BatchScheduleArgs{}));
  const auto refused = [&good](auto&& change, const std::string& word) {
    BatchScheduleArgs bad = good;
    change(bad);
    expect_refused(bad, "batch_schedule", word);
  };
  refused([](auto& args) { args.step.requests = -1; }, "requests is -1");
  refused([](auto& args) { args.step.requests = kMaxScheduledRequests + 1; }, "requests is 65537");
  refused([](auto& args) { args.step.positions = 65; }, "positions is 65");
  refused([](auto& args) { args.step.stride = 1; }, "stride is 1");
  refused([](auto& args) { args.step.confidence = nullptr; }, "confidence is null");
  refused([](auto& args) { args.step.slots = nullptr; }, "slots is null");
  refused([](auto& args) { args.price.data = nullptr; }, "price is null");
  refused([](auto& args) { args.lengths = nullptr; }, "lengths is null");
  refused([](auto& args) { args.options.floor = -1; }, "floor is -1");
  refused([](auto& args) { args.options.survival_epsilon = -1; }, "survival_epsilon");
  refused([](auto& args) { args.options.min_gain = std::numeric_limits<double>::quiet_NaN(); },
          "min_gain");
  refused([](auto& args) { args.options.rule = static_cast<BatchRule>(9); }, "rule");
  refused([](auto& args) { args.options.ties = static_cast<TieOrder>(9); }, "order of ties");
}

TEST(Check, ProposalSteps) {
  BuildMarkovLogitsArgs markov;
  markov.batch = 2;
  markov.block_size = 3;
  markov.step = 2;
  markov.backbone = rows(6, 7);
  markov.corrected = rows(2, 7);
  markov.scratch = {memory.data(), build_markov_logits_scratch(2)};
  EXPECT_NO_THROW(check(markov));
  markov.w1 = markov.w2 = matrix(7, 2);
  expect_refused(markov, "build_markov_logits", "draft is null");
  markov.draft = ids.data();
  EXPECT_NO_THROW(check(markov));
  markov.step = 3;
  expect_refused(markov, "build_markov_logits", "step is 3, outside [0, 2]");
  markov.step = 0;
  expect_refused(markov, "build_markov_logits", "first_previous is null");
  markov.first_previous = ids.data();
  markov.scratch.bytes -= 1;
  expect_refused(markov, "build_markov_logits", "scratch has");
  markov.backbone.rows = std::int64_t{1} << 31;
  expect_refused(markov, "build_markov_logits", "backbone: rows is 2147483648, outside");

  SampleProbabilityRowsArgs sample;
  sample.batch = 2;
  sample.block_size = 3;
  sample.probabilities = rows(2, 7);
  sample.uniforms = memory.data();
  sample.tokens = ids.data();
  expect_refused(sample, "sample_probability_rows", "scratch has 0 bytes");
  sample.scratch = {memory.data(), row_scan_scratch(2, 7)};
  EXPECT_NO_THROW(check(sample));
  sample.probabilities = rows(3, 7);
  expect_refused(sample, "sample_probability_rows", "probabilities: rows");

  EXPECT_NO_THROW(check(StoreDraftStepProbabilitiesArgs{2, 3, 0, rows(2, 7), rows(6, 7)}));
  expect_refused(StoreDraftStepProbabilitiesArgs{2, 3, 0, rows(2, 7), rows(5, 7)},
                 "store_draft_step_probabilities", "destination: rows");

  VanillaMarkovSampleArgs vanilla;
  vanilla.batch = 2;
  vanilla.block_size = 3;
  vanilla.backbone = rows(6, 7);
  vanilla.rule = rule();
  vanilla.uniforms = memory.data();
  vanilla.tokens = ids.data();
  vanilla.draft_probabilities = rows(6, 7);
  vanilla.scratch = {memory.data(), vanilla_markov_sample_scratch(2, 7)};
  EXPECT_NO_THROW(check(vanilla));
  vanilla.backbone.rows = 5;
  expect_refused(vanilla, "vanilla_markov_sample", "backbone has 5 rows");
}

TEST(Check, Probabilities) {
  LogitsToProbabilitiesArgs args;
  args.logits = rows(3, 7);
  args.rule = rule();
  args.probabilities = rows(3, 7);
  args.laws = laws.data();
  expect_refused(args, "logits_to_probabilities", "alias");
  args.probabilities.data = memory.data() + 1;
  EXPECT_NO_THROW(check(args));
  args.laws = nullptr;
  expect_refused(args, "logits_to_probabilities", "laws is null");
}

TEST(Check, Acceptance) {
  GreedyAcceptArgs greedy;
  greedy.batch = 2;
  greedy.length = 3;
  greedy.draft_stride = 3;
  greedy.logits = rows(8, 7);
  greedy.draft = greedy.lengths = ids.data();
  greedy.accepted = greedy.accept_length = ids.data();
  greedy.laws = laws.data();
  EXPECT_NO_THROW(check(greedy));
  greedy.length = 0;
  expect_refused(greedy, "greedy_accept", "length is below 1");
  greedy.length = 3;
  greedy.logits = rows(7, 7);
  expect_refused(greedy, "greedy_accept", "logits: rows is 7 where 8");

  ProbabilisticAcceptArgs accept;
  accept.batch = 2;
  accept.length = 2;
  accept.draft_stride = 3;
  accept.target = rows(6, 7);
  accept.draft = rows(6, 7);
  accept.tokens = accept.lengths = ids.data();
  accept.uniforms = memory.data();
  accept.accepted = accept.accept_length = ids.data();
  accept.scratch = {memory.data(), row_scan_scratch(2, 7)};
  EXPECT_NO_THROW(check(accept));
  accept.draft = rows(4, 7);
  expect_refused(accept, "probabilistic_accept", "draft: rows is 4 where 6");
  accept.draft = rows(6, 8);
  expect_refused(accept, "probabilistic_accept", "draft: columns");
  accept.draft = rows(6, 7);
  accept.draft_stride = 1;
  expect_refused(accept, "probabilistic_accept", "draft_stride");
}

TEST(Check, QuantizedHeads) {
  std::array<Float8, 4> codes;
  std::array<Float16, 4> scale;
  const QuantizeMarkovW2Args good{matrix(3, 32, DType::f16), codes.data(), scale.data(), nullptr};
  EXPECT_NO_THROW(check(good));
  EXPECT_NO_THROW(check(QuantizeMarkovW2Args{}));
  QuantizeMarkovW2Args bad = good;
  bad.w2 = matrix(3, 24, DType::f16);
  expect_refused(bad, "quantize_markov_w2", "multiple of 16");
  bad.w2 = matrix(3, 0, DType::f16);
  expect_refused(bad, "quantize_markov_w2", "w2 has no columns");
  bad.w2 = matrix(3, 32, DType::e4m3);
  expect_refused(bad, "quantize_markov_w2", "element type");
  bad = good;
  bad.codes = nullptr;
  expect_refused(bad, "quantize_markov_w2", "codes is null");
  bad = good;
  bad.scale = nullptr;
  expect_refused(bad, "quantize_markov_w2", "scale is null");
}

TEST(Check, GreedySteps) {
  const std::array<Float16, 7> scale = {};
  MarkovGreedyStepArgs good;
  good.batch = 2;
  good.block_size = 3;
  good.backbone = rows(6, 7);
  good.w1 = good.w2 = matrix(7, 16, DType::f16);
  good.first_previous = ids.data();
  good.slots = uniforms.data();
  good.scratch = {memory.data(), markov_greedy_step_scratch(2)};
  EXPECT_NO_THROW(check(good));
  const auto refused = [&good](auto&& change, const std::string& word) {
    MarkovGreedyStepArgs bad = good;
    change(bad);
    expect_refused(bad, "markov_greedy_step", word);
  };
  refused([](auto& args) { args.batch = -1; }, "negative batch");
  refused([](auto& args) { args.step = 3; }, "step is 3, outside [0, 2]");
  refused([](auto& args) { args.backbone = rows(5, 7), args.step = 2; }, "backbone has 5 rows");
  refused([](auto& args) { args.w2 = matrix(6, 16); }, "w2: rows");
  refused([](auto& args) { args.w2 = matrix(7, 8); }, "w2: columns");
  refused([](auto& args) { args.w1 = args.w2 = matrix(7, 0); }, "no columns");
  refused([](auto& args) { args.w1 = matrix(7, 16, DType::e4m3); }, "w1 has an unknown element");
  refused([](auto& args) { args.w2 = matrix(7, 16, DType::e4m3); }, "w2_scale is null");
  refused(
      [&](auto& args) {
        args.w1 = matrix(7, 24);
        args.w2 = matrix(7, 24, DType::e4m3);
        args.w2_scale = scale.data();
      },
      "the rank is not supported");
  refused([](auto& args) { args.first_previous = nullptr; }, "first_previous is null");
  refused([](auto& args) { args.slots = nullptr; }, "slots is null");
  refused([](auto& args) { args.stacked = rows(7, 7); }, "stacked: rows is 7 where 8");
  refused([](auto& args) { args.stacked = rows(8, 6); }, "stacked: columns");
  refused([](auto& args) { args.stacked = rows(8, 7), args.stacked_row = 4; }, "stacked_row");
  refused([](auto& args) { args.scratch.bytes -= 1; }, "scratch has");

  MarkovGreedyStepArgs other = good;
  other.w2 = matrix(7, 16, DType::e4m3);
  other.w2_scale = scale.data();
  EXPECT_NO_THROW(check(other));
  other = good;
  other.w1 = {};  // without a head neither w2 nor ids are looked at
  other.w2 = matrix(2, 3);
  other.first_previous = nullptr;
  EXPECT_NO_THROW(check(other));
  other = good;
  other.step = 1;
  other.first_previous = nullptr;
  EXPECT_NO_THROW(check(other));

  std::array<std::uint64_t, 4> slots;
  EXPECT_NO_THROW(check(FinalizeGreedyDraftTokensArgs{{slots.data(), 4}, 7, {ids.data(), 4}}));
  expect_refused(FinalizeGreedyDraftTokensArgs{{slots.data(), 4}, 7, {ids.data(), 3}},
                 "finalize_greedy_draft_tokens", "tokens has 3 elements where 4");
  expect_refused(FinalizeGreedyDraftTokensArgs{{slots.data(), 4}, -1, {ids.data(), 4}},
                 "finalize_greedy_draft_tokens", "negative vocabulary");
}

TEST(Check, GreedyProposals) {
  GreedyProposeArgs good;
  good.batch = 2;
  good.block_size = 3;
  good.backbone = rows(6, 7);
  good.w1 = good.w2 = matrix(7, 16, DType::f16);
  good.first_previous = ids.data();
  good.tokens = ids.data();
  good.scratch = {memory.data(), greedy_propose_scratch(2, 3)};
  EXPECT_NO_THROW(check(good));
  const auto refused = [&good](auto&& change, const std::string& word) {
    GreedyProposeArgs bad = good;
    change(bad);
    expect_refused(bad, "greedy_propose", word);
  };
  refused([](auto& args) { args.block_size = 0; }, "block size is below 1");
  refused([](auto& args) { args.backbone = rows(5, 7); }, "rows 0 to 5");
  refused([](auto& args) { args.logits_offset = -1; }, "rows -1 to 4");
  refused([](auto& args) { args.w2 = matrix(7, 16, DType::e4m3); }, "w2_scale is null");
  refused([](auto& args) { args.first_previous = nullptr; }, "first_previous is null");
  refused([](auto& args) { args.tokens = nullptr; }, "tokens is null");
  refused([](auto& args) { args.scratch.bytes -= 1; }, "scratch has");
}

TEST(Check, SparseProposals) {
  SelectTopKArgs select;
  select.logits = rows(2, 7);
  select.values = rows(2, 3);
  select.ids = ids.data();
  select.scratch = {memory.data(), select_top_k_scratch(2, 7, 3)};
  EXPECT_NO_THROW(check(select));
  select.values = rows(2, 8);
  expect_refused(select, "select_top_k", "values: columns is 8, outside [1, 7]");
  select.logits = rows(2, 9000);
  select.values = rows(2, kMaxTopK + 1);
  expect_refused(select, "select_top_k", "values: columns is 1025, outside [1, 1024]");
  select.values = rows(3, 3);
  expect_refused(select, "select_top_k", "values: rows");
  select.values = rows(2, 3);
  select.scratch.bytes -= 1;
  expect_refused(select, "select_top_k", "scratch has");
  select.ids = nullptr;
  expect_refused(select, "select_top_k", "ids is null");

  NormalizeTopKRowsArgs normalize;
  normalize.values = normalize.probabilities = rows(2, 3);
  normalize.rule = make_sampling_rule(1, 0, 1, TopPRule::water_filling, 7);
  EXPECT_NO_THROW(check(normalize));
  normalize.rule.top_k = 2;
  expect_refused(normalize, "normalize_top_k_rows", "filter");
  normalize.rule.top_k = 0;
  normalize.rule.top_p = 5;
  expect_refused(normalize, "normalize_top_k_rows", "filter");
  normalize.rule.top_p = 0;
  normalize.probabilities.stride = 4;
  expect_refused(normalize, "normalize_top_k_rows", "probabilities: stride");
  normalize.probabilities = rows(2, 4);
  expect_refused(normalize, "normalize_top_k_rows", "probabilities: columns");
  normalize.values = normalize.probabilities = rows(2, kMaxTopK + 1);
  expect_refused(normalize, "normalize_top_k_rows", "values: columns");

  StoreDraftStepTop1Args top1{2, 3, 0, 7, ids.data(), 1, ids.data(), nullptr};
  EXPECT_NO_THROW(check(top1));
  top1.step = 3;
  expect_refused(top1, "store_draft_step_top1", "step is 3");
  top1.step = 0;
  top1.ids_stride = 0;
  expect_refused(top1, "store_draft_step_top1", "ids_stride");
  top1.ids_stride = 1;
  top1.tokens = nullptr;
  expect_refused(top1, "store_draft_step_top1", "tokens is null");

  SampleTopKRowsArgs good;
  good.batch = 2;
  good.block_size = 3;
  good.vocab = 7;
  good.values = rows(2, 4);
  good.ids = ids.data();
  good.uniforms = memory.data();
  good.rule = rule();
  good.probabilities = {memory.data() + 1, 6, 4, 4};
  good.stored_ids = good.tokens = ids.data();
  EXPECT_NO_THROW(check(good));
  const auto refused = [&good](auto&& change, const std::string& word) {
    SampleTopKRowsArgs bad = good;
    change(bad);
    expect_refused(bad, "sample_top_k_rows", word);
  };
  refused([](auto& args) { args.step = -1; }, "step is -1");
  refused([](auto& args) { args.vocab = -1; }, "negative vocabulary");
  refused([](auto& args) { args.values.rows = 3; }, "values: rows");
  refused([](auto& args) { args.probabilities.rows = 5; }, "probabilities: rows is 5 where 6");
  refused([](auto& args) { args.probabilities.data = memory.data(); }, "alias");
  refused([](auto& args) { args.rule.top_p = 5; }, "filter");
  refused([](auto& args) { args.ids = nullptr; }, "ids is null");
  refused([](auto& args) { args.uniforms = nullptr; }, "uniforms is null");
  refused([](auto& args) { args.stored_ids = nullptr; }, "stored_ids is null");
  refused([](auto& args) { args.tokens = nullptr; }, "tokens is null");
}

TEST(Check, TheBackendChecksBeforeItWorks) {
  const auto backend = make_cpu_backend(1);
  EXPECT_THROW(backend->project({matrix(3, 5), matrix(7, 6), rows(3, 7)}), Error);
  EXPECT_THROW(backend->row_laws({rows(3, 7), rule(), {laws.data(), 2}}), Error);
}

}  // namespace
}  // namespace dspark
