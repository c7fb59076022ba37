// Tokens of anchors traces and records of rounds traces.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/trace/raw_file.h"
#include "trace/trace.h"

namespace dspark::test {
namespace {

class Records : public ::testing::Test {
 protected:
  void anchors_with(const std::function<void(RawFile&)>& how) {
    make_anchors(path);
    RawFile file = RawFile::edit(path);
    how(file);
  }
  void rounds_with(const std::function<void(RawFile&)>& how) {
    make_rounds(path);
    RawFile file = RawFile::edit(path);
    how(file);
  }
  [[nodiscard]] AnchorTokens anchors(std::uint64_t budget = 0) const {
    return TraceFile::open(path)->read_anchor_tokens(budget);
  }
  [[nodiscard]] RoundRecords rounds(std::uint64_t budget = 0) const {
    return TraceFile::open(path)->read_round_records(budget);
  }
  void expect_bad_anchors(const std::vector<std::string>& parts) const {
    expect_trace_error(parts, [&] { (void)anchors(); });
  }
  void expect_bad_rounds(const std::vector<std::string>& parts) const {
    expect_trace_error(parts, [&] { (void)rounds(); });
  }
  TemporaryFolder dir;
  std::string path = dir.file("t.h5");
};

using Ids = std::vector<std::int32_t>;

// --- anchors ---

TEST_F(Records, TokensAreRead) {
  make_anchors(path);
  const AnchorTokens out = anchors();
  EXPECT_EQ(out.sequence_offsets, (std::vector<std::int64_t>{0, 3, 5}));
  EXPECT_EQ(out.tokens, (Ids{0, 1, 2, 3, 5}));
  EXPECT_EQ(out.last_tokens, (Ids{4, 0}));
}

TEST_F(Records, TokensMayHaveAnyIntegerType) {
  for (const hid_t type : {H5T_STD_I8LE, H5T_STD_U8LE, H5T_STD_I16BE, H5T_STD_U16LE, H5T_STD_I32BE,
                           H5T_STD_I64LE, H5T_STD_U64BE}) {
    anchors_with([&](RawFile& f) {
      f.integers("/anchors/tokens", {5}, {0, 1, 2, 3, 5}, type);
      f.integers("/anchors/sequence_offsets", {3}, {0, 3, 5}, type);
    });
    EXPECT_EQ(anchors().tokens, (Ids{0, 1, 2, 3, 5}));
    EXPECT_EQ(anchors().sequence_offsets, (std::vector<std::int64_t>{0, 3, 5}));
  }
}

TEST_F(Records, OffsetsMustAscendFromZeroToTheNumberOfTokens) {
  const std::vector<std::pair<std::vector<std::int64_t>, std::string>> cases = {
      {{1, 3, 5}, "[0]"},
      {{0, 3, 4}, "[2]"},
      {{0, 4, 3}, "[2]"},
      {{0, 6, 5}, "[1]"},
      {{0, -1, 5}, "[1]"}};
  for (const auto& [offsets, place] : cases) {
    anchors_with([&, o = offsets](RawFile& f) {
      f.integers("/anchors/sequence_offsets", {3}, o, H5T_STD_I64LE);
    });
    expect_bad_anchors({"/anchors/sequence_offsets" + place});
  }
}

TEST_F(Records, EmptySequencesAreAllowedAndNeedNoLastToken) {
  anchors_with([](RawFile& f) {
    f.integers("/anchors/sequence_offsets", {5}, {0, 0, 3, 3, 5}, H5T_STD_I64LE);
    f.integers("/anchors/last_tokens", {4}, {-1, 4, 0, 0});
  });
  EXPECT_EQ(anchors().last_tokens, (Ids{-1, 4, 0, 0}));
  anchors_with([](RawFile& f) { f.integers("/anchors/last_tokens", {2}, {4, -1}); });
  expect_bad_anchors({"/anchors/last_tokens[1]", "is -1"});
}

TEST_F(Records, TokensOutOfRangeAreNamed) {
  for (const std::int64_t bad : {std::int64_t{-1}, kV, std::int64_t{1} << 40}) {
    anchors_with([&](RawFile& f) {
      f.integers("/anchors/tokens", {5}, {0, 1, bad, 3, 4}, H5T_STD_I64LE);
    });
    expect_bad_anchors({"/anchors/tokens[2]", "is " + std::to_string(bad), "vocab_size = 6"});
  }
  anchors_with([](RawFile& f) { f.integers("/anchors/last_tokens", {2}, {0, kV}); });
  expect_bad_anchors({"/anchors/last_tokens[1]"});
}

TEST_F(Records, ATokenThatWouldWrapInto32BitsIsRefused) {
  anchors_with([](RawFile& f) {
    f.integers("/anchors/tokens", {5}, {0, 1, (std::int64_t{1} << 32) + 1, 3, 4}, H5T_STD_I64LE);
  });
  expect_bad_anchors({"/anchors/tokens[2]", "4294967297"});
  const std::uint64_t values[5] = {0, 1, 2, 3, std::numeric_limits<std::uint64_t>::max()};
  anchors_with([&](RawFile& f) {
    f.dataset("/anchors/tokens", H5T_STD_U64LE, {5}, H5T_NATIVE_UINT64, values);
  });
  expect_bad_anchors({"/anchors/tokens[4]"});
}

TEST_F(Records, PaddingIdsAreNoTokens) {
  anchors_with([](RawFile& f) { f.integer("vocab_size_logical", 5); });
  expect_bad_anchors({"/anchors/tokens[4]", "is 5", "vocab_size_logical = 5"});
}

TEST_F(Records, TokensMustFitTheMemoryBudget) {
  make_anchors(path);
  const std::uint64_t needed = 5 * 4 + 3 * 8 + 2 * 4;
  EXPECT_EQ(anchors(needed).tokens.size(), 5u);
  expect_trace_error({"memory", "budget"}, [&] { (void)anchors(needed - 1); });
}

TEST_F(Records, ManyTokensAreReadInSlices) {
  constexpr std::int64_t kMany = 150001;
  std::vector<std::int64_t> tokens(kMany);
  for (std::int64_t i = 0; i < kMany; ++i) tokens[static_cast<std::size_t>(i)] = i * 7 % kV;
  const auto make = [&] {
    anchors_with([&](RawFile& f) {
      f.integers("/anchors/tokens", {kMany}, tokens);
      f.integers("/anchors/sequence_offsets", {3}, {0, 3, kMany}, H5T_STD_I64LE);
      f.dataset("/anchors/draft_logits", H5T_IEEE_F32LE, {kMany, kP, kV}, H5T_NATIVE_FLOAT,
                nullptr);
      f.dataset("/anchors/target_logits", H5T_IEEE_F32LE, {kMany, kV}, H5T_NATIVE_FLOAT, nullptr);
    });
  };
  make();
  EXPECT_EQ(anchors().tokens, Ids(tokens.begin(), tokens.end()));
  tokens[140000] = 99;
  make();
  expect_bad_anchors({"/anchors/tokens[140000]"});
}

TEST_F(Records, AskingForTheOtherKindIsTheCallersMistake) {
  make_anchors(path);
  expect_error(ExitCode::internal, {}, [&] { (void)rounds(); });
  make_rounds(path);
  expect_error(ExitCode::internal, {}, [&] { (void)anchors(); });
}

// --- rounds ---

TEST_F(Records, RoundsAreRead) {
  make_rounds(path);
  const RoundRecords out = rounds();
  EXPECT_EQ(out.request, (Ids{0, 0, 4}));
  EXPECT_EQ(out.round, (Ids{0, 1, 0}));
  EXPECT_EQ(out.anchor_token, (Ids{1, 2, 3}));
  EXPECT_EQ(out.draft_tokens, (Ids{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(out.proposal_length, (Ids{2, 1, 0}));
  EXPECT_EQ(out.accept_length, (Ids{3, 1, 1}));
  EXPECT_EQ(out.accepted_tokens, (Ids{0, 1, 5, 4, -1, -1, 0, -1, -1}));
  EXPECT_EQ(out.proposal_uniforms, (std::vector<float>{0, 0.25f, 0.5f, 0.75f, 1, 0}));
  EXPECT_EQ(out.accept_uniforms, std::vector<float>(15, 0.5f));
}

TEST_F(Records, UniformsAreOptional) {
  rounds_with([](RawFile& f) {
    f.remove("/rounds/proposal_uniforms");
    f.remove("/rounds/accept_uniforms");
  });
  EXPECT_TRUE(rounds().proposal_uniforms.empty());
  EXPECT_TRUE(rounds().accept_uniforms.empty());
}

TEST_F(Records, RequestsAndRoundsAreNotNegative) {
  rounds_with([](RawFile& f) { f.integers("/rounds/request", {3}, {0, -1, 4}); });
  expect_bad_rounds({"/rounds/request[1]", "is -1"});
  rounds_with([](RawFile& f) { f.integers("/rounds/round", {3}, {0, 1, -7}); });
  expect_bad_rounds({"/rounds/round[2]", "is -7"});
}

TEST_F(Records, APairOfRequestAndRoundIsThereOnce) {
  rounds_with([](RawFile& f) {
    f.integers("/rounds/request", {3}, {4, 0, 4});
    f.integers("/rounds/round", {3}, {1, 1, 1});
  });
  expect_bad_rounds({"/rounds/round[2]", "request 4", "round 1", "row 0"});
}

TEST_F(Records, IdsOfRoundsOutOfRangeAreNamed) {
  rounds_with([](RawFile& f) { f.integers("/rounds/anchor_token", {3}, {1, kV, 2}); });
  expect_bad_rounds({"/rounds/anchor_token[1]"});
  rounds_with([](RawFile& f) { f.integers("/rounds/draft_tokens", {3, kP}, {0, 1, 2, -1, 4, 5}); });
  expect_bad_rounds({"/rounds/draft_tokens[1, 1]", "is -1"});
  rounds_with([](RawFile& f) {
    f.integers("/rounds/accepted_tokens", {3, kP + 1}, {0, 1, kV, 4, -1, -1, 0, -1, -1});
  });
  expect_bad_rounds({"/rounds/accepted_tokens[0, 2]"});
  rounds_with([](RawFile& f) { f.integer("vocab_size_logical", 5); });
  expect_bad_rounds({"vocab_size_logical = 5"});
}

TEST_F(Records, LengthsOutOfRangeAreNamed) {
  rounds_with([](RawFile& f) { f.integers("/rounds/proposal_length", {3}, {2, 1, -1}); });
  expect_bad_rounds({"/rounds/proposal_length[2]"});
  rounds_with([](RawFile& f) { f.integers("/rounds/proposal_length", {3}, {2, kP + 1, 0}); });
  expect_bad_rounds({"/rounds/proposal_length[1]"});
  rounds_with([](RawFile& f) { f.integers("/rounds/accept_length", {3}, {3, 0, 1}); });
  expect_bad_rounds({"/rounds/accept_length[1]", "is 0"});
  rounds_with([](RawFile& f) { f.integers("/rounds/accept_length", {3}, {3, 1, 2}); });
  expect_bad_rounds({"/rounds/accept_length[2]", "is 2", "proposal_length 0"});
}

TEST_F(Records, AcceptedTokensArePaddedWithMinusOne) {
  const auto with = [&](std::vector<std::int64_t> tokens) {
    rounds_with([&](RawFile& f) { f.integers("/rounds/accepted_tokens", {3, kP + 1}, tokens); });
  };
  with({0, 1, 5, 4, 3, -1, 0, -1, -1});
  expect_bad_rounds({"/rounds/accepted_tokens[1, 1]", "accept_length 1"});
  with({0, -1, 5, 4, -1, -1, 0, -1, -1});
  expect_bad_rounds({"/rounds/accepted_tokens[0, 1]", "accept_length 3"});
  with({0, 1, 5, 4, -1, -2, 0, -1, -1});
  expect_bad_rounds({"/rounds/accepted_tokens[1, 2]", "is -2"});
}

TEST_F(Records, UniformsLieInTheUnitInterval) {
  for (const float bad : {-0.001f, 1.001f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    rounds_with([&](RawFile& f) {
      f.floats("/rounds/proposal_uniforms", {3, kP}, {0, 0.25f, 0.5f, 0.75f, bad, 0});
    });
    expect_bad_rounds({"/rounds/proposal_uniforms[2, 0]"});
    std::vector<float> uniforms(15, 0.5f);
    uniforms[14] = bad;
    rounds_with([&](RawFile& f) {
      f.floats("/rounds/accept_uniforms", {3, 2 * kP + 1}, uniforms);
    });
    expect_bad_rounds({"/rounds/accept_uniforms[2, 4]"});
  }
}

TEST_F(Records, UniformsAreCheckedBeforeTheyAreNarrowed) {
  const double above = 1.0 + 1e-12;  // 1.0 as a float
  const double values[6] = {0, 0, 0, above, 0, 0};
  rounds_with([&](RawFile& f) {
    f.dataset("/rounds/proposal_uniforms", H5T_IEEE_F64LE, {3, kP}, H5T_NATIVE_DOUBLE, values);
  });
  expect_bad_rounds({"/rounds/proposal_uniforms[1, 1]"});
}

TEST_F(Records, UniformsMayBeStoredInAnyFloatType) {
  const std::vector<float> values = {0, 0.25f, 0.5f, 0.75f, 1, 0};
  for (const hid_t type : {f16_type(), bf16_type(), hid_t{H5T_IEEE_F32BE}, hid_t{H5T_IEEE_F64LE}}) {
    rounds_with([&](RawFile& f) { f.floats("/rounds/proposal_uniforms", {3, kP}, values, type); });
    EXPECT_EQ(rounds().proposal_uniforms, values);
  }
}

TEST_F(Records, RecordsMustFitTheMemoryBudget) {
  make_rounds(path);
  const std::uint64_t needed =
      3 * 8 + 4 * (3 * 5 + 3 * kP + 3 * (kP + 1) + 3 * kP + 3 * (2 * kP + 1));
  EXPECT_EQ(rounds(needed).round.size(), 3u);
  expect_trace_error({"memory", "budget"}, [&] { (void)rounds(needed - 1); });
}

}  // namespace
}  // namespace dspark::test
