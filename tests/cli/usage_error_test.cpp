// Exit code 2: the command line itself is wrong. Nothing is read and nothing is written.
#include "tests/cli/tool.h"

namespace dspark::test {
namespace {

struct BadUsage {
  std::string name;
  std::vector<std::string> arguments;
  std::vector<std::string> message_parts;
};

void PrintTo(const BadUsage& usage, std::ostream* out) { *out << usage.name; }

class BadUsageTest : public testing::TestWithParam<BadUsage> {};

TEST_P(BadUsageTest, ExitsWith2AndSaysWhatToDo) {
  expect_error(run_tool(GetParam().arguments), 2, GetParam().message_parts);
}

INSTANTIATE_TEST_SUITE_P(
    Usage, BadUsageTest,
    testing::Values(
        BadUsage{"NoCommand", {}, {"no command", "run", "inspect"}},
        BadUsage{"UnknownCommand", {"replay"}, {"replay: unknown command", "run, inspect"}},
        BadUsage{"EmptyCommand", {""}, {"unknown command"}},
        BadUsage{"FlagBeforeTheCommand", {"--quiet", "run"}, {"--quiet: the command comes before"}},
        BadUsage{"RunWithoutTrace", {"run"}, {"no trace given", "run TRACE"}},
        BadUsage{"InspectWithoutTrace", {"inspect"}, {"no trace given", "inspect TRACE"}},
        BadUsage{"EmptyTrace", {"run", ""}, {"TRACE: the path is empty"}},
        BadUsage{"TraceFromStandardInput", {"run", "-"}, {"standard input"}},
        BadUsage{"UnknownFlag", {"run", "x.h5", "--fast"}, {"--fast: unknown flag", "run --help"}},
        BadUsage{"UnknownShortFlag", {"inspect", "x.h5", "-z"}, {"-z: unknown flag"}},
        BadUsage{
            "UnknownBackend", {"run", "x.h5", "--backend", "gpu"}, {"--backend: 'gpu'", "cuda"}},
        BadUsage{"UnknownFormat", {"run", "x.h5", "--format", "xml"}, {"--format: 'xml'", "jsonl"}},
        BadUsage{
            "FlagTwice", {"run", "x.h5", "--seed", "1", "--seed", "2"}, {"--seed: given more"}},
        BadUsage{"PolicyTwice", {"run", "x.h5", "-p", "a", "-p", "b"}, {"--policy: given more"}},
        BadUsage{"EmptyPolicy", {"run", "x.h5", "-p", ""}, {"--policy: the path is empty"}},
        BadUsage{"EmptyHeads", {"run", "x.h5", "--heads", ""}, {"--heads: the path is empty"}},
        BadUsage{"ValueMissing", {"run", "x.h5", "--repeats"}, {"--repeats: its value is missing"}},
        BadUsage{"ZeroRepeats", {"run", "x.h5", "--repeats", "0"}, {"--repeats: '0'", "1 to 1000"}},
        BadUsage{"TooManyRepeats", {"run", "x.h5", "--repeats", "1001"}, {"--repeats: '1001'"}},
        BadUsage{"NegativeThreads", {"run", "x.h5", "--threads", "-1"}, {"--threads: '-1'"}},
        BadUsage{"ZeroThreads", {"run", "x.h5", "--threads", "0"}, {"--threads: '0'"}},
        BadUsage{"NegativeSeed", {"run", "x.h5", "--seed=-1"}, {"--seed: '-1'"}},
        BadUsage{"SeedBeyond64Bits",
                 {"run", "x.h5", "--seed", "18446744073709551616"},
                 {"--seed: '18446744073709551616'"}},
        BadUsage{"ConfidenceOfOne",
                 {"run", "x.h5", "--confidence", "1"},
                 {"--confidence: '1'", "0.5 and 0.995"}},
        BadUsage{"LowConfidence", {"run", "x.h5", "--confidence", "0.5"}, {"--confidence: '0.5'"}},
        BadUsage{"NoConfidence", {"run", "x.h5", "--confidence", "nan"}, {"--confidence: 'nan'"}},
        BadUsage{"ReferenceZero", {"run", "x.h5", "--reference", "0"}, {"--reference: '0'"}},
        BadUsage{"CalibrateWithoutTrace",
                 {"calibrate", "-o", "x"},
                 {"no trace given", "calibrate TRACE"}},
        BadUsage{
            "CalibrateWithoutOutput", {"calibrate", "x.h5"}, {"--output: the report", "-o FILE"}},
        BadUsage{"CalibrateToStandardOutput",
                 {"calibrate", "x.h5", "-o", "-"},
                 {"--output: the report", "-o FILE"}},
        BadUsage{"UnknownLabels",
                 {"calibrate", "x.h5", "--labels", "hard"},
                 {"--labels: 'hard'", "cumulative, conditional"}},
        BadUsage{"UnknownCalibrationFormat",
                 {"calibrate", "x.h5", "--to", "vllm"},
                 {"--to: 'vllm'", "sglang, trtllm, deepspec"}},
        BadUsage{"UnknownPreset", {"calibrate", "x.h5", "--preset", "x"}, {"--preset: 'x'"}},
        BadUsage{"NoBins", {"calibrate", "x.h5", "--bins", "0"}, {"--bins: '0'", "1 to 1000"}},
        BadUsage{"OneTemperature",
                 {"calibrate", "x.h5", "--grid-size", "1"},
                 {"--grid-size: '1'", "2 to 10000"}},
        BadUsage{
            "NegativeTemperature", {"calibrate", "x.h5", "--grid-min=-1"}, {"--grid-min: '-1'"}},
        BadUsage{"EmptyGrid",
                 {"calibrate", "x.h5", "--grid-min", "10"},
                 {"--grid-min: 10 is not below"}},
        BadUsage{"NothingHeldOut", {"calibrate", "x.h5", "--holdout", "0"}, {"--holdout: '0'"}},
        BadUsage{"AllHeldOut", {"calibrate", "x.h5", "--holdout", "1"}, {"--holdout: '1'"}},
        BadUsage{"GateThatIsNoNumber", {"calibrate", "x.h5", "--max-ece", "x"}, {"--max-ece: 'x'"}},
        BadUsage{"UnknownProducts",
                 {"run", "x.h5", "--products", "fast"},
                 {"--products: 'fast'", "exact, tensor"}},
        BadUsage{"UnknownProductsToCalibrateOn",
                 {"calibrate", "x.h5", "--products", "fast"},
                 {"--products: 'fast'", "exact, tensor"}},
        BadUsage{"FractionalChunk", {"run", "x.h5", "--chunk", "1.5"}, {"--chunk: '1.5'"}},
        BadUsage{"NegativeChunk", {"run", "x.h5", "--chunk", "-3"}, {"--chunk: '-3'"}},
        BadUsage{"TextAfterANumber", {"run", "x.h5", "--threads", "2x"}, {"--threads: '2x'"}},
        BadUsage{"UnknownByteSuffix",
                 {"run", "x.h5", "--memory-budget", "8T"},
                 {"--memory-budget: '8T'", "k, M or G"}},
        BadUsage{"OutputInAMissingFolder",
                 {"run", "x.h5", "-o", "/nonexistent/out"},
                 {"-o /nonexistent/out: cannot be created"}},
        BadUsage{"OutputIsAFolder", {"run", "x.h5", "-o", "/"}, {"-o /: cannot be created"}},
        BadUsage{"OutputNameTooLong",
                 {"run", "x.h5", "-o", std::string(300, 'x')},
                 {"cannot be created: File name too long"}},
        BadUsage{"OutputBelowAFile",
                 {"run", "x.h5", "-o", bundled("heads.h5") + "/out"},
                 {"cannot be created: Not a directory"}},
        BadUsage{"EmptyOutput", {"run", "x.h5", "-o", ""}, {"-o: the path is empty"}}),
    [](const auto& test) { return test.param.name; });

TEST(Usage, IsCheckedBeforeThePolicyAndThePolicyBeforeTheTrace) {
  const std::vector<std::string> all_wrong = {"run", "missing.h5", "-p", "missing.yaml"};
  std::vector<std::string> usage_too = all_wrong;
  usage_too.insert(usage_too.end(), {"--repeats", "0"});
  expect_error(run_tool(usage_too), 2, {"--repeats"});
  expect_error(run_tool(all_wrong), 3, {"missing.yaml"});
  expect_error(run_tool({"run", "missing.h5"}), 4, {"missing.h5"});
}

TEST(Usage, TheSameTraceTwiceIsFoundThroughHardAndSymbolicLinks) {
  const TemporaryFolder folder;
  const std::string trace = folder.file("a.h5");
  write_file(trace, "any");
  std::filesystem::create_hard_link(trace, folder.file("hard.h5"));
  std::filesystem::create_symlink(trace, folder.file("soft.h5"));
  for (const char* other : {"a.h5", "hard.h5", "soft.h5"}) {
    for (const char* command : {"run", "inspect"}) {
      expect_error(run_tool({command, trace, folder.file(other)}), 2, {other, "the same file"});
    }
  }
}

TEST(Usage, AnInputIsNeverTheOutput) {
  const TemporaryFolder folder;
  const std::string trace = folder.file("a.h5");
  const std::string policy = folder.file("p.yaml");
  const std::string heads = folder.file("heads.h5");
  const std::string link = folder.file("link");
  for (const std::string& file : {trace, policy, heads}) write_file(file, "content of " + file);
  std::filesystem::create_symlink(trace, link);
  const std::vector<std::string> inputs = {"run", trace, "-p", policy, "--heads", heads, "-o"};
  for (const std::string& output : {trace, policy, heads, link}) {
    std::vector<std::string> arguments = inputs;
    arguments.push_back(output);
    expect_error(run_tool(arguments), 2, {"-o " + output, "input"});
  }
  for (const std::string& file : {trace, policy, heads}) {
    EXPECT_EQ(read_file(file), "content of " + file);
  }
}

TEST(Usage, HostileNamesAreEscapedInMessages) {
  expect_error(run_tool({"run", "no\nsuch\x1b[2J\xff.h5"}), 4, {"no\\nsuch\\x1b[2J\\xff.h5"});
}

TEST(Usage, HelpAndVersionGoToStandardOutput) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{{"--help"},
                                                                     {"-h"},
                                                                     {"run", "--help"},
                                                                     {"inspect", "--help"},
                                                                     {"cost", "--help"},
                                                                     {"synth", "--help"},
                                                                     {"bench", "--help"}}) {
    const Outcome help = run_tool(arguments);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_EQ(help.err, "");
    EXPECT_THAT(help.out, testing::HasSubstr("Exit codes:"));
  }
  const Outcome version = run_tool({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, testing::MatchesRegex("dspark-replay [0-9]+[.][0-9]+[.][0-9]+\n"));
}

TEST(Usage, HelpOffersOnlyWhatTheCommandTakes) {
  const std::string inspect = run_tool({"inspect", "--help"}).out;
  const std::string synth = run_tool({"synth", "--help"}).out;
  EXPECT_THAT(inspect, testing::HasSubstr("--memory-budget"));
  for (const char* flag : {"--backend", "--threads", "--seed"}) {
    EXPECT_THAT(inspect, testing::Not(testing::HasSubstr(flag)));
  }
  EXPECT_THAT(synth, testing::HasSubstr("Seed of all that is drawn"));
  for (const char* flag : {"--format", "--heads FILE", "--memory-budget"}) {
    EXPECT_THAT(synth, testing::Not(testing::HasSubstr(flag)));
  }
}

TEST(Usage, ADashedFileNameIsATraceAfterTwoDashes) {
  expect_error(run_tool({"run", "--", "-x.h5"}), 4, {"-x.h5"});
}

}  // namespace
}  // namespace dspark::test
