// A pass that reads ahead, copies beside its operations and looks at results later gives the same
// numbers as one that waits for everything, and fails in the same way.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "backends/cpu/cpu_backend.h"
#include "replay/chunk_stream.h"
#include "replay/reduce.h"
#include "replay/rounds.h"
#include "support/error.h"
#include "tests/replay/lazy_backend.h"
#include "tests/replay/same_bits.h"
#include "tests/replay/tiny_trace.h"
#include "tests/support/temporary_folder.h"

namespace dspark {
namespace {

std::string bundled(const char* name) { return std::string(DSPARK_TRACES) + "/" + name; }

SamplingLabel recorded(const TraceFile& trace) {
  const TraceHeader& header = trace.header();
  return {header.temperature, header.top_k, header.top_p, "water_filling"};
}

void expect_same(const OutcomeTable& a, const OutcomeTable& b) {
  EXPECT_EQ(a.repeats, b.repeats);
  EXPECT_EQ(a.slots, b.slots);
  EXPECT_TRUE(same_bits(a.beta, b.beta));
  EXPECT_TRUE(same_bits(a.alpha, b.alpha));
  EXPECT_TRUE(same_bits(a.importance, b.importance));
  EXPECT_TRUE(same_bits(a.confidence, b.confidence));
  EXPECT_EQ(a.agreement, b.agreement);
  EXPECT_TRUE(same_bits(a.world_confidence, b.world_confidence));
  EXPECT_TRUE(same_bits(a.top_probability, b.top_probability));
  EXPECT_TRUE(same_bits(a.world_top_probability, b.world_top_probability));
  EXPECT_EQ(a.invalid_rows, b.invalid_rows);
  EXPECT_EQ(a.impossible_tokens, b.impossible_tokens);
  EXPECT_EQ(a.near_ties, b.near_ties);
  EXPECT_EQ(a.first_problem, b.first_problem);
}

class Overlap : public testing::Test {
 protected:
  void open(const std::string& path) {
    trace_ = TraceFile::open(path);
    heads_ = load_heads(*trace_, "", 0);
    request_.sampling = recorded(*trace_);
  }
  void open(const TinyTrace& tiny) {
    trace_.reset();
    std::filesystem::remove(path_);
    tiny.write(path_);
    open(path_);
  }
  OutcomeTable reduce(Backend& backend, std::int64_t chunk) {
    ReplayOptions options;
    options.repeats = 3;
    options.chunk = chunk;
    return reduce_anchors(backend, *trace_, heads_, request_, options);
  }
  /// The lazy backend against the CPU's, in chunks of every kind.
  void compare(const std::vector<std::int64_t>& chunks = {1, 2, 5, 0}) {
    const OutcomeTable expected = reduce(*cpu_, 4);
    for (const std::int64_t chunk : chunks) {
      SCOPED_TRACE(chunk);
      for (const bool early_copies : {false, true}) {
        LazyBackend lazy(early_copies);
        expect_same(reduce(lazy, chunk), expected);
      }
      expect_same(reduce(*cpu_, chunk), expected);
    }
  }

  test::TemporaryFolder files_;
  std::string path_ = files_.file("trace.h5");
  std::unique_ptr<Backend> cpu_ = make_cpu_backend(1);
  std::unique_ptr<TraceFile> trace_;
  Heads heads_;
  ReduceRequest request_{
      .sampling = {}, .verification = Verification::probabilistic, .worlds = true};
};

TEST_F(Overlap, StoredLogitsWithAndWithoutWorlds) {
  open(TinyTrace(3));
  ASSERT_EQ(reduce(*cpu_, 0).repeats, 3);
  compare();
  request_.top_probability = true;
  compare();
  request_.worlds = false;
  compare();
}

TEST_F(Overlap, WithoutAConfidenceHead) {
  TinyTrace tiny(4);
  tiny.has_confidence = false;
  open(tiny);
  compare();
}

TEST_F(Overlap, WhereRowsAreInvalid) {
  TinyTrace tiny(7);
  const auto vocab = static_cast<std::size_t>(tiny.vocab);
  tiny.draft_logits[7 * vocab] = std::numeric_limits<float>::quiet_NaN();
  tiny.draft_logits[20 * vocab] = std::numeric_limits<float>::infinity();
  tiny.target_logits[9 * vocab] = std::numeric_limits<float>::quiet_NaN();
  open(tiny);
  ASSERT_GT(reduce(*cpu_, 0).invalid_rows, 0);
  compare();
}

TEST_F(Overlap, AnotherSetting) {
  open(TinyTrace(5));
  request_.sampling.temperature = 0.5;
  request_.off_policy = true;
  compare();
}

TEST_F(Overlap, GreedyDrafts) {
  open(TinyTrace(6));
  request_.sampling.drafts = "greedy";
  compare();
  request_.top_probability = true;
  compare();
}

TEST_F(Overlap, HiddenStatesAsTheyAreStored) {
  open(bundled("prose_t07.h5"));
  compare({40});
}

TEST_F(Overlap, DraftRowsStraightFromHiddenStatesAreTheSame) {
  open(bundled("prose_t07.h5"));
  const OutcomeTable through_backbone = reduce(*cpu_, 0);
  ASSERT_EQ(through_backbone.repeats, 3);
  request_.worlds = false;
  const OutcomeTable straight = reduce(*cpu_, 0);
  EXPECT_EQ(straight.repeats, 0);
  EXPECT_TRUE(same_bits(straight.alpha, through_backbone.alpha));
  EXPECT_TRUE(same_bits(straight.beta, through_backbone.beta));
  EXPECT_TRUE(same_bits(straight.confidence, through_backbone.confidence));
  compare({40});
}

TEST_F(Overlap, Rounds) {
  open(bundled("rounds_code_t1.h5"));
  const auto replay = [&](Backend& backend, std::int64_t chunk) {
    ReplayOptions options;
    options.chunk = chunk;
    return replay_rounds(backend, *trace_, heads_, request_.sampling, Verification::probabilistic,
                         options, true);
  };
  const RoundTable expected = replay(*cpu_, 0);
  LazyBackend lazy;
  const RoundTable table = replay(lazy, 7);
  EXPECT_TRUE(same_bits(table.confidence, expected.confidence));
  EXPECT_TRUE(same_bits(table.top_probability, expected.top_probability));
  ASSERT_EQ(table.rounds.size(), expected.rounds.size());
  for (std::size_t m = 0; m < table.rounds.size(); ++m) {
    EXPECT_EQ(table.rounds[m].accepted, expected.rounds[m].accepted) << m;
    EXPECT_EQ(table.rounds[m].reproduced, expected.rounds[m].reproduced) << m;
    EXPECT_EQ(table.rounds[m].diverged_slot, expected.rounds[m].diverged_slot) << m;
  }
}

TEST_F(Overlap, ProgressCountsChunksThatAreDone) {
  open(TinyTrace(3));
  for (const bool worlds : {false, true}) {
    request_.worlds = worlds;
    std::vector<std::int64_t> seen;
    ReplayOptions options;
    options.chunk = 5;
    options.progress = [&](std::int64_t done, std::int64_t total) {
      EXPECT_EQ(total, 12);
      seen.push_back(done);
    };
    LazyBackend lazy;
    static_cast<void>(reduce_anchors(lazy, *trace_, heads_, request_, options));
    EXPECT_EQ(seen, (std::vector<std::int64_t>{5, 10, 12}));
  }
}

TEST_F(Overlap, TheMemoryOfAPassIsToldBeforeItStarts) {
  open(TinyTrace(3));
  std::string told;
  ReplayOptions options;
  options.chunk = 5;
  options.plan = [&](const std::string& line) { told = line; };
  options.progress = [&](std::int64_t, std::int64_t) { EXPECT_FALSE(told.empty()); };
  static_cast<void>(reduce_anchors(*cpu_, *trace_, heads_, request_, options));
  EXPECT_NE(told.find("5 blocks at a time; host memory: "), std::string::npos) << told;
  LazyBackend lazy;
  static_cast<void>(reduce_anchors(lazy, *trace_, heads_, request_, options));
  EXPECT_NE(told.find("5 blocks at a time; device memory: "), std::string::npos) << told;
  EXPECT_NE(told.find("; host memory: "), std::string::npos) << told;
}

// --- reading ahead ---

/// A deflated trace of 40 blocks whose data is damaged somewhere, so that some blocks can be read
/// and a later one cannot; `bad` is the first that cannot.
class DamagedTrace : public testing::Test {
 protected:
  void SetUp() override {
    write(path_);
    std::ifstream file(path_, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    for (std::size_t at = bytes.size() / 3; at + 64 < bytes.size(); at += 128) {
      std::string damaged = bytes;
      for (std::size_t i = at; i < at + 32; ++i) damaged[i] = static_cast<char>(~damaged[i]);
      std::ofstream(damaged_, std::ios::binary) << damaged;
      bad_ = first_bad();
      if (bad_ > 10) return;
    }
    FAIL() << "no damage was found that spares the first blocks";
  }

  static void write(const std::string& path) {
    TraceHeader header;
    header.kind = TraceKind::anchors;
    header.vocab_size = header.vocab_size_logical = 64;
    header.block_size = 2;
    header.temperature = 1;
    TraceWriter writer(path, header, kBlocks, {.deflate = 1, .chunk_bytes = 1024});
    writer.write(AnchorTokens{{0, kBlocks}, std::vector<std::int32_t>(kBlocks, 1), {1}});
    std::vector<float> values(std::size_t{kBlocks} * 2 * 64);
    std::uint32_t state = 1;
    for (float& value : values) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<float>(state >> 8) * 0x1p-22f;
    }
    for (const RowData data : {RowData::draft_logits, RowData::target_logits}) {
      writer.create(data, StoredType::f32);
      writer.append(data, values.data(), kBlocks);
    }
    writer.commit();
  }

  /// The first block of the damaged file that cannot be read; -1: none, or nothing can.
  std::int64_t first_bad() {
    try {
      const std::unique_ptr<TraceFile> trace = TraceFile::open(damaged_);
      std::vector<float> row(2 * 64);
      for (std::int64_t n = 0; n < kBlocks; ++n) {
        try {
          trace->read(RowData::draft_logits, n, 1, row.data());
          trace->read(RowData::target_logits, n, 1, row.data());
        } catch (const Error& error) {
          message_ = error.what();
          return n;
        }
      }
    } catch (const Error&) {
    }
    return -1;
  }

  static constexpr std::int64_t kBlocks = 40;
  test::TemporaryFolder files_;
  std::string path_ = files_.file("whole.h5"), damaged_ = files_.file("damaged.h5");
  std::int64_t bad_ = -1;
  std::string message_;
};

TEST_F(DamagedTrace, FailsWhereItIsReadAndWithTheSameMessage) {
  const std::unique_ptr<TraceFile> trace = TraceFile::open(damaged_);
  const Heads heads = load_heads(*trace, "", 0);
  std::int64_t done = 0;
  ReplayOptions options;
  options.chunk = 1;
  options.progress = [&](std::int64_t blocks, std::int64_t) { done = blocks; };
  LazyBackend lazy;
  const std::unique_ptr<Backend> cpu = make_cpu_backend(1);
  for (Backend* backend : std::initializer_list<Backend*>{cpu.get(), &lazy}) {
    try {
      static_cast<void>(reduce_anchors(*backend, *trace, heads,
                                       {.sampling = {1, 0, 1, "water_filling"}}, options));
      ADD_FAILURE() << "the damage was not noticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), message_);
      EXPECT_EQ(error.code(), ExitCode::trace);
    }
    // Target rows are read one block ahead of the chunk (the block size less one).
    EXPECT_EQ(done, bad_ - (message_.find("target") != std::string::npos ? 1 : 0));
  }
}

TEST_F(DamagedTrace, APassThatIsGivenUpEndsItsThread) {
  const std::unique_ptr<TraceFile> trace = TraceFile::open(path_);
  const Heads heads = load_heads(*trace, "", 0);
  ReplayOptions options;
  options.chunk = 1;
  options.progress = [](std::int64_t blocks, std::int64_t) {
    if (blocks == 3) throw std::runtime_error("given up");
  };
  LazyBackend lazy;
  const ReduceRequest request = {.sampling = {1, 0, 1, "water_filling"}};
  EXPECT_THROW(static_cast<void>(reduce_anchors(lazy, *trace, heads, request, options)),
               std::runtime_error);
  options.progress = nullptr;  // the trace can be read again
  EXPECT_EQ(reduce_anchors(lazy, *trace, heads, request, options).anchors(), kBlocks);
}

TEST_F(DamagedTrace, ChunksHaveTheBlocksBehindThemThatWereAskedFor) {
  const std::unique_ptr<TraceFile> trace = TraceFile::open(path_);
  std::vector<float> all(std::size_t{kBlocks} * 64);
  trace->read(RowData::target_logits, 0, kBlocks, all.data());
  const std::unique_ptr<Backend> cpu = make_cpu_backend(1);
  ChunkStream stream(*cpu, *trace, {{RowData::draft_logits, 0}, {RowData::target_logits, 3}}, 7);
  for (std::int64_t first = 0; first < kBlocks; first += 7) {
    stream.advance();
    EXPECT_EQ(stream.stored(0).rows, 2 * std::min<std::int64_t>(7, kBlocks - first));
    const Matrix target = stream.stored(1);
    ASSERT_EQ(target.rows, std::min<std::int64_t>(10, kBlocks - first));
    EXPECT_EQ(std::memcmp(target.data, all.data() + first * 64,
                          static_cast<std::size_t>(target.rows) * 64 * sizeof(float)),
              0);
    stream.prefetch();
  }
}

}  // namespace
}  // namespace dspark
