// The closed loop, the worlds and the accept function against speculative decoding itself, played
// out in full on a model of four tokens.
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "backends/cpu/cpu_backend.h"
#include "core/random.h"
#include "replay/closed_loop.h"
#include "replay/open_loop.h"
#include "replay/reduce.h"
#include "tests/replay/toy_model.h"
#include "tests/support/temporary_folder.h"

namespace dspark {
namespace {

using Text = ToyModel::Text;

/// Joint law of the emitted text and the rounds that emit it: per text and position, the
/// probability of that text with a round that starts there, and the expected drafts verified by it.
struct Played {
  struct Round {
    double started = 0;
    double verified = 0;
  };
  std::map<Text, double> texts;
  std::map<std::pair<Text, std::int64_t>, Round> rounds;
};

/// Plays speculative decoding with every draft, accept decision, correction and bonus token.
class Engine {
 public:
  Engine(const ToySetting& setting, const Policy& policy) : setting_(setting), policy_(policy) {}

  Played play() {
    step({0}, {}, 1.0);
    return std::move(played_);
  }

 private:
  using History = std::vector<std::pair<std::int64_t, std::int32_t>>;  // start, drafts verified

  void step(const Text& text, const History& history, double weight) {
    if (weight == 0) return;
    const auto emitted = static_cast<std::int64_t>(text.size()) - 1;
    const std::int64_t left = ToyModel::kTokens - emitted;
    if (left == 0) {
      played_.texts[text] += weight;
      for (const auto& [start, verified] : history) {
        Played::Round& round = played_.rounds[{text, start}];
        round.started += weight;
        round.verified += weight * verified;
      }
      return;
    }
    const auto slots = static_cast<int>(std::min<std::int64_t>(ToyModel::kBlock, left));
    draft(text, history, weight, slots, {}, {});
  }

  void draft(const Text& text, const History& history, double weight, int slots,
             const std::vector<std::int32_t>& drafts, std::vector<float> confidence) {
    if (weight == 0) return;
    const std::int32_t anchor = text.back();
    if (static_cast<int>(drafts.size()) == slots) {
      const std::int64_t left = ToyModel::kTokens - static_cast<std::int64_t>(text.size()) + 1;
      const auto length = static_cast<std::int32_t>(std::min<std::int64_t>(
          scheduled_length(policy_, confidence.data(), slots, {}), left - 1));
      History longer = history;
      longer.emplace_back(static_cast<std::int64_t>(text.size()) - 1, length);
      verify(text, longer, weight, drafts, length, 0, anchor);
      return;
    }
    const auto slot = static_cast<int>(drafts.size()) + 1;
    const std::int32_t previous = drafts.empty() ? anchor : drafts.back();
    confidence.push_back(ToyModel::seen(policy_, setting_, anchor, slot, previous));
    const Law q = ToyModel::draft(setting_, anchor, slot, previous);
    for (std::int32_t v = 0; v < ToyModel::kVocab; ++v) {
      std::vector<std::int32_t> longer = drafts;
      longer.push_back(v);
      draft(text, history, weight * q[static_cast<std::size_t>(v)], slots, longer, confidence);
    }
  }

  void verify(const Text& text, const History& history, double weight,
              const std::vector<std::int32_t>& drafts, std::int32_t length, std::int32_t accepted,
              std::int32_t anchor) {
    const Law p = ToyModel::target(setting_, text.back());
    Law correction = p;
    if (accepted < length) {
      const auto slot = static_cast<std::size_t>(accepted);
      const Law q = ToyModel::draft(setting_, anchor, accepted + 1,
                                    accepted == 0 ? anchor : drafts[slot - 1]);
      const auto x = static_cast<std::size_t>(drafts[slot]);
      const double accept = std::min(1.0, p[x] / q[x]);
      Text longer = text;
      longer.push_back(drafts[slot]);
      if (accept > 0)
        verify(longer, history, weight * accept, drafts, length, accepted + 1, anchor);
      weight *= 1 - accept;
      double sum = 0;
      for (std::size_t v = 0; v < p.size(); ++v) sum += correction[v] = std::max(0.0, p[v] - q[v]);
      if (weight == 0 || sum == 0) return;
      for (double& c : correction) c /= sum;
    }
    for (std::int32_t v = 0; v < ToyModel::kVocab; ++v) {
      Text longer = text;
      longer.push_back(v);
      step(longer, history, weight * correction[static_cast<std::size_t>(v)]);
    }
  }

  ToySetting setting_;
  Policy policy_;
  Played played_;
};

OutcomeTable reduce(const ToySetting& setting, const std::vector<Text>& texts) {
  const test::TemporaryFolder folder;
  ToyModel::trace(setting, texts).write(folder.file("t.h5"));
  const std::unique_ptr<TraceFile> trace = TraceFile::open(folder.file("t.h5"));
  const Heads heads = load_heads(*trace, "", 0);
  const std::unique_ptr<Backend> backend = make_cpu_backend(2);
  SamplingLabel label{setting.temperature, setting.top_k, 1, "water_filling"};
  label.drafts = setting.greedy_drafts ? "greedy" : "sampled";
  ReplayOptions options;
  options.repeats = 400;
  return reduce_anchors(*backend, *trace, heads,
                        {.sampling = label, .worlds = true, .top_probability = true}, options);
}

struct Case {
  const char* name;
  ToySetting setting;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Enumeration : public testing::TestWithParam<Case> {};

const std::vector<Policy> kPolicies = {
    NoSpeculation{},
    FixedLength{1},
    FixedLength{2},
    Threshold{ThresholdRule::cumulative, 0.45, 0, 0},
    Threshold{ThresholdRule::per_position, 0.6, 0, 0},
    Sps{0, 0, 0},
    SoftmaxMin{0.42, 0},
    SoftmaxMin{0.51, 0},
    SoftmaxMin{0.4, 1},
};

TEST_P(Enumeration, TextsRoundsAndVerifiedDraftsAreThoseOfTheEngine) {
  const ToySetting setting = GetParam().setting;
  const std::vector<Text> texts = ToyModel::texts();
  const OutcomeTable table = reduce(setting, texts);
  for (const Policy& policy : kPolicies) {
    SCOPED_TRACE(policy_name(policy));
    const Played played = Engine(setting, policy).play();
    const std::vector<double> v = round_starts(table, policy, {});
    double rounds = 0, played_rounds = 0, verified = 0, played_verified = 0, variance = 0;
    for (std::size_t s = 0; s < texts.size(); ++s) {
      const double p = ToyModel::probability(setting, texts[s]);
      ASSERT_TRUE(played.texts.contains(texts[s]));
      EXPECT_NEAR(played.texts.at(texts[s]), p, 1e-12) << "the engine draws from the target";
      for (std::int64_t n = 0; n < ToyModel::kTokens; ++n) {
        const auto round = played.rounds.find({texts[s], n});
        const Played::Round want = round == played.rounds.end() ? Played::Round{} : round->second;
        const double started = p * v[static_cast<std::size_t>(table.sequence_offsets[s] + n)];
        EXPECT_NEAR(started, want.started, 2e-7) << "text " << s << ", position " << n;
        rounds += started;
        played_rounds += want.started;
        played_verified += want.verified;
      }
      const ClosedLoop loop = closed_loop(only_sequence(table, s), policy, {});
      verified += p * loop.rounds * loop.verified.value();
      const double error = p * loop.rounds * loop.verified_se.value_or(0);
      variance += error * error;
    }
    EXPECT_NEAR(ToyModel::kTokens / rounds, ToyModel::kTokens / played_rounds, 1e-6) << "tau";
    EXPECT_NEAR(verified, played_verified, std::max(4 * std::sqrt(variance), 1e-6));
    EXPECT_LT(std::sqrt(variance), 0.005);
  }
}

TEST_P(Enumeration, SurvivalIsThatOfTheEngine) {
  const ToySetting setting = GetParam().setting;
  const std::vector<Text> texts = ToyModel::texts();
  const OutcomeTable table = reduce(setting, texts);
  // P(the first k drafts are accepted) of a block that starts at token `anchor`.
  const auto survival = [&](std::int32_t anchor) {
    std::array<double, 2> out{};
    const Law p1 = ToyModel::target(setting, anchor);
    const Law q1 = ToyModel::draft(setting, anchor, 1, anchor);
    for (std::int32_t x = 0; x < ToyModel::kVocab; ++x) {
      const auto at = static_cast<std::size_t>(x);
      const double accepted = std::min(p1[at], q1[at]);
      out[0] += accepted;
      const Law p2 = ToyModel::target(setting, x);
      const Law q2 = ToyModel::draft(setting, anchor, 2, x);
      for (std::size_t y = 0; y < p2.size(); ++y) out[1] += accepted * std::min(p2[y], q2[y]);
    }
    return out;
  };
  std::array<double, 2> want = survival(0), got{};
  const Law second = ToyModel::target(setting, 0);
  for (std::int32_t y = 0; y < ToyModel::kVocab; ++y) {
    for (std::size_t k = 0; k < 2; ++k)
      want[k] += second[static_cast<std::size_t>(y)] * survival(y)[k];
  }
  for (std::size_t s = 0; s < texts.size(); ++s) {
    if (ToyModel::probability(setting, texts[s]) == 0) continue;
    const auto positions = open_loop(only_sequence(table, s));
    for (std::size_t k = 0; k < 2; ++k) {
      got[k] += 2 * ToyModel::probability(setting, texts[s]) * positions[k].survival.value();
    }
  }
  for (std::size_t k = 0; k < 2; ++k) EXPECT_NEAR(got[k], want[k], 1e-6) << "position " << k + 1;
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Enumeration,
    testing::Values(Case{"temperature_1", {}}, Case{"temperature_07", {.temperature = 0.7}},
                    Case{"greedy_drafts", {.greedy_drafts = true}},
                    Case{"warm_greedy_drafts", {.temperature = 1.5, .greedy_drafts = true}}),
    [](const auto& instance) { return std::string(instance.param.name); });

double chi_square(const std::array<double, 4>& count, const std::array<float, 4>& law) {
  const double total = std::accumulate(count.begin(), count.end(), 0.0);
  double sum = 0;
  for (std::size_t v = 0; v < 4; ++v) {
    const double expected = total * static_cast<double>(law[v]);
    sum += (count[v] - expected) * (count[v] - expected) / expected;
  }
  return sum;
}

TEST(ProbabilisticAccept, EmitsTokensOfTheTargetsDistribution) {
  constexpr std::int32_t kBatch = 20000, kLength = 2, kVocab = 4;
  const std::array<std::array<float, 4>, 3> p = {{{0.125f, 0.5f, 0.25f, 0.125f},
                                                  {0.375f, 0.125f, 0.0625f, 0.4375f},
                                                  {0.25f, 0.125f, 0.5f, 0.125f}}};
  const std::array<std::array<float, 4>, 2> q = {
      {{0.25f, 0.125f, 0.5f, 0.125f}, {0.5f, 0.25f, 0.125f, 0.125f}}};
  std::vector<float> target, draft, uniforms;
  std::vector<std::int32_t> tokens, lengths(kBatch, kLength);
  const auto uniform = [](std::int32_t row, std::uint32_t slot, RandomPurpose purpose) {
    return static_cast<float>(random_uniform({.seed = 5,
                                              .position = static_cast<std::uint32_t>(row),
                                              .slot = slot,
                                              .purpose = purpose}) >>
                              40) *
           0x1p-24f;
  };
  for (std::int32_t b = 0; b < kBatch; ++b) {
    for (const auto& row : p) target.insert(target.end(), row.begin(), row.end());
    for (std::size_t slot = 0; slot < q.size(); ++slot) {
      draft.insert(draft.end(), q[slot].begin(), q[slot].end());
      float left = uniform(b, static_cast<std::uint32_t>(slot), RandomPurpose::draft);
      std::int32_t x = 0;
      while (x + 1 < kVocab && left >= q[slot][static_cast<std::size_t>(x)]) {
        left -= q[slot][static_cast<std::size_t>(x++)];
      }
      tokens.push_back(x);
    }
    for (std::uint32_t u = 0; u < 2 * kLength + 1; ++u) {
      uniforms.push_back(uniform(b, u, RandomPurpose::accept));
    }
  }
  std::vector<std::int32_t> accepted(static_cast<std::size_t>(kBatch * (kLength + 1)));
  std::vector<std::int32_t> emitted(kBatch);
  const std::unique_ptr<Backend> backend = make_cpu_backend(2);
  const Buffer scratch = backend->allocate(row_scan_scratch(kBatch, kVocab));
  backend->probabilistic_accept(
      {.batch = kBatch,
       .length = kLength,
       .draft_stride = kLength,
       .target = {target.data(), std::int64_t{kBatch} * (kLength + 1), kVocab, kVocab},
       .draft = {draft.data(), std::int64_t{kBatch} * kLength, kVocab, kVocab},
       .tokens = tokens.data(),
       .lengths = lengths.data(),
       .uniforms = uniforms.data(),
       .accepted = accepted.data(),
       .accept_length = emitted.data(),
       .scratch = {scratch.data(), scratch.bytes()}});
  backend->synchronize();
  std::array<std::array<double, 4>, 3> count{};
  for (std::size_t b = 0; b < kBatch; ++b) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(emitted[b]); ++i) {
      count[i][static_cast<std::size_t>(accepted[b * (kLength + 1) + i])] += 1;
    }
  }
  // Three degrees of freedom: 16.27 is exceeded once in a thousand seeds.
  for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(chi_square(count[i], p[i]), 16.27) << i;
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_GT(chi_square(count[i], q[i]), 100)
        << "the test tells the draft's law from the target's";
  }
}

}  // namespace
}  // namespace dspark
