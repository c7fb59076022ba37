// Traces written by TraceWriter, read back; and what is left when writing does not end well.
#include "trace/writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/half.h"
#include "tests/trace/raw_file.h"
#include "trace/trace.h"

namespace dspark::test {
namespace {

namespace fs = std::filesystem;

TraceHeader anchors_header() {
  TraceHeader header;
  header.kind = TraceKind::anchors;
  header.vocab_size = kV;
  header.vocab_size_logical = kV - 1;
  header.hidden_size = kH;
  header.block_size = kP;
  header.temperature = 0.7;
  header.top_k = 20;
  header.top_p = 0.9;
  header.seed = 17;
  header.model = "m";
  header.domain = "code";
  header.producer = "test";
  header.created = "2026-01-01T00:00:00Z";
  header.heads_file = "heads.h5";
  return header;
}

AnchorTokens anchor_tokens() {
  AnchorTokens tokens;
  tokens.sequence_offsets = {0, 2, 4};
  tokens.tokens = {0, 1, 2, 3};
  tokens.last_tokens = {4, 0};
  return tokens;
}

class Writer : public ::testing::Test {
 protected:
  // A small anchors trace; returns without commit() if asked.
  void write(StoredType type, const WriteOptions& options, bool commit = true) const {
    TraceWriter writer(path, anchors_header(), 4, options);
    writer.create(RowData::draft_hidden, type);
    writer.create(RowData::draft_logits, type);
    writer.create(RowData::target_logits, type);
    // In parts, between each other.
    const std::vector<float> values = ramp(4 * kP * kV);
    writer.append(RowData::draft_hidden, values.data(), 1);
    writer.append(RowData::draft_logits, values.data(), 4);
    writer.append(RowData::draft_hidden, values.data() + kP * kH, 3);
    writer.write(anchor_tokens());
    writer.append(RowData::target_logits, values.data(), 4);
    if (commit) writer.commit();
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}));
  }
  [[nodiscard]] std::string bytes() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  TemporaryFolder dir;
  std::string path = dir.file("t.h5");
};

TEST_F(Writer, WhatIsWrittenIsRead) {
  for (const int deflate : {0, 6}) {
    write(StoredType::f32, {.deflate = deflate});
    const auto trace = TraceFile::open(path);
    const TraceHeader& header = trace->header();
    EXPECT_EQ(header.vocab_size, kV);
    EXPECT_EQ(header.vocab_size_logical, kV - 1);
    EXPECT_EQ(header.hidden_size, kH);
    EXPECT_EQ(header.temperature, 0.7);
    EXPECT_EQ(header.top_k, 20);
    EXPECT_EQ(header.top_p, 0.9);
    EXPECT_EQ(header.seed, 17);
    EXPECT_EQ(header.model, "m");
    EXPECT_EQ(header.domain, "code");
    EXPECT_EQ(header.producer, "test");
    EXPECT_EQ(header.created, "2026-01-01T00:00:00Z");
    EXPECT_EQ(header.heads_file, "heads.h5");
    EXPECT_EQ(trace->read_anchor_tokens(0).tokens, anchor_tokens().tokens);
    EXPECT_EQ(trace->read_anchor_tokens(0).last_tokens, anchor_tokens().last_tokens);
    std::vector<float> hidden(4 * kP * kH);
    trace->read(RowData::draft_hidden, 0, 4, hidden.data());
    EXPECT_EQ(hidden, ramp(4 * kP * kH));
    std::vector<float> logits(4 * kV);
    trace->read(RowData::target_logits, 0, 4, logits.data());
    EXPECT_EQ(logits, ramp(4 * kV));
  }
  EXPECT_EQ(files(), 1u);
}

TEST_F(Writer, EveryStoredTypeComesBackAsTheNearestNumber) {
  const std::vector<std::pair<StoredType, std::string>> types = {{StoredType::f16, "f16"},
                                                                 {StoredType::bf16, "bf16"},
                                                                 {StoredType::f32, "f32"},
                                                                 {StoredType::f64, "f64"}};
  const float value = 1.2345678f;
  for (const auto& [type, name] : types) {
    {
      TraceWriter writer(path, anchors_header(), 1);
      writer.create(RowData::draft_logits, type);
      writer.create(RowData::target_logits, type);
      const std::vector<float> values(kP * kV, value);
      writer.append(RowData::draft_logits, values.data(), 1);
      writer.append(RowData::target_logits, values.data(), 1);
      writer.write(AnchorTokens{{0, 1}, {0}, {0}});
      writer.commit();
    }
    const auto trace = TraceFile::open(path);
    EXPECT_EQ(trace->row_data(RowData::target_logits)->stored_as, name);
    std::vector<std::uint32_t> row(kV);
    trace->read(RowData::target_logits, 0, 1, row.data());
    const auto half = static_cast<std::uint16_t>(row[0] & 0xFFFF);
    const float read = type == StoredType::f16    ? to_float(Float16{half})
                       : type == StoredType::bf16 ? to_float(BFloat16{half})
                                                  : float_from_bits(row[0]);
    const float nearest = type == StoredType::f16    ? to_float(to_float16(value))
                          : type == StoredType::bf16 ? to_float(to_bfloat16(value))
                                                     : value;
    EXPECT_EQ(read, nearest);
  }
}

TEST_F(Writer, RoundsAndHeadsInsideThemAreRead) {
  TraceHeader header = anchors_header();
  header.kind = TraceKind::rounds;
  header.vocab_size_logical = kV;
  header.heads_file.clear();
  RoundRecords records;
  records.request = {0, 1};
  records.round = {0, 0};
  records.anchor_token = {1, 2};
  records.draft_tokens = {0, 1, 2, 3};
  records.proposal_length = {2, 0};
  records.accept_length = {2, 1};
  records.accepted_tokens = {0, 5, -1, 4, -1, -1};
  records.accept_uniforms.assign(10, 0.25f);
  {
    TraceWriter writer(path, header, 2);
    writer.write(records);
    writer.create(RowData::draft_hidden, StoredType::f16);
    writer.create(RowData::target_logits, StoredType::f16);
    const std::vector<float> values = ramp(100);
    writer.append(RowData::draft_hidden, values.data(), 2);
    writer.append(RowData::target_logits, values.data(), 2);
    for (const HeadData data : {HeadData::markov_w1, HeadData::markov_w2}) {
      writer.create(data, StoredType::f16, kV, kR);
      writer.append(data, values.data(), 2);
      writer.append(data, values.data() + 2 * kR, kV - 2);
    }
    writer.create(HeadData::confidence_weight, StoredType::f32, kH + kR, 1);
    writer.append(HeadData::confidence_weight, values.data(), kH + kR);
    writer.create(HeadData::lm_head, StoredType::bf16, kV, kH);
    writer.append(HeadData::lm_head, values.data(), kV);
    writer.commit();
  }
  const auto trace = TraceFile::open(path);
  const RoundRecords read = trace->read_round_records(0);
  EXPECT_EQ(read.accepted_tokens, records.accepted_tokens);
  EXPECT_EQ(read.accept_uniforms, records.accept_uniforms);
  EXPECT_TRUE(read.proposal_uniforms.empty());
  const Heads heads = load_heads(*trace, "", 0);
  EXPECT_EQ(heads.file, path);
  EXPECT_EQ(heads.markov_w1.cols, kR);
  EXPECT_TRUE(heads.confidence_with_markov);
  EXPECT_EQ(heads.confidence_weight, ramp(kH + kR));
  EXPECT_EQ(heads.lm_head.type, DType::bf16);
}

TEST_F(Writer, AHeadsFileIsRead) {
  TraceHeader header;
  header.kind = TraceKind::heads;
  header.vocab_size = kV;
  header.vocab_size_logical = kV;
  header.hidden_size = kH;
  header.target_hidden_size = kHt;
  const std::string heads_path = dir.file("heads.h5");
  {
    TraceWriter writer(heads_path, header, 0, {.deflate = 1});
    const std::vector<float> values = ramp(kV * kHt);
    writer.create(HeadData::lm_head, StoredType::f32, kV, kHt);
    writer.append(HeadData::lm_head, values.data(), kV);
    writer.create(HeadData::draft_lm_head, StoredType::f32, kV, kH);
    writer.append(HeadData::draft_lm_head, values.data(), kV);
    writer.create(HeadData::confidence_weight, StoredType::f32, kH, 1);
    writer.append(HeadData::confidence_weight, values.data(), kH);
    writer.create(HeadData::confidence_bias, StoredType::f32, 1, 1);
    writer.append(HeadData::confidence_bias, values.data(), 1);
    writer.commit();
  }
  make_hidden_anchors(path);
  const auto trace = TraceFile::open(path);
  const Heads heads = load_heads(*trace, heads_path, 0);
  EXPECT_EQ(heads.lm_head.cols, kHt);
  EXPECT_EQ(heads.draft_lm_head.cols, kH);
  EXPECT_FALSE(heads.confidence_with_markov);
  EXPECT_EQ(heads.confidence_bias, 0.25f);
}

TEST_F(Writer, SmallChunksAndLongRowsAreWrittenWhole) {
  for (const std::int64_t chunk_bytes : {1, 30, 100}) {
    write(StoredType::f16, {.deflate = 3, .chunk_bytes = chunk_bytes});
    const auto trace = TraceFile::open(path);
    std::vector<Float16> logits(4 * kP * kV);
    trace->read(RowData::draft_logits, 0, 4, logits.data());
    const std::vector<float> expected = ramp(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_EQ(to_float(logits[i]), expected[i]);
  }
}

TEST_F(Writer, TheSameCallsGiveTheSameBytes) {
  write(StoredType::bf16, {.deflate = 6});
  const std::string first = bytes();
  write(StoredType::bf16, {.deflate = 6});
  EXPECT_EQ(bytes(), first);
  EXPECT_GT(first.size(), 1000u);
}

// --- whole or not at all ---

TEST_F(Writer, WithoutCommitNothingIsLeft) {
  write(StoredType::f32, {}, false);
  EXPECT_EQ(files(), 0u);
}

TEST_F(Writer, AnOldFileStaysUntilTheNewOneIsWhole) {
  std::ofstream(path) << "old";
  write(StoredType::f32, {}, false);
  EXPECT_EQ(bytes(), "old");
  write(StoredType::f32, {});
  EXPECT_EQ(TraceFile::open(path)->blocks(), 4);
  EXPECT_EQ(files(), 1u);
}

TEST_F(Writer, ASymbolicLinkStaysALink) {
  const std::string target = dir.file("target.h5");
  std::ofstream(target) << "old";
  fs::create_symlink(target, path);
  write(StoredType::f32, {});
  EXPECT_TRUE(fs::is_symlink(path));
  EXPECT_EQ(TraceFile::open(target)->blocks(), 4);
}

TEST_F(Writer, PathsThatCannotBeCreatedAreUsageErrors) {
  const auto create = [&](const std::string& where) {
    return [&, where] { TraceWriter(where, anchors_header(), 4); };
  };
  expect_error(ExitCode::usage, {"none/t.h5", "cannot be created"}, create(dir.file("none/t.h5")));
  expect_error(ExitCode::usage, {"is a directory"}, create(fs::path(path).parent_path().string()));
  expect_error(ExitCode::usage, {"/dev/null", "not a regular file"}, create("/dev/null"));
  expect_error(ExitCode::usage, {"cannot be created"}, create(dir.file(std::string(300, 'x'))));
}

TEST_F(Writer, ABrokenContractIsAnInternalError) {
  const std::vector<float> values = ramp(200);
  const auto expect_internal = [&](const std::vector<std::string>& parts,
                                   const std::function<void(TraceWriter&)>& work) {
    TraceWriter writer(path, anchors_header(), 4);
    expect_error(ExitCode::internal, parts, [&] { work(writer); });
  };
  expect_internal({"before it was created"},
                  [&](TraceWriter& w) { w.append(RowData::draft_logits, values.data(), 1); });
  expect_internal({"created twice"}, [&](TraceWriter& w) {
    w.create(RowData::draft_logits, StoredType::f32);
    w.create(RowData::draft_logits, StoredType::f32);
  });
  expect_internal({"5 rows appended"}, [&](TraceWriter& w) {
    w.create(RowData::draft_logits, StoredType::f32);
    w.append(RowData::draft_logits, values.data(), 5);
  });
  expect_internal({"/anchors/draft_logits has 3 of 4 rows"}, [&](TraceWriter& w) {
    w.create(RowData::draft_logits, StoredType::f32);
    w.append(RowData::draft_logits, values.data(), 3);
    w.write(anchor_tokens());
    w.commit();
  });
  expect_internal({"without its tokens"}, [&](TraceWriter& w) { w.commit(); });
  expect_internal({"tokens has 3 values, not 4"}, [&](TraceWriter& w) {
    AnchorTokens tokens = anchor_tokens();
    tokens.tokens.pop_back();
    w.write(tokens);
  });
  expect_internal({"target_hidden has a dimension of 0"},
                  [&](TraceWriter& w) { w.create(RowData::target_hidden, StoredType::f32); });
  expect_internal({"rounds trace"}, [&](TraceWriter& w) { w.write(RoundRecords{}); });
  EXPECT_EQ(files(), 0u);
}

TEST_F(Writer, AFullDiskIsAnErrorAndLeavesNothing) {
  // A limit on the size of files stands in for the disk.
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit small{64 * 1024, old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  TraceHeader header = anchors_header();
  header.vocab_size = 50000;
  expect_error(ExitCode::internal, {path, "cannot be written", "disk"}, [&] {
    TraceWriter writer(path, header, 4);
    writer.write(anchor_tokens());
    writer.create(RowData::target_logits, StoredType::f32);
    const std::vector<float> values(50000 * 4, 1.0f);
    writer.append(RowData::target_logits, values.data(), 4);
    writer.commit();
  });
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace dspark::test
