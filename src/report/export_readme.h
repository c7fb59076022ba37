// The page that goes with exported settings.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "replay/result.h"
#include "report/export_choices.h"
#include "report/export_tables.h"

namespace dspark {

/// A file of the export, and what is said about it.
struct ExportedFile {
  std::string name;
  std::string about;
};

/// A cost table that was to be written.
struct ExportedTable {
  std::string name;
  std::optional<EngineTable> table;
  std::string refusal;  ///< why there is none
};

/// What README.md tells.
struct ExportPage {
  const ReplayResult& result;
  const CostModel& cost;
  const EngineContext& context;
  const std::vector<ExportSetting>& settings;
  const std::vector<ExportedFile>& files;
  const std::vector<ExportedTable>& tables;
  std::span<const double> temperatures;
};

/// README.md.
[[nodiscard]] std::string export_readme(const ExportPage& page);

/// "0.7123 tokens per ms, +12.3 % [+10.1, +14.6] over no speculation", with what to know about it.
[[nodiscard]] std::string expectation_text(const PolicyResult& row, const CostSummary& cost);

}  // namespace dspark
