#include "calibration/calibration.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/error.h"
#include "tests/support/temporary_folder.h"

namespace dspark {
namespace {

constexpr const char* kSglang = R"({
  "temperatures": [1.25, 0.1, 3.0000000000000004],
  "dataset": "gsm8k",
  "num_samples": 4096,
  "ece_before": [0.125, 0.0625, 0.03],
  "ece_after": [0.0125, 0.00625, 0.003]
}
)";
constexpr const char* kTrtllm = R"({
  "sts_temperatures": [
    1.25,
    0.1
  ]
}
)";
constexpr const char* kDeepspec = R"({
  "temperatures": [0.75, 2.0],
  "block_size": 2,
  "num_bins": 20,
  "grid": {"min": 0.05, "max": 20.0, "size": 256},
  "num_records": 1000,
  "sources": ["a/confidence_records.jsonl", "b.jsonl"],
  "cumulative_ece_before": [0.1, 0.2],
  "cumulative_ece_after": [0.01, 0.02]
}
)";

void expect_same(const Calibration& a, const Calibration& b) {
  EXPECT_EQ(a.format, b.format);
  EXPECT_EQ(a.temperatures, b.temperatures);
  EXPECT_EQ(a.dataset, b.dataset);
  EXPECT_EQ(a.samples, b.samples);
  EXPECT_EQ(a.ece_before, b.ece_before);
  EXPECT_EQ(a.ece_after, b.ece_after);
  EXPECT_EQ(a.bins, b.bins);
  EXPECT_EQ(a.grid, b.grid);
  EXPECT_EQ(a.origins, b.origins);
}

TEST(CalibrationFile, OfSglangSaysWhatIsInIt) {
  const Calibration read = parse_calibration(kSglang, "sts.json", 3);
  EXPECT_EQ(read.format, CalibrationFormat::sglang);
  EXPECT_EQ(read.source, "sts.json");
  EXPECT_EQ(read.temperatures, (std::vector<double>{1.25, 0.1, 3.0000000000000004}));
  EXPECT_EQ(read.dataset, "gsm8k");
  EXPECT_EQ(read.samples, 4096);
  EXPECT_EQ(read.ece_before, (std::vector<double>{0.125, 0.0625, 0.03}));
  EXPECT_EQ(read.ece_after, (std::vector<double>{0.0125, 0.00625, 0.003}));
}

TEST(CalibrationFile, OfTensorRtLlmSaysWhatIsInIt) {
  const Calibration read = parse_calibration(kTrtllm, "sts.json", 2);
  EXPECT_EQ(read.format, CalibrationFormat::trtllm);
  EXPECT_EQ(read.temperatures, (std::vector<double>{1.25, 0.1}));
}

TEST(CalibrationFile, OfDeepspecSaysWhatIsInIt) {
  const Calibration read = parse_calibration(kDeepspec, "c.json", 2);
  EXPECT_EQ(read.format, CalibrationFormat::deepspec);
  EXPECT_EQ(read.temperatures, (std::vector<double>{0.75, 2.0}));
  EXPECT_EQ(read.samples, 1000);
  EXPECT_EQ(read.bins, 20);
  EXPECT_EQ(read.grid, (CalibrationGrid{0.05, 20, 256}));
  EXPECT_EQ(read.origins, (std::vector<std::string>{"a/confidence_records.jsonl", "b.jsonl"}));
  EXPECT_EQ(read.ece_after, (std::vector<double>{0.01, 0.02}));
}

TEST(CalibrationFile, IsReadWrittenAndReadAgainWithoutLoss) {
  for (const char* text : {kSglang, kTrtllm, kDeepspec}) {
    const Calibration read = parse_calibration(text, "f");
    const std::string written = calibration_text(read);
    expect_same(parse_calibration(written, "f"), read);
    EXPECT_EQ(calibration_text(parse_calibration(written, "f")), written);
  }
  EXPECT_EQ(calibration_text(parse_calibration(kTrtllm, "f")), kTrtllm);
}

TEST(CalibrationFile, NeedsNothingButTemperatures) {
  const Calibration read = parse_calibration(R"({"temperatures": [2]})", "f");
  EXPECT_EQ(read.format, CalibrationFormat::sglang);
  EXPECT_EQ(read.temperatures, std::vector<double>{2.0});
  EXPECT_FALSE(read.samples.has_value());
  EXPECT_EQ(parse_calibration(calibration_text(read), "f").temperatures, read.temperatures);
}

TEST(CalibrationFile, MayHaveBothSpellingsIfTheyAgree) {
  const Calibration both =
      parse_calibration(R"({"temperatures": [2, 3], "sts_temperatures": [2, 3.0]})", "f");
  EXPECT_EQ(both.format, CalibrationFormat::sglang);
  EXPECT_EQ(both.temperatures, (std::vector<double>{2, 3}));
}

TEST(CalibrationFile, LeavesUnknownKeysAlone) {
  EXPECT_NO_THROW(static_cast<void>(
      parse_calibration(R"({"temperatures": [2], "note": {"temperatures": "x"}})", "f")));
}

struct Broken {
  std::string name, text, part;
};
void PrintTo(const Broken& broken, std::ostream* out) { *out << broken.name; }

class BrokenCalibration : public testing::TestWithParam<Broken> {};

TEST_P(BrokenCalibration, IsRefusedWithALineThatNamesTheKey) {
  try {
    static_cast<void>(parse_calibration(GetParam().text, "sts.json", 2));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::policy);
    const std::string text = error.what();
    EXPECT_EQ(text.rfind("sts.json", 0), 0u) << text;
    EXPECT_NE(text.find(GetParam().part), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, BrokenCalibration,
    testing::Values(
        Broken{"Empty", "", "the file ends too early"},
        Broken{"Truncated", R"({"temperatures": [1, 2)", "ends too early"},
        Broken{"TextBehind", R"({"temperatures": [1, 2]} x)", "not JSON"},
        Broken{"NotUtf8", "{\"temperatures\": [1, 2], \"dataset\": \"\xff\"}", "dataset"},
        Broken{"List", "[1, 2]", "not an object"},
        Broken{"NoTemperatures", R"({"ece_before": []})", "neither 'temperatures' nor"},
        Broken{"NoList", R"({"temperatures": 1})", "temperatures: this is not a list"},
        Broken{"NoNumbers", R"({"sts_temperatures": []})", "sts_temperatures: this list is empty"},
        Broken{"Zero", R"({"temperatures": [1, 0]})", "temperatures[1]: 0 is not above 0"},
        Broken{"Negative", R"({"sts_temperatures": [-1, 1]})",
               "sts_temperatures[0]: -1 is not above 0"},
        Broken{"NaN", R"({"temperatures": [1, NaN]})", "temperatures[1]: NaN is not a number"},
        Broken{"Overflow", R"({"temperatures": [1, 1e999]})",
               "temperatures[1]: this number is too large"},
        Broken{"NotANumber", R"({"temperatures": [1, "2"]})",
               "temperatures[1]: this is not a number"},
        Broken{"Null", R"({"temperatures": [null, 2]})", "temperatures[0]: this is not a number"},
        Broken{"WrongLength", R"({"temperatures": [1, 2, 3]})",
               "temperatures: 3 temperatures for blocks of 2"},
        Broken{"BlockSize", R"({"temperatures": [1, 2], "block_size": 7})",
               "block_size: 7 does not go with 2"},
        Broken{"BadBlockSize", R"({"temperatures": [1, 2], "block_size": 2.5})",
               "block_size: this is not a whole number"},
        Broken{"HugeCount", R"({"temperatures": [1, 2], "num_samples": 18446744073709551615})",
               "num_samples: 18446744073709551615 is out of range"},
        Broken{"Errors", R"({"temperatures": [1, 2], "ece_before": [0.1]})",
               "ece_before: 1 numbers for 2"},
        Broken{"ErrorsOfText", R"({"temperatures": [1, 2], "ece_after": ["a", "b"]})",
               "ece_after[0]: this is not a number"},
        Broken{"Dataset", R"({"temperatures": [1, 2], "dataset": 3})",
               "dataset: this is not a text"},
        Broken{"Grid", R"({"temperatures": [1, 2], "grid": {"min": 1}})", "grid: 'max' is missing"},
        Broken{"GridOfNumbers", R"({"temperatures": [1, 2], "grid": [1]})",
               "grid: this is not an object"},
        Broken{"Sources", R"({"temperatures": [1, 2], "sources": [1]})",
               "sources[0]: this is not a text"},
        Broken{"Twice", R"({"temperatures": [1, 2], "temperatures": [3, 4]})",
               "temperatures: this key is given twice"},
        Broken{"Contradiction", R"({"temperatures": [1, 2], "sts_temperatures": [1, 3]})",
               "sts_temperatures: this is not what"}),
    [](const auto& test) { return test.param.name; });

TEST(CalibrationFile, HasAtMostAsManyTemperaturesAsABlockHasDrafts) {
  std::string list = "1";
  for (int i = 0; i < 64; ++i) list += ", 1";
  EXPECT_THROW(static_cast<void>(parse_calibration("{\"temperatures\": [" + list + "]}", "f")),
               Error);
}

TEST(CalibrationFile, IsRefusedWhereItNestsDeeply) {
  const std::string open(200'000, '['), close(200'000, ']');
  EXPECT_THROW(static_cast<void>(parse_calibration("{\"x\": " + open, "f")), Error);
  const std::string whole = "{\"temperatures\": [1], \"x\": " + open + close + "}";
  EXPECT_THROW(static_cast<void>(parse_calibration(whole, "f")), Error);
}

TEST(CalibrationFile, ThatCannotBeReadIsAnErrorOfTheCalibration) {
  const test::TemporaryFolder folder;
  const auto code_for = [](const std::string& file) {
    try {
      static_cast<void>(read_calibration(file));
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::done;
  };
  EXPECT_EQ(code_for(folder.file("missing")), ExitCode::policy);
  EXPECT_EQ(code_for(folder.path().string()), ExitCode::policy);
  std::ofstream(folder.file("large")) << std::string((std::size_t{1} << 20) + 1, ' ');
  EXPECT_EQ(code_for(folder.file("large")), ExitCode::policy);
  std::ofstream(folder.file("good")) << kDeepspec;
  EXPECT_EQ(read_calibration(folder.file("good"), 2).samples, 1000);
}

}  // namespace
}  // namespace dspark
