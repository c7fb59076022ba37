#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "report/render.h"
#include "tests/report/sample_result.h"

namespace dspark {
namespace {

TEST(Table, ShowsPositionsAndRankedPolicies) {
  EXPECT_EQ(render(anchors_result(), OutputFormat::table),
            R"out(dspark-replay 0.1.0, cpu (Test CPU), seed 7, 4 repeats
cost per round: draft 0.5, verify_base 1, verify_token 0.45, accept 0.02

code.h5, probabilistic
anchors, 768 positions in 3 sequences, vocabulary 8192, block size 2, temperature 1, code, 5 near ties

k  survival            95 %  predicted  conditional  predicted conditional    ece
1     0.430  [0.400, 0.460]      0.458        0.430                  0.458  0.041
2     0.172               -          -        0.412                  0.458  0.041

rank  policy                                                  tau  verified  verified se  acceptance %  cost/round  tokens/cost              95 %  speedup  notes
   1  none                                                  1.000     0.000            -             -       1.450       0.6897  [0.6897, 0.6897]    1.000
   2  threshold rule=cumulative threshold=0.3 min_length=1  1.483     1.204       0.0020          40.1       2.516       0.5890  [0.5711, 0.6062]    0.855
   -  fixed length=2                                            -         -            -             -           -            -                 -        -  not lossless, within noise

rank  bound                    tau  verified  acceptance %  cost/round  tokens/cost              95 %  speedup
   -  oracle bound=shortest  1.483     1.204          40.1       2.516       0.5890  [0.5711, 0.6062]    0.855

part                        blocks  survival of 1  predicted  tau, full blocks            95 %  notes
positions 0-63                 192          0.430      0.458             1.750  [1.500, 1.700]
positions 64-127               192          0.430          -             1.250               -  worst
mean of the parts (macro)        -              -          -             1.500  [1.400, 1.600]
mean of the blocks (micro)       -              -          -             1.500               -

greedy code_t0.h5 at temperature 0 beside probabilistic code.h5 at temperature 1
domain code

policy          tau, greedy  probabilistic  difference              95 %  tokens/cost, greedy  probabilistic  difference
fixed length=2        2.250          1.500      0.7500  [0.5000, 1.0000]               0.7500         0.5000      0.2500
)out");
}

TEST(Table, ShowsColumnsOnlyWhereARowHasThemAndEscapesNames) {
  EXPECT_EQ(render(rounds_result(), OutputFormat::table),
            R"out(dspark-replay 0.1.0, cuda (GPU), seed 0, 0 repeats, tensor products
cost per round: draft 0.5, verify_base 1, verify_token 0.45, accept 0.02

a|b,"c"\n\x1b[2J\xff.h5, greedy, temperature 0
rounds, 28 rounds, 26 reproduced, 1 diverged, 1 censored, vocabulary 100, block size 1, temperature 0, 2 invalid rows, 3 impossible tokens

rank  policy            tau  tau lo  tau hi  censored  cost/round  tokens/cost
   1  fixed length=1  1.500   1.250   1.750         1        1234     0.001250

a|b,"c"\n\x1b[2J\xff.h5, greedy, temperature 0.7
rounds, 28 rounds, 26 reproduced, 1 diverged, 1 censored, vocabulary 100, block size 1, temperature 0, 2 invalid rows, 3 impossible tokens

rank  policy            tau  tau lo  tau hi  censored  cost/round  tokens/cost
   1  fixed length=1  1.500   1.250   1.750         1       99.00     0.001000
)out");
}

TEST(Table, ShowsTheLedgerOfTheBestRowAndOfTheReferenceWhereAskedFor) {
  const std::string text = render(anchors_result(), OutputFormat::table, {.ledger = true});
  const std::size_t first = text.find("\nledger ");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(text.substr(first, text.find("\npart ") - first), R"out(
ledger                          threshold rule=cumulative threshold=0.3 min_length=1
rounds                                                                         500.0
drafts proposed                                                               1000.0
drafts verified                                                                600.0
drafts accepted                                                                240.0
drafts verified in vain                                                        360.0
cost of drafting %                                                              25.0
cost of verifying %                                                             74.0
cost of accepting %                                                              1.0
rounds that accepted nothing %                                                  60.0
rounds fully trimmed %                                                           1.0
tau to break even                                                              1.735
rounds that verify 0 %                                                          10.0
rounds that verify 1 %                                                          60.0
rounds that verify 2 %                                                          30.0
rounds that accept 0 %                                                          60.0
rounds that accept 1 %                                                          32.0
rounds that accept 2 %                                                           8.0
)out");
  EXPECT_EQ(render(anchors_result(), OutputFormat::table).find("\nledger "), std::string::npos);
  ReplayResult both = anchors_result();
  both.results[0].ledger = both.results[1].ledger;
  both.results[0].is_reference = false;
  both.results[1].is_reference = true;
  const std::string two = render(both, OutputFormat::table, {.ledger = true});
  const std::size_t header = two.find("\nledger ");
  const std::string line = two.substr(header, two.find('\n', header + 1) - header);
  EXPECT_LT(line.find(" none"), line.find(" threshold")) << line;
  EXPECT_NE(line.find(" threshold"), std::string::npos) << line;
}

TEST(Table, ComparesTracesWhereThereAreSeveral) {
  ReplayResult result = anchors_result();
  EXPECT_EQ(render(result, OutputFormat::table).find("\nall traces\n"), std::string::npos);
  result.strata.push_back(result.strata[0]);
  result.strata.back().trace = "prose.h5";
  result.strata.back().label = "";
  result.strata.back().worst = true;
  const std::string text = render(result, OutputFormat::table);
  const std::size_t at = text.find("\nall traces\n");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(text.substr(at), R"out(
all traces

trace                       blocks  survival of 1  predicted  tau, full blocks            95 %  notes
code.h5 (code)                 765          0.430      0.458             1.600  [1.500, 1.700]
prose.h5                       765          0.430      0.458             1.600  [1.500, 1.700]  worst
mean of the parts (macro)        -              -          -             1.600               -
mean of the blocks (micro)       -              -          -             1.600               -
)out");
}

TEST(Table, GivesEachTraceAndVerificationItsOwnRanking) {
  ReplayResult result = anchors_result();
  result.positions.clear();
  result.results.resize(1);
  PolicyResult greedy = result.results[0];
  greedy.verification = "greedy";
  result.results.push_back(greedy);
  PolicyResult other = result.results[0];
  other.trace = "other.h5";
  result.results.push_back(other);
  TraceSummary summary = result.traces[0];
  summary.file = "other.h5";
  result.traces.insert(result.traces.begin(), summary);
  const std::string text = render(result, OutputFormat::table);
  const std::size_t first = text.find("\nother.h5, probabilistic\n");
  const std::size_t second = text.find("\ncode.h5, probabilistic\n");
  const std::size_t third = text.find("\ncode.h5, greedy\n");
  ASSERT_NE(third, std::string::npos);
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  std::size_t ranked_first = 0;
  for (std::size_t at = text.find("   1  none"); at != std::string::npos;
       at = text.find("   1  none", at + 1)) {
    ++ranked_first;
  }
  EXPECT_EQ(ranked_first, 3u);
  EXPECT_EQ(text.find("   2  none"), std::string::npos);
}

TEST(Table, HasASectionForEachConcurrencyAndTheBestOfEach) {
  ReplayResult result = anchors_result();
  result.pairs.clear();
  result.strata.clear();
  result.strata_means.clear();
  result.results.resize(2);
  for (const PolicyResult& row : std::vector<PolicyResult>(result.results)) {
    PolicyResult batch = row;
    batch.concurrency = 8;
    batch.cost_per_step = 20;
    batch.tokens_per_cost_per_user = *row.tokens_per_cost / 8;
    batch.budget = 9.6;
    batch.padded_tokens = 1.5;
    batch.pareto = true;
    result.results.push_back(batch);
  }
  BestPolicy best;
  best.trace = "code.h5";
  best.verification = "probabilistic";
  best.sampling = sample_sampling(1);
  best.policy = "none";
  best.tokens_per_cost = 0.6897;
  best.budget = 0;
  result.best.push_back(best);
  best.concurrency = 8;
  best.policy = "fixed";
  best.parameters = {{"length", std::int64_t{2}}};
  best.tokens_per_cost = 3;
  best.budget = 16;
  best.changes = true;
  result.best.push_back(best);
  const std::string text = render(result, OutputFormat::table);
  const auto expect_part = [&](const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
  };
  expect_part("\ncode.h5, probabilistic, 1 request in flight\n");
  expect_part("\ncode.h5, probabilistic, 8 requests in flight\n");
  expect_part("budget  padded  cost/step  per user  tokens/cost");
  expect_part("Pareto");
  expect_part(R"out(
code.h5, probabilistic, temperature 1: best by requests in flight

requests  best policy     budget  tokens/cost  notes
       1  none               0.0        0.690
       8  fixed length=2    16.0        3.000  another policy
)out");
}

TEST(Table, PrintsAllRowsHoweverMany) {
  ReplayResult result = anchors_result();
  result.results.resize(1);
  for (int i = 1; i < 500; ++i) result.results.push_back(result.results[0]);
  EXPECT_NE(render(result, OutputFormat::table).find("\n 500  none"), std::string::npos);
  EXPECT_NE(render(result, OutputFormat::md).find("\n| 500 | none |"), std::string::npos);
}

TEST(Table, ShowsATraceWithoutRows) {
  ReplayResult result = anchors_result();
  result.positions.clear();
  result.results.clear();
  result.strata.clear();
  result.strata_means.clear();
  const std::string text = render(result, OutputFormat::table);
  EXPECT_NE(text.find("\ncode.h5\nanchors, 768 positions"), std::string::npos);
}

TEST(Table, AlignsNamesByTheirCharacters) {
  ReplayResult result = anchors_result();
  result.positions.clear();
  result.results.resize(2);
  result.results[0].policy = "é";
  result.results[1].policy = "e";
  result.results[1].parameters.clear();
  const std::string text = render(result, OutputFormat::table);
  EXPECT_NE(text.find("\n   1  é       1.000"), std::string::npos) << text;
  EXPECT_NE(text.find("\n   2  e       1.483"), std::string::npos) << text;
}

TEST(Table, GivesCostsFourDigitsInAnyUnit) {
  const auto cost_of = [](double cost) {
    ReplayResult result = anchors_result();
    result.positions.clear();
    result.results.resize(1);
    result.results[0].cost_per_round = cost;
    result.results[0].tokens_per_cost = std::nullopt;
    result.results[0].speedup = std::nullopt;
    result.results[0].intervals = {};
    result.pairs.clear();
    result.strata_means.clear();
    std::string text = render(result, OutputFormat::table);
    text.pop_back();
    return text.substr(text.rfind(' ') + 1);
  };
  EXPECT_EQ(cost_of(2.516), "2.516");
  EXPECT_EQ(cost_of(25.16), "25.16");
  EXPECT_EQ(cost_of(251.64), "251.6");
  EXPECT_EQ(cost_of(1000), "1000");
  EXPECT_EQ(cost_of(123456), "123456");
  EXPECT_EQ(cost_of(0.2516), "0.2516");
  EXPECT_EQ(cost_of(0.002516), "0.002516");
  EXPECT_EQ(cost_of(2.5161e-9), "2.516e-09");
  EXPECT_EQ(cost_of(2.5161e300), "2.516e+300");
  EXPECT_EQ(cost_of(0), "0.000");
}

TEST(Table, ShowsWhatIsNoNumberAsMissing) {
  ReplayResult result = anchors_result();
  result.results[0].tau = std::numeric_limits<double>::quiet_NaN();
  result.results[1].speedup = std::numeric_limits<double>::infinity();
  for (const OutputFormat format : {OutputFormat::table, OutputFormat::md}) {
    const std::string text = render(result, format);
    EXPECT_EQ(text.find("nan"), std::string::npos);
    EXPECT_EQ(text.find("inf"), std::string::npos);
  }
}

TEST(Markdown, ShowsTheSameAsGitHubTables) {
  EXPECT_EQ(render(anchors_result(), OutputFormat::md),
            R"out(dspark-replay 0.1.0, cpu (Test CPU), seed 7, 4 repeats  
cost per round: draft 0.5, verify_base 1, verify_token 0.45, accept 0.02

### code.h5, probabilistic

anchors, 768 positions in 3 sequences, vocabulary 8192, block size 2, temperature 1, code, 5 near ties

| k | survival | 95 % | predicted | conditional | predicted conditional | ece |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| 1 | 0.430 | \[0.400, 0.460\] | 0.458 | 0.430 | 0.458 | 0.041 |
| 2 | 0.172 | - | - | 0.412 | 0.458 | 0.041 |

| rank | policy | tau | verified | verified se | acceptance % | cost/round | tokens/cost | 95 % | speedup | notes |
| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |
| 1 | none | 1.000 | 0.000 | - | - | 1.450 | 0.6897 | \[0.6897, 0.6897\] | 1.000 | |
| 2 | threshold rule=cumulative threshold=0.3 min_length=1 | 1.483 | 1.204 | 0.0020 | 40.1 | 2.516 | 0.5890 | \[0.5711, 0.6062\] | 0.855 | |
| - | fixed length=2 | - | - | - | - | - | - | - | - | not lossless, within noise |

| rank | bound | tau | verified | acceptance % | cost/round | tokens/cost | 95 % | speedup |
| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| - | oracle bound=shortest | 1.483 | 1.204 | 40.1 | 2.516 | 0.5890 | \[0.5711, 0.6062\] | 0.855 |

| part | blocks | survival of 1 | predicted | tau, full blocks | 95 % | notes |
| --- | ---: | ---: | ---: | ---: | ---: | --- |
| positions 0-63 | 192 | 0.430 | 0.458 | 1.750 | \[1.500, 1.700\] | |
| positions 64-127 | 192 | 0.430 | - | 1.250 | - | worst |
| mean of the parts (macro) | - | - | - | 1.500 | \[1.400, 1.600\] | |
| mean of the blocks (micro) | - | - | - | 1.500 | - | |

### greedy code_t0.h5 at temperature 0 beside probabilistic code.h5 at temperature 1

domain code

| policy | tau, greedy | probabilistic | difference | 95 % | tokens/cost, greedy | probabilistic | difference |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| fixed length=2 | 2.250 | 1.500 | 0.7500 | \[0.5000, 1.0000\] | 0.7500 | 0.5000 | 0.2500 |
)out");
}

TEST(Markdown, EscapesWhatWouldChangeTheLayout) {
  EXPECT_EQ(render(rounds_result(), OutputFormat::md),
            R"out(dspark-replay 0.1.0, cuda (GPU), seed 0, 0 repeats, tensor products  
cost per round: draft 0.5, verify_base 1, verify_token 0.45, accept 0.02

### a\|b,"c"\\n\\x1b\[2J\\xff.h5, greedy, temperature 0

rounds, 28 rounds, 26 reproduced, 1 diverged, 1 censored, vocabulary 100, block size 1, temperature 0, 2 invalid rows, 3 impossible tokens

| rank | policy | tau | tau lo | tau hi | censored | cost/round | tokens/cost |
| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |
| 1 | fixed length=1 | 1.500 | 1.250 | 1.750 | 1 | 1234 | 0.001250 |

### a\|b,"c"\\n\\x1b\[2J\\xff.h5, greedy, temperature 0.7

rounds, 28 rounds, 26 reproduced, 1 diverged, 1 censored, vocabulary 100, block size 1, temperature 0, 2 invalid rows, 3 impossible tokens

| rank | policy | tau | tau lo | tau hi | censored | cost/round | tokens/cost |
| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |
| 1 | fixed length=1 | 1.500 | 1.250 | 1.750 | 1 | 99.00 | 0.001000 |
)out");
}

}  // namespace
}  // namespace dspark
