#include "backends/cpu/cpu_backend.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <span>
#include <string>

#include "backends/cpu/isa.h"
#include "backends/cpu/top_k.h"
#include "backends/cpu/vector_ops.h"
#include "core/random.h"
#include "policy/batch.h"
#include "policy/lengths.h"
#include "support/error.h"

namespace dspark::cpu {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr int kMaxThreads = 4096;

/// Rows of one task of a matrix product: enough to make packing cheap.
constexpr std::int64_t kTaskRows = 1024;

/// Rows of one task of a product that is added to what is there: their sums are held apart until
/// they are whole.
constexpr std::int64_t kBiasRows = 128;

/// Rows and columns whose logits a greedy step holds at a time.
constexpr std::int64_t kGreedyRows = 64;
constexpr std::int64_t kGreedyColumns = kGemmColumns;

/// Allocations below this are left to the system; larger ones are first held against what is free.
constexpr std::size_t kCheckedAllocation = std::size_t{64} << 20;

/// Elements below which waking threads costs more than they save.
constexpr std::int64_t kParallelWork = 1 << 15;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

constexpr std::size_t round_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// The number after `key` in a file of "key value" lines, or a file's only number for an empty key;
/// -1 if there is none.
std::int64_t read_number(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  std::int64_t number = -1;
  if (key.empty()) return file >> number ? number : -1;
  while (file >> word) {
    if (word == key) return file >> number ? number : -1;
  }
  return -1;
}

/// Bytes the system, and the control group where there is one, can still give.
std::size_t available_memory() {
  std::int64_t available = read_number("/proc/meminfo", "MemAvailable:") * 1024;
  if (available < 0) {
    available = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  }
  const std::int64_t limit = read_number("/sys/fs/cgroup/memory.max", "");
  const std::int64_t used = read_number("/sys/fs/cgroup/memory.current", "");
  if (limit >= 0 && used >= 0) available = std::min(available, limit - used);
  return static_cast<std::size_t>(std::max<std::int64_t>(available, 0));
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

/// ORs bits into a status word that threads share and a caller may not want.
void report(std::uint32_t* status, std::uint32_t bits) {
  if (status != nullptr && bits != 0) {
    std::atomic_ref<std::uint32_t>(*status).fetch_or(bits, std::memory_order_relaxed);
  }
}

float* row_of(const Rows& rows, std::int64_t row) { return rows.data + row * rows.stride; }

const void* row_of(const Matrix& matrix, std::int64_t row) {
  return static_cast<const std::byte*>(matrix.data) +
         static_cast<std::size_t>(row * matrix.stride) * size_of(matrix.type);
}

bool has(std::int64_t count, std::int64_t index) { return index >= 0 && index < count; }

double fraction(std::uint64_t uniform) { return static_cast<double>(uniform) * 0x1p-64; }

/// min(u - lower, upper - u) with lower and upper as fractions of `whole`.
double boundary_distance(std::uint64_t uniform, const WeightedPick& pick, std::uint64_t whole) {
  const double u = fraction(uniform);
  const auto denominator = static_cast<double>(whole);
  const double lower = static_cast<double>(pick.lower) / denominator;
  const double upper = static_cast<double>(pick.upper) / denominator;
  return std::min(u - lower, upper - u);
}

/// The rows of `hidden` that belong to (b, slot), and the token before the slot.
struct BlockLayout {
  std::int32_t block_size;
  std::int32_t stride;
  std::int32_t offset;

  BlockLayout(std::int32_t slots, std::int32_t rows_per_entry, std::int32_t first)
      : block_size(slots), stride(rows_per_entry > 0 ? rows_per_entry : slots), offset(first) {}

  [[nodiscard]] std::int64_t row(std::int64_t batch, std::int32_t slot) const {
    return batch * stride + slot + offset;
  }
  [[nodiscard]] std::int32_t previous(const std::int32_t* first_previous, const std::int32_t* draft,
                                      std::int64_t batch, std::int32_t slot) const {
    return slot == 0 ? first_previous[batch] : draft[batch * block_size + slot - 1];
  }
};

/// The size of the largest cache that the system tells; 0 if it tells none.
std::size_t last_cache_bytes() {
  for (const int name : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    const long bytes = sysconf(name);
    if (bytes > 0) return static_cast<std::size_t>(bytes);
  }
  return 0;
}

/// Calls are done when they return, so there is nothing to keep but the calls.
class CpuRecording final : public Recording {
 public:
  explicit CpuRecording(std::function<void()> enqueue) : enqueue_(std::move(enqueue)) {}
  void replay() override { enqueue_(); }

 private:
  std::function<void()> enqueue_;
};

/// The best two logits of a row that is seen in parts.
struct GreedyRow {
  std::uint64_t key;     ///< token_key of the best; 0: none yet
  std::uint32_t second;  ///< order code of the second best; 0: none yet
  std::uint16_t bad;     ///< a NaN or +inf was seen
  std::uint16_t finite;  ///< a finite logit was seen

  /// Adds the law of the part that starts at token `first`.
  void add(const RowLaw& part, std::int64_t first) {
    if ((part.status & (kRowNaN | kRowPlusInfinity)) != 0) bad = 1;
    if (part.status != kRowValid) return;
    finite = 1;
    const std::uint64_t other =
        token_key(part.max_logit, static_cast<std::int32_t>(first + part.argmax));
    const auto loser = static_cast<std::uint32_t>(std::min(key, other) >> 32);
    second = std::max({second, loser, order_code(part.second_logit)});
    key = std::max(key, other);
  }
  [[nodiscard]] bool valid() const { return bad == 0 && finite != 0; }
  /// Best less second best.
  [[nodiscard]] float margin() const {
    return float_from_order_code(static_cast<std::uint32_t>(key >> 32)) -
           float_from_order_code(second);
  }
};
static_assert(sizeof(GreedyRow) == 16, "markov_greedy_step_scratch counts on it");

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, const VectorOps& ops) : threads_(threads), ops_(ops) {
    workspaces_ = allocate(static_cast<std::size_t>(threads) * kWorkspaceBytes);
  }

  std::string name() const override { return "cpu"; }
  std::string device() const override { return processor_name(); }
  bool shares_host_memory() const override { return true; }
  std::size_t free_memory() const override { return available_memory(); }
  DeviceFacts facts() const override { return {last_cache_bytes(), threads_, {}, {}}; }

  void upload(void* target, const void* source, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void download(void* target, const void* source, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void fill(void* target, int value, std::size_t bytes) override {
    if (bytes > 0) std::memset(target, value, bytes);
  }
  void copy(void* target, const void* source, std::size_t bytes) override {
    constexpr std::size_t kPart = std::size_t{1} << 20;
    const auto parts = static_cast<std::int64_t>((bytes + kPart - 1) / kPart);
    for_each(parts, static_cast<std::int64_t>(kPart / sizeof(float)), [&](std::int64_t part) {
      const std::size_t first = static_cast<std::size_t>(part) * kPart;
      std::memcpy(static_cast<std::byte*>(target) + first,
                  static_cast<const std::byte*>(source) + first, std::min(kPart, bytes - first));
    });
  }
  void synchronize() override {}

  std::unique_ptr<Recording> record(const std::function<void()>& enqueue) override {
    return std::make_unique<CpuRecording>(enqueue);
  }
  double measure(const std::function<void()>& enqueue) override {
    const auto begin = std::chrono::steady_clock::now();
    enqueue();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
        .count();
  }

  void project(const ProjectArgs& args) override {
    check(args);
    multiply(args.a.type, args.b, args.out.rows, [&](std::int64_t row, GemmRow& to) {
      to = {row_of(args.a, row), nullptr, row_of(args.out, row)};
      return true;
    });
  }

  void widen(const WidenArgs& args) override {
    check(args);
    for_each(args.in.rows, args.in.cols, [&](std::int64_t row) {
      ops_.widen(row_of(args.in, row), args.in.type, row_of(args.out, row), args.in.cols);
    });
  }

  void markov_rows(const MarkovRowsArgs& args) override {
    check(args);
    // Reported here and once: the tasks of a product see a row many times.
    for (std::int64_t i = 0; i < args.out.rows; ++i) {
      if (args.previous.data[i] >= 0) report(args.status, markov_row_status(args, i));
    }
    const bool head = args.w1.data != nullptr;
    if (!head) {
      for_each(args.out.rows, args.out.vocab, [&](std::int64_t i) {
        if (args.previous.data[i] < 0 || markov_row_status(args, i) != kOpOk) return;
        std::memcpy(row_of(args.out, i), row_of(args.backbone, args.backbone_row.data[i]),
                    static_cast<std::size_t>(args.out.vocab) * sizeof(float));
      });
      return;
    }
    multiply(args.w1.type, args.w2, args.out.rows, [&](std::int64_t i, GemmRow& to) {
      if (args.previous.data[i] < 0 || markov_row_status(args, i) != kOpOk) return false;
      to = {row_of(args.w1, args.previous.data[i]),
            row_of(args.backbone, args.backbone_row.data[i]), row_of(args.out, i)};
      return true;
    });
  }

  void draft_rows(const DraftRowsArgs& args) override {
    check(args);
    for (std::int64_t i = 0; i < args.out.rows; ++i) {
      if (args.previous.data[i] >= 0) report(args.status, draft_row_status(args, i));
    }
    const auto wanted = [&](std::int64_t i) {
      return args.previous.data[i] >= 0 && draft_row_status(args, i) == kOpOk;
    };
    multiply(args.hidden.type, args.head, args.out.rows, [&](std::int64_t i, GemmRow& to) {
      if (!wanted(i)) return false;
      to = {row_of(args.hidden, draft_hidden_row(args, i)), nullptr, row_of(args.out, i)};
      return true;
    });
    if (args.w1.data == nullptr) return;
    multiply_add(args.w1.type, args.w2, args.out.rows, [&](std::int64_t i, GemmRow& to) {
      if (!wanted(i)) return false;
      to = {row_of(args.w1, args.previous.data[i]), nullptr, row_of(args.out, i)};
      return true;
    });
  }

  void confidence_rows(const ConfidenceRowsArgs& args) override {
    check(args);
    const bool markov = args.weight.size > args.hidden.cols;
    for_each(args.out.size, args.weight.size, [&](std::int64_t i) {
      const std::int32_t row = args.hidden_row.data[i];
      const std::int32_t previous = args.previous.data[i];
      args.out.data[i] = kNaN;
      if (previous < 0) return;
      std::uint32_t bits = kOpOk;
      if (!has(args.hidden.rows, row)) bits |= kOpBadRow;
      if (markov && !has(args.w1.rows, previous)) bits |= kOpBadToken;
      report(args.status, bits);
      if (bits != kOpOk) return;
      args.out.data[i] =
          confidence(args.hidden, row, args.w1, markov ? previous : -1, args.weight, args.bias);
    });
  }

  void row_laws(const RowLawsArgs& args) override {
    check(args);
    for_each(args.logits.rows, args.logits.vocab, [&](std::int64_t row) {
      args.laws.data[row] = ops_.row_law(row_of(args.logits, row), args.logits.vocab, args.rule);
    });
  }

  void compare_pairs(const ComparePairsArgs& args) override {
    check(args);
    for_each(args.pairs.size, args.target.vocab, [&](std::int64_t i) {
      const RowPair& pair = args.pairs.data[i];
      PairOutcome outcome = {};
      if (valid(args.target_laws, pair.target_row) && valid(args.draft_laws, pair.draft_row) &&
          has(args.target.vocab, pair.token)) {
        const RowLaw& target_law = args.target_laws.data[pair.target_row];
        const RowLaw& draft_law = args.draft_laws.data[pair.draft_row];
        const float* const target = row_of(args.target, pair.target_row);
        const float* const draft = row_of(args.draft, pair.draft_row);
        outcome.alpha = ops_.overlap(target, target_law, draft, draft_law, args.target.vocab);
        outcome.target_token = law_probability(target_law, target[pair.token], pair.token);
        outcome.draft_token = law_probability(draft_law, draft[pair.token], pair.token);
        outcome.target_logit = target[pair.token];
        outcome.valid = 1;
      }
      args.out.data[i] = outcome;
    });
  }

  void sample_rows(const SampleRowsArgs& args) override {
    check(args);
    for_each(args.token.size, args.logits.vocab, [&](std::int64_t i) {
      const std::int32_t row = args.row.data[i];
      args.token.data[i] = !valid(args.laws, row)
                               ? -1
                               : ops_.sample(row_of(args.logits, row), args.laws.data[row],
                                             args.logits.vocab, args.uniform.data[i]);
    });
  }

  void sample_excess(const SampleExcessArgs& args) override {
    check(args);
    for_each(args.token.size, args.target.vocab, [&](std::int64_t i) {
      args.token.data[i] = -1;
      if (!has(args.pairs.size, args.pair.data[i])) return;
      const RowPair& pair = args.pairs.data[args.pair.data[i]];
      if (!valid(args.target_laws, pair.target_row) || !valid(args.draft_laws, pair.draft_row)) {
        return;
      }
      args.token.data[i] = ops_.sample_excess(
          row_of(args.target, pair.target_row), args.target_laws.data[pair.target_row],
          row_of(args.draft, pair.draft_row), args.draft_laws.data[pair.draft_row],
          args.target.vocab, args.uniform.data[i]);
    });
  }

  void build_verify_tokens(const BuildVerifyTokensArgs& args) override {
    check(args);
    for (std::int64_t b = 0; b < args.batch; ++b) {
      std::int32_t* const verify = args.verify + b * (std::int64_t{args.length} + 1);
      verify[0] = args.last[b];
      std::copy_n(args.draft + b * args.draft_stride, args.length, verify + 1);
    }
  }

  void fill_proposal_lengths(const FillProposalLengthsArgs& args) override {
    check(args);
    std::fill_n(args.lengths, args.batch, args.value);
  }

  void greedy_accept(const GreedyAcceptArgs& args) override {
    check(args);
    const std::int64_t rows = std::int64_t{args.length} + 1;
    const SamplingRule greedy = make_sampling_rule(0, 0, 1, TopPRule::water_filling, 0);
    for_each(args.batch * rows, args.logits.vocab, [&](std::int64_t row) {
      const bool read = row % rows <= clamped_length(args.lengths[row / rows], args.length);
      RowLaw& law = args.laws[row];
      law = {};
      if (read) law = ops_.row_law(row_of(args.logits, row), args.logits.vocab, greedy);
      if (law.status != kRowValid) report(args.status, kOpInvalidRow);
      if (args.margin != nullptr) {
        args.margin[row] = law.argmax < 0 ? 0.0f : law.max_logit - law.second_logit;
      }
    });
    for (std::int64_t b = 0; b < args.batch; ++b) greedy_walk(args, b);
  }

  void confidence_scores(const ConfidenceScoresArgs& args) override {
    check(args);
    score(args);
  }

  void threshold_lengths(const ThresholdLengthsArgs& args) override {
    check(args);
    score(args.scores);
    const std::int32_t slots = args.scores.block_size;
    for (std::int64_t b = 0; b < args.scores.batch; ++b) {
      args.lengths[b] =
          cumulative_threshold_length(args.scores.scores + b * slots, slots, args.threshold,
                                      std::max(1, args.min_length), args.max_length);
    }
  }

  void sps_lengths(const SpsLengthsArgs& args) override {
    check(args);
    score(args.scores);
    const std::int32_t slots = args.scores.block_size;
    for (std::int64_t b = 0; b < args.scores.batch; ++b) {
      args.lengths[b] = sps_length(args.scores.scores + b * slots, slots, args.survival_floor,
                                   std::max(1, args.min_length), args.max_length, args.cost);
    }
  }

  void batch_schedule(const BatchScheduleArgs& args) override {
    check(args);
    const BatchStep& step = args.step;
    for (std::int32_t r = 0; r < step.requests; ++r) {
      if (step.slots[r] < 0 || step.slots[r] > step.positions) report(args.status, kOpBadLength);
    }
    const std::span<const double> price(args.price.data, static_cast<std::size_t>(args.price.size));
    const std::int32_t capacity = args.capacity != nullptr
                                      ? *args.capacity
                                      : batch_capacity(step, price, args.options, batch_).drafts;
    if (args.chosen != nullptr) *args.chosen = capacity;
    dspark::allocate(step, capacity, args.options,
                     std::span(args.lengths, static_cast<std::size_t>(step.requests)), batch_);
  }

  void logits_to_probabilities(const LogitsToProbabilitiesArgs& args) override {
    check(args);
    for_each(args.logits.rows, args.logits.vocab, [&](std::int64_t row) {
      const std::int32_t vocab = args.logits.vocab;
      const float* const logits = row_of(args.logits, row);
      float* const out = row_of(args.probabilities, row);
      RowLaw& law = args.laws[row];
      law = ops_.row_law(logits, vocab, args.rule);
      if (law.status == kRowValid) {
        ops_.probabilities(logits, law, vocab, out);
      } else {
        report(args.status, kOpInvalidRow);
        std::fill_n(out, vocab, 0.0f);
      }
    });
  }

  void fill_uniforms(const FillUniformsArgs& args) override {
    check(args);
    for (std::int64_t i = 0; i < args.uniforms.size; ++i) {
      args.uniforms.data[i] =
          edge_llm_uniform(args.seed, args.offset, static_cast<std::uint64_t>(i));
    }
  }

  void build_markov_logits(const BuildMarkovLogitsArgs& args) override {
    check(args);
    const BlockLayout layout(args.block_size, args.logits_stride, args.logits_offset);
    const bool head = args.w1.data != nullptr;
    ScratchCutter scratch(args.scratch);
    const std::size_t index_bytes = static_cast<std::size_t>(args.batch) * sizeof(std::int32_t);
    auto* const previous = static_cast<std::int32_t*>(scratch.take(index_bytes).data);
    auto* const row = static_cast<std::int32_t*>(scratch.take(index_bytes).data);
    for (std::int64_t b = 0; b < args.batch; ++b) {
      row[b] = static_cast<std::int32_t>(layout.row(b, args.step));
      previous[b] = head ? layout.previous(args.first_previous, args.draft, b, args.step) : 0;
      if (head && !has(args.w1.rows, previous[b])) {
        report(args.status, kOpBadToken);
        previous[b] = -1;
        std::fill_n(row_of(args.corrected, b), args.corrected.vocab, kNaN);
      }
    }
    MarkovRowsArgs rows;
    rows.backbone = args.backbone;
    rows.backbone_row = {row, args.batch};
    rows.previous = {previous, args.batch};
    rows.w1 = args.w1;
    rows.w2 = args.w2;
    rows.out = args.corrected;
    rows.products = args.products;
    rows.status = args.status;
    markov_rows(rows);
  }

  void sample_probability_rows(const SampleProbabilityRowsArgs& args) override {
    check(args);
    for_each(args.batch, args.probabilities.vocab, [&](std::int64_t b) {
      const std::int64_t cell = b * args.block_size + args.step;
      const std::uint64_t uniform = uniform_from_float(args.uniforms[cell]);
      const WeightedPick pick =
          ops_.pick(row_of(args.probabilities, b), nullptr, args.probabilities.vocab, uniform);
      if (pick.bad) report(args.status, kOpInvalidRow);
      args.tokens[cell] = pick.token;
      if (args.distance != nullptr) {
        args.distance[cell] = static_cast<float>(boundary_distance(uniform, pick, kUnitMass));
      }
    });
  }

  void store_draft_step_probabilities(const StoreDraftStepProbabilitiesArgs& args) override {
    check(args);
    for_each(args.batch, args.source.vocab, [&](std::int64_t b) {
      std::memcpy(row_of(args.destination, b * args.block_size + args.step), row_of(args.source, b),
                  static_cast<std::size_t>(args.source.vocab) * sizeof(float));
    });
  }

  void vanilla_markov_sample(const VanillaMarkovSampleArgs& args) override {
    check(args);
    if (args.batch == 0) return;
    const std::int32_t vocab = args.backbone.vocab;
    const std::size_t row_bytes =
        static_cast<std::size_t>(args.batch) * static_cast<std::size_t>(vocab) * sizeof(float);
    ScratchCutter scratch(args.scratch);
    const Rows corrected{static_cast<float*>(scratch.take(row_bytes).data), args.batch, vocab,
                         vocab};
    const Rows probabilities{static_cast<float*>(scratch.take(row_bytes).data), args.batch, vocab,
                             vocab};
    auto* const laws = static_cast<RowLaw*>(
        scratch.take(static_cast<std::size_t>(args.batch) * sizeof(RowLaw)).data);
    const Scratch markov_scratch = scratch.take(build_markov_logits_scratch(args.batch));
    const Scratch scan_scratch = scratch.take(row_scan_scratch(args.batch, vocab));

    BuildMarkovLogitsArgs markov;
    markov.batch = args.batch;
    markov.block_size = args.block_size;
    markov.backbone = args.backbone;
    markov.logits_stride = args.logits_stride;
    markov.logits_offset = args.logits_offset;
    markov.w1 = args.w1;
    markov.w2 = args.w2;
    markov.first_previous = args.first_previous;
    markov.draft = args.tokens;
    markov.corrected = corrected;
    markov.products = args.products;
    markov.scratch = markov_scratch;
    markov.status = args.status;

    LogitsToProbabilitiesArgs law;
    law.logits = corrected;
    law.rule = args.rule;
    law.probabilities = probabilities;
    law.laws = laws;
    law.status = args.status;

    SampleProbabilityRowsArgs sample;
    sample.batch = args.batch;
    sample.block_size = args.block_size;
    sample.probabilities = probabilities;
    sample.uniforms = args.uniforms;
    sample.tokens = args.tokens;
    sample.distance = args.distance;
    sample.scratch = scan_scratch;
    sample.status = args.status;

    StoreDraftStepProbabilitiesArgs store;
    store.batch = args.batch;
    store.block_size = args.block_size;
    store.source = probabilities;
    store.destination = args.draft_probabilities;

    for (std::int32_t step = 0; step < args.block_size; ++step) {
      markov.step = sample.step = store.step = step;
      build_markov_logits(markov);
      logits_to_probabilities(law);
      sample_probability_rows(sample);
      store_draft_step_probabilities(store);
      if (args.distance == nullptr || !args.rule.greedy) continue;
      for (std::int64_t b = 0; b < args.batch; ++b) {
        const RowLaw& row = laws[b];
        args.distance[b * args.block_size + step] =
            row.argmax < 0 ? 0.0f : row.max_logit - row.second_logit;
      }
    }
  }

  void probabilistic_accept(const ProbabilisticAcceptArgs& args) override {
    check(args);
    for_each(args.batch, args.target.vocab, [&](std::int64_t b) { probabilistic_walk(args, b); });
  }

  void quantize_markov_w2(const QuantizeMarkovW2Args& args) override {
    check(args);
    for_each(args.w2.rows, args.w2.cols, [&](std::int64_t row) {
      switch (args.w2.type) {
        case DType::f16:
          return quantize_row<Float16>(args, row);
        case DType::bf16:
          return quantize_row<BFloat16>(args, row);
        default:
          return quantize_row<float>(args, row);
      }
    });
  }

  void markov_greedy_step(const MarkovGreedyStepArgs& args) override {
    check(args);
    if (args.batch == 0) return;
    ScratchCutter scratch(args.scratch);
    const auto batch = static_cast<std::size_t>(args.batch);
    auto* const rows = static_cast<GreedyRow*>(scratch.take(batch * sizeof(GreedyRow)).data);
    auto* const previous =
        static_cast<std::int32_t*>(scratch.take(batch * sizeof(std::int32_t)).data);
    std::fill_n(rows, args.batch, GreedyRow{});
    for (std::int64_t b = 0; b < args.batch; ++b) {
      previous[b] = greedy_previous(args, b);
      if (previous[b] >= 0) continue;
      report(args.status, kOpBadToken);
      if (args.stacked.data != nullptr) {
        std::fill_n(stacked_row(args, b), args.stacked.vocab, kNaN);
      }
    }
    if (args.w1.data != nullptr) {
      multiply_greedy(args, previous, rows);
    } else {
      const BlockLayout layout(args.block_size, args.logits_stride, args.logits_offset);
      for_each(args.batch, args.backbone.vocab, [&](std::int64_t b) {
        const float* const logits = row_of(args.backbone, layout.row(b, args.step));
        rows[b].add(ops_.row_law(logits, args.backbone.vocab, kGreedyRule), 0);
        if (args.stacked.data != nullptr) {
          std::copy_n(logits, args.backbone.vocab, stacked_row(args, b));
        }
      });
    }
    for (std::int64_t b = 0; b < args.batch; ++b) {
      const std::int64_t cell = b * args.block_size + args.step;
      const bool valid = rows[b].valid();
      if (!valid && previous[b] >= 0) report(args.status, kOpInvalidRow);
      args.slots[cell] = valid ? rows[b].key : 0;
      if (args.margin != nullptr) args.margin[cell] = valid ? rows[b].margin() : 0.0f;
    }
  }

  void finalize_greedy_draft_tokens(const FinalizeGreedyDraftTokensArgs& args) override {
    check(args);
    for (std::int64_t i = 0; i < args.slots.size; ++i) {
      const std::int32_t token = token_of_slot(args.slots.data[i]);
      const bool good = has(args.vocab, token);
      if (!good && args.slots.data[i] != 0) report(args.status, kOpBadToken);
      args.tokens.data[i] = good ? token : -1;
    }
  }

  void greedy_propose(const GreedyProposeArgs& args) override {
    check(args);
    if (args.batch == 0) return;
    const std::int64_t cells = std::int64_t{args.batch} * args.block_size;
    ScratchCutter scratch(args.scratch);
    MarkovGreedyStepArgs step;
    step.batch = args.batch;
    step.block_size = args.block_size;
    step.backbone = args.backbone;
    step.logits_stride = args.logits_stride;
    step.logits_offset = args.logits_offset;
    step.w1 = args.w1;
    step.w2 = args.w2;
    step.w2_scale = args.w2_scale;
    step.first_previous = args.first_previous;
    step.products = args.products;
    step.margin = args.margin;
    step.scratch = scratch.take(markov_greedy_step_scratch(args.batch));
    step.slots = static_cast<std::uint64_t*>(
        scratch.take(static_cast<std::size_t>(cells) * sizeof(std::uint64_t)).data);
    step.status = args.status;
    for (step.step = 0; step.step < args.block_size; ++step.step) markov_greedy_step(step);
    finalize_greedy_draft_tokens(
        {{step.slots, cells}, args.backbone.vocab, {args.tokens, cells}, args.status});
  }

  void select_top_k(const SelectTopKArgs& args) override {
    check(args);
    const std::int32_t k = args.values.vocab;
    const std::int64_t keys_per_row = std::int64_t{slice_count(args.logits.vocab)} * k;
    for_each(args.logits.rows, args.logits.vocab, [&](std::int64_t row) {
      const float* const logits = row_of(args.logits, row);
      float* const values = row_of(args.values, row);
      std::int32_t* const ids = args.ids + row * k;
      if (ops_.row_law(logits, args.logits.vocab, kGreedyRule).status != kRowValid) {
        report(args.status, kOpInvalidRow);
        std::fill_n(values, k, kNaN);
        std::fill_n(ids, k, -1);
        return;
      }
      cpu::select_top_k(logits, args.logits.vocab, k,
                        static_cast<std::uint64_t*>(args.scratch.data) + row * keys_per_row, values,
                        ids);
    });
  }

  void normalize_top_k_rows(const NormalizeTopKRowsArgs& args) override {
    check(args);
    const std::int32_t k = args.values.vocab;
    for_each(args.values.rows, k, [&](std::int64_t row) {
      const std::int32_t* const ids = args.ids == nullptr ? nullptr : args.ids + row * k;
      const TopKRow values{row_of(args.values, row), ids, k, -1};
      if (!normalize_top_k(values, args.rule, row_of(args.probabilities, row)).valid) {
        report(args.status, kOpInvalidRow);
      }
    });
  }

  void store_draft_step_top1(const StoreDraftStepTop1Args& args) override {
    check(args);
    for (std::int64_t b = 0; b < args.batch; ++b) {
      const std::int32_t id = args.ids[b * args.ids_stride];
      const bool good = has(args.vocab, id);
      if (!good) report(args.status, kOpBadToken);
      args.tokens[b * args.block_size + args.step] = good ? id : -1;
    }
  }

  void sample_top_k_rows(const SampleTopKRowsArgs& args) override {
    check(args);
    for_each(args.batch, args.values.vocab, [&](std::int64_t b) { sample_top_k_row(args, b); });
  }

 private:
  static_assert(kGreedyRows <= kBiasRows && kGreedyColumns <= kGemmColumns);
  static constexpr std::size_t kWorkspaceBytes = round_up(kGemmScratch * sizeof(float)) +
                                                 round_up(kTaskRows * sizeof(GemmRow)) +
                                                 round_up(kBiasRows * kGemmColumns * sizeof(float));
  static constexpr SamplingRule kGreedyRule = {1.0f, true, TopPRule::water_filling, 0, 0};

  void* allocate_bytes(std::size_t bytes) override {
    if (bytes > std::numeric_limits<std::size_t>::max() / 2) return nullptr;
    if (bytes >= kCheckedAllocation && bytes > available_memory()) return nullptr;
    return std::aligned_alloc(kAlignment, round_up(bytes));
  }
  void free_bytes(void* data) noexcept override { std::free(data); }

  /// Calls function(i) for 0 ≤ i < count, each of which touches about `work` elements, from all
  /// threads where that pays.
  template <class Function>
  void for_each(std::int64_t count, std::int64_t work, Function function) const {
#pragma omp parallel for num_threads(threads_) schedule(dynamic) if (pays(count, work))
    for (std::int64_t i = 0; i < count; ++i) function(i);
  }

  static bool pays(std::int64_t count, std::int64_t work) {
    return count > 1 && work > kParallelWork / count;
  }

  /// A task of a product: rows [first, last) and columns [column, column_end) of its output.
  struct Tile {
    std::int64_t first, last, column, column_end;
  };

  /// Calls function(tile) for all tiles of a product of `count` rows with `b`, `most_rows` rows
  /// high at most, from all threads where that pays.
  template <class Function>
  void for_each_tile(const Matrix& b, std::int64_t count, std::int64_t most_rows,
                     Function function) const {
    const std::int64_t row_tasks = (count + most_rows - 1) / most_rows;
    const std::int64_t column_tasks = (b.rows + kGemmColumns - 1) / kGemmColumns;
    const bool parallel = pays(row_tasks * column_tasks, std::min(count, most_rows) * b.cols);
#pragma omp parallel for num_threads(threads_) schedule(dynamic) collapse(2) if (parallel)
    for (std::int64_t row_task = 0; row_task < row_tasks; ++row_task) {
      for (std::int64_t column_task = 0; column_task < column_tasks; ++column_task) {
        const std::int64_t first = row_task * most_rows;
        const std::int64_t column = column_task * kGemmColumns;
        function(Tile{first, std::min(first + most_rows, count), column,
                      std::min(column + kGemmColumns, b.rows)});
      }
    }
  }

  /// Rows 0 to count of a product with `b`. `describe(row, to)` fills in a row; false leaves it
  /// out.
  template <class Describe>
  void multiply(DType a_type, const Matrix& b, std::int64_t count, Describe describe) {
    for_each_tile(b, count, kTaskRows, [&](const Tile& tile) {
      const Workspace workspace = own_workspace();
      std::int64_t used = 0;
      for (std::int64_t row = tile.first; row < tile.last; ++row) {
        if (describe(row, workspace.rows[used])) ++used;
      }
      ops_.gemm(workspace.rows, used, a_type, b, tile.column, tile.column_end, workspace.scratch);
    });
  }

  /// As `multiply`, but the finished sums are added to what the rows' outputs hold.
  template <class Describe>
  void multiply_add(DType a_type, const Matrix& b, std::int64_t count, Describe describe) {
    for_each_tile(b, count, kBiasRows, [&](const Tile& tile) {
      const Workspace workspace = own_workspace();
      Matrix part = b;
      part.data = row_of(b, tile.column);
      part.rows = tile.column_end - tile.column;
      float* outs[kBiasRows];
      std::int64_t used = 0;
      for (std::int64_t row = tile.first; row < tile.last; ++row) {
        GemmRow& to = workspace.rows[used];
        if (!describe(row, to)) continue;
        outs[used] = to.out + tile.column;
        to.out = workspace.tile + used * kGemmColumns;
        ++used;
      }
      ops_.gemm(workspace.rows, used, a_type, part, 0, part.rows, workspace.scratch);
      for (std::int64_t row = 0; row < used; ++row) {
        const float* const sums = workspace.tile + row * kGemmColumns;
        for (std::int64_t n = 0; n < part.rows; ++n) outs[row][n] += sums[n];
      }
    });
  }

  /// What a thread needs for a product.
  struct Workspace {
    float* scratch;
    GemmRow* rows;
    float* tile;  ///< kBiasRows rows of kGemmColumns
  };
  Workspace own_workspace() const {
    auto* const data = static_cast<std::byte*>(workspaces_.data()) +
                       static_cast<std::size_t>(omp_get_thread_num()) * kWorkspaceBytes;
    constexpr std::size_t rows_at = round_up(kGemmScratch * sizeof(float));
    constexpr std::size_t tile_at = rows_at + round_up(kTaskRows * sizeof(GemmRow));
    return {reinterpret_cast<float*>(data), reinterpret_cast<GemmRow*>(data + rows_at),
            reinterpret_cast<float*>(data + tile_at)};
  }

  static std::uint32_t markov_row_status(const MarkovRowsArgs& args, std::int64_t i) {
    std::uint32_t bits = kOpOk;
    if (!has(args.backbone.rows, args.backbone_row.data[i])) bits |= kOpBadRow;
    if (args.w1.data != nullptr && !has(args.w1.rows, args.previous.data[i])) bits |= kOpBadToken;
    return bits;
  }

  static std::int64_t draft_hidden_row(const DraftRowsArgs& args, std::int64_t i) {
    return args.hidden_row.data != nullptr ? args.hidden_row.data[i] : i;
  }
  static std::uint32_t draft_row_status(const DraftRowsArgs& args, std::int64_t i) {
    std::uint32_t bits = kOpOk;
    if (!has(args.hidden.rows, draft_hidden_row(args, i))) bits |= kOpBadRow;
    if (args.w1.data != nullptr && !has(args.w1.rows, args.previous.data[i])) bits |= kOpBadToken;
    return bits;
  }

  static bool valid(const Array<const RowLaw>& laws, std::int32_t row) {
    return has(laws.size, row) && laws.data[row].status == kRowValid;
  }

  static std::int32_t clamped_length(std::int32_t length, std::int32_t verify_length) {
    return std::clamp(length, 1, verify_length);
  }

  /// The score of one row; `previous` below 0: without the Markov part.
  float confidence(const Matrix& hidden, std::int64_t row, const Matrix& w1, std::int32_t previous,
                   const Array<const float>& weight, float bias) const {
    const bool markov = previous >= 0;
    const float dot = ops_.confidence_dot(row_of(hidden, row), hidden.type, hidden.cols,
                                          markov ? row_of(w1, previous) : nullptr, w1.type,
                                          markov ? w1.cols : 0, weight.data);
    return sigmoid(dot + bias);
  }

  void score(const ConfidenceScoresArgs& args) const {
    const BlockLayout layout(args.block_size, args.hidden_stride, args.hidden_offset);
    const bool markov = args.weight.size > args.hidden.cols;
    for_each(std::int64_t{args.batch} * args.block_size, args.weight.size, [&](std::int64_t cell) {
      const std::int64_t b = cell / args.block_size;
      const auto slot = static_cast<std::int32_t>(cell % args.block_size);
      std::int32_t previous = -1;
      if (markov) {
        previous = layout.previous(args.first_previous, args.draft, b, slot);
        if (!has(args.w1.rows, previous)) {
          report(args.status, kOpBadToken);
          args.scores[cell] = kNaN;
          return;
        }
      }
      args.scores[cell] =
          confidence(args.hidden, layout.row(b, slot), args.w1, previous, args.weight, args.bias);
    });
  }

  static void greedy_walk(const GreedyAcceptArgs& args, std::int64_t b) {
    const std::int64_t rows = std::int64_t{args.length} + 1;
    const RowLaw* const laws = args.laws + b * rows;
    const std::int32_t* const draft = args.draft + b * args.draft_stride;
    std::int32_t* const accepted = args.accepted + b * rows;
    const std::int32_t proposed = args.lengths[b];
    const std::int32_t length = clamped_length(proposed, args.length);
    if (proposed < 0 || proposed > args.draft_stride) report(args.status, kOpBadLength);
    std::int32_t count = 0;
    while (count < length && laws[count].argmax >= 0) {
      if (!has(args.logits.vocab, draft[count])) report(args.status, kOpBadToken);
      if (draft[count] != laws[count].argmax) break;
      accepted[count] = draft[count];
      ++count;
    }
    accepted[count] = std::max(laws[count].argmax, 0);
    std::fill(accepted + count + 1, accepted + rows, 0);
    args.accept_length[b] = count + 1;
  }

  void probabilistic_walk(const ProbabilisticAcceptArgs& args, std::int64_t b) const {
    const std::int64_t rows = std::int64_t{args.length} + 1;
    const std::int32_t vocab = args.target.vocab;
    const std::int32_t* const tokens = args.tokens + b * args.draft_stride;
    const float* const uniforms = args.uniforms + b * (2 * std::int64_t{args.draft_stride} + 1);
    std::int32_t* const accepted = args.accepted + b * rows;
    const std::int32_t proposed = args.lengths[b];
    const std::int32_t length = clamped_length(proposed, args.length);
    std::uint32_t bits = proposed < 0 || proposed > args.draft_stride ? kOpBadLength : kOpOk;
    double distance = std::numeric_limits<double>::infinity();

    std::int32_t count = 0;
    for (; count < length; ++count) {
      const std::int32_t token = tokens[count];
      if (!has(vocab, token)) {
        bits |= kOpBadToken;
        break;
      }
      const float p = row_of(args.target, b * rows + count)[token];
      const float q = row_of(args.draft, b * args.draft_stride + count)[token];
      if (std::isnan(p) || std::isnan(q)) bits |= kOpInvalidRow;
      const std::uint64_t p_weight = probability_weight(p);
      const std::uint64_t q_weight = probability_weight(q);
      const std::uint64_t uniform = uniform_from_float(uniforms[count]);
      const double ratio =
          q_weight == 0
              ? 1.0
              : std::min(1.0, static_cast<double>(p_weight) / static_cast<double>(q_weight));
      distance = std::min(distance, std::fabs(fraction(uniform) - ratio));
      // In units of 2^-61, which is what the test compares.
      constexpr int kShift = kProbabilityBits - kMassBits;
      if (!accepts(p_weight << kShift, q_weight << kShift, uniform)) break;
      accepted[count] = token;
    }

    const bool rejected = count < length;
    const std::uint64_t uniform = uniform_from_float(
        uniforms[rejected ? args.draft_stride + count : 2 * std::int64_t{args.draft_stride}]);
    const float* const target = row_of(args.target, b * rows + count);
    WeightedPick pick = {};
    std::uint64_t whole = kUnitMass;
    if (rejected) {
      pick = ops_.pick(target, row_of(args.draft, b * args.draft_stride + count), vocab, uniform);
      if (pick.bad) bits |= kOpInvalidRow;
      whole = pick.total;
    }
    if (!rejected || pick.total == 0) {
      pick = ops_.pick(target, nullptr, vocab, uniform);
      if (pick.bad) bits |= kOpInvalidRow;
      whole = kUnitMass;
    }
    distance = std::min(distance, boundary_distance(uniform, pick, whole));

    accepted[count] = pick.token;
    std::fill(accepted + count + 1, accepted + rows, 0);
    args.accept_length[b] = count + 1;
    if (args.distance != nullptr) args.distance[b] = static_cast<float>(distance);
    report(args.status, bits);
  }

  template <class T>
  static void quantize_row(const QuantizeMarkovW2Args& args, std::int64_t row) {
    const T* const weights = static_cast<const T*>(row_of(args.w2, row));
    float largest = 0;
    bool bad = false;
    for (std::int64_t r = 0; r < args.w2.cols; ++r) {
      const float magnitude = std::fabs(to_float(weights[r]));
      bad = bad || !(magnitude <= kFloat8LargestWeight);
      if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
    }
    if (bad) report(args.status, kOpInvalidRow);
    const Float16 scale = float8_scale(largest);
    args.scale[row] = scale;
    Float8* const codes = args.codes + row * args.w2.cols;
    for (std::int64_t r = 0; r < args.w2.cols; ++r) {
      codes[r] = quantize_float8(to_float(weights[r]), to_float(scale));
    }
  }

  static std::int32_t token_of_slot(std::uint64_t slot) {
    return slot == 0 ? -1 : token_of_key(slot);
  }

  /// The token before a greedy step's row; -1 where it is none or not in the vocabulary. Without a
  /// head 0.
  static std::int32_t greedy_previous(const MarkovGreedyStepArgs& args, std::int64_t b) {
    if (args.w1.data == nullptr) return 0;
    const std::int32_t token = args.step == 0
                                   ? args.first_previous[b]
                                   : token_of_slot(args.slots[b * args.block_size + args.step - 1]);
    return has(args.w1.rows, token) ? token : -1;
  }

  static float* stacked_row(const MarkovGreedyStepArgs& args, std::int64_t b) {
    const std::int32_t depth = args.stacked_row < 0 ? args.step + 1 : args.stacked_row;
    return row_of(args.stacked, b * (std::int64_t{args.block_size} + 1) + depth);
  }

  /// The rows of a greedy step that have a previous token, a tile of logits at a time.
  void multiply_greedy(const MarkovGreedyStepArgs& args, const std::int32_t* previous,
                       GreedyRow* rows) {
    const BlockLayout layout(args.block_size, args.logits_stride, args.logits_offset);
    const std::int64_t row_tasks = (args.batch + kGreedyRows - 1) / kGreedyRows;
    const std::int64_t column_tasks = (args.w2.rows + kGreedyColumns - 1) / kGreedyColumns;
    const bool parallel = pays(row_tasks * column_tasks,
                               std::min<std::int64_t>(args.batch, kGreedyRows) * args.w2.cols);
#pragma omp parallel for num_threads(threads_) schedule(dynamic) collapse(2) if (parallel)
    for (std::int64_t column_task = 0; column_task < column_tasks; ++column_task) {
      for (std::int64_t row_task = 0; row_task < row_tasks; ++row_task) {
        const Workspace workspace = own_workspace();
        const std::int64_t first = column_task * kGreedyColumns;
        Matrix w2 = args.w2;
        w2.data = row_of(args.w2, first);
        w2.rows = std::min(kGreedyColumns, args.w2.rows - first);
        std::int64_t batch_entry[kGreedyRows];
        std::int64_t used = 0;
        for (std::int64_t b = row_task * kGreedyRows;
             b < std::min<std::int64_t>((row_task + 1) * kGreedyRows, args.batch); ++b) {
          if (previous[b] < 0) continue;
          const float* const backbone = row_of(args.backbone, layout.row(b, args.step)) + first;
          workspace.rows[used] = {row_of(args.w1, previous[b]),
                                  w2.type == DType::e4m3 ? nullptr : backbone,
                                  workspace.tile + used * kGreedyColumns};
          batch_entry[used++] = b;
        }
        ops_.gemm(workspace.rows, used, args.w1.type, w2, 0, w2.rows, workspace.scratch);
        for (std::int64_t i = 0; i < used; ++i) {
          const std::int64_t b = batch_entry[i];
          float* const logits = workspace.rows[i].out;
          if (w2.type == DType::e4m3) {
            const float* const backbone = row_of(args.backbone, layout.row(b, args.step)) + first;
            for (std::int64_t n = 0; n < w2.rows; ++n) {
              logits[n] = backbone[n] + logits[n] * to_float(args.w2_scale[first + n]);
            }
          }
          if (args.stacked.data != nullptr) {
            std::copy_n(logits, w2.rows, stacked_row(args, b) + first);
          }
          const RowLaw law = ops_.row_law(logits, static_cast<std::int32_t>(w2.rows), kGreedyRule);
#pragma omp critical(dspark_greedy_rows)
          rows[b].add(law, first);
        }
      }
    }
  }

  static void sample_top_k_row(const SampleTopKRowsArgs& args, std::int64_t b) {
    const std::int32_t k = args.values.vocab;
    const std::int64_t cell = b * args.block_size + args.step;
    const TopKRow row{row_of(args.values, b), args.ids + b * k, k, args.vocab};
    float* const probabilities = row_of(args.probabilities, cell);
    std::int32_t* const stored = args.stored_ids + cell * k;
    for (std::int32_t i = 0; i < k; ++i) {
      const bool good = has(args.vocab, row.ids[i]);
      if (!good) report(args.status, kOpBadToken);
      stored[i] = good ? row.ids[i] : -1;
    }
    const TopKLaw law = normalize_top_k(row, args.rule, probabilities);
    if (!law.valid) {
      report(args.status, kOpInvalidRow);
      args.tokens[cell] = -1;
      if (args.distance != nullptr) args.distance[cell] = 0.0f;
      return;
    }
    const std::uint64_t uniform = uniform_from_float(args.uniforms[cell]);
    const std::uint64_t target = cdf_target(uniform, kUnitMass);
    WeightedPick pick = {-1, false, 0, 0, 0};
    for (std::int32_t i = 0; i < k && pick.upper <= target; ++i) {
      const std::uint64_t weight = probability_weight(probabilities[i]);
      if (weight == 0) continue;
      pick = {stored[i], false, pick.upper, pick.upper + weight, 0};
    }
    args.tokens[cell] = pick.token;
    if (args.distance == nullptr) return;
    args.distance[cell] = args.rule.greedy
                              ? law.largest - law.second
                              : static_cast<float>(boundary_distance(uniform, pick, kUnitMass));
  }

  int threads_;
  const VectorOps& ops_;
  BatchWorkspace batch_;
  Buffer workspaces_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend_with(int threads, const VectorOps& ops) {
  if (threads < 1 || threads > kMaxThreads) {
    throw internal_error("cpu backend", "the number of threads is " + std::to_string(threads) +
                                            ", outside [1, " + std::to_string(kMaxThreads) + "]");
  }
  return std::make_unique<CpuBackend>(threads, ops);
}

}  // namespace dspark::cpu
