// Exit codes 4, 5 and 6: bad traces, no device, invalid rows.
#include <nlohmann/json.hpp>

#include "tests/cli/tiny_trace.h"
#include "tests/cli/tool.h"

namespace dspark::test {
namespace {

class TraceError : public testing::Test {
 protected:
  TraceError() { write_tiny_trace(trace_); }
  void expect_bad(const std::string& path, const std::vector<std::string>& parts) {
    expect_error(run_tool({"run", path, "--backend", "cpu"}), 4, parts);
    const Outcome inspected = run_tool({"inspect", path, "--format", "json"});
    EXPECT_EQ(inspected.exit_code, 4);
    const auto report = nlohmann::json::parse(inspected.out);
    EXPECT_EQ(report["format"], "dspark-inspect");
    EXPECT_FALSE(report["traces"][0]["valid"].get<bool>());
    EXPECT_EQ(report["traces"][0]["problems"][0]["severity"], "error");
  }

  TemporaryFolder folder_;
  std::string trace_ = folder_.file("tiny.h5");
};

TEST_F(TraceError, AFileThatIsNotThere) { expect_bad(folder_.file("none.h5"), {"none.h5"}); }

TEST_F(TraceError, AFolder) {
  expect_bad(folder_.path().string(), {folder_.path().filename().string()});
}

TEST_F(TraceError, AFileThatIsNotHdf5) {
  write_file(trace_, "this is text\n");
  expect_bad(trace_, {"tiny.h5", "HDF5"});
}

// Chunks that do not unpack, met while the trace is read: by another thread than opened it.
TEST_F(TraceError, DamagedRows) {
  std::string bytes = read_file(bundled("code_t1.h5"));
  const std::size_t middle = bytes.size() / 2;
  bytes.replace(middle, 64, 64, '\xA5');
  const std::string damaged = folder_.file("damaged.h5");
  write_file(damaged, bytes);
  for (const std::string command : {"run", "calibrate"}) {
    const std::string output = folder_.file("output");
    const Outcome outcome = run_tool({command, damaged, "--heads", bundled("heads.h5"), "-o",
                                      output, "--backend", "cpu", "--quiet"});
    expect_error(outcome, 4, {"damaged.h5"});
    EXPECT_FALSE(std::filesystem::exists(output));
  }
}

TEST_F(TraceError, ATruncatedFile) {
  std::filesystem::resize_file(trace_, std::filesystem::file_size(trace_) / 2);
  expect_bad(trace_, {"tiny.h5"});
}

TEST_F(TraceError, AMissingDataset) {
  remove_object(trace_, "/anchors/tokens");
  expect_bad(trace_, {"tiny.h5", "/anchors/tokens"});
}

TEST_F(TraceError, AnotherFormatVersion) {
  set_root_attribute(trace_, "format_version", 2);
  expect_bad(trace_, {"tiny.h5", "format_version", "2"});
}

TEST_F(TraceError, AnotherKindOfFile) {
  set_root_attribute(trace_, "kind", "tokens");
  expect_bad(trace_, {"tiny.h5", "kind"});
}

TEST_F(TraceError, AMissingHeadsFile) {
  expect_error(run_tool({"run", trace_, "--heads", folder_.file("none.h5")}), 4, {"none.h5"});
  const std::string alone = folder_.file("code_t1.h5");
  copy_trace(bundled("code_t1.h5"), alone);
  expect_error(run_tool({"run", alone}), 4, {"heads.h5"});
}

TEST_F(TraceError, RunOnAHeadsFile) {
  expect_error(run_tool({"run", bundled("heads.h5")}), 4, {"heads.h5", "heads file", "--heads"});
}

TEST_F(TraceError, IsFoundBeforeTheMissingDevice) {
  expect_error(run_tool({"run", folder_.file("none.h5"), "--backend", "cuda"}), 4, {"none.h5"});
}

TEST_F(TraceError, CudaWithoutADeviceExitsWith5AndTheReason) {
  const Outcome outcome = run_tool({"run", trace_, "--backend", "cuda"});
  if (outcome.exit_code == 0) GTEST_SKIP() << "there is a CUDA device";
  expect_error(outcome, 5, {"--backend cuda", "--backend cpu"});
}

TEST_F(TraceError, InvalidRowsExitWith6AfterTheResult) {
  write_tiny_trace(trace_, {.nan_row = 4});
  const Outcome outcome = run_tool({"run", trace_, "--backend", "cpu", "--format", "json"});
  EXPECT_EQ(outcome.exit_code, 6);
  const auto result = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(result["traces"][0]["invalid_rows"], 1);
  EXPECT_FALSE(result["results"].empty());
  EXPECT_THAT(outcome.err, testing::StartsWith("dspark-replay: note: "));

  const Outcome quiet = run_tool({"run", trace_, "--backend", "cpu", "--quiet"});
  EXPECT_EQ(quiet.exit_code, 6);
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(run_tool({"inspect", trace_}).exit_code, 6);
}

TEST_F(TraceError, ImpossibleTokensExitWith6AfterTheResult) {
  write_tiny_trace(trace_, {.impossible_token = 2});
  const Outcome outcome = run_tool({"run", trace_, "--backend", "cpu", "--format", "json"});
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["traces"][0]["impossible_tokens"], 1);
}

TEST_F(TraceError, OneBadTraceAmongGoodOnesGivesNoResult) {
  expect_error(run_tool({"run", trace_, folder_.file("none.h5"), "-o", folder_.file("out")}), 4,
               {"none.h5"});
  EXPECT_THAT(folder_.names(), testing::ElementsAre("tiny.h5"));
}

TEST_F(TraceError, InspectShowsGoodAndBadTracesAndExitsWith4) {
  const Outcome outcome =
      run_tool({"inspect", trace_, folder_.file("none.h5"), "--format", "json"});
  EXPECT_EQ(outcome.exit_code, 4);
  const auto report = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(report["traces"].size(), 2U);
  EXPECT_TRUE(report["traces"][0]["valid"].get<bool>());
  EXPECT_EQ(report["traces"][0]["vocab_size"], 40);
  EXPECT_EQ(report["traces"][0]["anchors"], 11);
  EXPECT_EQ(report["traces"][0]["sequences"], 2);
  EXPECT_FALSE(report["traces"][1]["valid"].get<bool>());
}

}  // namespace
}  // namespace dspark::test
