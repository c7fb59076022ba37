#include "report/export_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "report/words.h"
#include "support/text.h"

namespace dspark {
namespace {

using RowList = std::vector<const PolicyResult*>;

bool is_same_setting(const PolicyResult& a, const PolicyResult& b) {
  return a.trace == b.trace && a.verification == b.verification && a.sampling == b.sampling;
}

// The rows of each trace and setting, in the order of the result.
std::vector<RowList> rows_by_setting(const ReplayResult& result, const std::string& trace) {
  std::vector<RowList> groups;
  for (const PolicyResult& row : result.results) {
    if (row.trace != trace) continue;
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const RowList& rows) {
      return is_same_setting(*rows.front(), row);
    });
    if (group == groups.end()) {
      groups.push_back({&row});
    } else {
      group->push_back(&row);
    }
  }
  return groups;
}

// The row with most tokens per cost that `is_meant`, the first of equal ones; or null.
template <class IsMeant>
const PolicyResult* best_row(const RowList& rows, const IsMeant& is_meant) {
  const PolicyResult* best = nullptr;
  for (const PolicyResult* row : rows) {
    if (!is_exportable(*row) || !is_meant(*row)) continue;
    if (best == nullptr || *row->tokens_per_cost > *best->tokens_per_cost) best = row;
  }
  return best;
}

ExportColumn choose(std::int32_t requests, const RowList& rows, const EngineContext& context) {
  ExportColumn column;
  column.requests = requests;
  column.best = best_row(rows, [](const PolicyResult&) { return true; });
  column.full = best_row(rows, [&](const PolicyResult& row) {
    return fixed_length_of(row) == std::int64_t{context.block_size};
  });
  for (const Engine engine : engines()) {
    const PolicyResult* row = best_row(rows, [&](const PolicyResult& candidate) {
      return engine_setting(engine, candidate, context).has_value();
    });
    if (row != nullptr) {
      column.engines.push_back({engine, row, *engine_setting(engine, *row, context)});
    }
  }
  return column;
}

std::optional<ScheduledLength> schedule(const RowList& rows, std::int64_t most,
                                        const EngineContext& context) {
  const auto length_of = [](const PolicyResult& row) { return fixed_length_of(row).value_or(0); };
  const PolicyResult* row = best_row(rows, [&](const PolicyResult& candidate) {
    const bool is_length = candidate.policy == "none" || length_of(candidate) > 0;
    return is_length && length_of(candidate) <= most &&
           engine_setting(Engine::tensorrt_llm, candidate, context).has_value();
  });
  if (row == nullptr) return std::nullopt;
  return ScheduledLength{length_of(*row), row};
}

ExportSetting setting_of(const RowList& rows, const EngineContext& context) {
  const PolicyResult& first = *rows.front();
  ExportSetting setting;
  setting.title = fmt::format("{}, {} verification, {}", shown_file(first.trace),
                              escape_text(first.verification),
                              setting_text(first.sampling, first.verification == "greedy"));
  setting.block_size = context.block_size;
  setting.is_off_policy = std::all_of(rows.begin(), rows.end(), [](const PolicyResult* row) {
    return row->off_policy || row->bound;
  });
  std::map<std::int32_t, RowList> by_requests;
  for (const PolicyResult* row : rows) {
    if (is_exportable(*row)) by_requests[row->concurrency].push_back(row);
  }
  std::int64_t most = context.block_size;
  for (const auto& [requests, column_rows] : by_requests) {
    ExportColumn column = choose(requests, column_rows, context);
    column.scheduled = schedule(column_rows, most, context);
    if (setting.columns.empty()) most = column.scheduled ? column.scheduled->length : 0;
    setting.columns.push_back(std::move(column));
  }
  return setting;
}

}  // namespace

std::vector<ExportSetting> choose_export(const ReplayResult& result, const EngineContext& context) {
  std::vector<ExportSetting> settings;
  for (const TraceSummary& trace : result.traces) {
    EngineContext here = context;
    here.block_size = trace.block_size;
    for (const RowList& rows : rows_by_setting(result, trace.file)) {
      settings.push_back(setting_of(rows, here));
    }
  }
  for (std::size_t i = 0; settings.size() > 1 && i < settings.size(); ++i) {
    settings[i].suffix = fmt::format("_{}", i + 1);
  }
  return settings;
}

const EngineChoice* choice_of(const ExportColumn& column, Engine engine) {
  for (const EngineChoice& choice : column.engines) {
    if (choice.engine == engine) return &choice;
  }
  return nullptr;
}

std::string shown_file(const std::string& path) {
  return escape_text(std::filesystem::path(path).filename().string());
}

}  // namespace dspark
