#include "synth/synth.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "core/law.h"
#include "core/random.h"
#include "support/error.h"
#include "tests/support/temporary_folder.h"
#include "trace/trace.h"

namespace dspark {
namespace {

/// A folder of its own for each test; gone afterwards.
class Synth : public testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name = "trace.h5") const {
    return folder_.file(name);
  }
  std::string make(const SynthOptions& options, const std::string& name = "trace.h5") {
    write_synthetic_trace(*backend_, options, path(name));
    return path(name);
  }

  test::TemporaryFolder folder_;
  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
};

SynthOptions small_anchors() {
  SynthOptions options;
  options.sequences = 3;
  options.length = 100;
  options.vocab_size = 203;
  options.hidden_size = 40;
  options.markov_rank = 8;
  options.block_size = 4;
  options.acceptance = {0.9, 0.7, 0.4, 0.15};
  options.seed = 11;
  return options;
}

SynthOptions small_rounds() {
  SynthOptions options = small_anchors();
  options.kind = TraceKind::rounds;
  options.sequences = 40;
  options.length = 15;
  return options;
}

std::vector<float> widen(DType type, const void* data, std::size_t count) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = type == DType::f16    ? to_float(static_cast<const Float16*>(data)[i])
             : type == DType::bf16 ? to_float(static_cast<const BFloat16*>(data)[i])
                                   : static_cast<const float*>(data)[i];
  }
  return out;
}

std::vector<float> widen(const HostMatrix& matrix) {
  return widen(matrix.type, matrix.bytes.data(),
               static_cast<std::size_t>(matrix.rows * matrix.cols));
}

/// A whole trace in memory, with logits wherever they come from.
struct Loaded {
  std::unique_ptr<TraceFile> file;
  Heads heads;
  AnchorTokens anchors;
  RoundRecords rounds;
  std::int64_t vocab = 0, hidden = 0, rank = 0, block = 0, blocks = 0;
  std::vector<float> draft_hidden, target_hidden, draft, target;  // the last two: logits
  std::vector<float> w1, w2, lm_head;

  std::vector<float> read(RowData data) const {
    const auto info = file->row_data(data);
    if (!info) return {};
    const auto count = static_cast<std::size_t>(info->blocks * info->rows_per_block * info->width);
    std::vector<std::byte> bytes(count * size_of(info->type));
    file->read(data, 0, info->blocks, bytes.data());
    return widen(info->type, bytes.data(), count);
  }

  std::vector<float> project(const std::vector<float>& states) const {
    const auto rows = static_cast<std::int64_t>(states.size()) / hidden;
    std::vector<float> out(static_cast<std::size_t>(rows * vocab));
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t v = 0; v < vocab; ++v) {
        double sum = 0;
        for (std::int64_t j = 0; j < hidden; ++j) {
          sum += double(states[static_cast<std::size_t>(i * hidden + j)]) *
                 double(lm_head[static_cast<std::size_t>(v * hidden + j)]);
        }
        out[static_cast<std::size_t>(i * vocab + v)] = static_cast<float>(sum);
      }
    }
    return out;
  }

  explicit Loaded(const std::string& path) : file(TraceFile::open(path)) {
    heads = load_heads(*file, "", std::uint64_t{1} << 30);
    const TraceHeader& header = file->header();
    vocab = header.vocab_size;
    block = header.block_size;
    blocks = file->blocks();
    hidden = std::max(header.hidden_size, header.target_hidden_size);
    rank = heads.markov_w1.cols;
    w1 = widen(heads.markov_w1);
    w2 = widen(heads.markov_w2);
    lm_head = widen(heads.lm_head);
    draft_hidden = read(RowData::draft_hidden);
    target_hidden = read(RowData::target_hidden);
    draft = read(RowData::draft_logits);
    target = read(RowData::target_logits);
    if (draft.empty()) draft = project(draft_hidden);
    if (target.empty()) target = project(target_hidden);
    if (header.kind == TraceKind::anchors) {
      anchors = file->read_anchor_tokens(std::uint64_t{1} << 30);
    } else {
      rounds = file->read_round_records(std::uint64_t{1} << 30);
    }
  }

  /// Draft logits of slot k (1-based) of a block after `previous`.
  std::vector<double> draft_row(std::int64_t block_index, std::int64_t k,
                                std::int32_t previous) const {
    std::vector<double> row(static_cast<std::size_t>(vocab));
    const auto first = static_cast<std::size_t>((block_index * block + k - 1) * vocab);
    for (std::int64_t v = 0; v < vocab; ++v) {
      double sum = double(draft[first + static_cast<std::size_t>(v)]);
      for (std::int64_t r = 0; r < rank; ++r) {
        sum += double(w1[static_cast<std::size_t>(previous * rank + r)]) *
               double(w2[static_cast<std::size_t>(v * rank + r)]);
      }
      row[static_cast<std::size_t>(v)] = sum;
    }
    return row;
  }
  std::vector<double> target_row(std::int64_t row) const {
    const auto first = target.begin() + row * vocab;
    return {first, first + vocab};
  }
};

std::vector<double> softmax(const std::vector<double>& logits, double temperature) {
  const double best = *std::max_element(logits.begin(), logits.end());
  std::vector<double> out;
  double total = 0;
  for (const double logit : logits) {
    out.push_back(std::exp((logit - best) / temperature));
    total += out.back();
  }
  for (double& p : out) p /= total;
  return out;
}

std::int32_t argmax(const std::vector<double>& row) {
  return static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

/// The overlap Σ min(p, q) of two rows in float64, without filters.
double overlap(const std::vector<double>& target, const std::vector<double>& draft,
               double temperature) {
  const std::vector<double> p = softmax(target, temperature);
  const std::vector<double> q = softmax(draft, temperature);
  double sum = 0;
  for (std::size_t v = 0; v < p.size(); ++v) sum += std::min(p[v], q[v]);
  return sum;
}

/// Calls use(block, slot, target row, previous token, recorded token) for every slot that the
/// recorded text reaches.
void for_each_slot(const Loaded& trace,
                   const std::function<void(std::int64_t, std::int64_t, std::int64_t, std::int32_t,
                                            std::int32_t)>& use) {
  const auto& offsets = trace.anchors.sequence_offsets;
  for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
    const auto token = [&](std::int64_t n) {
      return n < offsets[s + 1] ? trace.anchors.tokens[static_cast<std::size_t>(n)]
                                : trace.anchors.last_tokens[s];
    };
    for (std::int64_t n = offsets[s]; n < offsets[s + 1]; ++n) {
      for (std::int64_t k = 1; k <= trace.block && n + k <= offsets[s + 1]; ++k) {
        use(n, k, n + k - 1, token(n + k - 1), token(n + k));
      }
    }
  }
}

struct Mean {
  double count = 0, sum = 0, squares = 0;
  void add(double x) {
    ++count;
    sum += x;
    squares += x * x;
  }
  [[nodiscard]] double value() const { return sum / count; }
  [[nodiscard]] double error() const {
    return std::sqrt(std::max(0.0, squares / count - value() * value()) / count);
  }
};

TEST_F(Synth, TraceSaysWhatItIs) {
  SynthOptions options = small_anchors();
  options.temperature = 0.7;
  options.top_k = 50;
  options.top_p = 0.9;
  const auto trace = TraceFile::open(make(options));
  const TraceHeader& header = trace->header();
  EXPECT_EQ(header.kind, TraceKind::anchors);
  EXPECT_EQ(header.vocab_size, 203);
  EXPECT_EQ(header.hidden_size, 40);
  EXPECT_EQ(header.target_hidden_size, 40);
  EXPECT_EQ(header.block_size, 4);
  EXPECT_EQ(header.temperature, 0.7);
  EXPECT_EQ(header.top_k, 50);
  EXPECT_EQ(header.top_p, 0.9);
  EXPECT_EQ(header.seed, 11);
  EXPECT_TRUE(header.has_heads);
  EXPECT_EQ(trace->blocks(), 300);
  const AnchorTokens tokens = trace->read_anchor_tokens(1 << 20);
  EXPECT_EQ(tokens.sequence_offsets, (std::vector<std::int64_t>{0, 100, 200, 300}));
  EXPECT_EQ(tokens.last_tokens.size(), 3u);
}

TEST_F(Synth, EveryRowHasItsAcceptanceExactlyWithoutSpread) {
  for (const double temperature : {1.0, 0.7, 0.1, 4.0}) {
    SynthOptions options = small_anchors();
    options.temperature = temperature;
    options.spread = 0;
    options.length = 12;
    options.acceptance = {1, 0.7, 0.2, 0};
    const Loaded trace(make(options));
    for_each_slot(trace, [&](auto n, auto k, auto row, auto previous, auto) {
      EXPECT_NEAR(overlap(trace.target_row(row), trace.draft_row(n, k, previous), temperature),
                  options.acceptance[static_cast<std::size_t>(k - 1)], 2e-5 / temperature)
          << "T " << temperature << " block " << n << " slot " << k;
    });
  }
}

TEST_F(Synth, MeanAcceptanceIsTheProfile) {
  for (const double temperature : {1.0, 0.7}) {
    SynthOptions options = small_anchors();
    options.temperature = temperature;
    const Loaded trace(make(options));
    std::vector<Mean> alpha(4);
    for_each_slot(trace, [&](auto n, auto k, auto row, auto previous, auto) {
      alpha[static_cast<std::size_t>(k - 1)].add(
          overlap(trace.target_row(row), trace.draft_row(n, k, previous), temperature));
    });
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_NEAR(alpha[k].value(), options.acceptance[k], 4 * alpha[k].error());
      // Spread evenly over a ± 0.6 min(a, 1 - a).
      const double width = 0.6 * std::min(options.acceptance[k], 1 - options.acceptance[k]);
      EXPECT_NEAR(alpha[k].error() * std::sqrt(alpha[k].count), width / std::sqrt(3.0),
                  0.15 * width);
    }
  }
}

TEST_F(Synth, LastValueOfTheProfileServesTheSlotsLeft) {
  SynthOptions options = small_anchors();
  options.spread = 0;
  options.length = 8;
  options.acceptance = {0.9, 0.3};
  const Loaded trace(make(options));
  for_each_slot(trace, [&](auto n, auto k, auto row, auto previous, auto) {
    EXPECT_NEAR(overlap(trace.target_row(row), trace.draft_row(n, k, previous), 1.0),
                k == 1 ? 0.9 : 0.3, 1e-4);
  });
}

TEST_F(Synth, RecordedTokensAreDrawnFromTheTarget) {
  SynthOptions options = small_anchors();
  options.temperature = 0.7;
  options.length = 400;
  const Loaded trace(make(options));
  Mean likelihood;  // E[ln p(y)] + entropy = 0
  Mean best;        // Pr(y = argmax) - max p = 0
  for_each_slot(trace, [&](auto, auto k, auto row, auto, auto token) {
    if (k != 1) return;
    const std::vector<double> p = softmax(trace.target_row(row), 0.7);
    double entropy = 0;
    for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
    const auto y = static_cast<std::size_t>(token);
    ASSERT_GT(p[y], 0x1p-42);
    likelihood.add(std::log(p[y]) + entropy);
    best.add((token == argmax(p) ? 1.0 : 0.0) - *std::max_element(p.begin(), p.end()));
  });
  EXPECT_NEAR(likelihood.value(), 0, 4 * likelihood.error());
  EXPECT_NEAR(best.value(), 0, 4 * best.error());
}

TEST_F(Synth, GreedyBlocksAgreeWithTheProfileAndNothingIsClose) {
  for (const StoredRows store : {StoredRows::hidden, StoredRows::logits}) {
    for (const StoredType type : {StoredType::f16, StoredType::bf16}) {
      SynthOptions options = small_anchors();
      options.temperature = 0;
      options.length = 150;
      options.store = store;
      options.type = type;
      const Loaded trace(make(options));
      std::vector<Mean> agree(4);
      double margin = 1000;
      const auto lead = [](std::vector<double> row) {
        std::partial_sort(row.begin(), row.begin() + 2, row.end(), std::greater<>());
        return row[0] - row[1];
      };
      for_each_slot(trace, [&](auto n, auto k, auto row, auto previous, auto token) {
        const std::vector<double> target = trace.target_row(row);
        const std::vector<double> draft = trace.draft_row(n, k, previous);
        EXPECT_EQ(argmax(target), token);
        margin = std::min({margin, lead(target), lead(draft)});
        agree[static_cast<std::size_t>(k - 1)].add(argmax(draft) == token ? 1.0 : 0.0);
      });
      EXPECT_GT(margin, 1e-2);
      for (std::size_t k = 0; k < 4; ++k) {
        const double a = options.acceptance[k];
        EXPECT_NEAR(agree[k].value(), a, 4 * std::sqrt(a * (1 - a) / agree[k].count));
      }
    }
  }
}

TEST_F(Synth, GreedyProfileOfOnesAndZerosHoldsInEverySlot) {
  SynthOptions options = small_anchors();
  options.temperature = 0;
  options.length = 20;
  options.acceptance = {1, 0, 1, 0};
  const Loaded trace(make(options));
  for_each_slot(trace, [&](auto n, auto k, auto, auto previous, auto token) {
    EXPECT_EQ(argmax(trace.draft_row(n, k, previous)) == token, k % 2 == 1);
  });
}

TEST_F(Synth, MarkovHeadMatters) {
  const SynthOptions options = small_anchors();
  const Loaded trace(make(options));
  Mean right;
  Mean wrong;
  for_each_slot(trace, [&](auto n, auto k, auto row, auto previous, auto) {
    if (k != 1) return;
    const std::vector<double> target = trace.target_row(row);
    right.add(overlap(target, trace.draft_row(n, k, previous), 1));
    wrong.add(overlap(target, trace.draft_row(n, k, (previous + 1) % 203), 1));
  });
  EXPECT_LT(wrong.value(), right.value() - 0.2);
}

TEST_F(Synth, ConfidencesFollowTheAcceptanceOfTheirRows) {
  for (const double temperature : {1.0, 0.0}) {
    SynthOptions options = small_anchors();
    options.temperature = temperature;
    const Loaded trace(make(options));
    ASSERT_TRUE(trace.heads.confidence_with_markov);
    std::vector<Mean> confidence(4), accepted(4);
    double above = 0, below = 0, above_count = 0, below_count = 0;
    for_each_slot(trace, [&](auto n, auto k, auto row, auto previous, auto) {
      double logit = double(trace.heads.confidence_bias);
      for (std::int64_t j = 0; j < trace.hidden; ++j) {
        logit += double(trace.heads.confidence_weight[static_cast<std::size_t>(j)]) *
                 double(trace.draft_hidden[static_cast<std::size_t>(
                     (n * trace.block + k - 1) * trace.hidden + j)]);
      }
      for (std::int64_t r = 0; r < trace.rank; ++r) {
        logit += double(trace.heads.confidence_weight[static_cast<std::size_t>(trace.hidden + r)]) *
                 double(trace.w1[static_cast<std::size_t>(previous * trace.rank + r)]);
      }
      const double c = 1 / (1 + std::exp(-logit));
      const double label =
          temperature == 0.0
              ? double(argmax(trace.draft_row(n, k, previous)) == argmax(trace.target_row(row)))
              : overlap(trace.target_row(row), trace.draft_row(n, k, previous), temperature);
      confidence[static_cast<std::size_t>(k - 1)].add(c);
      accepted[static_cast<std::size_t>(k - 1)].add(label);
      if (k == 2) {  // within one slot, where the profile itself says nothing
        (c > options.acceptance[1] ? above : below) += label;
        ++(c > options.acceptance[1] ? above_count : below_count);
      }
    });
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_NEAR(confidence[k].value(), accepted[k].value(), 0.05 + 4 * accepted[k].error());
    }
    EXPECT_GT(above / above_count, below / below_count + 0.08) << "T " << temperature;
  }
}

/// α of slot k of all blocks by the backend's own laws, filters included.
std::vector<Mean> measure_by_backend(Backend& backend, const Loaded& trace) {
  const TraceHeader& header = trace.file->header();
  const SamplingRule rule = make_sampling_rule(header.temperature, header.top_k, header.top_p,
                                               TopPRule::water_filling, header.vocab_size);
  const auto vocab = static_cast<std::int32_t>(trace.vocab);
  std::vector<float> target, draft;
  std::vector<RowPair> pairs;
  std::vector<std::size_t> slots;
  for_each_slot(trace, [&](auto n, auto k, auto row, auto previous, auto token) {
    const auto t = trace.target_row(row);
    const auto d = trace.draft_row(n, k, previous);
    target.insert(target.end(), t.begin(), t.end());
    draft.insert(draft.end(), d.begin(), d.end());
    const auto i = static_cast<std::int32_t>(pairs.size());
    pairs.push_back({i, i, token});
    slots.push_back(static_cast<std::size_t>(k - 1));
  });
  const auto count = static_cast<std::int64_t>(pairs.size());
  const auto put = [&](const auto& values) {
    Buffer buffer = backend.allocate(values.size() * sizeof values[0]);
    backend.upload(buffer.data(), values.data(), values.size() * sizeof values[0]);
    return buffer;
  };
  const Buffer target_buffer = put(target), draft_buffer = put(draft), pair_buffer = put(pairs);
  const Buffer laws = backend.allocate(pairs.size() * 2 * sizeof(RowLaw));
  const Buffer out = backend.allocate(pairs.size() * sizeof(PairOutcome));
  const Rows p{static_cast<float*>(target_buffer.data()), count, vocab, vocab};
  const Rows q{static_cast<float*>(draft_buffer.data()), count, vocab, vocab};
  const auto p_laws = static_cast<RowLaw*>(laws.data());
  backend.row_laws({p, rule, {p_laws, count}});
  backend.row_laws({q, rule, {p_laws + count, count}});
  backend.compare_pairs({p,
                         {p_laws, count},
                         q,
                         {p_laws + count, count},
                         pair_buffer.as<const RowPair>(count),
                         out.as<PairOutcome>(count)});
  std::vector<PairOutcome> outcomes(pairs.size());
  backend.download(outcomes.data(), out.data(), outcomes.size() * sizeof outcomes[0]);
  std::vector<Mean> means(static_cast<std::size_t>(trace.block));
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    EXPECT_EQ(outcomes[i].valid, 1u);
    EXPECT_GT(outcomes[i].target_token, 0u) << "an impossible token";
    means[slots[i]].add(double(outcomes[i].alpha) / double(kUnitProbability));
  }
  return means;
}

TEST_F(Synth, ProfileHoldsUnderTopKAndTopP) {
  struct Filter {
    std::int64_t top_k;
    double top_p;
  };
  for (const auto& [top_k, top_p] :
       {Filter{5, 1}, Filter{40, 1}, Filter{0, 0.9}, Filter{20, 0.8}, Filter{1, 1}}) {
    SynthOptions options = small_anchors();
    options.top_k = top_k;
    options.top_p = top_p;
    options.temperature = 0.8;
    const Loaded trace(make(options));
    const std::vector<Mean> alpha = measure_by_backend(*backend_, trace);
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_NEAR(alpha[k].value(), options.acceptance[k], 4 * alpha[k].error())
          << "top_k " << top_k << " top_p " << top_p << " slot " << k + 1;
    }
  }
}

TEST_F(Synth, EveryStoredTypeAndFormHoldsTheProfile) {
  for (const StoredType type :
       {StoredType::f16, StoredType::bf16, StoredType::f32, StoredType::f64}) {
    for (const StoredRows store : {StoredRows::hidden, StoredRows::logits, StoredRows::both}) {
      SynthOptions options = small_anchors();
      options.spread = 0;
      options.length = 30;
      options.type = type;
      options.store = store;
      const Loaded trace(make(options));
      EXPECT_EQ(trace.file->row_data(RowData::target_hidden).has_value(),
                store != StoredRows::logits);
      EXPECT_EQ(trace.file->row_data(RowData::target_logits).has_value(),
                store != StoredRows::hidden);
      EXPECT_TRUE(trace.file->row_data(RowData::draft_hidden).has_value());
      const char* const names[] = {"f16", "bf16", "f32", "f64"};
      EXPECT_EQ(trace.file->row_data(RowData::draft_hidden)->stored_as, names[int(type)]);
      const double rounding = store == StoredRows::hidden ? 1e-4
                              : type == StoredType::f16   ? 2e-3
                              : type == StoredType::bf16  ? 1e-2
                                                          : 1e-4;
      const std::vector<Mean> alpha = measure_by_backend(*backend_, trace);
      for (std::size_t k = 0; k < 4; ++k) {
        EXPECT_NEAR(alpha[k].value(), options.acceptance[k], rounding);
      }
    }
  }
}

TEST_F(Synth, StoredLogitsAreThoseOfTheHiddenStates) {
  SynthOptions options = small_anchors();
  options.length = 10;
  options.store = StoredRows::both;
  options.type = StoredType::f32;
  const Loaded trace(make(options));
  options.store = StoredRows::hidden;
  const Loaded hidden(make(options, "hidden.h5"));
  EXPECT_EQ(trace.draft_hidden, hidden.draft_hidden);
  EXPECT_EQ(trace.target_hidden, hidden.target_hidden);
  ASSERT_EQ(trace.draft.size(), hidden.draft.size());
  for (std::size_t i = 0; i < trace.draft.size(); ++i) {
    ASSERT_NEAR(trace.draft[i], hidden.draft[i], 2e-5);
  }
  for (std::size_t i = 0; i < trace.target.size(); ++i) {
    ASSERT_NEAR(trace.target[i], hidden.target[i], 2e-5);
  }
}

TEST_F(Synth, HeadsGoWhereTheyAreAskedToGo) {
  SynthOptions options = small_anchors();
  options.length = 10;
  options.heads_file = "heads.h5";
  const Loaded apart(make(options));
  EXPECT_FALSE(apart.file->header().has_heads);
  EXPECT_EQ(apart.file->header().heads_file, "heads.h5");
  EXPECT_EQ(TraceFile::open(path("heads.h5"))->header().kind, TraceKind::heads);
  options.heads_file.clear();
  const Loaded inside(make(options, "inside.h5"));
  EXPECT_TRUE(inside.file->header().has_heads);
  EXPECT_EQ(apart.w1, inside.w1);
  EXPECT_EQ(apart.w2, inside.w2);
  EXPECT_EQ(apart.lm_head, inside.lm_head);
  EXPECT_EQ(apart.heads.confidence_weight, inside.heads.confidence_weight);
  EXPECT_EQ(apart.draft_hidden, inside.draft_hidden);
}

TEST_F(Synth, HeadsThatAreNotWantedAreNotThere) {
  SynthOptions options = small_anchors();
  options.length = 10;
  options.confidence = false;
  options.markov_rank = 0;
  options.store = StoredRows::logits;
  options.spread = 0;
  options.type = StoredType::f32;
  const Loaded trace(make(options));
  EXPECT_FALSE(trace.heads.has_markov());
  EXPECT_FALSE(trace.heads.has_confidence());
  EXPECT_FALSE(trace.file->row_data(RowData::draft_hidden).has_value());
  for_each_slot(trace, [&](auto n, auto k, auto row, auto, auto) {
    EXPECT_NEAR(overlap(trace.target_row(row), trace.draft_row(n, k, 0), 1.0),
                options.acceptance[static_cast<std::size_t>(k - 1)], 1e-4);
  });
}

void expect_equal(const Loaded& a, const Loaded& b) {
  EXPECT_EQ(a.anchors.tokens, b.anchors.tokens);
  EXPECT_EQ(a.anchors.last_tokens, b.anchors.last_tokens);
  EXPECT_EQ(a.rounds.draft_tokens, b.rounds.draft_tokens);
  EXPECT_EQ(a.rounds.accepted_tokens, b.rounds.accepted_tokens);
  EXPECT_EQ(a.draft_hidden, b.draft_hidden);
  EXPECT_EQ(a.target_hidden, b.target_hidden);
  EXPECT_EQ(a.draft, b.draft);
  EXPECT_EQ(a.target, b.target);
  EXPECT_EQ(a.w1, b.w1);
  EXPECT_EQ(a.lm_head, b.lm_head);
  EXPECT_EQ(a.heads.confidence_weight, b.heads.confidence_weight);
}

TEST_F(Synth, SameSeedSameDataWhateverTheThreads) {
  for (SynthOptions options : {small_anchors(), small_rounds()}) {
    options.store = StoredRows::both;
    options.length = 4;
    backend_ = make_cpu_backend(1);
    const Loaded first(make(options));
    const Loaded again(make(options, "again.h5"));
    expect_equal(first, again);
    options.threads = 3;
    backend_ = make_cpu_backend(2);
    const Loaded threaded(make(options, "threaded.h5"));
    expect_equal(first, threaded);
  }
}

TEST_F(Synth, AnotherSeedMakesOtherData) {
  SynthOptions options = small_anchors();
  options.length = 10;
  const Loaded first(make(options));
  options.seed = 12;
  const Loaded second(make(options, "second.h5"));
  EXPECT_NE(first.anchors.tokens, second.anchors.tokens);
  EXPECT_NE(first.draft_hidden, second.draft_hidden);
  EXPECT_NE(first.target_hidden, second.target_hidden);
  EXPECT_NE(first.lm_head, second.lm_head);
  EXPECT_NE(first.w1, second.w1);
}

TEST_F(Synth, ShortSequencesAreThePrefixesOfLongOnes) {
  SynthOptions options = small_anchors();
  options.sequences = 1;
  options.length = 30;
  const Loaded longer(make(options));
  options.length = 2;  // below the block size
  const Loaded shorter(make(options, "short.h5"));
  EXPECT_TRUE(std::equal(shorter.anchors.tokens.begin(), shorter.anchors.tokens.end(),
                         longer.anchors.tokens.begin()));
  EXPECT_EQ(shorter.anchors.last_tokens[0], longer.anchors.tokens[2]);
  EXPECT_TRUE(std::equal(shorter.draft_hidden.begin(), shorter.draft_hidden.end(),
                         longer.draft_hidden.begin()));
}

TEST_F(Synth, SequencesLongerThanOneChunkJoinWithoutASeam) {
  SynthOptions options = small_anchors();
  options.sequences = 1;
  options.length = 1200;  // more than the rows in work at once
  options.vocab_size = 32;
  options.hidden_size = 12;
  options.markov_rank = 4;
  options.spread = 0;
  const Loaded trace(make(options));
  for_each_slot(trace, [&](auto n, auto k, auto row, auto previous, auto) {
    EXPECT_NEAR(overlap(trace.target_row(row), trace.draft_row(n, k, previous), 1.0),
                options.acceptance[static_cast<std::size_t>(k - 1)], 1e-4);
  });
}

TEST_F(Synth, SmallestSizesWork) {
  SynthOptions options = small_anchors();
  options.sequences = 1;
  options.length = 1;
  options.vocab_size = 2;
  options.hidden_size = 4;
  options.block_size = 1;
  options.acceptance = {0.5};
  options.spread = 0;
  for (const double temperature : {1.0, 0.0}) {
    options.temperature = temperature;
    for (const std::int64_t rank : {0, 1}) {
      options.markov_rank = rank;
      for (const TraceKind kind : {TraceKind::anchors, TraceKind::rounds}) {
        options.kind = kind;
        const Loaded trace(make(options, "small.h5"));
        EXPECT_EQ(trace.blocks, 1);
        if (temperature > 0 && kind == TraceKind::anchors) {
          EXPECT_NEAR(
              overlap(trace.target_row(0), trace.draft_row(0, 1, trace.anchors.tokens[0]), 1.0),
              0.5, 1e-4);
        }
      }
    }
  }
}

/// What a replay of the recorded rounds through the runtime functions gives.
struct Replayed {
  std::vector<std::int32_t> draft, accepted, accept_length;
};

Replayed replay(Backend& backend, const Loaded& trace) {
  const TraceHeader& header = trace.file->header();
  const SamplingRule rule = make_sampling_rule(header.temperature, header.top_k, header.top_p,
                                               TopPRule::water_filling, header.vocab_size);
  const auto rounds = static_cast<std::int32_t>(trace.blocks);
  const auto block = static_cast<std::int32_t>(trace.block);
  const auto vocab = static_cast<std::int32_t>(trace.vocab);
  const auto put = [&](const auto& values) {
    Buffer buffer = backend.allocate(values.size() * sizeof values[0]);
    backend.upload(buffer.data(), values.data(), values.size() * sizeof values[0]);
    return buffer;
  };
  const auto space = [&](std::int64_t count, std::size_t size) {
    return backend.allocate(static_cast<std::size_t>(count) * size);
  };
  const auto rows = [&](const Buffer& buffer, std::int64_t count) {
    return Rows{static_cast<float*>(buffer.data()), count, vocab, vocab};
  };
  const std::int64_t slots = std::int64_t{rounds} * block;
  const std::int64_t verify = slots + rounds;
  const std::vector<float> no_uniforms(static_cast<std::size_t>(slots), 0.5f);
  const Buffer backbone = put(trace.draft), target = put(trace.target), w1 = put(trace.w1),
               w2 = put(trace.w2), anchors = put(trace.rounds.anchor_token),
               lengths = put(trace.rounds.proposal_length),
               uniforms = put(rule.greedy ? no_uniforms : trace.rounds.proposal_uniforms),
               accept_uniforms = put(rule.greedy ? no_uniforms : trace.rounds.accept_uniforms),
               tokens = space(slots, 4), draft_probabilities = space(slots * vocab, 4),
               target_probabilities = space(verify * vocab, 4),
               laws = space(verify, sizeof(RowLaw)), accepted = space(verify, 4),
               emitted = space(rounds, 4), status = space(1, 4);
  const std::size_t scratch_bytes =
      std::max(vanilla_markov_sample_scratch(rounds, vocab), row_scan_scratch(rounds, vocab));
  const Buffer scratch = space(static_cast<std::int64_t>(scratch_bytes), 1);
  backend.fill(status.data(), 0, 4);

  VanillaMarkovSampleArgs propose;
  propose.batch = rounds;
  propose.block_size = block;
  propose.backbone = rows(backbone, slots);
  propose.w1 = {w1.data(), DType::f32, trace.vocab, trace.rank, trace.rank};
  propose.w2 = {w2.data(), DType::f32, trace.vocab, trace.rank, trace.rank};
  propose.first_previous = static_cast<const std::int32_t*>(anchors.data());
  propose.uniforms = static_cast<const float*>(uniforms.data());
  propose.rule = rule;
  propose.tokens = static_cast<std::int32_t*>(tokens.data());
  propose.draft_probabilities = rows(draft_probabilities, slots);
  propose.scratch = {scratch.data(), scratch_bytes};
  propose.status = static_cast<std::uint32_t*>(status.data());
  backend.vanilla_markov_sample(propose);
  if (rule.greedy) {
    GreedyAcceptArgs args;
    args.batch = rounds;
    args.length = block;
    args.draft_stride = block;
    args.logits = rows(target, verify);
    args.draft = static_cast<const std::int32_t*>(tokens.data());
    args.lengths = static_cast<const std::int32_t*>(lengths.data());
    args.accepted = static_cast<std::int32_t*>(accepted.data());
    args.accept_length = static_cast<std::int32_t*>(emitted.data());
    args.laws = static_cast<RowLaw*>(laws.data());
    args.status = propose.status;
    backend.greedy_accept(args);
  } else {
    backend.logits_to_probabilities({rows(target, verify), rule, rows(target_probabilities, verify),
                                     static_cast<RowLaw*>(laws.data()), propose.status});
    ProbabilisticAcceptArgs args;
    args.batch = rounds;
    args.length = block;
    args.draft_stride = block;
    args.target = rows(target_probabilities, verify);
    args.draft = propose.draft_probabilities;
    args.tokens = static_cast<const std::int32_t*>(tokens.data());
    args.lengths = static_cast<const std::int32_t*>(lengths.data());
    args.uniforms = static_cast<const float*>(accept_uniforms.data());
    args.accepted = static_cast<std::int32_t*>(accepted.data());
    args.accept_length = static_cast<std::int32_t*>(emitted.data());
    args.scratch = propose.scratch;
    args.status = propose.status;
    backend.probabilistic_accept(args);
  }
  std::uint32_t bits = 0;
  backend.download(&bits, status.data(), 4);
  EXPECT_EQ(bits, 0u);
  Replayed out;
  out.draft.resize(static_cast<std::size_t>(slots));
  out.accepted.resize(static_cast<std::size_t>(verify));
  out.accept_length.resize(static_cast<std::size_t>(rounds));
  backend.download(out.draft.data(), tokens.data(), out.draft.size() * 4);
  backend.download(out.accepted.data(), accepted.data(), out.accepted.size() * 4);
  backend.download(out.accept_length.data(), emitted.data(), out.accept_length.size() * 4);
  for (std::size_t m = 0; m < out.accept_length.size(); ++m) {
    for (auto i = static_cast<std::size_t>(out.accept_length[m]); i <= std::size_t(block); ++i) {
      out.accepted[m * (std::size_t(block) + 1) + i] = -1;
    }
  }
  return out;
}

TEST_F(Synth, RoundsReplayToTheLastToken) {
  for (const double temperature : {1.0, 0.7, 0.0}) {
    for (const StoredRows store : {StoredRows::hidden, StoredRows::logits}) {
      for (const StoredType type : {StoredType::f16, StoredType::bf16}) {
        SynthOptions options = small_rounds();
        options.length = 6;
        options.temperature = temperature;
        options.store = store;
        options.type = type;
        options.random_lengths = store == StoredRows::logits;
        options.top_k = type == StoredType::bf16 ? 30 : 0;
        const Loaded trace(make(options));
        ASSERT_EQ(trace.blocks, 240);
        EXPECT_EQ(trace.rounds.accept_uniforms.empty(), temperature == 0.0);
        const Replayed again = replay(*backend_, trace);
        EXPECT_EQ(again.draft, trace.rounds.draft_tokens);
        EXPECT_EQ(again.accepted, trace.rounds.accepted_tokens);
        EXPECT_EQ(again.accept_length, trace.rounds.accept_length);
      }
    }
  }
}

TEST_F(Synth, RoundsAcceptAsTheProfileSays) {
  for (const double temperature : {1.0, 0.0}) {
    SynthOptions options = small_rounds();
    options.temperature = temperature;
    const Loaded trace(make(options));
    for (std::int32_t k = 1; k <= 4; ++k) {
      double reached = 0;
      double accepted = 0;
      for (const std::int32_t emitted : trace.rounds.accept_length) {
        if (emitted >= k) ++reached;
        if (emitted >= k + 1) ++accepted;
      }
      const double a = options.acceptance[static_cast<std::size_t>(k - 1)];
      EXPECT_NEAR(accepted / reached, a, 4 * std::sqrt(a * (1 - a) / reached)) << "slot " << k;
    }
  }
}

TEST_F(Synth, RoundsFollowEachOther) {
  SynthOptions options = small_rounds();
  options.random_lengths = true;
  const Loaded trace(make(options));
  std::vector<std::int32_t> last(40, -1), next(40, 0);
  std::vector<int> lengths(5, 0);
  for (std::size_t m = 0; m < 600; ++m) {
    const auto request = static_cast<std::size_t>(trace.rounds.request[m]);
    EXPECT_EQ(trace.rounds.round[m], next[request]++);
    if (last[request] >= 0) {
      EXPECT_EQ(trace.rounds.anchor_token[m], last[request]);
    }
    const std::int32_t emitted = trace.rounds.accept_length[m];
    const std::int32_t length = trace.rounds.proposal_length[m];
    ASSERT_GE(length, 1);
    ASSERT_LE(length, 4);
    EXPECT_LE(emitted, length + 1);
    ++lengths[static_cast<std::size_t>(length)];
    last[request] = trace.rounds.accepted_tokens[m * 5 + static_cast<std::size_t>(emitted) - 1];
  }
  for (int length = 1; length <= 4; ++length) {
    EXPECT_NEAR(lengths[static_cast<std::size_t>(length)], 150, 45);
  }
  for (const float u : trace.rounds.proposal_uniforms) {
    EXPECT_EQ(u * 16777216.0f, std::floor(u * 16777216.0f));
    EXPECT_LT(u, 1.0f);
  }
}

TEST_F(Synth, ProgressCountsEveryBlockOnce) {
  for (const SynthOptions& options : {small_anchors(), small_rounds()}) {
    std::vector<std::int64_t> seen;
    write_synthetic_trace(*backend_, options, path(), [&](std::int64_t done, std::int64_t all) {
      EXPECT_EQ(all, options.sequences * options.length);
      seen.push_back(done);
    });
    ASSERT_FALSE(seen.empty());
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
    EXPECT_EQ(seen.back(), options.sequences * options.length);
  }
}

TEST_F(Synth, TemporaryFilesAreNamedWhileTheyExistAndGoneAfterwards) {
  SynthOptions options = small_anchors();
  options.length = 5;
  options.heads_file = "heads.h5";
  std::vector<std::string> temporaries;
  const SynthCreated created = [&](const std::vector<std::string>& paths) {
    for (const std::string& file : paths) EXPECT_TRUE(std::filesystem::exists(file)) << file;
    EXPECT_FALSE(std::filesystem::exists(path()));
    temporaries = paths;
  };
  write_synthetic_trace(*backend_, options, path(), {}, created);
  EXPECT_EQ(temporaries.size(), 2u);
  for (const std::string& file : temporaries) EXPECT_FALSE(std::filesystem::exists(file)) << file;
  EXPECT_TRUE(std::filesystem::exists(path()));
  EXPECT_TRUE(std::filesystem::exists(path("heads.h5")));
}

TEST_F(Synth, BadOptionsAreUsageErrorsThatNameTheFlagAndLeaveNoFile) {
  struct Bad {
    const char* flag;
    std::function<void(SynthOptions&)> spoil;
  };
  const std::vector<Bad> cases = {
      {"--kind", [](auto& o) { o.kind = TraceKind::heads; }},
      {"--sequences", [](auto& o) { o.sequences = 0; }},
      {"--sequences", [](auto& o) { o.sequences = std::int64_t{1} << 40; }},
      {"--length", [](auto& o) { o.length = 0; }},
      {"--length", [](auto& o) { o.length = std::int64_t{1} << 31; }},
      {"more than a trace", [](auto& o) { o.sequences = o.length = 2000000000; }},
      {"--sequences", [](auto& o) { o.kind = TraceKind::rounds, o.sequences = -1; }},
      {"--length", [](auto& o) { o.kind = TraceKind::rounds, o.length = 0; }},
      {"--vocab", [](auto& o) { o.vocab_size = 1; }},
      {"--vocab", [](auto& o) { o.vocab_size = kMaxVocab + 1; }},
      {"--rank", [](auto& o) { o.markov_rank = -1; }},
      {"--hidden", [](auto& o) { o.hidden_size = o.markov_rank + 2; }},
      {"at least 11", [](auto& o) { o.hidden_size = o.markov_rank + 2; }},
      {"--hidden", [](auto& o) { o.hidden_size = kMaxHidden + 1; }},
      {"--block", [](auto& o) { o.block_size = 0; }},
      {"--block", [](auto& o) { o.block_size = 65; }},
      {"--acceptance", [](auto& o) { o.acceptance.clear(); }},
      {"--acceptance",
       [](auto& o) {
         o.acceptance = {0.5, 0.5, 0.5, 0.5, 0.5};
       }},
      {"--acceptance", [](auto& o) { o.acceptance = {1.01}; }},
      {"--acceptance", [](auto& o) { o.acceptance = {-0.01}; }},
      {"--acceptance", [](auto& o) { o.acceptance = {std::nan("")}; }},
      {"--spread", [](auto& o) { o.spread = 1.5; }},
      {"--temperature", [](auto& o) { o.temperature = -1; }},
      {"--temperature", [](auto& o) { o.temperature = 1000; }},
      {"--temperature", [](auto& o) { o.temperature = std::nan(""); }},
      {"--top-k", [](auto& o) { o.top_k = -1; }},
      {"--top-p", [](auto& o) { o.top_p = 0; }},
      {"--top-p", [](auto& o) { o.top_p = 1.1; }},
      {"--seed", [](auto& o) { o.seed = std::uint64_t{1} << 63; }},
      {"--logit-std", [](auto& o) { o.logit_std = 0; }},
      {"--markov-std", [](auto& o) { o.markov_std = 100; }},
      {"--threads", [](auto& o) { o.threads = 0; }},
      {"--heads-file", [](auto& o) { o.heads_file = "../heads.h5"; }},
      {"--heads-file", [](auto& o) { o.heads_file = ".."; }},
      {"--heads-file", [](auto& o) { o.heads_file = "trace.h5"; }},
  };
  for (const Bad& bad : cases) {
    SynthOptions options = small_anchors();
    bad.spoil(options);
    try {
      write_synthetic_trace(*backend_, options, path());
      ADD_FAILURE() << bad.flag << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_NE(std::string(error.what()).find(bad.flag), std::string::npos) << error.what();
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path())) << bad.flag;
  }
}

TEST_F(Synth, PathThatCannotBeCreatedIsAUsageError) {
  try {
    write_synthetic_trace(*backend_, small_anchors(), path("missing/trace.h5"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
  }
}

TEST_F(Synth, TraceLargerThanTheDiskIsRefusedBeforeAnythingIsWritten) {
  SynthOptions options = small_anchors();
  options.sequences = 1000000;
  options.length = 1000000;
  try {
    write_synthetic_trace(*backend_, options, path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::internal);
    EXPECT_NE(std::string(error.what()).find("free"), std::string::npos);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(Synth, TooLittleVariationForClearArgmaxesIsAUsageError) {
  SynthOptions options = small_anchors();
  options.temperature = 0;
  options.logit_std = 0.1;
  options.vocab_size = 300;
  options.store = StoredRows::logits;
  options.type = StoredType::bf16;
  options.length = 1;
  options.sequences = 1;
  options.markov_std = 20;
  try {
    write_synthetic_trace(*backend_, options, path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("--logit-std"), std::string::npos);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

}  // namespace
}  // namespace dspark
