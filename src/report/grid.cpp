#include "report/grid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "report/words.h"
#include "support/text.h"

namespace dspark {
namespace {

constexpr const char* kMissing = "-";

using Numbers = std::vector<std::optional<double>>;

bool exists(const std::optional<double>& number) { return number && std::isfinite(*number); }

// Takes the values of one column from all rows.
template <class Row, class Get>
auto collect(const std::vector<const Row*>& rows, const Get& get) {
  std::vector<decltype(get(*rows.front()))> out;
  out.reserve(rows.size());
  for (const Row* row : rows) out.push_back(get(*row));
  return out;
}

// A column is shown only where some row has a value.
void add_text(Grid& grid, const std::string& header, std::vector<std::string> cells,
              bool is_number = false) {
  const bool all_missing = std::all_of(cells.begin(), cells.end(), [](const std::string& cell) {
    return cell.empty() || cell == kMissing;
  });
  if (all_missing) return;
  grid.columns.push_back({header, is_number, std::move(cells)});
}

void add_fixed(Grid& grid, const std::string& header, const Numbers& numbers, int decimals) {
  std::vector<std::string> cells;
  for (const auto& number : numbers) {
    cells.push_back(exists(number) ? fmt::format("{:.{}f}", *number, decimals) : kMissing);
  }
  add_text(grid, header, std::move(cells), true);
}

// For quantities in units that only the user knows: as many decimals as give the largest value of
// the column four significant digits; empty where that is no sensible way to write it.
std::optional<int> decimals_for(const Numbers& numbers) {
  double largest = 0;
  for (const auto& number : numbers) {
    if (exists(number)) largest = std::max(largest, std::abs(*number));
  }
  if (!(largest < 1e7 && (largest == 0 || largest >= 1e-5))) return std::nullopt;
  int decimals = 3;
  for (double bound = 10; decimals > 0 && largest >= bound; bound *= 10) --decimals;
  for (double bound = 1; largest > 0 && largest < bound; bound /= 10) ++decimals;
  return decimals;
}

std::string scaled_text(double number, const std::optional<int>& decimals) {
  return decimals ? fmt::format("{:.{}f}", number, *decimals) : fmt::format("{:.4g}", number);
}

void add_scaled(Grid& grid, const std::string& header, const Numbers& numbers) {
  const std::optional<int> decimals = decimals_for(numbers);
  std::vector<std::string> cells;
  for (const auto& number : numbers) {
    cells.push_back(exists(number) ? scaled_text(*number, decimals) : kMissing);
  }
  add_text(grid, header, std::move(cells), true);
}

// Intervals with the decimals of the numbers that they belong to.
void add_ranges(Grid& grid, const std::string& header, const std::optional<int>& decimals,
                const std::vector<std::optional<Range>>& ranges) {
  std::vector<std::string> cells;
  for (const auto& range : ranges) {
    const bool shown = range && std::isfinite(range->lo) && std::isfinite(range->hi);
    cells.push_back(shown ? fmt::format("[{}, {}]", scaled_text(range->lo, decimals),
                                        scaled_text(range->hi, decimals))
                          : kMissing);
  }
  add_text(grid, header, std::move(cells), true);
}

Grid positions_grid(const std::vector<const PositionResult*>& rows, double confidence) {
  Grid grid;
  if (rows.empty()) return grid;
  const auto numbers = [&](std::optional<double> PositionResult::*field) {
    return collect(rows, [field](const PositionResult& row) { return row.*field; });
  };
  add_text(grid, "k",
           collect(rows, [](const PositionResult& row) { return std::to_string(row.position); }),
           true);
  add_fixed(grid, "survival", numbers(&PositionResult::survival), 3);
  add_ranges(grid, level_text(confidence), 3,
             collect(rows, [](const PositionResult& row) { return row.intervals.survival; }));
  add_fixed(grid, "predicted", numbers(&PositionResult::predicted), 3);
  add_fixed(grid, "predicted se", numbers(&PositionResult::predicted_se), 4);
  add_fixed(grid, "conditional", numbers(&PositionResult::conditional), 3);
  add_fixed(grid, "predicted conditional", numbers(&PositionResult::predicted_conditional), 3);
  add_fixed(grid, "ece", numbers(&PositionResult::conditional_ece), 3);
  add_fixed(grid, "top-1", numbers(&PositionResult::top1_agreement), 3);
  add_fixed(grid, "effective samples", numbers(&PositionResult::effective_samples), 0);
  return grid;
}

std::string notes_of(const PolicyResult& row, bool several_concurrencies) {
  std::vector<std::string> notes;
  if (!row.lossless) notes.emplace_back("not lossless");
  if (row.off_policy) notes.emplace_back("off policy");
  if (row.off_policy && row.effective_samples) {
    notes.push_back(fmt::format("{:.0f} effective samples", *row.effective_samples));
  }
  if (row.versus && row.versus->verdict == "within noise") notes.emplace_back("within noise");
  // Who has one concurrency has nothing to trade.
  if (row.pareto && several_concurrencies) notes.emplace_back("Pareto");
  return fmt::format("{}", fmt::join(notes, ", "));
}

// `title`: the header of the policy column.
Grid policies_grid(const char* title, const std::vector<const PolicyResult*>& rows,
                   double confidence, bool several_concurrencies) {
  Grid grid;
  if (rows.empty()) return grid;
  const auto numbers = [&](std::optional<double> PolicyResult::*field) {
    return collect(rows, [field](const PolicyResult& row) { return row.*field; });
  };
  int rank = 0;
  add_text(grid, "rank",
           collect(rows,
                   [&rank](const PolicyResult& row) {
                     return exists(row.tokens_per_cost) && !row.bound ? std::to_string(++rank)
                                                                      : std::string(kMissing);
                   }),
           true);
  // The bounds have no rank, and say so.
  if (grid.columns.empty()) {
    grid.columns.push_back({"rank", true, std::vector<std::string>(rows.size(), kMissing)});
  }
  add_text(grid, title, collect(rows, policy_text<PolicyResult>));
  add_fixed(grid, "tau", numbers(&PolicyResult::tau), 3);
  add_fixed(grid, "tau se", numbers(&PolicyResult::tau_se), 4);
  add_fixed(grid, "tau lo", numbers(&PolicyResult::tau_lo), 3);
  add_fixed(grid, "tau hi", numbers(&PolicyResult::tau_hi), 3);
  add_text(grid, "censored",
           collect(rows,
                   [](const PolicyResult& row) {
                     return row.censored_rounds ? std::to_string(*row.censored_rounds)
                                                : std::string(kMissing);
                   }),
           true);
  add_fixed(grid, "verified", numbers(&PolicyResult::verified_per_round), 3);
  add_fixed(grid, "verified se", numbers(&PolicyResult::verified_per_round_se), 4);
  add_fixed(grid, "acceptance %",
            collect(rows,
                    [](const PolicyResult& row) -> std::optional<double> {
                      if (!row.acceptance_rate) return std::nullopt;
                      return 100.0 * *row.acceptance_rate;
                    }),
            1);
  const bool is_batch = rows.front()->concurrency > 1;
  if (is_batch) {
    add_fixed(grid, "budget", numbers(&PolicyResult::budget), 1);
    if (std::any_of(rows.begin(), rows.end(),
                    [](const PolicyResult* row) { return row->padded_tokens.value_or(0) > 0; })) {
      add_fixed(grid, "padded", numbers(&PolicyResult::padded_tokens), 1);
    }
    add_scaled(grid, "cost/step", numbers(&PolicyResult::cost_per_step));
    add_scaled(grid, "per user", numbers(&PolicyResult::tokens_per_cost_per_user));
  } else {
    add_scaled(grid, "cost/round", numbers(&PolicyResult::cost_per_round));
  }
  add_scaled(grid, "tokens/cost", numbers(&PolicyResult::tokens_per_cost));
  add_ranges(grid, level_text(confidence), decimals_for(numbers(&PolicyResult::tokens_per_cost)),
             collect(rows, [](const PolicyResult& row) { return row.intervals.tokens_per_cost; }));
  add_fixed(grid, "speedup", numbers(&PolicyResult::speedup), 3);
  add_text(grid, "notes", collect(rows, [&](const PolicyResult& row) {
             return notes_of(row, several_concurrencies);
           }));
  return grid;
}

// The row a person would ship, and the one that the others are compared with where it is another.
std::vector<const PolicyResult*> ledger_rows(const std::vector<const PolicyResult*>& rows) {
  std::vector<const PolicyResult*> out;
  for (const PolicyResult* row : rows) {
    const bool best = out.empty() && exists(row->tokens_per_cost);
    if ((best || row->is_reference) && row->ledger) out.push_back(row);
  }
  return out;
}

std::string share_text(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f}", 100 * part / whole) : std::string(kMissing);
}

// One line per entry, one column per row of the table.
Grid ledger_grid(const std::vector<const PolicyResult*>& rows) {
  Grid grid;
  if (rows.empty()) return grid;
  GridColumn names = {"ledger", false, {}};
  std::vector<GridColumn> columns;
  for (const PolicyResult* row : rows) columns.push_back({policy_text(*row), true, {}});
  const auto add = [&](const std::string& name, const auto& text) {
    names.cells.push_back(name);
    for (std::size_t i = 0; i < rows.size(); ++i)
      columns[i].cells.push_back(text(*rows[i]->ledger));
  };
  const auto add_count = [&](const char* name, double Ledger::*field) {
    add(name, [field](const Ledger& ledger) { return fmt::format("{:.1f}", ledger.*field); });
  };
  add_count("rounds", &Ledger::rounds);
  add_count("drafts proposed", &Ledger::proposed);
  add_count("drafts verified", &Ledger::verified);
  add_count("drafts accepted", &Ledger::accepted);
  add_count("drafts verified in vain", &Ledger::wasted);
  const auto add_cost = [&](const char* name, double Ledger::*field) {
    add(name, [field](const Ledger& ledger) {
      const double all =
          ledger.draft_cost + ledger.verify_cost + ledger.accept_cost + ledger.overhead_cost;
      return share_text(ledger.*field, all);
    });
  };
  add_cost("cost of drafting %", &Ledger::draft_cost);
  add_cost("cost of verifying %", &Ledger::verify_cost);
  add_cost("cost of accepting %", &Ledger::accept_cost);
  if (std::any_of(rows.begin(), rows.end(),
                  [](const PolicyResult* row) { return row->ledger->overhead_cost > 0; })) {
    add_cost("overhead %", &Ledger::overhead_cost);
  }
  const auto add_share = [&](const char* name, double Ledger::*field) {
    add(name, [field](const Ledger& ledger) { return share_text(ledger.*field, ledger.rounds); });
  };
  add_share("rounds that accepted nothing %", &Ledger::rounds_without_acceptance);
  add_share("rounds fully trimmed %", &Ledger::rounds_trimmed);
  add("tau to break even", [](const Ledger& ledger) {
    return exists(ledger.break_even_tau) ? fmt::format("{:.3f}", *ledger.break_even_tau)
                                         : std::string(kMissing);
  });
  const auto add_histogram = [&](const char* what, std::vector<double> Ledger::*field) {
    std::size_t size = 0;
    for (const PolicyResult* row : rows) size = std::max(size, (row->ledger.value().*field).size());
    for (std::size_t length = 0; length < size; ++length) {
      add(fmt::format("rounds that {} {} %", what, length), [&](const Ledger& ledger) {
        const std::vector<double>& shares = ledger.*field;
        return length < shares.size() ? share_text(shares[length], 1) : std::string(kMissing);
      });
    }
  };
  add_histogram("verify", &Ledger::scheduled_histogram);
  add_histogram("accept", &Ledger::accepted_histogram);
  grid.columns.push_back(std::move(names));
  for (GridColumn& column : columns) grid.columns.push_back(std::move(column));
  return grid;
}

bool is_part_of(const Stratum& stratum, const StrataMean& mean) {
  if (stratum.by != mean.by || stratum.verification != mean.verification) return false;
  if (mean.by != "trace") return stratum.sampling == mean.sampling;
  // Traces were recorded at temperatures of their own.
  return stratum.sampling.drafts == mean.sampling.drafts &&
         stratum.sampling.top_p_rule == mean.sampling.top_p_rule;
}

// Strata kind by kind, each kind with its means below it.
Grid strata_grid(const std::vector<const Stratum*>& strata,
                 const std::vector<const StrataMean*>& means, bool whole_traces,
                 double confidence) {
  Grid grid;
  std::vector<std::string> names, anchors, notes;
  Numbers survival, predicted, tau;
  std::vector<std::optional<Range>> ranges;
  const auto add_mean = [&](const std::string& name, double value,
                            const std::optional<Range>& range) {
    names.push_back(name);
    anchors.emplace_back(kMissing);
    survival.emplace_back();
    predicted.emplace_back();
    tau.emplace_back(value);
    ranges.push_back(range);
    notes.emplace_back();
  };
  for (const StrataMean* mean : means) {
    if ((mean->by == "trace") != whole_traces) continue;
    std::size_t count = 0;
    for (const Stratum* stratum : strata) {
      if (!is_part_of(*stratum, *mean)) continue;
      ++count;
      std::string name = whole_traces ? stratum->trace : stratum->label;
      if (whole_traces && !stratum->label.empty()) name += " (" + stratum->label + ")";
      if (whole_traces && means.size() > 1) {
        name += ", " + setting_text(stratum->sampling, stratum->verification == "greedy");
      }
      names.push_back(escape_text(name));
      anchors.push_back(fmt::format("{:.0f}", stratum->anchors));
      survival.push_back(stratum->survival);
      predicted.push_back(stratum->predicted_conditional);
      tau.push_back(stratum->tau_open_loop);
      ranges.push_back(stratum->intervals.tau_open_loop);
      notes.emplace_back(stratum->worst ? "worst" : "");
    }
    if (count < 2) continue;
    add_mean("mean of the parts (macro)", mean->macro, mean->macro_interval);
    add_mean("mean of the blocks (micro)", mean->micro, mean->micro_interval);
  }
  if (names.empty()) return grid;
  add_text(grid, whole_traces ? "trace" : "part", std::move(names));
  add_text(grid, "blocks", std::move(anchors), true);
  add_fixed(grid, "survival of 1", survival, 3);
  add_fixed(grid, "predicted", predicted, 3);
  add_fixed(grid, "tau, full blocks", tau, 3);
  add_ranges(grid, level_text(confidence), 3, ranges);
  add_text(grid, "notes", std::move(notes));
  return grid;
}

std::string about_trace(const TraceSummary& trace) {
  std::string out = escape_text(trace.kind);
  const auto add = [&out](const std::string& text) { out += ", " + text; };
  if (trace.anchors) {
    std::string text = counted(*trace.anchors, "position");
    if (trace.sequences) text += " in " + counted(*trace.sequences, "sequence");
    add(text);
  }
  if (trace.rounds) {
    add(counted(*trace.rounds, "round"));
    if (trace.reproduced) add(fmt::format("{} reproduced", *trace.reproduced));
    if (trace.diverged) add(fmt::format("{} diverged", *trace.diverged));
    if (trace.censored) add(fmt::format("{} censored", *trace.censored));
  }
  add(fmt::format("vocabulary {}", trace.vocab_size));
  add(fmt::format("block size {}", trace.block_size));
  if (std::isfinite(trace.temperature)) {
    add(fmt::format("temperature {}", shortest(trace.temperature)));
  }
  if (!trace.domain.empty()) add(escape_text(trace.domain));
  if (trace.invalid_rows > 0) add(counted(trace.invalid_rows, "invalid row"));
  if (trace.impossible_tokens > 0) add(counted(trace.impossible_tokens, "impossible token"));
  if (trace.near_ties > 0) add(counted(trace.near_ties, "near tie"));
  return out;
}

// The rows of one section.
struct Group {
  std::string trace;
  std::string verification;
  SamplingLabel sampling = {};
  bool is_only_setting = true;  ///< of this trace and verification
  std::vector<const PositionResult*> positions = {};
  std::map<std::int32_t, std::vector<const PolicyResult*>> rows = {};  ///< by concurrency
  std::vector<const Stratum*> strata = {};
  std::vector<const StrataMean*> means = {};
};

class Groups {
 public:
  Group& of(const std::string& trace, const std::string& verification,
            const SamplingLabel& sampling) {
    const auto [found, is_new] = index_.try_emplace(
        trace + '\0' + verification + '\0' + setting_text(sampling, false), groups_.size());
    if (!is_new) return groups_[found->second];
    Group added = {trace, verification, sampling};
    for (Group& other : groups_) {
      if (other.trace != trace || other.verification != verification) continue;
      other.is_only_setting = added.is_only_setting = false;
    }
    groups_.push_back(std::move(added));
    return groups_.back();
  }
  [[nodiscard]] const std::vector<Group>& all() const { return groups_; }

 private:
  std::vector<Group> groups_;
  std::map<std::string, std::size_t> index_;
};

Groups groups_of(const ReplayResult& result) {
  Groups groups;
  for (const PositionResult& row : result.positions) {
    groups.of(row.trace, row.verification, row.sampling).positions.push_back(&row);
  }
  for (const PolicyResult& row : result.results) {
    groups.of(row.trace, row.verification, row.sampling).rows[row.concurrency].push_back(&row);
  }
  for (const Stratum& stratum : result.strata) {
    groups.of(stratum.trace, stratum.verification, stratum.sampling).strata.push_back(&stratum);
  }
  for (const StrataMean& mean : result.strata_means) {
    if (mean.by != "trace")
      groups.of(mean.trace, mean.verification, mean.sampling).means.push_back(&mean);
  }
  return groups;
}

std::string title_of(const Group& group) {
  std::string title = escape_text(group.trace);
  if (!group.verification.empty()) title += ", " + escape_text(group.verification);
  if (!group.is_only_setting) {
    title += ", " + setting_text(group.sampling, group.verification == "greedy");
  }
  return title;
}

// The rows of one concurrency.
void add_rows(const std::vector<const PolicyResult*>& rows, bool several_concurrencies,
              const ReplayResult& result, const RenderOptions& options, Section& section) {
  std::vector<const PolicyResult*> policies, bounds;
  for (const PolicyResult* row : rows) (row->bound ? bounds : policies).push_back(row);
  section.policies = policies_grid("policy", policies, result.confidence, several_concurrencies);
  section.bounds = policies_grid("bound", bounds, result.confidence, several_concurrencies);
  if (options.ledger) section.ledger = ledger_grid(ledger_rows(policies));
}

// One section, or where there are several concurrencies one more for each of them.
void add_sections(const Group& group, const TraceSummary* trace, const ReplayResult& result,
                  const RenderOptions& options, std::vector<Section>& sections) {
  Section section;
  section.title = title_of(group);
  if (trace != nullptr) section.about = about_trace(*trace);
  section.positions = positions_grid(group.positions, result.confidence);
  section.strata = strata_grid(group.strata, group.means, false, result.confidence);
  const bool several = group.rows.size() > 1;
  if (!several && !group.rows.empty()) {
    add_rows(group.rows.begin()->second, false, result, options, section);
    const std::int32_t requests = group.rows.begin()->first;
    if (requests > 1) section.title += fmt::format(", {} requests in flight", requests);
  }
  sections.push_back(std::move(section));
  if (!several) return;
  for (const auto& [requests, rows] : group.rows) {
    Section of_requests;
    of_requests.title =
        fmt::format("{}, {} in flight", title_of(group), counted(requests, "request"));
    add_rows(rows, true, result, options, of_requests);
    sections.push_back(std::move(of_requests));
  }
}

// The best policy at each concurrency of one trace and setting.
Grid best_grid(const std::vector<const BestPolicy*>& rows, double confidence) {
  Grid grid;
  const auto numbers = [&](std::optional<double> BestPolicy::*field) {
    return collect(rows, [field](const BestPolicy& row) { return row.*field; });
  };
  add_text(grid, "requests",
           collect(rows, [](const BestPolicy& row) { return std::to_string(row.concurrency); }),
           true);
  add_text(grid, "best policy", collect(rows, policy_text<BestPolicy>));
  add_fixed(grid, "budget", numbers(&BestPolicy::budget), 1);
  add_fixed(grid, "padded", numbers(&BestPolicy::padded_tokens), 1);
  add_scaled(grid, "per user", numbers(&BestPolicy::tokens_per_cost_per_user));
  add_scaled(grid, "tokens/cost", numbers(&BestPolicy::tokens_per_cost));
  add_ranges(grid, level_text(confidence), decimals_for(numbers(&BestPolicy::tokens_per_cost)),
             collect(rows, [](const BestPolicy& row) { return row.tokens_per_cost_interval; }));
  add_fixed(grid, "speedup", numbers(&BestPolicy::speedup), 3);
  add_text(grid, "notes", collect(rows, [](const BestPolicy& row) {
             return std::string(row.changes ? "another policy" : "");
           }));
  return grid;
}

// What the temperatures are worth, at each concurrency of each trace.
void add_calibration_worth(const ReplayResult& result, std::vector<Section>& sections) {
  if (result.calibration_worth.empty()) return;
  std::vector<const CalibrationWorth*> rows;
  for (const CalibrationWorth& worth : result.calibration_worth) rows.push_back(&worth);
  Section section;
  section.title = "what the calibration is worth: " + escape_text(result.calibration);
  section.about =
      "the best policy that looks at confidences, before, after, and with the true ones";
  Grid& grid = section.best;
  add_text(grid, "trace", collect(rows, [](const CalibrationWorth& row) {
             return escape_text(row.trace) + ", " + escape_text(row.verification);
           }));
  add_text(
      grid, "requests",
      collect(rows, [](const CalibrationWorth& row) { return std::to_string(row.concurrency); }),
      true);
  add_text(grid, "before",
           collect(rows, [](const CalibrationWorth& row) { return policy_text(row.before); }));
  add_scaled(grid, "tokens/cost", collect(rows, [](const CalibrationWorth& row) {
               return std::optional<double>(row.before.tokens_per_cost);
             }));
  add_text(grid, "after",
           collect(rows, [](const CalibrationWorth& row) { return policy_text(row.after); }));
  add_scaled(grid, "tokens/cost", collect(rows, [](const CalibrationWorth& row) {
               return std::optional<double>(row.after.tokens_per_cost);
             }));
  add_text(grid, "with true ones", collect(rows, [](const CalibrationWorth& row) {
             return row.oracle ? policy_text(*row.oracle) : std::string(kMissing);
           }));
  add_scaled(grid, "tokens/cost",
             collect(rows, [](const CalibrationWorth& row) -> std::optional<double> {
               if (!row.oracle) return std::nullopt;
               return row.oracle->tokens_per_cost;
             }));
  sections.push_back(std::move(section));
}

void add_best(const ReplayResult& result, std::vector<Section>& sections) {
  std::vector<const BestPolicy*> rows;
  const auto finish = [&] {
    if (rows.empty()) return;
    Section section;
    const BestPolicy& first = *rows.front();
    section.title = fmt::format("{}, {}, {}: best by requests in flight", escape_text(first.trace),
                                escape_text(first.verification),
                                setting_text(first.sampling, first.verification == "greedy"));
    section.best = best_grid(rows, result.confidence);
    sections.push_back(std::move(section));
    rows.clear();
  };
  for (const BestPolicy& best : result.best) {
    const bool same = !rows.empty() && rows.front()->trace == best.trace &&
                      rows.front()->verification == best.verification &&
                      rows.front()->sampling == best.sampling;
    if (!same) finish();
    rows.push_back(&best);
  }
  finish();
}

// "greedy: code_t0.h5, probabilistic: code_t1.h5", with what is not as recorded.
std::string sides_text(const VerificationPair& pair) {
  const auto side = [](const char* verification, const PairSide& at) {
    std::string out = fmt::format("{} {} at {}", verification, escape_text(at.trace),
                                  setting_text(at.sampling, *verification == 'g'));
    if (at.off_policy) out += " (off policy)";
    return out;
  };
  return side("greedy", pair.greedy) + " beside " + side("probabilistic", pair.probabilistic);
}

Grid pairs_grid(const std::vector<const VerificationPair*>& pairs, double confidence) {
  Grid grid;
  const auto numbers = [&](const auto& get) {
    return collect(
        pairs, [get](const VerificationPair& pair) { return std::optional<double>(get(pair)); });
  };
  const auto add_difference = [&](const char* name, const Numbers& differences, const auto& range) {
    add_scaled(grid, name, differences);
    add_ranges(grid, level_text(confidence), decimals_for(differences), collect(pairs, range));
  };
  add_text(grid, "policy", collect(pairs, policy_text<VerificationPair>));
  if (std::any_of(pairs.begin(), pairs.end(),
                  [](const VerificationPair* pair) { return pair->concurrency != 1; })) {
    add_text(grid, "requests",
             collect(pairs,
                     [](const VerificationPair& pair) { return std::to_string(pair.concurrency); }),
             true);
  }
  add_fixed(grid, "tau, greedy", numbers([](const auto& pair) { return pair.greedy.tau; }), 3);
  add_fixed(grid, "probabilistic", numbers([](const auto& pair) { return pair.probabilistic.tau; }),
            3);
  add_difference("difference", numbers([](const auto& pair) { return pair.tau_difference; }),
                 [](const VerificationPair& pair) { return pair.tau_interval; });
  add_scaled(grid, "tokens/cost, greedy",
             numbers([](const auto& pair) { return pair.greedy.tokens_per_cost; }));
  add_scaled(grid, "probabilistic",
             numbers([](const auto& pair) { return pair.probabilistic.tokens_per_cost; }));
  add_difference("difference", numbers([](const auto& pair) { return pair.efficiency_difference; }),
                 [](const VerificationPair& pair) { return pair.efficiency_interval; });
  return grid;
}

// One section for every two replays that are beside each other.
void add_pairs(const ReplayResult& result, std::vector<Section>& sections) {
  std::vector<std::string> titles;
  std::map<std::string, std::vector<const VerificationPair*>> by_title;
  for (const VerificationPair& pair : result.pairs) {
    const std::string title = sides_text(pair);
    if (!by_title.contains(title)) titles.push_back(title);
    by_title[title].push_back(&pair);
  }
  for (const std::string& title : titles) {
    Section section;
    section.title = title;
    const std::string& domain = by_title[title].front()->domain;
    if (!domain.empty()) section.about = "domain " + escape_text(domain);
    section.pairs = pairs_grid(by_title[title], result.confidence);
    sections.push_back(std::move(section));
  }
}

// Traces beside each other, where there are at least two under one verification.
std::optional<Section> comparison_of_traces(const ReplayResult& result) {
  std::vector<const Stratum*> strata;
  std::vector<const StrataMean*> means;
  for (const Stratum& stratum : result.strata) strata.push_back(&stratum);
  for (const StrataMean& mean : result.strata_means) {
    const auto traces = std::count_if(strata.begin(), strata.end(), [&](const Stratum* stratum) {
      return is_part_of(*stratum, mean);
    });
    if (mean.by == "trace" && traces > 1) means.push_back(&mean);
  }
  Section section;
  section.title = "all traces";
  section.strata = strata_grid(strata, means, true, result.confidence);
  if (section.strata.columns.empty()) return std::nullopt;
  return section;
}

std::string cost_text(const CostSummary& cost) {
  std::string out =
      cost.linear
          ? fmt::format(
                "cost per round: draft {}, verify_base {}, verify_token {}, "
                "accept {}",
                shortest(cost.linear->draft), shortest(cost.linear->verify_base),
                shortest(cost.linear->verify_token), shortest(cost.linear->accept))
          : fmt::format("cost in {}: {} ({})", cost.unit, escape_text(cost.file), cost.format);
  if (cost.overhead > 0) out += fmt::format(", overhead {}", shortest(cost.overhead));
  if (!cost.buckets.empty()) out += fmt::format(", buckets {}", fmt::join(cost.buckets, " "));
  if (cost.width != "ragged") out += ", width " + cost.width;
  return out;
}

}  // namespace

std::vector<std::string> preamble(const ReplayResult& result) {
  std::string first =
      fmt::format("dspark-replay {}, {}", escape_text(result.version), escape_text(result.backend));
  if (!result.device.empty()) first += fmt::format(" ({})", escape_text(result.device));
  first += fmt::format(", seed {}, {} repeats", result.seed, result.repeats);
  if (result.products != "exact") first += fmt::format(", {} products", result.products);
  return {first, cost_text(result.cost)};
}

std::vector<const Grid*> grids_of(const Section& section) {
  std::vector<const Grid*> grids;
  for (const Grid* grid : {&section.positions, &section.policies, &section.bounds, &section.ledger,
                           &section.strata, &section.best, &section.pairs}) {
    if (!grid->columns.empty()) grids.push_back(grid);
  }
  return grids;
}

std::vector<Section> make_sections(const ReplayResult& result, const RenderOptions& options) {
  const Groups groups = groups_of(result);
  std::vector<Section> sections;
  std::vector<bool> done(groups.all().size(), false);
  for (const TraceSummary& trace : result.traces) {
    bool has_rows = false;
    for (std::size_t i = 0; i < done.size(); ++i) {
      const Group& group = groups.all()[i];
      if (done[i] || group.trace != trace.file) continue;
      add_sections(group, &trace, result, options, sections);
      done[i] = has_rows = true;
    }
    if (!has_rows) {
      Group empty;
      empty.trace = trace.file;
      add_sections(empty, &trace, result, options, sections);
    }
  }
  for (std::size_t i = 0; i < done.size(); ++i) {
    if (!done[i]) add_sections(groups.all()[i], nullptr, result, options, sections);
  }
  add_best(result, sections);
  add_calibration_worth(result, sections);
  add_pairs(result, sections);
  if (std::optional<Section> traces = comparison_of_traces(result)) {
    sections.push_back(std::move(*traces));
  }
  return sections;
}

}  // namespace dspark
