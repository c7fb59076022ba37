// How often the stated intervals contain the value of the text that a trace is a sample of.
//
// Makes synthetic traces of many sequences, takes sub-traces from them as one would record them,
// and counts how often the interval of each number holds the number of the whole. README.md has the
// figures.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "core/random.h"
#include "cost/cost.h"
#include "replay/intervals.h"
#include "replay/open_loop.h"
#include "replay/reduce.h"
#include "support/error.h"
#include "synth/synth.h"

namespace dspark {
namespace {

constexpr double kConfidence = 0.95;
constexpr std::int32_t kRepeats = 4;
const LinearCost kCost;

OutcomeTable empty_like(const OutcomeTable& table) {
  OutcomeTable out;
  out.block_size = table.block_size;
  out.repeats = table.repeats;
  out.greedy = table.greedy;
  out.has_confidence = table.has_confidence;
  out.sequence_offsets = {0};
  return out;
}

void append_sequence(const OutcomeTable& from, std::size_t sequence, OutcomeTable& to) {
  const auto first = static_cast<std::ptrdiff_t>(from.sequence_offsets[sequence]);
  const auto end = static_cast<std::ptrdiff_t>(from.sequence_offsets[sequence + 1]);
  const auto append = [&](const auto& source, auto& target, std::ptrdiff_t width) {
    target.insert(target.end(), source.begin() + first * width, source.begin() + end * width);
  };
  const std::ptrdiff_t block = from.block_size;
  append(from.slots, to.slots, 1);
  append(from.beta, to.beta, block);
  append(from.alpha, to.alpha, block);
  append(from.confidence, to.confidence, block);
  append(from.agreement, to.agreement, block);
  append(from.world_confidence, to.world_confidence,
         static_cast<std::ptrdiff_t>(from.repeats) * worlds_per_repeat(from.block_size));
  to.sequence_offsets.push_back(to.anchors());
}

/// A reduced synthetic trace whose drafts are accepted with these probabilities.
OutcomeTable make_pool(Backend& backend, std::vector<double> acceptance, std::int64_t sequences,
                       std::int64_t length) {
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("coverage-{}.h5", static_cast<unsigned>(std::random_device{}()));
  SynthOptions options;
  options.sequences = sequences;
  options.length = length;
  options.vocab_size = 256;
  options.hidden_size = 64;
  options.markov_rank = 16;
  options.acceptance = std::move(acceptance);
  write_synthetic_trace(backend, options, path.string());
  OutcomeTable table;
  {
    const std::unique_ptr<TraceFile> trace = TraceFile::open(path.string());
    const Heads heads = load_heads(*trace, "", 0);
    ReplayOptions replay;
    replay.repeats = kRepeats;
    table = reduce_anchors(backend, *trace, heads,
                           {.sampling = {1, 0, 1, "water_filling"},
                            .verification = Verification::probabilistic,
                            .worlds = true},
                           replay);
  }
  std::filesystem::remove(path);
  return table;
}

using Named = std::map<std::string, std::pair<std::optional<double>, std::optional<Range>>>;

const std::vector<std::pair<std::string, Policy>> kPolicies = {
    {"fixed 3", FixedLength{3}},
    {"threshold 0.3", Threshold{.threshold = 0.3}},
    {"per_position 0.5", Threshold{ThresholdRule::per_position, 0.5, 0, 0}},
    {"sps", Sps{}},
    {"oracle shortest", Oracle{OracleBound::shortest}},
};

/// Every number of a table with its interval, by name.
Named numbers_of(const OutcomeTable& table, std::uint64_t seed) {
  Named out;
  const Resampling resampling = anchor_resampling(table, seed, kConfidence);
  const CellMap map = map_cells(resampling);
  RoundFlow flow(map);
  LoopScratch loop_scratch;
  RowSums sums;
  IntervalScratch scratch;
  std::vector<PolicyResult> rows;
  std::vector<std::vector<float>> efficiency;
  std::vector<double> by_length;
  for (std::int32_t l = 0; l <= table.block_size; ++l) by_length.push_back(round_cost(kCost, l));
  for (const auto& [name, policy] : kPolicies) {
    const ClosedLoop loop = closed_loop(table, policy, kCost, flow, loop_scratch);
    PolicyResult& row = rows.emplace_back();
    row.tau = loop.tau;
    row.verified_per_round = loop.verified;
    row.acceptance_rate = (loop.tau - 1) / *loop.verified;
    row.cost_per_round = round_cost(kCost, *loop.verified);
    row.tokens_per_cost = loop.tau / *row.cost_per_round;
    sum_cells(flow, sums);
    efficiency.emplace_back(resampling.draws());
    row_intervals(resampling, sums, scratch, row);
    price_intervals(resampling, sums, flow, by_length, 1, scratch, row, efficiency.back().data());
    out[name + ": tau"] = {row.tau, row.intervals.tau};
    out[name + ": tokens per cost"] = {row.tokens_per_cost, row.intervals.tokens_per_cost};
    out[name + ": acceptance rate"] = {row.acceptance_rate, row.intervals.acceptance_rate};
    if (std::holds_alternative<FixedLength>(policy)) continue;  // verifies 3 but at the ends
    out[name + ": verified"] = {row.verified_per_round, row.intervals.verified_per_round};
    out[name + ": cost"] = {row.cost_per_round, row.intervals.cost_per_round};
  }
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto paired = compare_rows(resampling, rows[i], efficiency[i].data(), rows[0],
                                     efficiency[0].data(), 1, scratch);
    out[kPolicies[i].first + ": minus fixed 3"] = {
        *rows[i].tokens_per_cost - *rows[0].tokens_per_cost,
        paired ? std::optional<Range>(paired->interval) : std::nullopt};
  }
  const std::vector<PositionResult> positions = open_loop(table, &resampling);
  for (std::size_t k : {0u, 1u, 3u}) {
    const PositionResult& at = positions[k];
    const std::string slot = fmt::format("slot {}: ", k + 1);
    out[slot + "survival"] = {at.survival, at.intervals.survival};
    out[slot + "survival trajectory"] = {at.survival_trajectory, at.intervals.survival_trajectory};
    out[slot + "survival visited"] = {at.survival_visited, at.intervals.survival_visited};
    out[slot + "conditional"] = {at.conditional, at.intervals.conditional};
    out[slot + "predicted conditional"] = {at.predicted_conditional,
                                           at.intervals.predicted_conditional};
    out[slot + "ece"] = {at.conditional_ece, at.intervals.conditional_ece};
    out[slot + "predicted"] = {at.predicted, at.intervals.predicted};
  }
  return out;
}

struct Count {
  int covered = 0, stated = 0;
  double width = 0;
};

/// Coverage of sub-traces of `size` sequences of `pool`.
void measure(const char* what, const OutcomeTable& pool, std::size_t size, int trials) {
  const std::uint64_t sequences = pool.sequence_offsets.size() - 1;
  const Named truth = numbers_of(pool, 0);
  std::map<std::string, Count> counts;
  for (int trial = 0; trial < trials; ++trial) {
    OutcomeTable sub = empty_like(pool);
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint64_t bits = random_uniform({.seed = 1,
                                                 .sequence = static_cast<std::uint64_t>(trial),
                                                 .position = static_cast<std::uint32_t>(i),
                                                 .purpose = RandomPurpose::synth});
      append_sequence(
          pool, static_cast<std::size_t>(static_cast<unsigned __int128>(bits) * sequences >> 64),
          sub);
    }
    for (const auto& [name, number] : numbers_of(sub, static_cast<std::uint64_t>(trial) + 1)) {
      const auto& [value, range] = number;
      if (!range) continue;
      Count& count = counts[name];
      const double want = *truth.at(name).first;
      ++count.stated;
      const double rounding = 1e-12 * std::abs(want);  // where the interval is a point
      count.covered += range->lo <= want + rounding && want - rounding <= range->hi;
      count.width += (range->hi - range->lo) / std::abs(want);
    }
  }
  fmt::print("{}, {} sub-traces of {} sequences of {} positions:\n", what, trials, size,
             pool.sequence_offsets[1]);
  fmt::print("  {:<34} {:>9} {:>16}\n", "number", "covered %", "mean width / value");
  for (const auto& [name, count] : counts) {
    fmt::print("  {:<34} {:>9.1f} {:>16.3f}\n", name, 100.0 * count.covered / count.stated,
               count.width / count.stated);
  }
}

OutcomeTable joined(const std::vector<OutcomeTable>& tables) {
  OutcomeTable out = empty_like(tables.front());
  for (const OutcomeTable& table : tables) {
    for (std::size_t s = 0; s + 1 < table.sequence_offsets.size(); ++s) {
      append_sequence(table, s, out);
    }
  }
  return out;
}

void run(int trials) {
  const std::unique_ptr<Backend> backend = make_cpu_backend(2);
  const std::vector<double> middle = {0.8, 0.7, 0.65, 0.6, 0.55, 0.5, 0.5};
  const OutcomeTable short_texts = make_pool(*backend, middle, 400, 64);
  measure("alike", short_texts, 24, trials);
  const OutcomeTable mixed = joined({make_pool(*backend, {0.9, 0.85, 0.8}, 134, 64), short_texts,
                                     make_pool(*backend, {0.55, 0.45, 0.4}, 133, 64)});
  measure("easy, middle and hard", mixed, 24, trials);
  measure("alike", make_pool(*backend, middle, 120, 256), 3, trials);
}

}  // namespace
}  // namespace dspark

// coverage [SUB-TRACES]
int main(int argc, char** argv) {
  try {
    dspark::run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 200);
    return EXIT_SUCCESS;
  } catch (const dspark::Error& error) {
    fmt::print(stderr, "coverage: {}\n", error.what());
    return EXIT_FAILURE;
  }
}
