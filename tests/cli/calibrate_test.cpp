// calibrate: the file it writes, the report, and what it refuses.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/tiny_trace.h"
#include "tests/cli/tool.h"

namespace dspark::test {
namespace {

using Arguments = std::vector<std::string>;
using Json = nlohmann::json;

class CalibrateTest : public testing::Test {
 protected:
  CalibrateTest() { write_tiny_trace(trace_); }

  [[nodiscard]] Outcome calibrate(const Arguments& more) const {
    Arguments arguments = {"calibrate", "--backend", "cpu", "-o", file_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_tool(arguments);
  }
  [[nodiscard]] Json report(Arguments more, int exit_code = 0) const {
    more.insert(more.end(), {"--format", "json"});
    const Outcome outcome = calibrate(more);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    return Json::parse(outcome.out);
  }
  [[nodiscard]] Json file() const { return Json::parse(read_file(file_)); }
  void expect_refused(const Arguments& more, int exit_code,
                      const std::vector<std::string>& parts) const {
    expect_error(calibrate(more), exit_code, parts);
    EXPECT_FALSE(std::filesystem::exists(file_));
  }
  /// `count` records with logits of 1, -1 and 0 in turn, every other one accepted.
  [[nodiscard]] std::string write_records(int count) const {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += "{\"logits\": [" + std::to_string(i % 3 - 1) + ", 0.5], \"labels\": [" +
              (i % 2 == 0 ? "1, 0" : "0, 0") + "]}\n";
    }
    const std::string path = folder_.file("confidence_records.jsonl");
    write_file(path, text);
    return path;
  }

  TemporaryFolder folder_;
  std::string trace_ = folder_.file("tiny.h5");
  std::string file_ = folder_.file("sts.json");
};

TEST_F(CalibrateTest, WritesTheFileOfEachEngine) {
  const Json found = report({trace_});
  ASSERT_EQ(found["temperatures"].size(), 3U);
  Json temperatures = Json::array();
  for (const Json& at : found["temperatures"]) temperatures.push_back(at["temperature"]);
  EXPECT_EQ(file()["temperatures"], temperatures);
  EXPECT_EQ(file()["num_samples"], found["temperatures"][0]["blocks"]);
  EXPECT_EQ(file()["ece_before"][0], found["positions"][0]["before"]["ece"]);
  EXPECT_EQ(file()["ece_after"][2], found["positions"][2]["after"]["ece"]);
  EXPECT_EQ(found["positions"][2]["part"], "held_out");

  EXPECT_EQ(calibrate({trace_, "--to", "trtllm"}).exit_code, 0);
  EXPECT_EQ(file(), (Json{{"sts_temperatures", temperatures}}));

  EXPECT_EQ(calibrate({trace_, "--to", "deepspec"}).exit_code, 0);
  EXPECT_EQ(file()["block_size"], 3);
  EXPECT_EQ(file()["num_bins"], 20);
  EXPECT_EQ(file()["grid"], (Json{{"min", 0.05}, {"max", 20.0}, {"size", 256}}));
  EXPECT_EQ(file()["sources"], Json::array({trace_}));
  EXPECT_EQ(file()["cumulative_ece_before"].size(), 3U);
  EXPECT_EQ(calibrate({trace_, "--to", "deepspec", "--labels", "conditional"}).exit_code, 0);
  EXPECT_FALSE(file().contains("cumulative_ece_before"));
}

TEST_F(CalibrateTest, ReportsInEveryFormat) {
  const Json json = report({trace_});
  EXPECT_EQ(json["format"], "dspark-calibration-report");
  EXPECT_EQ(json["labels"], "cumulative");
  EXPECT_EQ(json["bins"], 15);
  EXPECT_EQ(json["inputs"][0]["sequences"], 2);
  EXPECT_EQ(json["inputs"][0]["held_out"], 1);
  EXPECT_EQ(json["positions"].size(), 6U);  // held out and fitted
  EXPECT_EQ(json["positions"][0]["before"]["bins"].size(), 15U);
  double weight = 0;
  for (const Json& bin : json["positions"][0]["after"]["bins"])
    weight += bin["weight"].get<double>();
  EXPECT_NEAR(weight, json["positions"][0]["weight"], 1e-9);

  const Outcome table = calibrate({trace_});
  EXPECT_THAT(table.out, testing::HasSubstr("fitted on 1 sequence, judged on 1 held out\n"));
  EXPECT_THAT(table.out, testing::HasSubstr("\nheld out, all\n"));
  const Outcome markdown = calibrate({trace_, "--format", "md"});
  EXPECT_THAT(markdown.out, testing::HasSubstr("\n### held out, all\n\n| k | temperature |"));
  const std::vector<std::string> csv = lines_of(calibrate({trace_, "--format", "csv"}).out);
  ASSERT_EQ(csv.size(), 13U);  // 2 parts, 3 positions, before and after
  EXPECT_THAT(csv[0], testing::StartsWith("part,domain,position,state,temperature,"));
  EXPECT_THAT(csv[1], testing::StartsWith("held_out,,1,before,1,"));
  const std::vector<std::string> lines = lines_of(calibrate({trace_, "--format", "jsonl"}).out);
  ASSERT_EQ(lines.size(), 11U);  // header, input, 3 temperatures, 6 positions
  EXPECT_EQ(Json::parse(lines[0])["type"], "header");
  EXPECT_EQ(Json::parse(lines[1])["type"], "input");
  EXPECT_EQ(Json::parse(lines[2])["type"], "temperature");
  EXPECT_EQ(Json::parse(lines[5])["type"], "position");
}

TEST_F(CalibrateTest, OverridesThePreset) {
  const Json json = report({trace_, "--preset", "deepspec", "--bins", "7", "--grid-min", "0.5",
                            "--grid-max", "2", "--grid-size", "3"});
  EXPECT_EQ(json["preset"], "deepspec");
  EXPECT_EQ(json["bins"], 7);
  EXPECT_EQ(json["grid"], (Json{{"min", 0.5}, {"max", 2.0}, {"size", 3}, {"prefers_one", true}}));
  for (const Json& at : json["temperatures"]) {
    EXPECT_THAT(at["temperature"].get<double>(), testing::AnyOf(0.5, 1.0, 2.0));
  }
}

TEST_F(CalibrateTest, GivesTheSameBytesWithAnyThreadsAndChunkAndFromTheCache) {
  const std::string cache = folder_.file("cache");
  const Outcome first = calibrate({trace_, "--threads", "1"});
  const std::string written = read_file(file_);
  for (const Arguments& more :
       {Arguments{"--threads", "3", "--chunk", "1"}, Arguments{"--products", "tensor"},
        Arguments{"--cache", cache}, Arguments{"--cache", cache}}) {
    Arguments arguments = more;
    arguments.push_back(trace_);
    EXPECT_EQ(calibrate(arguments).out, first.out);
    EXPECT_EQ(read_file(file_), written);
  }
  EXPECT_FALSE(std::filesystem::is_empty(cache));
}

TEST_F(CalibrateTest, GivesAnOverconfidentDrafterTwiceTheTemperature) {
  const std::string doubled = folder_.file("doubled.h5");
  copy_trace(bundled("heads.h5"), doubled);
  scale_dataset(doubled, "/heads/confidence_weight", 2);
  scale_dataset(doubled, "/heads/confidence_bias", 2);
  for (const std::string labels : {"cumulative", "conditional"}) {
    const auto first_temperature = [&](const std::string& heads) {
      const Json json = report({bundled("code_t1.h5"), "--heads", heads, "--repeats", "1",
                                "--labels", labels, "--cache", folder_.file("cache")});
      return json["temperatures"][0]["temperature"].get<double>();
    };
    const double honest = first_temperature(bundled("heads.h5"));
    EXPECT_NEAR(first_temperature(doubled) / honest, 2, 0.05 * 2) << labels << " " << honest;
  }
}

TEST_F(CalibrateTest, ReadsRecordsAloneAndBesideTraces) {
  const std::string records = write_records(200);
  const Json alone = report({records});
  EXPECT_TRUE(alone["tool"]["backend"].is_null());
  EXPECT_EQ(alone["inputs"][0]["sequences"], 4);
  EXPECT_EQ(alone["temperatures"].size(), 2U);
  const Json both = report({trace_, records});
  EXPECT_EQ(both["temperatures"].size(), 3U);
  EXPECT_EQ(both["inputs"][1]["blocks"], 200);
  // All inputs, and each domain: two parts of three positions.
  EXPECT_EQ(both["positions"].size(), 18U);
  EXPECT_EQ(both["positions"][3]["domain"], both["inputs"][0]["domain"]);
}

TEST_F(CalibrateTest, OfOneSequenceIsNotJudged) {
  const std::string records = write_records(10);
  const Outcome outcome = calibrate({records});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, testing::HasSubstr("fitted (not judged), all"));
  EXPECT_THAT(outcome.err, testing::HasSubstr("nothing is held out, so nothing is judged"));
  const Json json = report({records});
  EXPECT_TRUE(json["mean_ece"]["held_out"]["after"].is_null());
  EXPECT_TRUE(json["positions"][1]["before"]["auc"].is_null());  // no second draft was accepted
  const Outcome gated = calibrate({records, "--max-ece", "0.9"});
  EXPECT_EQ(gated.exit_code, 6);
  EXPECT_THAT(gated.err, testing::HasSubstr("--max-ece: nothing is held out"));
}

TEST_F(CalibrateTest, HasAGate) {
  const double after = report({trace_})["mean_ece"]["held_out"]["after"];
  EXPECT_EQ(calibrate({trace_, "--max-ece", std::to_string(after + 0.001)}).exit_code, 0);
  const Outcome failed = calibrate({trace_, "--max-ece", std::to_string(after - 0.001)});
  EXPECT_EQ(failed.exit_code, 6);
  EXPECT_THAT(failed.err, testing::HasSubstr("--max-ece: the mean calibration error after is"));
  EXPECT_EQ(failed.out, calibrate({trace_}).out);  // done all the same
  EXPECT_EQ(file()["temperatures"].size(), 3U);
}

TEST_F(CalibrateTest, ReplaysGreedyRecordings) {
  const std::string greedy = folder_.file("greedy.h5");
  write_tiny_trace(greedy, {.temperature = 0});
  const Json json = report({greedy});
  EXPECT_EQ(json["positions"][0]["weight"], json["positions"][0]["blocks"]);
}

TEST_F(CalibrateTest, ReadsRoundsTraces) {
  const Json json = report({bundled("rounds_code_t1.h5")});
  EXPECT_EQ(json["temperatures"].size(), 7U);
  EXPECT_EQ(json["inputs"][0]["blocks"], 3);
  for (const Json& at : json["positions"]) EXPECT_EQ(at["weight"], at["blocks"]);
}

TEST_F(CalibrateTest, ExitsWith6WhereRowsAreInvalid) {
  write_tiny_trace(trace_, {.nan_row = 1});
  EXPECT_EQ(calibrate({trace_}).exit_code, 6);
  EXPECT_EQ(file()["temperatures"].size(), 3U);
}

TEST_F(CalibrateTest, RefusesWhatItCannotCalibrateOn) {
  const std::string bad = folder_.file("bad");
  expect_refused({folder_.file("missing.h5")}, 4, {"missing.h5"});
  expect_refused({bundled("heads.h5")}, 4, {"heads.h5", "heads file"});
  expect_refused({trace_, bundled("code_t1.h5")}, 4, {"code_t1.h5: its block size is 7", "is 3"});
  write_tiny_trace(bad, {.with_confidence_head = false});
  expect_refused({bad}, 4, {"has no confidence head"});
  std::filesystem::remove(bad);
  write_tiny_trace(bad, {.with_draft_hidden = false});
  expect_refused({bad}, 4, {"has no draft_hidden"});
  write_file(bad, "{\"logits\": [1], \"labels\": [1]}\n{\"logits\": [1], \"labels\": [2]}\n");
  expect_refused({bad}, 4, {"bad:2: labels[0] is neither 0 nor 1"});
  expect_refused({write_records(5), "--memory-budget", "1k"}, 4,
                 {"confidence_records.jsonl", "memory budget of 1 kB"});
}

TEST_F(CalibrateTest, NeverOverwritesAnInput) {
  const Outcome outcome = run_tool({"calibrate", trace_, "-o", trace_});
  expect_error(outcome, 2, {"this is the input file"});
}

}  // namespace
}  // namespace dspark::test
