// What inspect finds.
#include "trace/lint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "tests/trace/raw_file.h"

namespace dspark::test {
namespace {

class Lint : public ::testing::Test {
 protected:
  Lint() { make_anchors(path); }
  void change(const std::function<void(RawFile&)>& how) {
    make_anchors(path);
    RawFile file = RawFile::edit(path);
    how(file);
  }
  [[nodiscard]] TraceReport inspect(const std::string& heads = {}) const {
    return inspect_trace(path, heads, 0);
  }
  // The problem about `where` that says `what`, or a failure.
  static Problem find(const TraceReport& report, const std::string& where,
                      const std::string& what) {
    std::string all;
    for (const Problem& problem : report.problems) {
      if (problem.where == where && problem.what.find(what) != std::string::npos) return problem;
      all += "\n  " + problem.where + ": " + problem.what;
    }
    ADD_FAILURE() << "no problem at '" << where << "' that says '" << what << "' among" << all;
    return {};
  }
  static const DatasetReport& dataset(const TraceReport& report, const std::string& name) {
    const auto found = std::find_if(report.datasets.begin(), report.datasets.end(),
                                    [&](const DatasetReport& data) { return data.name == name; });
    if (found == report.datasets.end()) throw std::runtime_error("no dataset " + name);
    return *found;
  }
  TemporaryFolder dir;
  std::string path = dir.file("t.h5");
  const std::string data = "/anchors/target_logits";
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST_F(Lint, AGoodTraceIsDescribed) {
  change([](RawFile& f) {
    f.text("domain", "code");
    f.integer("top_k", 3);
  });
  const TraceReport report = inspect();
  EXPECT_TRUE(report.valid);
  EXPECT_EQ(exit_code(report), 0);
  EXPECT_EQ(report.file, path);
  EXPECT_EQ(report.kind, "anchors");
  EXPECT_EQ(report.vocab_size, kV);
  EXPECT_EQ(report.block_size, kP);
  EXPECT_FALSE(report.hidden_size.has_value());
  EXPECT_EQ(report.anchors, 5);
  EXPECT_EQ(report.sequences, 2);
  EXPECT_FALSE(report.rounds.has_value());
  EXPECT_EQ(report.temperature, 1.0);
  EXPECT_EQ(report.top_k, 3);
  EXPECT_EQ(report.domain, "code");
  const DatasetReport& logits = dataset(report, "/anchors/draft_logits");
  EXPECT_EQ(logits.shape, (std::vector<std::int64_t>{5, kP, kV}));
  EXPECT_EQ(logits.stored_as, "f32");
  EXPECT_EQ(logits.stored_bytes, static_cast<std::uint64_t>(5 * kP * kV * 4));
  EXPECT_EQ(logits.rows, 5 * kP);
  EXPECT_EQ(logits.invalid_rows, 0);
  EXPECT_EQ(logits.near_ties, 0);
  EXPECT_EQ(dataset(report, "/anchors/tokens").stored_as, "i32");
}

TEST_F(Lint, RoundsAreDescribed) {
  make_rounds(path);
  const TraceReport report = inspect();
  EXPECT_TRUE(report.valid);
  EXPECT_EQ(report.kind, "rounds");
  EXPECT_EQ(report.rounds, 3);
  EXPECT_EQ(report.requests, 2);
  EXPECT_EQ(dataset(report, "/rounds/target_logits").rows, 3 * (kP + 1));
}

TEST_F(Lint, ABadTraceIsAReportAndNotAnException) {
  const TraceReport missing = inspect_trace(dir.file("none.h5"), "", 0);
  EXPECT_FALSE(missing.valid);
  EXPECT_EQ(exit_code(missing), 4);
  EXPECT_EQ(missing.kind, "");
  EXPECT_EQ(find(missing, "", "no such file").severity, Severity::error);

  change([&](RawFile& f) { f.floats(data, {5, kV + 1}, ramp(5 * (kV + 1))); });
  const TraceReport report = inspect();
  EXPECT_FALSE(report.valid);
  EXPECT_EQ(exit_code(report), 4);
  EXPECT_EQ(find(report, data, "has shape").severity, Severity::error);
}

TEST_F(Lint, BadTokensDoNotHideBadRows) {
  change([&](RawFile& f) {
    f.integers("/anchors/tokens", {5}, {0, 1, 99, 3, 4});
    std::vector<float> values = ramp(5 * kV);
    values[0] = std::nanf("");
    f.floats(data, {5, kV}, values);
  });
  const TraceReport report = inspect();
  EXPECT_EQ(find(report, "/anchors/tokens[2]", "is 99").severity, Severity::error);
  EXPECT_EQ(find(report, data, "1 of 5 rows are invalid").severity, Severity::warning);
  EXPECT_EQ(report.invalid_rows, 1);
  EXPECT_EQ(exit_code(report), 4);
}

TEST_F(Lint, InvalidRowsAreCountedAndTheFirstIsNamed) {
  change([](RawFile& f) {
    std::vector<float> draft = ramp(5 * kP * kV);
    draft[3 * kV + 2] = std::nanf("");                    // block 1, row 1
    draft[4 * kV + 5] = kInfinity;                        // block 2, row 0
    std::fill_n(draft.begin() + 9 * kV, kV, -kInfinity);  // block 4, row 1
    draft[0] = -kInfinity;                                // a masked token is fine
    f.floats("/anchors/draft_logits", {5, kP, kV}, draft);
  });
  const TraceReport report = inspect();
  EXPECT_TRUE(report.valid);
  EXPECT_EQ(report.invalid_rows, 3);
  EXPECT_EQ(exit_code(report), 6);
  EXPECT_EQ(dataset(report, "/anchors/draft_logits").invalid_rows, 3);
  find(report, "/anchors/draft_logits", "3 of 10 rows are invalid");
  find(report, "/anchors/draft_logits", "the first is [1, 1]");
}

TEST_F(Lint, InvalidRowsAreFoundInEveryStoredType) {
  for (const hid_t type : {f16_type(), bf16_type(), hid_t{H5T_IEEE_F32BE}, hid_t{H5T_IEEE_F64LE}}) {
    change([&](RawFile& f) {
      std::vector<float> values = ramp(5 * kV);
      values[4 * kV] = std::nanf("");
      f.floats(data, {5, kV}, values, type);
    });
    const TraceReport report = inspect();
    EXPECT_EQ(report.invalid_rows, 1);
    find(report, data, "the first is [4]");
  }
}

TEST_F(Lint, HiddenStatesMustBeFinite) {
  make_hidden_anchors(path);
  {
    RawFile file = RawFile::edit(path);
    std::vector<float> hidden = ramp(5 * kHt);
    hidden[kHt] = -kInfinity;
    file.floats("/anchors/target_hidden", {5, kHt}, hidden);
  }
  const TraceReport report = inspect();
  EXPECT_EQ(report.invalid_rows, 1);
  EXPECT_EQ(exit_code(report), 6);
  find(report, "/anchors/target_hidden", "the first is [1]");
  EXPECT_FALSE(dataset(report, "/anchors/target_hidden").near_ties.has_value());
}

TEST_F(Lint, PaddingIdsAreNotLookedAt) {
  change([&](RawFile& f) {
    f.integer("vocab_size_logical", kV - 1);
    f.integers("/anchors/tokens", {5}, {0, 1, 2, 3, 4});
    std::vector<float> values = ramp(5 * kV);
    for (std::size_t row = 0; row < 5; ++row) values[row * kV + kV - 1] = std::nanf("");
    f.floats(data, {5, kV}, values);
  });
  const TraceReport report = inspect();
  EXPECT_EQ(report.invalid_rows, 0);
  EXPECT_EQ(exit_code(report), 0);
}

TEST_F(Lint, FlatRowsAreAWarning) {
  change([&](RawFile& f) {
    std::vector<float> values = ramp(5 * kV);
    std::fill_n(values.begin() + 2 * kV, kV, 3.0f);
    f.floats(data, {5, kV}, values);
  });
  const TraceReport report = inspect();
  EXPECT_EQ(find(report, data, "1 of 5 rows are flat").severity, Severity::warning);
  EXPECT_EQ(dataset(report, data).flat_rows, 1);
  EXPECT_EQ(dataset(report, data).near_ties, 0) << "flat rows are named once";
  EXPECT_EQ(exit_code(report), 0);
}

TEST_F(Lint, NearTiesAreAWarningWithTheirCount) {
  change([&](RawFile& f) {
    std::vector<float> values = ramp(5 * kV);
    values[kV + 4] = values[kV + 5] - 0.0009f;
    values[3 * kV + 4] = values[3 * kV + 5];
    values[4 * kV + 4] = values[4 * kV + 5] - 0.002f;
    f.floats(data, {5, kV}, values);
  });
  const TraceReport report = inspect();
  EXPECT_EQ(find(report, data, "2 of 5 rows are near ties").severity, Severity::warning);
  find(report, data, "the first is [1]");
  EXPECT_EQ(dataset(report, data).near_ties, 2);
}

TEST_F(Lint, TheTwoLargestLogitsAreFoundWhereverTheyStand) {
  constexpr std::int64_t kWide = 37;
  const std::vector<std::pair<std::size_t, std::size_t>> places = {
      {0, 36}, {0, 16}, {3, 4}, {35, 36}, {20, 1}};  // as many rows as the trace has
  for (const float margin : {0.0005f, 0.0015f}) {
    change([&](RawFile& f) {
      f.integer("vocab_size", kWide);
      f.floats("/anchors/draft_logits", {5, kP, kWide}, ramp(5 * kP * kWide));
      std::vector<float> values(5 * kWide, -1.0f);
      for (std::size_t row = 0; row < places.size(); ++row) {
        values[row * kWide + places[row].first] = 0.0f;
        values[row * kWide + places[row].second] = -margin;
      }
      f.floats(data, {5, kWide}, values);
    });
    EXPECT_EQ(dataset(inspect(), data).near_ties, margin < 0.001f ? 5 : 0);
  }
}

TEST_F(Lint, ProbabilitiesInThePlaceOfLogitsAreAWarning) {
  change([&](RawFile& f) {
    std::vector<float> values;
    for (int row = 0; row < 5; ++row)
      values.insert(values.end(), {0.5f, 0.25f, 0.125f, 0.1f, 0.02f, 0.005f});
    f.floats(data, {5, kV}, values, f16_type());
  });
  const TraceReport report = inspect();
  EXPECT_EQ(find(report, data, "5 of 5 rows look like probabilities").severity, Severity::warning);
  EXPECT_EQ(exit_code(report), 0);
}

TEST_F(Lint, UnwrittenChunksAreAWarning) {
  change([&](RawFile& f) {
    const Chunked creation({2, kV});
    f.dataset(data, H5T_IEEE_F32LE, {5, kV}, H5T_NATIVE_FLOAT, nullptr, creation);
    const hid_t opened = H5Dopen2(f.id(), data.c_str(), H5P_DEFAULT);
    const hsize_t at[2] = {2, 0};
    const std::vector<float> chunk = ramp(2 * kV);
    ASSERT_GE(H5Dwrite_chunk(opened, H5P_DEFAULT, 0, at, chunk.size() * 4, chunk.data()), 0);
    H5Dclose(opened);
  });
  const TraceReport report = inspect();
  EXPECT_EQ(find(report, data, "2 chunks were never written").severity, Severity::warning);
  EXPECT_EQ(dataset(report, data).unwritten_chunks, 2);
  EXPECT_EQ(dataset(report, data).flat_rows, 3);
}

TEST_F(Lint, EveryBlockIsReadWhateverTheSlices) {
  // More than one slice of 16 MiB; the only bad row is the last.
  constexpr std::int64_t kWide = 70000, kMany = 100;
  change([&](RawFile& f) {
    f.integer("vocab_size", kWide);
    f.integers("/anchors/tokens", {kMany}, std::vector<std::int64_t>(kMany, 1));
    f.integers("/anchors/sequence_offsets", {3}, {0, 3, kMany}, H5T_STD_I64LE);
    f.dataset("/anchors/draft_logits", H5T_IEEE_F32LE, {kMany, kP, kWide}, H5T_NATIVE_FLOAT,
              nullptr);
    std::vector<float> values = ramp(kMany * kWide);
    values.back() = std::nanf("");
    f.floats(data, {kMany, kWide}, values, H5T_IEEE_F32LE, Chunked({7, kWide}));
  });
  const TraceReport report = inspect();
  EXPECT_EQ(report.invalid_rows, 1);
  find(report, data, "the first is [99]");
}

TEST_F(Lint, DamageIsAnErrorAndTheRestIsStillRead) {
  haddr_t offset = 0;
  hsize_t size = 0;
  change([&](RawFile& f) {
    const Chunked creation({5, kP, kV});
    H5Pset_fletcher32(creation);
    f.floats("/anchors/draft_logits", {5, kP, kV}, ramp(5 * kP * kV), H5T_IEEE_F32LE, creation);
    const hid_t opened = H5Dopen2(f.id(), "/anchors/draft_logits", H5P_DEFAULT);
    const hid_t space = H5Dget_space(opened);
    H5Dflush(opened);
    H5Dget_chunk_info(opened, space, 0, nullptr, nullptr, &offset, &size);
    H5Sclose(space);
    H5Dclose(opened);
  });
  ASSERT_GT(size, 0u);
  std::FILE* file = std::fopen(path.c_str(), "r+b");
  std::fseek(file, static_cast<long>(offset), SEEK_SET);
  std::fputc(0x77, file);
  std::fclose(file);
  const TraceReport report = inspect();
  EXPECT_EQ(find(report, "/anchors/draft_logits", "damaged").severity, Severity::error);
  EXPECT_FALSE(dataset(report, "/anchors/draft_logits").rows.has_value());
  EXPECT_EQ(dataset(report, data).rows, 5);
  EXPECT_EQ(exit_code(report), 4);
}

TEST_F(Lint, ABlockThatDoesNotFitTheBudgetIsAnError) {
  const TraceReport report = inspect_trace(path, "", 100);
  EXPECT_EQ(find(report, data, "budget").severity, Severity::error);
}

TEST_F(Lint, AcceptedTokensThatWereNotDraftedAreAWarning) {
  make_rounds(path);
  RawFile::edit(path).integers("/rounds/accepted_tokens", {3, kP + 1},
                               {0, 2, 5, 4, -1, -1, 0, -1, -1});
  const TraceReport report = inspect();
  EXPECT_EQ(find(report, "/rounds/accepted_tokens", "1 of 3 rounds").severity, Severity::warning);
  EXPECT_TRUE(report.valid);
}

// --- heads ---

TEST_F(Lint, WithoutHeadsItSaysWhatWasNotChecked) {
  const TraceReport none = inspect();
  EXPECT_EQ(find(none, "", "no heads").severity, Severity::warning);
  EXPECT_EQ(none.heads, "");

  make_hidden_anchors(path);
  RawFile::edit(path).text("heads_file", "heads.h5");
  const TraceReport missing = inspect();
  EXPECT_TRUE(missing.valid);
  find(missing, "", "'heads.h5' is not beside the trace");
  find(missing, "", "stand in for logits");
}

TEST_F(Lint, HeadsBesideTheTraceAreRead) {
  make_hidden_anchors(path);
  RawFile::edit(path).text("heads_file", "heads.h5");
  const std::string heads = dir.file("heads.h5");
  make_heads(heads);
  const TraceReport report = inspect();
  EXPECT_TRUE(report.valid);
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(report.heads, heads);
  EXPECT_EQ(report.markov_rank, kR);
  EXPECT_EQ(dataset(report, heads + ": /heads/lm_head").stored_as, "f32");
}

TEST_F(Lint, BadHeadsAreAnErrorThatNamesTheirFile) {
  const std::string heads = dir.file("heads.h5");
  make_heads(heads);
  {
    RawFile file = RawFile::edit(heads);
    std::vector<float> weights = ramp(kV * kR);
    weights[3] = kInfinity;
    file.floats("/heads/markov_w2", {kV, kR}, weights);
  }
  const TraceReport report = inspect(heads);
  EXPECT_EQ(find(report, heads + ": /heads/markov_w2[1, 1]", "not finite").severity,
            Severity::error);
  EXPECT_EQ(exit_code(report), 4);
  EXPECT_EQ(find(inspect(dir.file("none.h5")), dir.file("none.h5"), "no such file").severity,
            Severity::error);
}

TEST_F(Lint, AHeadsFileIsInspectedOnItsOwn) {
  make_heads(path);
  const TraceReport report = inspect();
  EXPECT_TRUE(report.valid);
  EXPECT_EQ(report.kind, "heads");
  EXPECT_EQ(report.hidden_size, kH);
  EXPECT_EQ(report.markov_rank, kR);
  EXPECT_FALSE(report.temperature.has_value());
  EXPECT_EQ(report.datasets.size(), 6u);
  RawFile::edit(path).floats("/heads/lm_head", {kV, kHt}, std::vector<float>(kV * kHt, NAN));
  EXPECT_EQ(find(inspect(), "/heads/lm_head[0, 0]", "not finite").severity, Severity::error);
}

}  // namespace
}  // namespace dspark::test
