// Root attributes, and files that are no traces at all.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/trace/raw_file.h"
#include "trace/trace.h"

namespace dspark::test {
namespace {

class Attributes : public ::testing::Test {
 protected:
  Attributes() { make_anchors(path); }
  [[nodiscard]] TraceHeader header() const { return TraceFile::open(path)->header(); }

  TemporaryFolder dir;
  std::string path = dir.file("t.h5");
};

// --- no trace at all ---

TEST_F(Attributes, AMissingFileIsNamed) { expect_refused(dir.file("none.h5"), {"no such file"}); }

TEST_F(Attributes, AFileBelowAFileIsRefused) {
  expect_refused(path + "/x.h5", {"cannot be opened"});
}

TEST_F(Attributes, ADirectoryIsRefused) {
  expect_refused(std::filesystem::path(path).parent_path().string(), {"is a directory"});
}

TEST_F(Attributes, APipeIsRefusedWithoutWaitingForAWriter) {
  const std::string pipe = dir.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect_refused(pipe, {"not a regular file"});
}

TEST_F(Attributes, AnEmptyFileAndATextAreNotHdf5) {
  const std::string other = dir.file("other.h5");
  std::ofstream(other).flush();
  expect_refused(other, {"not an HDF5 file"});
  std::ofstream(other) << "{\"format\": \"dspark-trace\"}";
  expect_refused(other, {"not an HDF5 file"});
}

TEST_F(Attributes, AFileCutAnywhereIsAnErrorAndNeverACrash) {
  const auto size = std::filesystem::file_size(path);
  const std::string cut = dir.file("cut.h5");
  for (std::uintmax_t length = 0; length < size; length += 397) {
    std::filesystem::copy_file(path, cut, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(cut, length);
    expect_refused(cut, {});
  }
}

// --- mandatory attributes ---

TEST_F(Attributes, EveryMandatoryAttributeIsMissedByName) {
  for (const char* name :
       {"format", "format_version", "kind", "vocab_size", "block_size", "temperature"}) {
    make_anchors(path);
    RawFile::edit(path).remove_attribute(name);
    expect_refused(path, {quoted(name), "is missing"});
  }
}

TEST_F(Attributes, DefaultsStandForWhatIsAbsent) {
  const TraceHeader h = header();
  EXPECT_EQ(h.file, path);
  EXPECT_EQ(h.kind, TraceKind::anchors);
  EXPECT_EQ(h.vocab_size, kV);
  EXPECT_EQ(h.vocab_size_logical, kV);
  EXPECT_EQ(h.block_size, kP);
  EXPECT_EQ(h.hidden_size, 0);
  EXPECT_EQ(h.target_hidden_size, 0);
  EXPECT_EQ(h.temperature, 1.0);
  EXPECT_EQ(h.top_k, 0);
  EXPECT_EQ(h.top_p, 1.0);
  EXPECT_FALSE(h.seed.has_value());
  EXPECT_EQ(h.model, "");
  EXPECT_EQ(h.heads_file, "");
  EXPECT_FALSE(h.has_heads);
}

TEST_F(Attributes, OptionalOnesAreRead) {
  {
    RawFile file = RawFile::edit(path);
    file.integer("vocab_size_logical", 6);
    file.integer("top_k", 50);
    file.real("top_p", 0.95);
    file.integer("seed", -3);
    file.text("model", "m\xC3\xB6");
    file.text("domain", "code");
    file.text("producer", "p");
    file.text("created", "2026-01-01T00:00:00Z");
    file.text("heads_file", "heads.h5");
    file.text("slot_layout", "anchor_first");
  }
  const TraceHeader h = header();
  EXPECT_EQ(h.vocab_size_logical, 6);
  EXPECT_EQ(h.top_k, 50);
  EXPECT_EQ(h.top_p, 0.95);
  EXPECT_EQ(h.seed, -3);
  EXPECT_EQ(h.model, "m\xC3\xB6");
  EXPECT_EQ(h.domain, "code");
  EXPECT_EQ(h.producer, "p");
  EXPECT_EQ(h.created, "2026-01-01T00:00:00Z");
  EXPECT_EQ(h.heads_file, "heads.h5");
}

// --- wrong values ---

TEST_F(Attributes, AnotherFormatVersionOrKindIsRefused) {
  const auto with = [&](const std::function<void(RawFile&)>& change) {
    make_anchors(path);
    RawFile file = RawFile::edit(path);
    change(file);
  };
  with([](RawFile& f) { f.text("format", "dspark"); });
  expect_refused(path, {"'format'", "'dspark'"});
  with([](RawFile& f) { f.integer("format_version", 2); });
  expect_refused(path, {"'format_version'", "is 2"});
  with([](RawFile& f) { f.text("kind", "Anchors"); });
  expect_refused(path, {"'kind'", "'Anchors'"});
}

TEST_F(Attributes, IntegersOutOfRangeAreRefused) {
  const auto big = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::pair<std::string, std::int64_t>> cases = {{"vocab_size", 0},
                                                                   {"vocab_size", -1},
                                                                   {"vocab_size", big},
                                                                   {"block_size", 0},
                                                                   {"block_size", kMaxBlock + 1},
                                                                   {"vocab_size_logical", 0},
                                                                   {"vocab_size_logical", kV + 1},
                                                                   {"top_k", -1},
                                                                   {"hidden_size", 0},
                                                                   {"hidden_size", kMaxHidden + 1},
                                                                   {"target_hidden_size", -5}};
  for (const auto& [name, value] : cases) {
    make_anchors(path);
    RawFile::edit(path).attribute("/", name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
    expect_refused(path, {quoted(name), "is " + std::to_string(value)});
  }
}

TEST_F(Attributes, SamplingOutOfRangeIsRefused) {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<std::string, double>> cases = {
      {"temperature", -0.5}, {"temperature", nan}, {"temperature", infinity}, {"temperature", 1e31},
      {"top_p", 0.0},        {"top_p", -0.1},      {"top_p", 1.01},           {"top_p", nan}};
  for (const auto& [name, value] : cases) {
    make_anchors(path);
    RawFile::edit(path).real(name, value);
    expect_refused(path, {quoted(name)});
  }
}

TEST_F(Attributes, TemperatureZeroIsGreedy) {
  RawFile::edit(path).real("temperature", 0.0);
  EXPECT_TRUE(header().greedy());
}

TEST_F(Attributes, AnIntegerTooLargeForSixtyFourBitsSignedIsNotClamped) {
  const std::uint64_t huge = std::uint64_t{1} << 63;
  RawFile::edit(path).attribute("/", "seed", H5T_STD_U64LE, H5T_NATIVE_UINT64, &huge);
  expect_refused(path, {"'seed'", "9223372036854775808"});
}

// --- types ---

TEST_F(Attributes, IntegersMayHaveAnyIntegerTypeAndOrder) {
  const std::int64_t value = kV;
  for (const hid_t type :
       {H5T_STD_I8LE, H5T_STD_U8BE, H5T_STD_I16BE, H5T_STD_U32LE, H5T_STD_I64BE, H5T_STD_U64LE}) {
    RawFile::edit(path).attribute("/", "vocab_size", type, H5T_NATIVE_INT64, &value);
    EXPECT_EQ(header().vocab_size, kV);
  }
}

TEST_F(Attributes, OneElementIsAsGoodAsAScalarAndTwoAreNot) {
  const std::int64_t values[2] = {kV, kV};
  RawFile::edit(path).attribute("/", "vocab_size", H5T_STD_I32LE, H5T_NATIVE_INT64, values, {1});
  EXPECT_EQ(header().vocab_size, kV);
  RawFile::edit(path).attribute("/", "vocab_size", H5T_STD_I32LE, H5T_NATIVE_INT64, values, {1, 1});
  EXPECT_EQ(header().vocab_size, kV);
  RawFile::edit(path).attribute("/", "vocab_size", H5T_STD_I32LE, H5T_NATIVE_INT64, values, {2});
  expect_refused(path, {"'vocab_size'", "exactly one value"});
}

TEST_F(Attributes, AnIntegerIsNeverAFloatAStringOrABoolean) {
  RawFile::edit(path).real("block_size", 2.0);
  expect_refused(path, {"'block_size'", "is a float"});
  RawFile::edit(path).text("block_size", "2");
  expect_refused(path, {"'block_size'", "is a string"});
  // As h5py stores a bool.
  const hid_t boolean = H5Tenum_create(H5T_NATIVE_INT8);
  const std::int8_t no = 0, yes = 1;
  H5Tenum_insert(boolean, "FALSE", &no);
  H5Tenum_insert(boolean, "TRUE", &yes);
  RawFile::edit(path).attribute("/", "block_size", boolean, boolean, &yes);
  H5Tclose(boolean);
  expect_refused(path, {"'block_size'", "enumeration"});
}

TEST_F(Attributes, FloatsMayHaveAnyFloatOrIntegerType) {
  const double half = 0.5;
  for (const hid_t type : {f16_type(), hid_t{H5T_IEEE_F32LE}, hid_t{H5T_IEEE_F32BE},
                           hid_t{H5T_IEEE_F64BE}, bf16_type()}) {
    RawFile::edit(path).attribute("/", "temperature", type, H5T_NATIVE_DOUBLE, &half);
    EXPECT_EQ(header().temperature, 0.5);
  }
  const float seven_tenths = 0.7f;
  RawFile::edit(path).attribute("/", "temperature", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT,
                                &seven_tenths);
  EXPECT_EQ(header().temperature, 0.7) << "a 32-bit number is the decimal its writer had";
  RawFile::edit(path).integer("temperature", 2);
  EXPECT_EQ(header().temperature, 2.0);
  RawFile::edit(path).text("temperature", "1.0");
  expect_refused(path, {"'temperature'", "not a number"});
}

TEST_F(Attributes, TextsMayBeFixedOrVariableInEitherCharacterSet) {
  for (const H5T_cset_t characters : {H5T_CSET_ASCII, H5T_CSET_UTF8}) {
    for (const H5T_str_t padding : {H5T_STR_NULLTERM, H5T_STR_NULLPAD, H5T_STR_SPACEPAD}) {
      const hid_t type = H5Tcopy(H5T_C_S1);
      H5Tset_size(type, 10);
      H5Tset_cset(type, characters);
      H5Tset_strpad(type, padding);
      const char* value = padding == H5T_STR_SPACEPAD ? "anchors   " : "anchors\0\0\0";
      RawFile::edit(path).attribute("/", "kind", type, type, value);
      H5Tclose(type);
      EXPECT_EQ(header().kind, TraceKind::anchors);
    }
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, characters);
    const char* value = "anchors";
    RawFile::edit(path).attribute("/", "kind", type, type, &value, {1});
    H5Tclose(type);
    EXPECT_EQ(header().kind, TraceKind::anchors);
  }
  RawFile::edit(path).integer("kind", 1);
  expect_refused(path, {"'kind'", "not a string"});
}

TEST_F(Attributes, AnOverlongTextIsRefused) {
  RawFile::edit(path).text("model", std::string(70000, 'm'));
  expect_refused(path, {"'model'", "longer than"});
}

TEST_F(Attributes, HostileTextIsEscapedInMessages) {
  RawFile::edit(path).text("kind", "a\x1b[31m\nb");
  expect_refused(path, {"a\\x1b[31m\\nb"});
}

// --- features ---

TEST_F(Attributes, FillInLayoutIsRefusedByNameAndOthersAreErrors) {
  RawFile::edit(path).text("slot_layout", "fill_in");
  expect_refused(path, {"'slot_layout'", "fill_in", "not support"});
  RawFile::edit(path).text("slot_layout", "sideways");
  expect_refused(path, {"'slot_layout'", "sideways"});
}

TEST_F(Attributes, HeadsFileMustBeAPlainName) {
  for (const char* name : {"../heads.h5", "/etc/heads.h5", "a/b.h5", "..", ".", "a\\b.h5"}) {
    RawFile::edit(path).text("heads_file", name);
    expect_refused(path, {"'heads_file'", "plain file name"});
  }
}

TEST_F(Attributes, AHeadsFileOpensAndNeedsItsGroup) {
  make_heads(path);
  EXPECT_EQ(header().kind, TraceKind::heads);
  EXPECT_EQ(header().hidden_size, kH);
  EXPECT_EQ(header().target_hidden_size, kHt);
  EXPECT_EQ(TraceFile::open(path)->blocks(), 0);
  RawFile::edit(path).remove("/heads");
  expect_refused(path, {"/heads", "is missing"});
}

}  // namespace
}  // namespace dspark::test
