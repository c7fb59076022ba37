// Shapes and number types of datasets, and what reading them delivers.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "core/half.h"
#include "support/error.h"
#include "tests/trace/raw_file.h"
#include "trace/trace.h"

namespace dspark::test {
namespace {

template <class T>
std::vector<T> read_rows(TraceFile& trace, RowData data, std::int64_t first, std::int64_t count) {
  const RowDataInfo info = trace.row_data(data).value();
  std::vector<T> out(static_cast<std::size_t>(count * info.rows_per_block * info.width));
  EXPECT_EQ(size_of(info.type), sizeof(T));
  trace.read(data, first, count, out.data());
  return out;
}

class Datasets : public ::testing::Test {
 protected:
  Datasets() { make_anchors(path); }
  void change(const std::function<void(RawFile&)>& how) {
    make_anchors(path);
    RawFile file = RawFile::edit(path);
    how(file);
  }
  TemporaryFolder dir;
  std::string path = dir.file("t.h5");
};

// --- shapes ---

TEST_F(Datasets, AnchorsAreDescribed) {
  const auto trace = TraceFile::open(path);
  EXPECT_EQ(trace->blocks(), 5);
  const auto draft = trace->row_data(RowData::draft_logits);
  ASSERT_TRUE(draft.has_value());
  EXPECT_EQ(draft->type, DType::f32);
  EXPECT_EQ(draft->stored_as, "f32");
  EXPECT_EQ(draft->blocks, 5);
  EXPECT_EQ(draft->rows_per_block, kP);
  EXPECT_EQ(draft->width, kV);
  EXPECT_EQ(trace->row_data(RowData::target_logits)->rows_per_block, 1);
  EXPECT_FALSE(trace->row_data(RowData::draft_hidden).has_value());
}

TEST_F(Datasets, RoundsHaveOneTargetRowMoreThanSlots) {
  make_rounds(path);
  const auto trace = TraceFile::open(path);
  EXPECT_EQ(trace->header().kind, TraceKind::rounds);
  EXPECT_EQ(trace->blocks(), 3);
  EXPECT_EQ(trace->row_data(RowData::target_logits)->rows_per_block, kP + 1);
}

TEST_F(Datasets, BlocksAreReadWhereTheyStand) {
  const auto trace = TraceFile::open(path);
  const std::vector<float> all = ramp(5 * kP * kV);
  EXPECT_EQ(read_rows<float>(*trace, RowData::draft_logits, 0, 5), all);
  const std::vector<float> middle(all.begin() + 2 * kP * kV, all.begin() + 4 * kP * kV);
  EXPECT_EQ(read_rows<float>(*trace, RowData::draft_logits, 2, 2), middle);
  trace->read(RowData::draft_logits, 5, 0, nullptr);
}

// HDF5 would read zeros beyond the end of a file that was cut.
TEST_F(Datasets, AFileThatIsChangedWhileItIsReadIsRefused) {
  const auto trace = TraceFile::open(path);
  EXPECT_NO_THROW(read_rows<float>(*trace, RowData::draft_logits, 0, 1));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + 1);
  try {
    read_rows<float>(*trace, RowData::draft_logits, 0, 1);
    FAIL() << "the change was not noticed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("changed while it was read"), std::string::npos)
        << error.what();
  }
}

TEST_F(Datasets, ReadingOutsideIsTheCallersMistake) {
  const auto trace = TraceFile::open(path);
  float out[1];
  for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {-1, 1}, {0, 6}, {5, 1}, {6, 0}, {1, std::numeric_limits<std::int64_t>::max()}}) {
    expect_error(ExitCode::internal, {},
                 [&, f = first, c = count] { trace->read(RowData::draft_logits, f, c, out); });
  }
  expect_error(ExitCode::internal, {"draft_hidden"},
               [&] { trace->read(RowData::draft_hidden, 0, 1, out); });
}

TEST_F(Datasets, EveryDatasetOfAnchorsIsMissedByName) {
  for (const char* name : {"tokens", "sequence_offsets", "last_tokens"}) {
    change([&](RawFile& f) { f.remove(std::string("/anchors/") + name); });
    expect_refused(path, {std::string("/anchors/") + name, "is missing"});
  }
  change([](RawFile& f) { f.remove("/anchors"); });
  expect_refused(path, {"/anchors", "is missing"});
  change([](RawFile& f) { f.remove("/anchors/draft_logits"); });
  expect_refused(path, {"/anchors", "neither draft_hidden nor draft_logits"});
  change([](RawFile& f) { f.remove("/anchors/target_logits"); });
  expect_refused(path, {"/anchors", "neither target_hidden nor target_logits"});
}

TEST_F(Datasets, EveryDatasetOfRoundsIsMissedByName) {
  for (const char* name : {"request", "round", "anchor_token", "draft_tokens", "proposal_length",
                           "accept_length", "accepted_tokens"}) {
    make_rounds(path);
    RawFile::edit(path).remove(std::string("/rounds/") + name);
    expect_refused(path, {std::string("/rounds/") + name, "is missing"});
  }
}

TEST_F(Datasets, ShapesThatDisagreeAreNamed) {
  const std::vector<std::pair<std::string, Dims>> float_cases = {
      {"/anchors/draft_logits", {4, kP, kV}},  {"/anchors/draft_logits", {5, kP + 1, kV}},
      {"/anchors/draft_logits", {5, kP * kV}}, {"/anchors/target_logits", {5, kV - 1}},
      {"/anchors/target_logits", {5, 1, kV}},  {"/anchors/target_logits", {6, kV}}};
  for (const auto& [name, dims] : float_cases) {
    change([&, n = name, d = dims](RawFile& f) { f.floats(n, d, ramp(200)); });
    expect_refused(path, {name, "has shape"});
  }
  change([](RawFile& f) { f.integers("/anchors/last_tokens", {3}, {0, 0, 0}); });
  expect_refused(path, {"/anchors/last_tokens", "has shape [3]"});
  change([](RawFile& f) { f.integers("/anchors/tokens", {5, 1}, {0, 0, 0, 0, 0}); });
  expect_refused(path, {"/anchors/tokens", "has shape [5, 1]"});
  change([](RawFile& f) { f.integers("/anchors/sequence_offsets", {1}, {0}); });
  expect_refused(path, {"/anchors/sequence_offsets"});
}

TEST_F(Datasets, ShapesOfRoundsThatDisagreeAreNamed) {
  const std::vector<std::pair<std::string, Dims>> cases = {{"round", {2}},
                                                           {"anchor_token", {3, 1}},
                                                           {"draft_tokens", {3, kP + 1}},
                                                           {"accepted_tokens", {3, kP}},
                                                           {"proposal_length", {4}},
                                                           {"accept_length", {1}}};
  for (const auto& [name, dims] : cases) {
    make_rounds(path);
    RawFile::edit(path).integers("/rounds/" + name, dims, std::vector<std::int64_t>(16, 0));
    expect_refused(path, {"/rounds/" + name, "has shape"});
  }
  for (const char* name : {"proposal_uniforms", "accept_uniforms"}) {
    make_rounds(path);
    RawFile::edit(path).floats(std::string("/rounds/") + name, {3, 7}, ramp(21));
    expect_refused(path, {std::string("/rounds/") + name, "has shape"});
  }
}

TEST_F(Datasets, ATraceOfNothingIsRefused) {
  change([](RawFile& f) { f.integers("/anchors/tokens", {0}, {}); });
  expect_refused(path, {"/anchors/tokens", "empty"});
  make_rounds(path);
  RawFile::edit(path).integers("/rounds/request", {0}, {});
  expect_refused(path, {"/rounds/request", "empty"});
}

TEST_F(Datasets, HiddenStatesNeedTheirSizes) {
  for (const char* name : {"hidden_size", "target_hidden_size"}) {
    make_hidden_anchors(path);
    RawFile::edit(path).remove_attribute(name);
    expect_refused(path, {quoted(name), "is missing"});
    make_hidden_anchors(path);
    RawFile::edit(path).integer(name, 7);
    expect_refused(path, {"has shape", name});
  }
}

TEST_F(Datasets, ASizeWithoutSuchRowsIsNotTheTraces) {
  change([](RawFile& f) { f.integer("hidden_size", 32); });
  EXPECT_EQ(TraceFile::open(path)->header().hidden_size, 0);
}

TEST_F(Datasets, AReducedDraftVocabularyIsRefusedByName) {
  change([](RawFile& f) { f.floats("/anchors/draft_logits", {5, kP, 4}, ramp(40)); });
  expect_refused(path, {"/anchors/draft_logits", "reduced draft vocabulary", "not supported"});
}

TEST_F(Datasets, AGroupOrANamedTypeIsNoDataset) {
  change([](RawFile& f) {
    f.remove("/anchors/target_logits");
    f.group("/anchors/target_logits");
  });
  expect_refused(path, {"/anchors/target_logits", "not a dataset"});
  change([](RawFile& f) {
    f.remove("/anchors");
    f.integers("/anchors", {1}, {0});
  });
  expect_refused(path, {"/anchors", "not a group"});
}

// --- floats ---

TEST_F(Datasets, HalfAndBfloat16AreDeliveredBitForBit) {
  // All 16-bit patterns fit one target row of 65536 logits: NaN payloads, subnormals, infinities.
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  const auto big_endian = [](hid_t type) {
    const hid_t copy = H5Tcopy(type);
    H5Tset_order(copy, H5T_ORDER_BE);
    return copy;
  };
  std::vector<std::uint16_t> swapped(bits.size());
  for (std::size_t i = 0; i < bits.size(); ++i) {
    swapped[i] = static_cast<std::uint16_t>(bits[i] << 8 | bits[i] >> 8);
  }
  struct Case {
    const char* name;
    hid_t type;
    const std::uint16_t* stored;
    bool tag;
    DType delivered;
  };
  const std::vector<Case> cases = {
      {"f16", H5Tcopy(f16_type()), bits.data(), false, DType::f16},
      {"f16 be", big_endian(f16_type()), swapped.data(), false, DType::f16},
      {"bf16 native", H5Tcopy(bf16_type()), bits.data(), false, DType::bf16},
      {"bf16 native be", big_endian(bf16_type()), swapped.data(), false, DType::bf16},
      {"bf16 tagged", H5Tcopy(H5T_STD_U16LE), bits.data(), true, DType::bf16},
      {"bf16 tagged be", H5Tcopy(H5T_STD_U16BE), swapped.data(), true, DType::bf16}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    change([&](RawFile& f) {
      f.integer("vocab_size", 65536);
      f.dataset("/anchors/draft_logits", H5T_IEEE_F32LE, {5, kP, 65536}, H5T_NATIVE_FLOAT, nullptr,
                Chunked({1, 1, 65536}));
      const Chunked chunks({1, 65536});
      f.dataset("/anchors/target_logits", c.type, {5, 65536}, c.type, nullptr, chunks);
      const hid_t data = H5Dopen2(f.id(), "/anchors/target_logits", H5P_DEFAULT);
      const hsize_t at[2] = {0, 0};
      ASSERT_GE(H5Dwrite_chunk(data, H5P_DEFAULT, 0, at, 2 * bits.size(), c.stored), 0);
      H5Dclose(data);
      if (c.tag) f.text("dtype", "bfloat16", "/anchors/target_logits");
    });
    H5Tclose(c.type);
    const auto trace = TraceFile::open(path);
    EXPECT_EQ(trace->row_data(RowData::target_logits)->type, c.delivered);
    EXPECT_EQ(trace->row_data(RowData::target_logits)->stored_as,
              c.delivered == DType::f16 ? "f16" : "bf16");
    EXPECT_EQ(read_rows<std::uint16_t>(*trace, RowData::target_logits, 0, 1), bits);
  }
}

TEST_F(Datasets, DoublesAreNarrowedToTheNearestFloatInEitherOrder) {
  const std::vector<double> values = {0.1,
                                      1.0 + 0x1p-24,            // a tie: to even
                                      1.0 + 0x1p-23 + 0x1p-24,  // a tie: to even, upwards
                                      1e300,
                                      -1e300,
                                      1e-310};
  const std::vector<float> narrowed = {0.1f,
                                       1.0f,
                                       1.0f + 0x1p-22f,
                                       std::numeric_limits<float>::infinity(),
                                       -std::numeric_limits<float>::infinity(),
                                       0.0f};
  std::vector<double> stored;
  std::vector<float> expected;
  for (int i = 0; i < 5; ++i) {
    stored.insert(stored.end(), values.begin(), values.end());
    expected.insert(expected.end(), narrowed.begin(), narrowed.end());
  }
  for (const hid_t type : {hid_t{H5T_IEEE_F64LE}, hid_t{H5T_IEEE_F64BE}}) {
    change([&](RawFile& f) {
      f.dataset("/anchors/target_logits", type, {5, kV}, H5T_NATIVE_DOUBLE, stored.data());
    });
    const auto trace = TraceFile::open(path);
    EXPECT_EQ(trace->row_data(RowData::target_logits)->type, DType::f32);
    EXPECT_EQ(trace->row_data(RowData::target_logits)->stored_as, "f64");
    EXPECT_EQ(read_rows<float>(*trace, RowData::target_logits, 0, 5), expected);
  }
}

TEST_F(Datasets, DoublesOfMoreThanOneSliceKeepTheirOrder) {
  constexpr std::int64_t kWide = 70001;  // a row is less than a slice, a block is more
  change([&](RawFile& f) {
    f.integer("vocab_size", kWide);
    std::vector<double> values(5 * kP * kWide);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
    f.dataset("/anchors/draft_logits", H5T_IEEE_F64LE, {5, kP, kWide}, H5T_NATIVE_DOUBLE,
              values.data());
    f.floats("/anchors/target_logits", {5, kWide}, std::vector<float>(5 * kWide));
  });
  const auto trace = TraceFile::open(path);
  const std::vector<float> rows = read_rows<float>(*trace, RowData::draft_logits, 1, 4);
  const std::size_t first = kP * kWide;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i], static_cast<float>(first + i)) << i;
  }
}

TEST_F(Datasets, FloatsOfAnyOrderAreRead) {
  change([](RawFile& f) {
    f.floats("/anchors/target_logits", {5, kV}, ramp(5 * kV), H5T_IEEE_F32BE);
  });
  const auto trace = TraceFile::open(path);
  EXPECT_EQ(read_rows<float>(*trace, RowData::target_logits, 0, 5), ramp(5 * kV));
}

TEST_F(Datasets, UnknownFloatFormatsAreRefused) {
  const hid_t odd = H5Tcopy(f16_type());
  H5Tset_ebias(odd, 16);
  change([&](RawFile& f) { f.floats("/anchors/target_logits", {5, kV}, ramp(30), odd); });
  H5Tclose(odd);
  expect_refused(path, {"/anchors/target_logits", "16 bits"});
  change([&](RawFile& f) {
    f.floats("/anchors/target_logits", {5, kV}, ramp(30), H5T_NATIVE_LDOUBLE);
  });
  expect_refused(path, {"/anchors/target_logits", "128 bits"});
}

TEST_F(Datasets, TheBfloat16TagBelongsOnUint16AndNothingElse) {
  const std::string data = "/anchors/target_logits";
  const auto with = [&](hid_t type, const std::string& tag) {
    change([&](RawFile& f) {
      f.floats(data, {5, kV}, ramp(30), type);
      if (!tag.empty()) f.text("dtype", tag, data);
    });
  };
  with(H5T_STD_U16LE, "");
  expect_refused(path, {data, "holds integers (u16)"});
  with(H5T_STD_U16LE, "BFloat16");
  expect_refused(path, {data, "unknown tag", "BFloat16"});
  with(H5T_STD_I16LE, "bfloat16");
  expect_refused(path, {data, "stored as i16"});
  with(H5T_STD_U32LE, "bfloat16");
  expect_refused(path, {data, "stored as u32"});
  with(f16_type(), "bfloat16");
  expect_refused(path, {data, "stored as f16"});
  with(H5T_IEEE_F32LE, "bfloat16");
  expect_refused(path, {data, "stored as f32"});
  with(bf16_type(), "bfloat16");
  expect_refused(path, {data, "tag"});
  change([&](RawFile& f) {
    f.floats(data, {5, kV}, ramp(30), H5T_STD_U16LE);
    f.integer("dtype", 16, data);
  });
  expect_refused(path, {data, "'dtype'", "not a string"});
  change([](RawFile& f) {
    f.integers("/anchors/tokens", {5}, {0, 1, 2, 3, 4}, H5T_STD_U16LE);
    f.text("dtype", "bfloat16", "/anchors/tokens");
  });
  expect_refused(path, {"/anchors/tokens", "tag"});
}

// --- integers ---

TEST_F(Datasets, IntegersAreNeverFloatsEnumerationsOrTexts) {
  change([](RawFile& f) { f.floats("/anchors/tokens", {5}, ramp(5)); });
  expect_refused(path, {"/anchors/tokens", "floats where integers"});
  const hid_t boolean = H5Tenum_create(H5T_NATIVE_INT8);
  const std::int8_t no = 0, yes = 1;
  H5Tenum_insert(boolean, "FALSE", &no);
  H5Tenum_insert(boolean, "TRUE", &yes);
  change([&](RawFile& f) { f.dataset("/anchors/tokens", boolean, {5}, boolean, nullptr); });
  H5Tclose(boolean);
  expect_refused(path, {"/anchors/tokens", "does not hold integers"});
  const hid_t string = H5Tcopy(H5T_C_S1);
  H5Tset_size(string, H5T_VARIABLE);
  change([&](RawFile& f) {
    f.dataset("/anchors/target_logits", string, {5, kV}, string, nullptr);
  });
  H5Tclose(string);
  expect_refused(path, {"/anchors/target_logits", "neither floats"});
}

TEST_F(Datasets, ANullSpaceIsRefused) {
  change([](RawFile& f) {
    f.remove("/anchors/tokens");
    const hid_t space = H5Screate(H5S_NULL);
    H5Dclose(H5Dcreate2(f.id(), "/anchors/tokens", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT,
                        H5P_DEFAULT));
    H5Sclose(space);
  });
  expect_refused(path, {"/anchors/tokens", "null"});
}

}  // namespace
}  // namespace dspark::test
