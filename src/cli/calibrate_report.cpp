#include "cli/calibrate_report.h"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "report/layout.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

using Json = nlohmann::ordered_json;

const char* part_name(SamplePart part) { return part == SamplePart::fit ? "fit" : "held_out"; }

// --- JSON ---

Json json_number(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json json_reliability(const Reliability& at) {
  Json out;
  out["ece"] = json_number(at.ece);
  out["brier"] = json_number(at.brier);
  out["auc"] = json_number(at.auc);
  out["bias"] = json_number(at.bias);
  out["predicted"] = json_number(at.predicted);
  out["bins"] = Json::array();
  const auto count = static_cast<double>(at.bins.size());
  for (std::size_t i = 0; i < at.bins.size(); ++i) {
    const ReliabilityBin& bin = at.bins[i];
    out["bins"].push_back({{"from", static_cast<double>(i) / count},
                           {"to", static_cast<double>(i + 1) / count},
                           {"weight", bin.weight},
                           {"predicted", json_number(bin.predicted)},
                           {"observed", json_number(bin.observed)}});
  }
  return out;
}

Json json_position(const JudgedPosition& at) {
  Json out;
  out["part"] = part_name(at.part);
  out["domain"] = at.domain ? Json(escape_text(*at.domain)) : Json();
  out["position"] = at.position;
  out["blocks"] = at.before.blocks;
  out["weight"] = at.before.weight;
  out["observed"] = json_number(at.before.observed);
  out["before"] = json_reliability(at.before);
  out["after"] = json_reliability(at.after);
  return out;
}

Json json_input(const SampleInput& input) {
  Json out;
  out["file"] = escape_text(input.file);
  out["domain"] = escape_text(input.domain);
  out["blocks"] = input.blocks;
  out["sequences"] = input.sequences;
  out["held_out"] = input.held_out;
  return out;
}

Json json_temperature(const FittedTemperature& fitted, std::size_t position) {
  Json out;
  out["position"] = position;
  out["temperature"] = fitted.temperature;
  out["blocks"] = fitted.blocks;
  out["at_edge"] = fitted.at_edge;
  return out;
}

Json json_error(const MeanError& error) {
  return {{"before", json_number(error.before)}, {"after", json_number(error.after)}};
}

Json json_header(const CalibrationReport& report, const CalibrationRun& run) {
  const FitRule& rule = report.options.rule;
  Json out;
  out["format"] = "dspark-calibration-report";
  out["format_version"] = 1;
  out["tool"] = {{"version", run.version},
                 {"backend", run.backend.empty() ? Json() : Json(run.backend)},
                 {"device", run.device.empty() ? Json() : Json(escape_text(run.device))}};
  out["seed"] = report.options.seed;
  out["repeats"] = run.repeats;
  out["products"] = run.products;
  out["labels"] = label_kind_name(report.labels);
  out["preset"] = run.preset;
  out["bins"] = rule.bins;
  out["grid"] = {{"min", rule.grid_min},
                 {"max", rule.grid_max},
                 {"size", rule.grid_size},
                 {"prefers_one", rule.prefers_one}};
  out["holdout"] = report.options.holdout;
  out["mean_ece"] = {{"held_out", json_error(report.held_out_error)},
                     {"fit", json_error(report.fit_error)}};
  out["notes"] = Json::array();
  for (const std::string& note : report.notes) out["notes"].push_back(escape_text(note));
  return out;
}

std::string as_json(const CalibrationReport& report, const CalibrationRun& run) {
  Json out = json_header(report, run);
  out["inputs"] = Json::array();
  for (const SampleInput& input : report.inputs) out["inputs"].push_back(json_input(input));
  out["temperatures"] = Json::array();
  for (std::size_t k = 0; k < report.temperatures.size(); ++k) {
    out["temperatures"].push_back(json_temperature(report.temperatures[k], k + 1));
  }
  out["positions"] = Json::array();
  for (const JudgedPosition& at : report.positions) out["positions"].push_back(json_position(at));
  return out.dump(2) + "\n";
}

std::string as_jsonl(const CalibrationReport& report, const CalibrationRun& run) {
  std::string text;
  const auto append = [&](const char* type, const Json& fields) {
    Json line;
    line["type"] = type;
    line.update(fields);
    text += line.dump() + "\n";
  };
  append("header", json_header(report, run));
  for (const SampleInput& input : report.inputs) append("input", json_input(input));
  for (std::size_t k = 0; k < report.temperatures.size(); ++k) {
    append("temperature", json_temperature(report.temperatures[k], k + 1));
  }
  for (const JudgedPosition& at : report.positions) append("position", json_position(at));
  return text;
}

// --- CSV ---

std::string csv_number(const std::optional<double>& value) { return value ? shortest(*value) : ""; }

std::string as_csv(const CalibrationReport& report) {
  std::string text = csv_line({"part", "domain", "position", "state", "temperature", "blocks",
                               "weight", "observed", "predicted", "bias", "ece", "brier", "auc"});
  for (const JudgedPosition& at : report.positions) {
    const double fitted =
        report.temperatures[static_cast<std::size_t>(at.position) - 1].temperature;
    for (const bool after : {false, true}) {
      const Reliability& state = after ? at.after : at.before;
      text += csv_line({part_name(at.part), csv_text(at.domain.value_or("")),
                        std::to_string(at.position), after ? "after" : "before",
                        csv_number(after ? fitted : 1.0), std::to_string(state.blocks),
                        csv_number(state.weight), csv_number(state.observed),
                        csv_number(state.predicted), csv_number(state.bias), csv_number(state.ece),
                        csv_number(state.brier), csv_number(state.auc)});
    }
  }
  return text;
}

// --- What people read: table and md have the same content ---

std::string decimals(const std::optional<double>& value) {
  return value ? fmt::format("{:.3f}", *value) : "-";
}

std::string signed_decimals(const std::optional<double>& value) {
  return value ? fmt::format("{:+.3f}", *value) : "-";
}

std::string before_and_after(const MeanError& error) {
  return fmt::format("{:.4f} before, {:.4f} after", *error.before, *error.after);
}

std::vector<std::string> preamble(const CalibrationReport& report, const CalibrationRun& run) {
  const FitRule& rule = report.options.rule;
  const std::string machine =
      run.backend.empty() ? "" : fmt::format(", {} ({})", run.backend, escape_text(run.device));
  std::vector<std::string> lines;
  lines.push_back(fmt::format("dspark-replay {}{}, seed {}, {}{}", run.version, machine,
                              report.options.seed, counted(run.repeats, "repeat"),
                              run.products == "exact" ? "" : ", " + run.products + " products"));
  lines.push_back(fmt::format("{} labels; {} bins, {} temperatures from {} to {}{} ({})",
                              label_kind_name(report.labels), rule.bins, rule.grid_size,
                              shortest(rule.grid_min), shortest(rule.grid_max),
                              rule.prefers_one ? " and 1" : "", run.preset));
  lines.push_back(fmt::format("fitted on {}, judged on {} held out",
                              counted(report.sequences - report.held_out, "sequence"),
                              report.held_out));
  if (report.held_out_error.after) {
    lines.push_back("mean calibration error over positions, held out: " +
                    before_and_after(report.held_out_error));
  }
  if (report.fit_error.after) {
    lines.push_back("mean calibration error over positions, fitted:   " +
                    before_and_after(report.fit_error));
  }
  return lines;
}

Grid input_grid(const CalibrationReport& report) {
  Grid grid;
  grid.columns = {{"input", false, {}},
                  {"domain", false, {}},
                  {"sequences", true, {}},
                  {"held out", true, {}},
                  {"blocks", true, {}}};
  for (const SampleInput& input : report.inputs) {
    grid.add_row({escape_text(input.file), escape_text(input.domain),
                  std::to_string(input.sequences), std::to_string(input.held_out),
                  std::to_string(input.blocks)});
  }
  return grid;
}

struct Section {
  std::string title;
  Grid grid;
};

void append_row(const CalibrationReport& report, const JudgedPosition& at, Grid& grid) {
  const FittedTemperature& fitted = report.temperatures[static_cast<std::size_t>(at.position) - 1];
  const std::pair<const char*, std::string> cells[] = {
      {"k", std::to_string(at.position)},
      {"temperature", fmt::format("{:.3f}", fitted.temperature)},
      {"blocks", std::to_string(at.before.blocks)},
      {"observed", decimals(at.before.observed)},
      {"predicted", decimals(at.before.predicted)},
      {"bias", signed_decimals(at.before.bias)},
      {"after", signed_decimals(at.after.bias)},
      {"ece", decimals(at.before.ece)},
      {"after", decimals(at.after.ece)},
      {"brier", decimals(at.before.brier)},
      {"after", decimals(at.after.brier)},
      {"auc", decimals(at.before.auc)},
      {"after", decimals(at.after.auc)}};
  if (grid.columns.empty()) {
    for (const auto& [header, cell] : cells) grid.columns.push_back({header, true, {}});
  }
  for (std::size_t i = 0; i < grid.columns.size(); ++i) {
    grid.columns[i].cells.push_back(cells[i].second);
  }
}

/// The part that was held out, or the fitted one where there is no other.
std::vector<Section> sections_of(const CalibrationReport& report) {
  std::vector<Section> sections;
  const SamplePart shown = report.held_out > 0 ? SamplePart::held_out : SamplePart::fit;
  for (const JudgedPosition& at : report.positions) {
    if (at.part != shown) continue;
    if (at.position == 1) {
      sections.push_back(
          {fmt::format("{}, {}", shown == SamplePart::fit ? "fitted (not judged)" : "held out",
                       at.domain ? escape_text(*at.domain) : "all"),
           {}});
    }
    append_row(report, at, sections.back().grid);
  }
  return sections;
}

std::string as_table(const CalibrationReport& report, const CalibrationRun& run) {
  std::string out;
  for (const std::string& line : preamble(report, run)) out += line + '\n';
  append_aligned(out, input_grid(report));
  for (const Section& section : sections_of(report)) {
    out += '\n' + section.title + '\n';
    append_aligned(out, section.grid);
  }
  return out;
}

std::string as_markdown(const CalibrationReport& report, const CalibrationRun& run) {
  std::string out;
  for (const std::string& line : preamble(report, run)) {
    if (!out.empty()) out += "  \n";  // two spaces: a line break
    out += markdown_text(line);
  }
  out += '\n';
  append_markdown(out, input_grid(report));
  for (const Section& section : sections_of(report)) {
    out += "\n### " + markdown_text(section.title) + '\n';
    append_markdown(out, section.grid);
  }
  return out;
}

}  // namespace

std::string render_calibration(const CalibrationReport& report, const CalibrationRun& run,
                               OutputFormat format) {
  switch (format) {
    case OutputFormat::table:
      return as_table(report, run);
    case OutputFormat::md:
      return as_markdown(report, run);
    case OutputFormat::csv:
      return as_csv(report);
    case OutputFormat::json:
      return as_json(report, run);
    case OutputFormat::jsonl:
      return as_jsonl(report, run);
  }
  throw internal_error("render_calibration", "unknown output format");
}

}  // namespace dspark
