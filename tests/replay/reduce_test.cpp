// The whole anchors replay against exact enumeration: a few tokens, all distributions in float64
// from their definitions.
#include "replay/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "backends/cpu/cpu_backend.h"
#include "replay/closed_loop.h"
#include "support/error.h"
#include "tests/replay/law.h"
#include "tests/replay/same_bits.h"
#include "tests/replay/tiny_trace.h"
#include "tests/support/temporary_folder.h"

namespace dspark {
namespace {

/// Everything about a TinyTrace in float64.
class Oracle {
 public:
  Oracle(const TinyTrace& trace, TopPRule rule) : trace_(trace), rule_(rule) {}

  [[nodiscard]] Law target(std::int64_t position) const {
    std::vector<double> logits(static_cast<std::size_t>(trace_.vocab));
    for (std::size_t v = 0; v < logits.size(); ++v) {
      logits[v] = static_cast<double>(
          trace_.target_logits[static_cast<std::size_t>(position) * logits.size() + v]);
    }
    return law_of(logits, trace_.temperature, trace_.top_k, trace_.top_p, rule_);
  }
  [[nodiscard]] Law draft(std::int64_t anchor, int slot, std::int32_t previous) const {
    return law_of(draft_logits(anchor, slot, previous), trace_.temperature, trace_.top_k,
                  trace_.top_p, rule_);
  }
  [[nodiscard]] std::vector<double> draft_logits(std::int64_t anchor, int slot,
                                                 std::int32_t previous) const {
    std::vector<double> logits(static_cast<std::size_t>(trace_.vocab));
    const auto row = static_cast<std::size_t>(anchor * trace_.block + slot - 1) * logits.size();
    for (std::size_t v = 0; v < logits.size(); ++v) {
      double bias = 0;
      for (std::int32_t r = 0; r < trace_.rank; ++r) {
        bias +=
            static_cast<double>(trace_.w1[static_cast<std::size_t>(previous * trace_.rank + r)]) *
            static_cast<double>(
                trace_.w2[v * static_cast<std::size_t>(trace_.rank) + static_cast<std::size_t>(r)]);
      }
      logits[v] = static_cast<double>(trace_.draft_logits[row + v]) + bias;
    }
    return logits;
  }
  [[nodiscard]] float top_probability(std::int64_t anchor, int slot, std::int32_t previous) const {
    const Law law = draft(anchor, slot, previous);
    return static_cast<float>(*std::max_element(law.begin(), law.end()));
  }
  [[nodiscard]] float confidence(std::int64_t anchor, int slot, std::int32_t previous) const {
    double z = static_cast<double>(trace_.confidence_bias);
    for (std::int32_t i = 0; i < trace_.hidden; ++i) {
      z += static_cast<double>(trace_.draft_hidden[static_cast<std::size_t>(
               (anchor * trace_.block + slot - 1) * trace_.hidden + i)]) *
           static_cast<double>(trace_.confidence_weight[static_cast<std::size_t>(i)]);
    }
    for (std::int32_t r = 0; r < trace_.rank; ++r) {
      z += static_cast<double>(trace_.w1[static_cast<std::size_t>(previous * trace_.rank + r)]) *
           static_cast<double>(
               trace_.confidence_weight[static_cast<std::size_t>(trace_.hidden + r)]);
    }
    return static_cast<float>(1 / (1 + std::exp(-z)));
  }
  [[nodiscard]] std::int64_t end_of(std::int64_t anchor) const {
    for (const std::int64_t offset : trace_.offsets) {
      if (offset > anchor) return offset;
    }
    return -1;
  }
  [[nodiscard]] std::int32_t text(std::int64_t anchor, std::int64_t position) const {
    const std::int64_t end = end_of(anchor);
    if (position < end) return trace_.tokens[static_cast<std::size_t>(position)];
    for (std::size_t s = 0; s + 1 < trace_.offsets.size(); ++s) {
      if (trace_.offsets[s + 1] == end && trace_.offsets[s] < end) return trace_.last_tokens[s];
    }
    return -1;
  }
  [[nodiscard]] int slots(std::int64_t anchor) const {
    return static_cast<int>(std::min<std::int64_t>(trace_.block, end_of(anchor) - anchor));
  }
  [[nodiscard]] double beta(std::int64_t anchor, int slot) const {
    const std::int32_t y = text(anchor, anchor + slot);
    const double p = target(anchor + slot - 1)[static_cast<std::size_t>(y)];
    const double q =
        draft(anchor, slot, text(anchor, anchor + slot - 1))[static_cast<std::size_t>(y)];
    return std::min(1.0, q / p);
  }
  [[nodiscard]] double alpha(std::int64_t anchor, int slot) const {
    const Law p = target(anchor + slot - 1);
    const Law q = draft(anchor, slot, text(anchor, anchor + slot - 1));
    double sum = 0;
    for (std::size_t v = 0; v < p.size(); ++v) sum += std::min(p[v], q[v]);
    return sum;
  }

  /// E[min(ℓ, left - 1)] of a round that starts at `anchor`, over every chain the drafter can draft
  /// given the recorded text.
  [[nodiscard]] double verified(std::int64_t anchor, const Policy& policy) const {
    const int count = slots(anchor);
    const double left = static_cast<double>(end_of(anchor) - anchor);
    std::vector<float> c(static_cast<std::size_t>(count));
    double sum = 0;
    // Drafts slot by slot; `on_text` until the rejection.
    const std::function<void(int, std::int32_t, bool, double)> visit =
        [&](int slot, std::int32_t previous, bool on_text, double weight) {
          if (weight == 0) return;
          c[static_cast<std::size_t>(slot - 1)] = uses_top_probability(policy)
                                                      ? top_probability(anchor, slot, previous)
                                                      : confidence(anchor, slot, previous);
          if (slot == count) {
            sum +=
                weight * std::min<double>(scheduled_length(policy, c.data(), count, {}), left - 1);
            return;
          }
          const Law q = draft(anchor, slot, previous);
          if (!on_text) {
            for (std::size_t v = 0; v < q.size(); ++v)
              visit(slot + 1, static_cast<std::int32_t>(v), false, weight * q[v]);
            return;
          }
          const Law p = target(anchor + slot - 1);
          const std::int32_t y = text(anchor, anchor + slot);
          const double accepted =
              std::min(1.0, q[static_cast<std::size_t>(y)] / p[static_cast<std::size_t>(y)]);
          visit(slot + 1, y, true, weight * accepted);
          double excess = 0;
          for (std::size_t v = 0; v < q.size(); ++v) excess += std::max(0.0, q[v] - p[v]);
          for (std::size_t v = 0; v < q.size() && excess > 0; ++v) {
            visit(slot + 1, static_cast<std::int32_t>(v), false,
                  weight * (1 - accepted) * std::max(0.0, q[v] - p[v]) / excess);
          }
        };
    visit(1, text(anchor, anchor), true, 1.0);
    return sum;
  }

 private:
  const TinyTrace& trace_;
  TopPRule rule_;
};

struct Setting {
  double temperature;
  std::int64_t top_k;
  double top_p;
  TopPRule rule;
};

/// A trace whose recorded tokens can be drawn under the setting: the target's most likely one
/// wherever the drawn one cannot.
TinyTrace possible_trace(std::uint32_t seed, const Setting& setting, std::int32_t vocab = 5) {
  TinyTrace trace(seed, vocab);
  trace.temperature = setting.temperature;
  trace.top_k = setting.top_k;
  trace.top_p = setting.top_p;
  const Oracle oracle(trace, setting.rule);
  for (std::size_t s = 0; s + 1 < trace.offsets.size(); ++s) {
    for (std::int64_t n = trace.offsets[s]; n < trace.offsets[s + 1]; ++n) {
      const Law law = oracle.target(n);
      std::int32_t& next = n + 1 < trace.offsets[s + 1]
                               ? trace.tokens[static_cast<std::size_t>(n + 1)]
                               : trace.last_tokens[s];
      if (law[static_cast<std::size_t>(next)] == 0) {
        next = static_cast<std::int32_t>(std::max_element(law.begin(), law.end()) - law.begin());
      }
    }
  }
  return trace;
}

OutcomeTable reduce(const TinyTrace& tiny, TopPRule rule, ReplayOptions options,
                    Verification verification = Verification::probabilistic, int threads = 2) {
  const test::TemporaryFolder folder;
  tiny.write(folder.file("t.h5"));
  const std::unique_ptr<TraceFile> trace = TraceFile::open(folder.file("t.h5"));
  const Heads heads = load_heads(*trace, "", 0);
  const std::unique_ptr<Backend> backend = make_cpu_backend(threads);
  return reduce_anchors(
      *backend, *trace, heads,
      {.sampling = {tiny.temperature, tiny.top_k, tiny.top_p,
                    rule == TopPRule::water_filling ? "water_filling" : "include_crossing"},
       .verification = verification,
       .worlds = true,
       .top_probability = true},
      options);
}

void PrintTo(const Setting& setting, std::ostream* out) {
  *out << "temperature " << setting.temperature << ", top-k " << setting.top_k << ", top-p "
       << setting.top_p
       << (setting.rule == TopPRule::water_filling ? ", water filling" : ", include crossing");
}

class EverySetting : public testing::TestWithParam<Setting> {};

TEST_P(EverySetting, OutcomesAndVerifiedLengthsAreThoseOfExactEnumeration) {
  const Setting setting = GetParam();
  const TinyTrace tiny = possible_trace(7, setting);
  const Oracle oracle(tiny, setting.rule);
  ReplayOptions options;
  options.repeats = 400;
  const OutcomeTable table = reduce(tiny, setting.rule, options);
  EXPECT_EQ(table.invalid_rows, 0);
  EXPECT_EQ(table.impossible_tokens, 0);
  for (std::int64_t n = 0; n < tiny.anchors(); ++n) {
    ASSERT_EQ(table.slots[static_cast<std::size_t>(n)], oracle.slots(n));
    for (int k = 1; k <= oracle.slots(n); ++k) {
      const auto at = static_cast<std::size_t>(n * tiny.block + k - 1);
      EXPECT_NEAR(table.beta[at], oracle.beta(n, k), 2e-6) << n << " " << k;
      EXPECT_NEAR(table.alpha[at], oracle.alpha(n, k), 2e-6) << n << " " << k;
      EXPECT_NEAR(table.confidence[at], oracle.confidence(n, k, oracle.text(n, n + k - 1)), 1e-6)
          << n << " " << k;
      EXPECT_NEAR(table.top_probability[at],
                  oracle.top_probability(n, k, oracle.text(n, n + k - 1)), 1e-6)
          << n << " " << k;
    }
  }
  for (const Policy& policy :
       {Policy{Threshold{ThresholdRule::cumulative, 0.3, 0, 0}},
        Policy{Threshold{ThresholdRule::per_position, 0.5, 0, 0}}, Policy{Sps{0, 0, 0}},
        Policy{SoftmaxMin{0.55, 0}}, Policy{SoftmaxMin{0.7, 2}}}) {
    const ClosedLoop loop = closed_loop(table, policy, {});
    const std::vector<double> v = round_starts(table, policy, {});
    double want = 0, rounds = 0;
    for (std::int64_t n = 0; n < tiny.anchors(); ++n) {
      want += v[static_cast<std::size_t>(n)] * oracle.verified(n, policy);
      rounds += v[static_cast<std::size_t>(n)];
    }
    want /= rounds;
    ASSERT_TRUE(loop.verified_se.has_value());
    EXPECT_NEAR(*loop.verified, want, std::max(4 * *loop.verified_se, 1e-6)) << policy_name(policy);
    EXPECT_LT(*loop.verified_se, 0.02);
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, EverySetting,
                         testing::Values(Setting{1, 0, 1, TopPRule::water_filling},
                                         Setting{0.7, 0, 1, TopPRule::water_filling},
                                         Setting{1.5, 3, 1, TopPRule::water_filling},
                                         Setting{1, 0, 0.8, TopPRule::water_filling},
                                         Setting{1, 0, 0.8, TopPRule::include_crossing},
                                         Setting{0.9, 4, 0.7, TopPRule::include_crossing}));

TEST(Reduce, ResultsDoNotDependOnChunkOrThreads) {
  const Setting setting{1, 0, 1, TopPRule::water_filling};
  const TinyTrace tiny = possible_trace(3, setting, 37);
  ReplayOptions options;
  const OutcomeTable whole = reduce(tiny, setting.rule, options, Verification::probabilistic, 1);
  for (const std::int64_t chunk : {1, 2, 5, 12, 100}) {
    options.chunk = chunk;
    const OutcomeTable parts = reduce(tiny, setting.rule, options, Verification::probabilistic, 2);
    EXPECT_EQ(parts.beta, whole.beta) << chunk;
    EXPECT_EQ(parts.alpha, whole.alpha) << chunk;
    EXPECT_EQ(parts.agreement, whole.agreement) << chunk;
    EXPECT_TRUE(same_bits(parts.world_confidence, whole.world_confidence)) << chunk;
    EXPECT_TRUE(same_bits(parts.top_probability, whole.top_probability)) << chunk;
    EXPECT_TRUE(same_bits(parts.world_top_probability, whole.world_top_probability)) << chunk;
  }
}

TEST(Reduce, TheSeedChangesTheWorldsAndNothingElse) {
  const Setting setting{1, 0, 1, TopPRule::water_filling};
  const TinyTrace tiny = possible_trace(3, setting, 37);
  ReplayOptions options;
  const OutcomeTable one = reduce(tiny, setting.rule, options);
  options.seed = 1;
  const OutcomeTable two = reduce(tiny, setting.rule, options);
  EXPECT_EQ(one.beta, two.beta);
  EXPECT_FALSE(same_bits(one.world_confidence, two.world_confidence));
  EXPECT_TRUE(same_bits(one.top_probability, two.top_probability));
  EXPECT_FALSE(same_bits(one.world_top_probability, two.world_top_probability));
}

TEST(Reduce, GreedyFollowsTheDraftedChain) {
  TinyTrace tiny(11);
  tiny.temperature = 0;
  const Oracle oracle(tiny, TopPRule::water_filling);
  // Make the text greedy.
  for (std::size_t s = 0; s + 1 < tiny.offsets.size(); ++s) {
    for (std::int64_t n = tiny.offsets[s]; n < tiny.offsets[s + 1]; ++n) {
      const float* row = tiny.target_logits.data() + n * tiny.vocab;
      const auto best = static_cast<std::int32_t>(std::max_element(row, row + tiny.vocab) - row);
      (n + 1 < tiny.offsets[s + 1] ? tiny.tokens[static_cast<std::size_t>(n + 1)]
                                   : tiny.last_tokens[s]) = best;
    }
  }
  const OutcomeTable table = reduce(tiny, TopPRule::water_filling, {}, Verification::greedy);
  EXPECT_EQ(table.impossible_tokens, 0);
  int accepted = 0;
  for (std::int64_t n = 0; n < tiny.anchors(); ++n) {
    std::int32_t previous = oracle.text(n, n);
    bool on_text = true;
    for (int k = 1; k <= oracle.slots(n); ++k) {
      const auto at = static_cast<std::size_t>(n * tiny.block + k - 1);
      EXPECT_NEAR(table.confidence[at], oracle.confidence(n, k, previous), 1e-6);
      // The first of the largest, and its share of the plain softmax.
      const std::vector<double> logits = oracle.draft_logits(n, k, previous);
      const auto best = std::max_element(logits.begin(), logits.end());
      const auto draft = static_cast<std::int32_t>(best - logits.begin());
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit - *best);
      EXPECT_NEAR(table.top_probability[at], 1 / sum, 1e-6) << n << " " << k;
      on_text = on_text && draft == oracle.text(n, n + k);
      EXPECT_EQ(table.beta[at], on_text ? 1.0 : 0.0) << n << " " << k;
      accepted += on_text;
      previous = draft;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_TRUE(table.world_top_probability.empty());
}

TEST(Reduce, ABlockIsCutBeforeItsFirstInvalidRow) {
  const Setting setting{1, 0, 1, TopPRule::water_filling};
  TinyTrace tiny = possible_trace(7, setting);
  const auto v = static_cast<std::size_t>(tiny.vocab);
  tiny.draft_logits[(2 * 3 + 1) * v] = std::numeric_limits<float>::quiet_NaN();  // anchor 2, slot 2
  tiny.target_logits[5 * v + 1] =
      std::numeric_limits<float>::infinity();  // position 5: slots of anchors 3, 4, 5
  std::string notice;
  ReplayOptions options;
  options.note = [&](const std::string& line) { notice = line; };
  const OutcomeTable table = reduce(tiny, setting.rule, options);
  EXPECT_EQ(table.slots[2], 1);
  EXPECT_EQ(table.slots[3], 2);
  EXPECT_EQ(table.slots[4], 1);
  EXPECT_EQ(table.slots[5], 0);
  EXPECT_EQ(table.slots[6], 1);
  EXPECT_EQ(table.invalid_rows, 2);
  EXPECT_NE(notice.find("draft_logits[2, 1] has NaN"), std::string::npos) << notice;
  for (const std::int64_t chunk : {1, 4}) {
    options.chunk = chunk;
    EXPECT_EQ(reduce(tiny, setting.rule, options).invalid_rows, 2)
        << "counted once, whatever the chunk";
  }
}

TEST(Reduce, AnInvalidDraftRowSaysNothingOfTheRecordedToken) {
  for (const Verification verification : {Verification::probabilistic, Verification::greedy}) {
    const Setting setting{1, 0, 1, TopPRule::water_filling};
    TinyTrace tiny = possible_trace(7, setting);
    for (std::size_t s = 0; s + 1 < tiny.offsets.size(); ++s) {  // a text that is greedy too
      for (std::int64_t n = tiny.offsets[s]; n < tiny.offsets[s + 1]; ++n) {
        const float* row = tiny.target_logits.data() + n * tiny.vocab;
        (n + 1 < tiny.offsets[s + 1] ? tiny.tokens[static_cast<std::size_t>(n + 1)]
                                     : tiny.last_tokens[s]) =
            static_cast<std::int32_t>(std::max_element(row, row + tiny.vocab) - row);
      }
    }
    tiny.draft_logits[0] = std::numeric_limits<float>::quiet_NaN();  // the first row that is read
    const OutcomeTable table = reduce(tiny, setting.rule, {}, verification);
    EXPECT_EQ(table.slots[0], 0);
    EXPECT_EQ(table.invalid_rows, 1);
    EXPECT_EQ(table.impossible_tokens, 0);
  }
}

TEST(Reduce, MaskedTokensAreNoInvalidRow) {
  const Setting setting{1, 0, 1, TopPRule::water_filling};
  TinyTrace tiny = possible_trace(7, setting);
  for (std::int64_t n = 0; n < tiny.anchors() * tiny.block; ++n) {
    const auto row = static_cast<std::size_t>(n * tiny.vocab);
    tiny.draft_logits[row + static_cast<std::size_t>(n % tiny.vocab)] =
        -std::numeric_limits<float>::infinity();
  }
  EXPECT_EQ(reduce(tiny, setting.rule, {}).invalid_rows, 0);
}

TEST(Reduce, ATokenThatTheTargetCannotDrawIsImpossible) {
  TinyTrace tiny(7);
  tiny.top_k = 1;
  const Oracle oracle(tiny, TopPRule::water_filling);
  std::int64_t impossible = 0;
  for (std::int64_t n = 0; n < tiny.anchors(); ++n) {
    impossible += oracle.target(n)[static_cast<std::size_t>(oracle.text(n, n + 1))] == 0;
  }
  ASSERT_GT(impossible, 0);
  const OutcomeTable table = reduce(tiny, TopPRule::water_filling, {});
  EXPECT_EQ(table.impossible_tokens, impossible);
}

TEST(Reduce, NothingToReplayIsABadTrace) {
  TinyTrace tiny(7);
  for (float& logit : tiny.target_logits) logit = std::numeric_limits<float>::quiet_NaN();
  try {
    (void)reduce(tiny, TopPRule::water_filling, {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::trace);
    EXPECT_NE(std::string(error.what()).find("target_logits"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace dspark
