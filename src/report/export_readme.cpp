#include "report/export_readme.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <set>
#include <utility>

#include "report/export.h"
#include "report/layout.h"
#include "report/words.h"
#include "support/text.h"

namespace dspark {
namespace {

constexpr const char* kMissing = "-";

/// How much more a row gives than another, as a part of the other.
struct Gain {
  double value = 0;
  std::optional<Range> interval;
};

Gain gain_over_none(const PolicyResult& row) {
  Gain gain = {*row.speedup - 1, std::nullopt};
  if (row.intervals.speedup) {
    gain.interval = Range{row.intervals.speedup->lo - 1, row.intervals.speedup->hi - 1};
  }
  return gain;
}

// The interval is that of the difference on the same resampled sequences, which there is where one
// of the two is the reference of the run.
std::optional<Gain> gain_over(const PolicyResult& row, const PolicyResult* other) {
  if (other == nullptr || other == &row) return std::nullopt;
  const double base = *other->tokens_per_cost;
  Gain gain = {*row.tokens_per_cost / base - 1, std::nullopt};
  if (row.is_reference && other->versus) {
    const Range& reversed = other->versus->interval;
    gain.interval = Range{-reversed.hi / base, -reversed.lo / base};
  } else if (other->is_reference && row.versus) {
    gain.interval = Range{row.versus->interval.lo / base, row.versus->interval.hi / base};
  }
  return gain;
}

std::string percent_text(double part) { return fmt::format("{:+.1f} %", 100 * part); }

std::string range_text(const Range& range) {
  return fmt::format("[{:+.1f}, {:+.1f}]", 100 * range.lo, 100 * range.hi);
}

std::string gain_text(const std::optional<Gain>& gain) {
  if (!gain) return kMissing;
  std::string out = percent_text(gain->value);
  if (gain->interval) out += " " + range_text(*gain->interval);
  return out;
}

std::string per_cost(const CostSummary& cost) {
  return fmt::format("tokens per {}", cost.unit.empty() ? "cost" : escape_text(cost.unit));
}

bool is_within_noise(const PolicyResult& row) {
  const std::optional<Range>& speedup = row.intervals.speedup;
  return row.policy != "none" && speedup && speedup->lo <= 1 && speedup->hi >= 1;
}

std::string notes_of(const PolicyResult& row) {
  std::string out;
  const auto add = [&](const char* note) { out += (out.empty() ? "" : ", ") + std::string(note); };
  if (is_within_noise(row)) {
    add("within noise of no speculation");
  } else if (row.speedup && *row.speedup < 1) {
    add("worse than no speculation");
  }
  if (!row.lossless) add("not lossless");
  if (row.tau_lo && row.tau_hi && *row.tau_lo < *row.tau_hi) add("some rounds censored");
  return out;
}

class ChoiceGrid {
 public:
  explicit ChoiceGrid(const ReplayResult& result) {
    grid_.columns = {{"requests", true, {}},
                     {"engine", false, {}},
                     {"policy", false, {}},
                     {per_cost(result.cost), true, {}},
                     {level_text(result.confidence), true, {}},
                     {"over no speculation", true, {}},
                     {"over the full block", true, {}},
                     {"set to", false, {}},
                     {"notes", false, {}}};
  }

  void add(const ExportColumn& column, const std::string& engine, const PolicyResult& row,
           const std::string& setting) {
    const std::optional<Range>& interval = row.intervals.tokens_per_cost;
    grid_.add_row(
        {std::to_string(column.requests), engine, policy_text(row),
         fmt::format("{:.4g}", *row.tokens_per_cost),
         interval ? fmt::format("[{:.4g}, {:.4g}]", interval->lo, interval->hi) : kMissing,
         row.speedup && row.policy != "none" ? gain_text(gain_over_none(row)) : kMissing,
         gain_text(gain_over(row, column.full)), setting, notes_of(row)});
  }

  [[nodiscard]] const Grid& grid() const { return grid_; }

 private:
  Grid grid_;
};

std::string requests_text(const std::vector<std::int32_t>& requests) {
  std::string out;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    out += (i == 0 ? "" : i + 1 == requests.size() ? " and " : ", ") + std::to_string(requests[i]);
  }
  return out + (requests == std::vector<std::int32_t>{1} ? " request" : " requests");
}

void append_setting(std::string& out, const ExportPage& page, const ExportSetting& setting) {
  if (setting.columns.empty()) {
    out += setting.is_off_policy
               ? "\nAll rows are estimates of another setting than the recorded one: nothing is "
                 "exported. Record a trace under this setting.\n"
               : "\nNo row has tokens per cost: nothing is exported.\n";
    return;
  }
  ChoiceGrid grid(page.result);
  std::vector<std::int32_t> without;
  for (const ExportColumn& column : setting.columns) {
    grid.add(column, "any", *column.best, "");
    if (column.best->policy == "none") without.push_back(column.requests);
    for (const EngineChoice& choice : column.engines) {
      grid.add(column, engine_name(choice.engine), *choice.row, choice.setting.text());
    }
    if (column.scheduled) {
      grid.add(column, "TensorRT-LLM, by schedule", *column.scheduled->row,
               fmt::format("length {}", column.scheduled->length));
    }
  }
  append_markdown(out, grid.grid());
  if (!without.empty()) {
    out += fmt::format("\nAt {} no policy beats decoding without speculation: it is off there.\n",
                       requests_text(without));
  }
  if (setting.columns.front().scheduled && setting.columns.front().requests > 1) {
    out +=
        fmt::format("\nFewer than {} were not replayed: the schedule has the same length there.\n",
                    requests_text({setting.columns.front().requests}));
  }
}

std::string drafts_text(const CostModel& cost, const ReplayResult& result) {
  std::set<std::int32_t> requests;
  for (const PolicyResult& row : result.results) requests.insert(row.concurrency);
  std::string out;
  for (const std::int32_t count : requests) {
    out += fmt::format("{}{} for {}", out.empty() ? "" : ", ", shortest(cost.draft(count)),
                       counted(count, "request"));
  }
  return out;
}

std::string cost_text(const ExportPage& page) {
  const CostSummary& cost = page.result.cost;
  if (page.context.linear) {
    return fmt::format(
        "linear, in a unit of its own: draft {}, verify_base {}, verify_token {}, accept {}",
        shortest(page.context.linear->draft), shortest(page.context.linear->verify_base),
        shortest(page.context.linear->verify_token), shortest(page.context.linear->accept));
  }
  std::string out;
  if (cost.linear) {
    out = fmt::format("linear, in a unit of its own: verify_base {}, verify_token {}, accept {}",
                      shortest(cost.linear->verify_base), shortest(cost.linear->verify_token),
                      shortest(cost.linear->accept));
  } else {
    out = fmt::format("the table {} ({}), in {}", shown_file(cost.file), escape_text(cost.format),
                      escape_text(cost.unit));
  }
  out += fmt::format("; drafting {}; overhead {}", drafts_text(page.cost, page.result),
                     shortest(page.cost.overhead()));
  const std::vector<std::int64_t>& buckets = page.cost.buckets();
  if (!buckets.empty()) out += fmt::format("; tokens rounded up to {}", fmt::join(buckets, ", "));
  return out;
}

std::string confidences_text(const ExportPage& page) {
  if (page.temperatures.empty()) return "Confidences as recorded, without calibration";
  std::string out = "Confidences calibrated";
  if (!page.result.calibration.empty()) out += " by " + shown_file(page.result.calibration);
  out += ", temperatures ";
  for (std::size_t i = 0; i < page.temperatures.size(); ++i) {
    out += (i == 0 ? "" : ", ") + shortest(page.temperatures[i]);
  }
  return out;
}

void append_assumptions(std::string& out, const ExportPage& page) {
  const ReplayResult& result = page.result;
  const auto add = [&](const std::string& text) { out += "- " + markdown_text(text) + "\n"; };
  out += "\n## What was assumed\n\n";
  for (const TraceSummary& trace : result.traces) {
    add(fmt::format("Trace {}: {}, vocabulary {}, block size {}, recorded at temperature {}{}",
                    shown_file(trace.file), trace.kind, trace.vocab_size, trace.block_size,
                    shortest(trace.temperature),
                    trace.domain.empty() ? "" : ", " + escape_text(trace.domain)));
  }
  add("Cost of a step: " + cost_text(page));
  add(fmt::format("Width of a verify forward: {}", escape_text(result.cost.width)));
  add(confidences_text(page));
  add(fmt::format("dspark-replay {}, seed {}, {} sampled worlds of each block{}; intervals at {}",
                  escape_text(result.version), result.seed, result.repeats,
                  result.products == "exact" ? "" : ", " + result.products + " products",
                  level_text(result.confidence)));
  out +=
      "\n\"Any\" is the best policy of the run, whoever can run it; below it stands the best that "
      "each engine can run\nas the replay did: by the same rule, at the width that was charged, "
      "with a cost table and a calibration that it\ncan load. The full block is what the engines "
      "verify by default. An interval over the full block is that of the\ndifference on the same "
      "resampled sequences, and there is one where one of the two is the reference of the run.\n";
}

void append_files(std::string& out, const ExportPage& page) {
  out += "\n## Files\n";
  Grid grid;
  grid.columns = {{"file", false, {}}, {"what", false, {}}};
  for (const ExportedFile& file : page.files) grid.add_row({file.name, file.about});
  append_markdown(out, grid);
  out += "\nPaths in them are relative to this folder.\n";
}

std::string change_text(const EngineTable& table) {
  if (!(table.before_ms > 0)) return "with no step of the run to compare it at";
  const double change = table.after_ms / table.before_ms - 1;
  if (!(std::abs(change) > 1e-9)) return "the same times as charged";
  return fmt::format(
      "at most {} off what was charged: {:.4g} ms in place of {:.4g} ms at {} and {}",
      percent_text(change), table.after_ms, table.before_ms, counted(table.requests, "request"),
      counted(table.tokens, "token"));
}

void append_tables(std::string& out, const ExportPage& page) {
  out += "\n## Cost tables\n\n";
  if (page.tables.empty()) {
    out += page.result.cost.linear
               ? "A linear cost is in a unit of its own and makes no table. Without one no policy "
                 "that looks for the best\ntotal (`global`) can be set up.\n"
               : "Blocks of several sizes need tables of their own: export them one by one.\n";
    return;
  }
  out +=
      "Times are of whole steps, with drafting and overhead as the run charged them. Captured "
      "sizes are not in the\ntables: engines round up to their own. To see what an engine would "
      "make of a table that is off, replay with it\n(`cost: {table: FILE}` in a policy file).\n\n";
  for (const ExportedTable& entry : page.tables) {
    std::string line = entry.name + ": ";
    if (entry.table) {
      line += std::string(cost_format_name(entry.table->table.format)) + ", " +
              change_text(*entry.table);
      for (const std::string& lost : entry.table->lost) line += "; without " + escape_text(lost);
    } else {
      line += "left out: " + entry.refusal;
    }
    out += "- " + markdown_text(line) + "\n";
  }
}

// What holds whatever was replayed.
constexpr const char* kEngineNotes = R"(
## Notes on the engines

- TensorRT-Edge-LLM verifies all requests of a step as wide as the longest (`width: uniform`), has
  no calibration, and its own constants for `sps`: rows that need anything else are not offered to
  it. A fixed length is a threshold of 0 between equal limits.
- SGLang: `global` with `lag: 2`, the age of budgets under its overlapped scheduling.
- TensorRT-LLM: `DSparkDecodingConfig` of 1.4.0rc4. The pull requests that brought the files in
  call their paths `confidence_sps_table_path` and `confidence_sts_path`, and read the minimum
  gain from the table; it is set there where all rows agree on one. Budgets are two steps old with
  its overlapped scheduling, one without it.
- TensorRT-LLM's `draft_len_schedule` holds for all requests of a batch; its first length is
  `max_draft_len`.
- vllm-ascend: the profile is for its `hardware_aware` policy, which is not replayed; the settings
  in the table are those of `confidence_budget`.
- vLLM measures the costs of `enable_adaptive_verification` itself when it starts, and loads no
  file. A threshold on each confidence (`confidence_threshold`) has been proposed for it: the
  value would be DeepSpec's.
- DeepSpec evaluates one request at a time; its calibration file belongs to a pull request.
)";

}  // namespace

std::string expectation_text(const PolicyResult& row, const CostSummary& cost) {
  std::string out = fmt::format("{:.4g} {}", *row.tokens_per_cost, per_cost(cost));
  if (row.speedup && row.policy != "none") {
    out += ", " + gain_text(gain_over_none(row)) + " over no speculation";
  }
  const std::string notes = notes_of(row);
  return notes.empty() ? out : out + ", " + notes;
}

std::string export_readme(const ExportPage& page) {
  std::string out = std::string(kExportTitle) + "\n";
  append_assumptions(out, page);
  for (std::size_t i = 0; i < page.settings.size(); ++i) {
    const std::string number = page.settings.size() > 1 ? fmt::format("Setting {}: ", i + 1) : "";
    out += "\n## " + number + markdown_text(page.settings[i].title) + "\n";
    append_setting(out, page, page.settings[i]);
  }
  append_files(out, page);
  append_tables(out, page);
  return out + kEngineNotes;
}

}  // namespace dspark
