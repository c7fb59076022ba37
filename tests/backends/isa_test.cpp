// The instruction set and the number of threads leave no trace in a result.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/isa.h"

namespace dspark {
namespace {

constexpr std::int32_t kVocab = 1237;
constexpr std::int64_t kDepth = 301;
constexpr std::int64_t kRows = 29;

/// Everything a backend computes from one set of numbers, as bytes.
class Fingerprint {
 public:
  explicit Fingerprint(Backend& backend) : backend_(backend) {
    fill(hidden_, kRows * kDepth, 1);
    fill(values_, kVocab * kDepth, 2);
    for (const float value : values_) weights_.push_back(to_float16(value));
    products();
    laws();
    pairs();
    accept();
  }

  const std::vector<std::string>& parts() const { return parts_; }

 private:
  static void fill(std::vector<float>& out, std::int64_t count, std::uint32_t seed) {
    std::uint32_t state = seed;
    for (std::int64_t i = 0; i < count; ++i) {
      state = state * 1664525u + 1013904223u;
      out.push_back(static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f);
    }
  }

  template <class T>
  void add(const std::vector<T>& values) {
    std::string bytes(values.size() * sizeof(T), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    parts_.push_back(bytes);
  }

  Rows rows(std::vector<float>& values) const {
    return {values.data(), static_cast<std::int64_t>(values.size()) / kVocab, kVocab, kVocab};
  }
  template <class T>
  static Array<T> array(std::vector<T>& values) {
    return {values.data(), static_cast<std::int64_t>(values.size())};
  }
  template <class T>
  static Array<const T> view(const std::vector<T>& values) {
    return {values.data(), static_cast<std::int64_t>(values.size())};
  }

  void products() {
    logits_.resize(kRows * kVocab);
    backend_.project({{hidden_.data(), DType::f32, kRows, kDepth, kDepth},
                      {weights_.data(), DType::f16, kVocab, kDepth, kDepth},
                      rows(logits_)});
    add(logits_);
    for (std::int32_t i = 0; i < kRows; ++i) {
      row_.push_back(i);
      previous_.push_back(i % 5 == 4 ? -1 : i * 31);
    }
    drafts_.resize(kRows * kVocab, 0.25f);
    const Matrix table{weights_.data(), DType::f16, kVocab, 64, kDepth};
    MarkovRowsArgs markov;
    markov.backbone = rows(logits_);
    markov.backbone_row = view(row_);
    markov.previous = view(previous_);
    markov.w1 = markov.w2 = table;
    markov.out = rows(drafts_);
    backend_.markov_rows(markov);
    add(drafts_);
    std::vector<float> direct(kRows * kVocab, 0.5f);
    DraftRowsArgs draft;
    draft.hidden = {hidden_.data(), DType::f32, kRows, kDepth, kDepth};
    draft.previous = view(previous_);
    draft.head = {weights_.data(), DType::f16, kVocab, kDepth, kDepth};
    draft.w1 = draft.w2 = table;
    draft.out = rows(direct);
    backend_.draft_rows(draft);
    add(direct);
    std::vector<float> wide(weights_.size());
    backend_.widen({{weights_.data(), DType::f16, kVocab, kDepth, kDepth},
                    {wide.data(), kVocab, static_cast<std::int32_t>(kDepth), kDepth}});
    add(wide);
    std::vector<float> scores(kRows);
    ConfidenceRowsArgs confidence;
    confidence.hidden = {hidden_.data(), DType::f32, kRows, kDepth, kDepth};
    confidence.hidden_row = view(row_);
    confidence.previous = view(previous_);
    confidence.w1 = table;
    confidence.weight = {values_.data(), kDepth + 64};
    confidence.out = array(scores);
    backend_.confidence_rows(confidence);
    add(scores);
  }

  void laws() {
    for (const double temperature : {1.0, 0.2, 0.0}) {
      for (const std::int64_t top_k : {0, 40, 300}) {
        for (const double top_p : {1.0, 0.9}) {
          std::vector<RowLaw> laws(kRows);
          LogitsToProbabilitiesArgs args;
          args.logits = rows(logits_);
          args.rule =
              make_sampling_rule(temperature, top_k, top_p, TopPRule::water_filling, kVocab);
          std::vector<float> probabilities(logits_.size());
          args.probabilities = rows(probabilities);
          args.laws = laws.data();
          backend_.logits_to_probabilities(args);
          add(laws);
          add(probabilities);
        }
      }
    }
  }

  void pairs() {
    for (const double top_p : {1.0, 0.9}) {
      const SamplingRule rule =
          make_sampling_rule(0.3, 0, top_p, TopPRule::include_crossing, kVocab);
      std::vector<RowLaw> p(kRows);
      std::vector<RowLaw> q(kRows);
      backend_.row_laws({rows(logits_), rule, array(p)});
      backend_.row_laws({rows(drafts_), rule, array(q)});
      std::vector<RowPair> pairs;
      std::vector<std::uint64_t> uniforms;
      for (std::int32_t i = 0; i < kRows; ++i) {
        pairs.push_back({i, (i * 7) % static_cast<std::int32_t>(kRows), i * 41});
        uniforms.push_back(0x9E3779B97F4A7C15ull * static_cast<std::uint64_t>(i + 1));
      }
      std::vector<PairOutcome> outcomes(pairs.size());
      backend_.compare_pairs(
          {rows(logits_), view(p), rows(drafts_), view(q), view(pairs), array(outcomes)});
      std::vector<std::int32_t> tokens(pairs.size());
      backend_.sample_rows({rows(logits_), view(p), view(row_), view(uniforms), array(tokens)});
      add(tokens);
      backend_.sample_excess({rows(logits_), view(p), rows(drafts_), view(q), view(pairs),
                              view(row_), view(uniforms), array(tokens)});
      add(tokens);
      for (const PairOutcome& outcome : outcomes) {
        add(std::vector<std::uint64_t>{outcome.alpha, outcome.target_token, outcome.draft_token});
      }
    }
  }

  void accept() {
    constexpr std::int32_t kBatch = 30;
    constexpr std::int32_t kLength = 3;
    std::vector<float> target(kBatch * (kLength + 1) * kVocab);
    std::vector<float> draft(kBatch * kLength * kVocab);
    for (std::size_t i = 0; i < target.size(); ++i) {
      target[i] = (values_[i] + 1) / static_cast<float>(kVocab);
    }
    for (std::size_t i = 0; i < draft.size(); ++i) {
      draft[i] = (values_[i + 9999] + 1) / static_cast<float>(kVocab);
    }
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < kBatch * kLength; ++i) tokens.push_back(i * 13);
    const std::vector<std::int32_t> lengths(kBatch, kLength);
    std::vector<float> uniforms(kBatch * (2 * kLength + 1));
    backend_.fill_uniforms({array(uniforms), 5, 6});
    std::vector<std::int32_t> accepted(kBatch * (kLength + 1));
    std::vector<std::int32_t> accept_length(kBatch);
    std::vector<float> distance(kBatch);
    std::vector<std::uint8_t> scratch(row_scan_scratch(kBatch, kVocab));
    ProbabilisticAcceptArgs args;
    args.batch = kBatch;
    args.length = args.draft_stride = kLength;
    args.target = rows(target);
    args.draft = rows(draft);
    args.tokens = tokens.data();
    args.lengths = lengths.data();
    args.uniforms = uniforms.data();
    args.accepted = accepted.data();
    args.accept_length = accept_length.data();
    args.distance = distance.data();
    args.scratch = {scratch.data(), scratch.size()};
    backend_.probabilistic_accept(args);
    add(accepted);
    add(accept_length);
    add(distance);
  }

  Backend& backend_;
  std::vector<float> hidden_;
  std::vector<float> values_;
  std::vector<Float16> weights_;
  std::vector<float> logits_;
  std::vector<float> drafts_;
  std::vector<std::int32_t> row_;
  std::vector<std::int32_t> previous_;
  std::vector<std::string> parts_;
};

void expect_equal(const std::vector<std::string>& got, const std::vector<std::string>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i] == expected[i]) << "part " << i;
}

TEST(VectorOps, EveryInstructionSetGivesTheSameBits) {
  const std::vector<const cpu::VectorOps*> versions = cpu::available_vector_ops();
  ASSERT_FALSE(versions.empty());
  EXPECT_STREQ(cpu::vector_ops_name(*versions[0]), "baseline");
  if (versions.size() == 1) GTEST_SKIP() << "this processor has the baseline instruction set only";
  const auto plain = cpu::make_cpu_backend_with(1, *versions[0]);
  const Fingerprint expected(*plain);
  for (std::size_t i = 1; i < versions.size(); ++i) {
    SCOPED_TRACE(cpu::vector_ops_name(*versions[i]));
    const auto backend = cpu::make_cpu_backend_with(1, *versions[i]);
    expect_equal(Fingerprint(*backend).parts(), expected.parts());
  }
}

TEST(VectorOps, EveryNumberOfThreadsGivesTheSameBits) {
  const cpu::VectorOps& ops = *cpu::available_vector_ops().back();
  const auto single = cpu::make_cpu_backend_with(1, ops);
  const Fingerprint expected(*single);
  for (const int threads : {2, 3, 8}) {
    const auto backend = cpu::make_cpu_backend_with(threads, ops);
    expect_equal(Fingerprint(*backend).parts(), expected.parts());
  }
}

}  // namespace
}  // namespace dspark
