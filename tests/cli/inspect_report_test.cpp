// The printers of inspect: exact texts.
#include "cli/inspect_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace dspark {
namespace {

TraceReport sample_report() {
  TraceReport report;
  report.file = "a|b,\n.h5";
  report.kind = "anchors";
  report.vocab_size = 8192;
  report.vocab_size_logical = 8192;
  report.block_size = 7;
  report.hidden_size = 512;
  report.anchors = 768;
  report.sequences = 1;
  report.temperature = 0.7;
  report.top_k = 0;
  report.top_p = 1.0;
  report.seed = 12;
  report.domain = "prose";
  report.invalid_rows = 2;
  report.datasets = {{"/anchors/tokens", {768}, "i32", 3072, 0, {}, {}, {}, {}},
                     {"/anchors/draft_logits", {768, 7, 8192}, "f16", 88080384, 0, 5376, 2, 0, 31}};
  report.problems = {{Severity::warning, "/anchors/draft_logits", "31 near ties"},
                     {Severity::warning, "", "no heads: confidences were not checked"}};
  return report;
}

TraceReport broken_report() {
  TraceReport report;
  report.file = "broken.h5";
  report.valid = false;
  report.problems = {{Severity::error, "", "not an HDF5 file"}};
  return report;
}

TEST(InspectReport, Table) {
  EXPECT_EQ(
      render_inspection({sample_report(), broken_report()}, OutputFormat::table),
      "a|b,\\n.h5 (anchors): valid, 2 invalid rows, 2 warnings\n"
      "  content   768 anchors, 1 sequence\n"
      "  sizes     vocabulary 8192, block 7, draft hidden 512\n"
      "  recorded  temperature 0.7, seed 12\n"
      "  domain    prose\n"
      "\n"
      "  dataset                shape           type   stored  rows  invalid  flat  near ties\n"
      "  /anchors/tokens        768             i32   3.07 kB\n"
      "  /anchors/draft_logits  768 x 7 x 8192  f16   88.1 MB  5376        2     0         31\n"
      "\n"
      "  warning: /anchors/draft_logits: 31 near ties\n"
      "  warning: no heads: confidences were not checked\n"
      "\n"
      "broken.h5: not valid, 1 error\n"
      "\n"
      "  error: not an HDF5 file\n");
}

TEST(InspectReport, Markdown) {
  EXPECT_EQ(render_inspection({sample_report(), broken_report()}, OutputFormat::md),
            "## a\\|b,\\\\n.h5 (anchors): valid, 2 invalid rows, 2 warnings\n"
            "\n"
            "- content: 768 anchors, 1 sequence\n"
            "- sizes: vocabulary 8192, block 7, draft hidden 512\n"
            "- recorded: temperature 0.7, seed 12\n"
            "- domain: prose\n"
            "\n"
            "| dataset | shape | type | stored | rows | invalid | flat | near ties |\n"
            "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
            "| /anchors/tokens | 768 | i32 | 3.07 kB |  |  |  |  |\n"
            "| /anchors/draft\\_logits | 768 x 7 x 8192 | f16 | 88.1 MB | 5376 | 2 | 0 | 31 |\n"
            "\n"
            "- warning: /anchors/draft\\_logits: 31 near ties\n"
            "- warning: no heads: confidences were not checked\n"
            "\n"
            "## broken.h5: not valid, 1 error\n"
            "\n"
            "- error: not an HDF5 file\n");
}

TEST(InspectReport, Csv) {
  EXPECT_EQ(render_inspection({sample_report(), broken_report()}, OutputFormat::csv),
            "file,kind,vocab_size,block_size,hidden_size,target_hidden_size,anchors,sequences,"
            "rounds,requests,temperature,top_k,top_p,valid,errors,warnings,invalid_rows,"
            "first_problem\n"
            "\"a|b,\\n.h5\",anchors,8192,7,512,,768,1,,,0.7,0,1,true,0,2,2,"
            "/anchors/draft_logits: 31 near ties\n"
            "broken.h5,,,,,,,,,,,,,false,1,0,0,not an HDF5 file\n");
}

TEST(InspectReport, JsonHasNullForWhatDoesNotExist) {
  const std::string text =
      render_inspection({sample_report(), broken_report()}, OutputFormat::json);
  EXPECT_EQ(text.back(), '\n');
  const auto report = nlohmann::json::parse(text);
  EXPECT_EQ(report["format"], "dspark-inspect");
  EXPECT_EQ(report["format_version"], 1);
  const auto& trace = report["traces"][0];
  EXPECT_EQ(trace["file"], "a|b,\\n.h5");
  EXPECT_EQ(trace["anchors"], 768);
  EXPECT_TRUE(trace["rounds"].is_null());
  EXPECT_TRUE(trace["model"].is_null());
  EXPECT_EQ(trace["valid"], true);
  EXPECT_EQ(trace["invalid_rows"], 2);
  EXPECT_EQ(trace["datasets"][1]["shape"], (std::vector<int>{768, 7, 8192}));
  EXPECT_TRUE(trace["datasets"][0]["rows"].is_null());
  EXPECT_EQ(trace["problems"][0]["severity"], "warning");
  EXPECT_EQ(trace["problems"][0]["where"], "/anchors/draft_logits");
  EXPECT_EQ(report["traces"][1]["valid"], false);
  EXPECT_EQ(report["traces"][1]["problems"][0]["severity"], "error");
  EXPECT_TRUE(report["traces"][1]["kind"].is_null());
}

TEST(InspectReport, JsonLinesHaveAHeaderAndOneObjectPerTrace) {
  const std::string text =
      render_inspection({sample_report(), broken_report()}, OutputFormat::jsonl);
  std::vector<nlohmann::json> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    ASSERT_NE(end, std::string::npos);
    lines.push_back(nlohmann::json::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["type"], "header");
  EXPECT_EQ(lines[0]["format"], "dspark-inspect");
  EXPECT_EQ(lines[1]["type"], "trace");
  EXPECT_EQ(lines[1]["anchors"], 768);
  EXPECT_EQ(lines[2]["file"], "broken.h5");
}

TEST(InspectReport, BytesThatAreNotUtf8DoNotBreakJson) {
  TraceReport report = broken_report();
  report.model = "bad \xff\x1b";
  const auto parsed = nlohmann::json::parse(render_inspection({report}, OutputFormat::json));
  EXPECT_EQ(parsed["traces"][0]["model"], "bad \\xff\\x1b");
}

}  // namespace
}  // namespace dspark
