// dspark-replay bench, as a user runs it.
#include <nlohmann/json.hpp>

#include "backends/cpu/isa.h"
#include "support/version.h"
#include "tests/cli/tool.h"

namespace dspark::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> tiny(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      "bench", "--backend",    "cpu", "--vocab",   "300", "--rank",    "8", "--hidden",
      "16",    "--block-size", "3",   "--top-k",   "20",  "--anchors", "4", "--samples",
      "5",     "--seed",       "3",   "--threads", "2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Bench, WritesEveryNumberOfACaseAsJson) {
  const TemporaryFolder folder;
  const std::string file = folder.file("bench.json");
  const Outcome outcome = run_tool(tiny({"--only", "sampled_round,reduce,uniforms", "--batch",
                                         "1,3", "--format", "json", "-o", file}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "");
  const json result = json::parse(read_file(file));
  EXPECT_EQ(result["format"], "dspark-bench");
  EXPECT_EQ(result["format_version"], 1);
  EXPECT_FALSE(result["version"].get<std::string>().empty());
  if (std::string_view(commit()).empty()) {
    EXPECT_EQ(result.at("commit"), nullptr);
  } else {
    EXPECT_EQ(result.at("commit"), commit());
  }
  EXPECT_EQ(result["device"]["backend"], "cpu");
  EXPECT_EQ(result["device"]["threads"], 2);
  EXPECT_EQ(result["device"]["multiprocessors"], nullptr);
  EXPECT_EQ(result["device"]["driver"], nullptr);
  const double copy = result["copy_gb_per_s"];
  EXPECT_GT(copy, 0);
  EXPECT_EQ(result["refused"], json::array());

  const json& cases = result["cases"];
  ASSERT_EQ(cases.size(), 2U + 2U + 1U);
  std::vector<std::string> names;
  for (const json& one : cases) {
    names.push_back(one["family"]);
    const double median = one["median_us"];
    EXPECT_LE(one["min_us"].get<double>(), one["p10_us"].get<double>());
    EXPECT_LE(one["p10_us"].get<double>(), median);
    EXPECT_LE(median, one["p90_us"].get<double>());
    EXPECT_EQ(one["samples"], 5);
    EXPECT_EQ(one["graph"], false);
    const double bytes = one["bytes"];
    EXPECT_NEAR(one["gb_per_s"].get<double>(), 1e-3 * bytes / median, 1e-6 * bytes / median);
    EXPECT_NEAR(one["copy_share"].get<double>() * one["times_floor"].get<double>(), 1, 1e-9);
    EXPECT_NEAR(one["floor_us"].get<double>(), 1e-3 * bytes / copy, 1e-6 * bytes / copy);
    EXPECT_EQ(one["rank"].is_null(), one["family"] == "uniforms");
    EXPECT_EQ(one["anchors"].is_null(), one["family"] != "reduce");
    EXPECT_EQ(one["anchors_per_s"].is_null(), one["family"] != "reduce");
    EXPECT_EQ(one["checked"], "bits");
  }
  EXPECT_THAT(names, testing::ElementsAre("uniforms", "uniforms", "sampled_round", "sampled_round",
                                          "reduce"));
}

TEST(Bench, HasOneLinePerCaseInEveryFormat) {
  const std::vector<std::string> which = {"--only", "probabilities", "--batch", "2"};
  const auto with = [&](const std::string& format) {
    std::vector<std::string> arguments = tiny(which);
    arguments.insert(arguments.end(), {"--format", format});
    const Outcome outcome = run_tool(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string table = with("table");
  EXPECT_THAT(table, AllOf(HasSubstr("device "), HasSubstr("GB/s"), HasSubstr("% copy"),
                           HasSubstr("probabilities  plain"),
                           HasSubstr("probabilities  top-k 20 top-p 0.95"),
                           HasSubstr("probabilities  top-p 0.95")));
  EXPECT_EQ(table.find("TFLOP/s"), std::string::npos);  // no products, no column
  EXPECT_THAT(with("md"), AllOf(HasSubstr("| case | rule |"),
                                HasSubstr("| probabilities | top-k 20 top-p 0.95 |")));
  const std::vector<std::string> csv = lines_of(with("csv"));
  ASSERT_EQ(csv.size(), 4U);
  EXPECT_THAT(csv[0], testing::StartsWith("family,rule,products,batch,vocab,"));
  EXPECT_THAT(csv[1], testing::StartsWith("probabilities,plain,,2,300,,3,,,,"));
  EXPECT_EQ(std::count(csv[0].begin(), csv[0].end(), ','),
            std::count(csv[1].begin(), csv[1].end(), ','));
  const std::vector<std::string> lines = lines_of(with("jsonl"));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(json::parse(lines[0])["type"], "header");
  EXPECT_EQ(json::parse(lines[0])["format"], "dspark-bench");
  EXPECT_EQ(json::parse(lines[3])["family"], "probabilities");
}

TEST(Bench, KeepsTheNumbersAsJsonBesideTheTable) {
  const TemporaryFolder folder;
  const std::string file = folder.file("bench.json");
  const Outcome outcome =
      run_tool(tiny({"--only", "verify_tokens", "--batch", "2", "--json", file}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("verify_tokens "));
  EXPECT_EQ(json::parse(read_file(file))["cases"].size(), 1U);
}

TEST(Bench, NeverWritesTwoDocumentsToOneFile) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& shell_arguments, const std::string& part) {
    SCOPED_TRACE(shell_arguments);
    const std::string command =
        "exec " DSPARK_TOOL " bench --backend cpu --only uniforms " + shell_arguments;
    const Outcome outcome =
        Process("/bin/sh", {.arguments = {"-c", command}, .folder = folder.path().string()})
            .finish();
    expect_error(outcome, 2, {part});
  };
  const std::string own = "--json: the numbers need a file of their own";
  refused("--json ./b.json -o b.json", own);
  refused("--json $PWD/b.json -o ./b.json", own);
  EXPECT_TRUE(folder.names().empty());
  refused("--json ./b.json > b.json", own);
  refused("--json /dev/stdout > b.json", own);
  refused("-o ./b.json > b.json", "-o ./b.json: standard output goes to that file already");
  EXPECT_EQ(read_file(folder.file("b.json")), "");
  refused("--json no/x", "--json no/x: cannot be created");
}

TEST(Bench, WhatWasMeasuredIsWrittenWhereItCanBe) {
  const TemporaryFolder folder;
  const std::string file = folder.file("bench.json");
  const Outcome no_json =
      run_tool(tiny({"--only", "uniforms", "--batch", "1", "--json", "/dev/full"}));
  EXPECT_EQ(no_json.exit_code, 1);
  EXPECT_THAT(no_json.out, HasSubstr("\nuniforms "));
  ASSERT_EQ(lines_of(no_json.err).size(), 1U) << no_json.err;
  EXPECT_THAT(no_json.err, AllOf(HasSubstr("error: /dev/full: writing failed"),
                                 testing::Not(HasSubstr("nothing was written"))));
  const auto without_table = [&](const std::string& json_file, Stdout out) {
    return run_tool(
        Invocation{.arguments = tiny({"--only", "uniforms", "--batch", "1", "--json", json_file}),
                   .out = out});
  };
  expect_error(without_table(file, Stdout::full_disk), 1, {"standard output: writing failed"});
  EXPECT_EQ(json::parse(read_file(file))["cases"].size(), 1U);
  std::filesystem::remove(file);
  EXPECT_EQ(without_table(file, Stdout::broken_pipe).exit_code, 1);
  EXPECT_EQ(json::parse(read_file(file))["cases"].size(), 1U);
  expect_error(without_table("/dev/full", Stdout::full_disk), 1,
               {"standard output: writing failed", "/dev/full: writing failed"});
}

TEST(Bench, SaysWhatTheReferenceRunsOn) {
  const Outcome outcome = run_tool(tiny({"--only", "uniforms", "--batch", "1"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto available = cpu::available_vector_ops();
  const std::string expected =
      available.size() >= 3 ? std::string(cpu::vector_ops_name(**(available.end() - 2))) + ")"
                            : std::string(cpu::vector_ops_name(*available.back())) +
                                  ", the same loops that are timed)";
  EXPECT_THAT(outcome.out,
              HasSubstr("\nchecked  every case, against the cpu backend (" + expected));
}

TEST(Bench, TensorCasesAreRefusedOnACpu) {
  const Outcome outcome =
      run_tool(tiny({"--only", "markov_logits", "--batch", "2", "--products", "tensor", "-q"}));
  EXPECT_EQ(outcome.exit_code, 6);
  const std::string why =
      "markov_logits (tensor, batch 2, vocab 300, rank 8, block size 3): the cpu backend has no "
      "tensor cores";
  EXPECT_THAT(outcome.err, HasSubstr("note: " + why));  // -q or not: it is why the code is 6
  EXPECT_THAT(outcome.out, HasSubstr("\n\nrefused: " + why));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("\n\n\n")));
}

TEST(Bench, ListsItsFamiliesWithoutTimingThem) {
  const Outcome list = run_tool({"bench", "--list"});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_THAT(list.out, AllOf(testing::StartsWith("family "), HasSubstr("\nsampled_round "),
                              HasSubstr("\nbatch_schedule "), HasSubstr("\nreduce ")));
  const json families = json::parse(run_tool({"bench", "--list", "--format", "json"}).out);
  EXPECT_EQ(families["format"], "dspark-bench-families");
  EXPECT_EQ(families["families"].size() + 1, lines_of(list.out).size());
  EXPECT_EQ(lines_of(run_tool({"bench", "--list", "--format", "csv"}).out).size(),
            lines_of(list.out).size());
}

TEST(Bench, ACaseThatDoesNotFitIsNamedAndTheOthersAreTimed) {
  std::vector<std::string> arguments =
      tiny({"--only", "greedy_accept", "--batch", "1,1000", "--memory-budget", "100k"});
  const Outcome outcome = run_tool(arguments);
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_THAT(outcome.err, HasSubstr("note: greedy_accept (batch 1000, vocab 300, block size 3): "
                                     "cpu backend: inputs and outputs need at least "));
  EXPECT_THAT(outcome.err, HasSubstr(" MB, more than the budget of 100 kB; give smaller"));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("greedy_accept "), HasSubstr("\nrefused: ")));
}

TEST(Bench, TimesTheFusedAndSparseProposals) {
  const Outcome outcome =
      run_tool(tiny({"--only",
                     "greedy_proposal,greedy_proposal_fp8,quantize_fp8,select_top_k,sample_top_k,"
                     "draft_rows",
                     "--batch", "2", "--format", "csv"}));
  EXPECT_EQ(outcome.exit_code, 6);  // of rank 8 there is no FP8
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("note: greedy_proposal_fp8 (greedy, exact, batch 2, vocab 300, rank "
                              "8, block size 3): FP8 weights need a rank of whole 16s"),
                    HasSubstr("note: quantize_fp8 (vocab 300, rank 8): FP8 ")));
  const std::vector<std::string> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 7U);
  EXPECT_THAT(lines[0], testing::EndsWith(",checked,refused"));
  EXPECT_THAT(lines[1], testing::EndsWith(",bits,"));
  EXPECT_THAT(lines[5], AllOf(testing::StartsWith("greedy_proposal_fp8,greedy,exact,2,300,8,3,,,"),
                              testing::EndsWith(",FP8 weights need a rank of whole 16s")));
  EXPECT_THAT(lines[6], testing::StartsWith("quantize_fp8,,,,300,8,"));
  for (const std::string& line : lines) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','),
              std::count(lines[0].begin(), lines[0].end(), ','));
  }
  EXPECT_THAT(lines[1], testing::StartsWith("draft_rows,,exact,2,300,8,3,16,,,"));
  EXPECT_THAT(lines[2], testing::StartsWith("greedy_proposal,greedy,exact,2,300,8,3,,,,"));
  EXPECT_THAT(lines[3], testing::StartsWith("select_top_k,,,2,300,,,,20,,"));
  EXPECT_THAT(lines[4], testing::StartsWith("sample_top_k,,,2,300,,,,20,,"));
  const Outcome table = run_tool({"bench", "--backend", "cpu", "--only", "quantize_fp8", "--vocab",
                                  "300", "--rank", "32", "--threads", "2"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("quantize_fp8  300  32 "));
}

TEST(Bench, BadValuesAreUsageErrorsAndNothingRuns) {
  struct Bad {
    std::vector<std::string> arguments;
    std::vector<std::string> parts;
  };
  const std::vector<Bad> bad = {
      {{"--only", "unicorns"}, {"--only: 'unicorns' is not a family", "--list"}},
      {{"--only", ""}, {"--only: '' is not a family"}},
      {{"--only", "uniforms,uniforms"}, {"--only: 'uniforms' is given twice"}},
      {{"--batch", "0"}, {"--batch: '0' is not a value it takes", "from 1 to"}},
      {{"--batch", "1,,2"}, {"--batch: '' is not a value it takes"}},
      {{"--batch", "2,1,2"}, {"--batch: 2 is given twice"}},
      {{"--batch", "1.5"}, {"--batch: '1.5'"}},
      {{"--vocab", "1"}, {"--vocab: '1'"}},
      {{"--vocab", "4194305"}, {"--vocab: '4194305'"}},
      {{"--rank", "-1"}, {"--rank: '-1'"}},
      {{"--block-size", "65"}, {"--block-size: '65'"}},
      {{"--hidden", "many"}, {"--hidden: 'many'"}},
      {{"--top-k", "0"}, {"--top-k: '0'"}},
      {{"--anchors", "99999999999999999999"}, {"--anchors: '99999999999999999999'"}},
      {{"--products", "fast"}, {"--products: 'fast' is not a choice", "exact, tensor"}},
      {{"--products", "exact,exact"}, {"--products: 'exact' is given twice"}},
      {{"--json", "-"}, {"--json: the numbers need a file of their own"}},
      {{"--json", "a.json", "-o", "a.json"}, {"--json: the numbers need a file of their own"}},
      {{"--json", "no/x"}, {"--json no/x: cannot be created"}},
      {{"--list", "--only", "unicorn"}, {"--only: 'unicorn' is not a family"}},
      {{"--list", "--json", "a.json"}, {"--json: --list times nothing"}},
      {{"--samples", "0"}, {"--samples: '0'"}},
      {{"--heads", "h.h5"}, {"--heads: bench makes its own weights"}},
      {{"--format", "yaml"}, {"--format: 'yaml'"}},
      {{"x.h5"}, {"x.h5: unknown flag"}},
      {{"-o", "no/such/folder/bench.json"}, {"no/such/folder/bench.json"}},
  };
  for (const Bad& one : bad) {
    SCOPED_TRACE(one.arguments.front() + " " + one.arguments.back());
    std::vector<std::string> arguments = {"bench"};
    arguments.insert(arguments.end(), one.arguments.begin(), one.arguments.end());
    expect_error(run_tool(arguments), 2, one.parts);
  }
}

}  // namespace
}  // namespace dspark::test
