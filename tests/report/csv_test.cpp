#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "report/render.h"
#include "tests/report/sample_result.h"

namespace dspark {
namespace {

TEST(Csv, HasOneHeaderAndARowPerPolicy) {
  EXPECT_EQ(
      render(anchors_result(), OutputFormat::csv),
      R"out(trace,verification,temperature,top_k,top_p,top_p_rule,policy,rule,threshold,length,survival_floor,min_length,max_length,bound,wrap,concurrency,lossless,tau,tau_interior,tau_lo,tau_hi,censored_rounds,rounds,tokens,accepted_per_round,verified_per_round,verified_per_round_se,verified_per_round_on_trajectory,acceptance_rate,cost_per_round,tokens_per_cost,speedup,tau_interval_lo,tau_interval_hi,verified_per_round_interval_lo,verified_per_round_interval_hi,tokens_per_cost_interval_lo,tokens_per_cost_interval_hi,speedup_interval_lo,speedup_interval_hi,versus_reference,drafts,off_policy,effective_samples,tau_se,cost_per_step,tokens_per_cost_per_user,budget,padded_tokens,pareto,walked
code.h5,probabilistic,1,0,1,water_filling,none,,,,,,,,,1,true,1,1,,,,768,768,0,0,,,,1.45,0.6896551724137931,1,1,1,,,0.6896551724137931,0.6896551724137931,,,,sampled,false,,,,,,,false,false
code.h5,probabilistic,1,0,1,water_filling,threshold,cumulative,0.3,,,1,,,,1,true,1.483,1.48,,,,517.9,768,0.483,1.204,0.002,1.192,0.4012,2.516,0.589,0.855,1.4,1.55,1.1,1.3,0.5711,0.6062,0.828,0.879,loss,sampled,false,,,,,,,false,false
code.h5,probabilistic,1,0,1,water_filling,fixed,,,2,,,,,,1,false,,,,,,,,,,,,,,,,,,,,,,,,within noise,sampled,false,,,,,,,false,false
code.h5,probabilistic,1,0,1,water_filling,oracle,,,,,,,shortest,,1,true,1.483,1.48,,,,517.9,768,0.483,1.204,,1.192,0.4012,2.516,0.589,0.855,1.4,1.55,1.1,1.3,0.5711,0.6062,0.828,0.879,loss,sampled,false,,,,,,,false,false
)out");
}

TEST(Csv, QuotesWhereItHasTo) {
  EXPECT_EQ(
      render(rounds_result(), OutputFormat::csv),
      R"out(trace,verification,temperature,top_k,top_p,top_p_rule,policy,rule,threshold,length,survival_floor,min_length,max_length,bound,wrap,concurrency,lossless,tau,tau_interior,tau_lo,tau_hi,censored_rounds,rounds,tokens,accepted_per_round,verified_per_round,verified_per_round_se,verified_per_round_on_trajectory,acceptance_rate,cost_per_round,tokens_per_cost,speedup,tau_interval_lo,tau_interval_hi,verified_per_round_interval_lo,verified_per_round_interval_hi,tokens_per_cost_interval_lo,tokens_per_cost_interval_hi,speedup_interval_lo,speedup_interval_hi,versus_reference,drafts,off_policy,effective_samples,tau_se,cost_per_step,tokens_per_cost_per_user,budget,padded_tokens,pareto,walked
"a|b,""c""\n\x1b[2J\xff.h5",greedy,0,0,1,water_filling,fixed,,,1,,,,,,1,true,1.5,,1.25,1.75,1,,,,,,,,1234.5,0.00125,,,,,,,,,,,sampled,false,,,,,,,false,false
"a|b,""c""\n\x1b[2J\xff.h5",greedy,0.7,0,1,water_filling,fixed,,,1,,,,,,1,true,1.5,,1.25,1.75,1,,,,,,,,99,0.001,,,,,,,,,,,sampled,false,,,,,,,false,false
)out");
}

TEST(Csv, HasTheSameNumberOfCellsInEveryLine) {
  const std::string text = render(anchors_result(), OutputFormat::csv);
  std::size_t in_header = 0;
  std::size_t cells = 0;
  for (const char c : text) {
    if (c == ',') ++cells;
    if (c != '\n') continue;
    if (in_header == 0) in_header = cells;
    EXPECT_EQ(cells, in_header);
    cells = 0;
  }
  EXPECT_EQ(in_header, 50u);
}

TEST(Csv, AddsColumnsForParametersItDoesNotKnow) {
  ReplayResult result = anchors_result();
  result.results[0].parameters = {{"lag", std::int64_t{2}}};
  const std::string text = render(result, OutputFormat::csv);
  EXPECT_NE(text.find("wrap,lag,concurrency"), std::string::npos);
  EXPECT_NE(text.find("none,,,,,,,,,2,1,true"), std::string::npos);
}

TEST(Csv, LeavesWhatIsNoNumberEmpty) {
  ReplayResult result = anchors_result();
  result.results.resize(1);
  result.results[0].tau = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(render(result, OutputFormat::csv).find("1,true,,1,"), std::string::npos);
}

TEST(Csv, OfNoRowsIsTheHeader) {
  const std::string text = render(ReplayResult{}, OutputFormat::csv);
  EXPECT_EQ(text.substr(0, 19), "trace,verification,");
  EXPECT_EQ(text.find('\n'), text.size() - 1);
}

}  // namespace
}  // namespace dspark
