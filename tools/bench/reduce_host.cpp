// What the reduce stage costs on the host per anchor: a pass whose operations cost nothing, so that
// reading, bookkeeping and the walk of the worlds are all that is left. Results are made up.
//
//   reduce_host [ANCHORS] [REPEATS] [HIDDEN_SIZE]
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>

#include "replay/reduce.h"
#include "tests/replay/idle_backend.h"
#include "trace/writer.h"

namespace dspark {
namespace {

constexpr std::int32_t kVocab = 512, kBlock = 7, kRank = 8;
constexpr std::int64_t kSequence = 1000;

/// Answers at once, with valid rows and rejections in half of the rounds.
class FreeBackend final : public IdleBackend {
 public:
  [[nodiscard]] std::string name() const override { return "free"; }
  [[nodiscard]] std::string device() const override { return "none"; }
  [[nodiscard]] bool shares_host_memory() const override { return true; }
  [[nodiscard]] std::size_t free_memory() const override { return std::size_t{1} << 40; }
  void upload(void* target, const void* source, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void download(void* target, const void* source, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(target, source, bytes);
  }
  void fill(void* target, int value, std::size_t bytes) override {
    std::memset(target, value, bytes);
  }
  void synchronize() override {}
  void project(const ProjectArgs&) override {}
  void widen(const WidenArgs&) override {}
  void markov_rows(const MarkovRowsArgs&) override {}
  void draft_rows(const DraftRowsArgs&) override {}
  void confidence_rows(const ConfidenceRowsArgs& args) override {
    for (std::int64_t i = 0; i < args.out.size; ++i) args.out.data[i] = 0.5f;
  }
  void row_laws(const RowLawsArgs& args) override {
    RowLaw law;
    law.total = law.boundary_mass = std::uint64_t{1} << 40;
    law.scale = law_scale(law.total);
    law.argmax = 1;
    for (std::int64_t i = 0; i < args.laws.size; ++i) args.laws.data[i] = law;
  }
  void compare_pairs(const ComparePairsArgs& args) override {
    const std::uint64_t half = kUnitProbability / 2;
    for (std::int64_t i = 0; i < args.out.size; ++i) {
      args.out.data[i] = {half, half, i % 2 == 0 ? half : half / 2, 0.0f, 1};
    }
  }
  void sample_rows(const SampleRowsArgs& args) override { ones(args.token); }
  void sample_excess(const SampleExcessArgs& args) override { ones(args.token); }

 private:
  static void ones(const Array<std::int32_t>& token) {
    for (std::int64_t i = 0; i < token.size; ++i) token.data[i] = 1;
  }
  void* allocate_bytes(std::size_t bytes) override {
    return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  }
  void free_bytes(void* data) noexcept override { std::free(data); }
};

void write_trace(const std::string& path, std::int64_t anchors, std::int32_t hidden) {
  TraceHeader header;
  header.kind = TraceKind::anchors;
  header.vocab_size = header.vocab_size_logical = kVocab;
  header.hidden_size = header.target_hidden_size = hidden;
  header.block_size = kBlock;
  header.temperature = 1;
  TraceWriter writer(path, header, anchors);
  AnchorTokens tokens;
  for (std::int64_t at = 0; at < anchors; at += kSequence) tokens.sequence_offsets.push_back(at);
  tokens.last_tokens.assign(tokens.sequence_offsets.size(), 1);
  tokens.sequence_offsets.push_back(anchors);
  tokens.tokens.assign(static_cast<std::size_t>(anchors), 1);
  writer.write(tokens);
  const std::vector<float> zeros(std::size_t{kVocab} * static_cast<std::size_t>(hidden) * kBlock,
                                 0.0f);
  for (const RowData data : {RowData::draft_hidden, RowData::target_hidden}) {
    writer.create(data, StoredType::f16);
    for (std::int64_t n = 0; n < anchors; ++n) writer.append(data, zeros.data(), 1);
  }
  const auto head = [&](HeadData data, std::int64_t rows, std::int64_t cols) {
    writer.create(data, StoredType::f16, rows, cols);
    writer.append(data, zeros.data(), rows);
  };
  head(HeadData::markov_w1, kVocab, kRank);
  head(HeadData::markov_w2, kVocab, kRank);
  head(HeadData::lm_head, kVocab, hidden);
  head(HeadData::confidence_weight, hidden + kRank, 1);
  head(HeadData::confidence_bias, 1, 1);
  writer.commit();
}

void measure(const std::string& path, bool worlds, std::int32_t repeats) {
  FreeBackend backend;
  const std::unique_ptr<TraceFile> trace = TraceFile::open(path);
  const Heads heads = load_heads(*trace, "", 0);
  ReplayOptions options;
  options.repeats = repeats;
  options.tile_bytes = std::uint64_t{4} << 20;  // about the anchors per step of a GPU
  const ReduceRequest request = {.sampling = {1, 0, 1, "water_filling"}, .worlds = worlds};
  double best = 1e9;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto started = std::chrono::steady_clock::now();
    static_cast<void>(reduce_anchors(backend, *trace, heads, request, options));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
    best = std::min(best, took.count() / static_cast<double>(trace->blocks()));
  }
  fmt::print("{:<24} {:.3f} us per anchor\n",
             worlds ? fmt::format("{} worlds per anchor", repeats) : "without worlds", best * 1e6);
}

}  // namespace
}  // namespace dspark

int main(int argc, char** argv) {
  const std::int64_t anchors = argc > 1 ? std::atoll(argv[1]) : 100000;
  const std::int32_t repeats = argc > 2 ? std::atoi(argv[2]) : 4;
  const std::string path =
      (std::filesystem::temp_directory_path() / "dspark_reduce_host.h5").string();
  std::filesystem::remove(path);
  dspark::write_trace(path, anchors, argc > 3 ? std::atoi(argv[3]) : 64);
  dspark::measure(path, false, repeats);
  dspark::measure(path, true, repeats);
  std::filesystem::remove(path);
  return 0;
}
