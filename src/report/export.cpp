#include "report/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "calibration/calibration.h"
#include "report/export_choices.h"
#include "report/export_engines.h"
#include "report/export_readme.h"
#include "report/export_tables.h"
#include "report/words.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kReadme = "README.md";

/// The files of one engine that there is one of for each setting: NAME, suffix, extension.
struct SettingFile {
  const char* name;
  const char* extension;
};
constexpr SettingFile kEdge = {"edge_llm", ".sh"};
constexpr SettingFile kSglang = {"sglang", ".sh"};
constexpr SettingFile kTensorrtJson = {"trtllm", ".json"};
constexpr SettingFile kTensorrtPython = {"trtllm", ".py"};
constexpr SettingFile kDeepspec = {"deepspec", ".sh"};

std::string name_of(const SettingFile& file, const ExportSetting& setting) {
  return file.name + setting.suffix + file.extension;
}

std::string json_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// --- shell files ---

/// Lines of assignments by requests in flight.
class ShellFile {
 public:
  ShellFile(const std::string& about, const ExportSetting& setting)
      : text_(fmt::format("# {}\n# {}\n# shellcheck shell=sh disable=SC2034\n", about,
                          setting.title)) {}

  void add_choice(const ExportColumn& column, const EngineChoice& choice, const CostSummary& cost) {
    text_ += fmt::format("\n# {}: {}, {}\n", counted(column.requests, "request"),
                         policy_text(*choice.row), expectation_text(*choice.row, cost));
  }
  void add_comment(const std::string& text) { text_ += "# " + text + "\n"; }
  void assign(const std::string& name, std::int32_t requests, const std::string& words) {
    text_ += fmt::format("{}_{}='{}'\n", name, requests, words);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string edge_text(const ExportSetting& setting, const CostSummary& cost) {
  ShellFile file("TensorRT-Edge-LLM: flags of its DSpark scheduler, by requests in flight.",
                 setting);
  for (const ExportColumn& column : setting.columns) {
    const EngineChoice* choice = choice_of(column, Engine::edge_llm);
    if (choice == nullptr) continue;
    file.add_choice(column, *choice, cost);
    if (!choice->setting.speculates) file.add_comment("Leave --specDecode out.");
    file.assign("EDGE_LLM_FLAGS", column.requests, choice->setting.flags);
  }
  return file.text();
}

std::string sglang_text(const ExportSetting& setting, const CostSummary& cost) {
  ShellFile file("SGLang: environment and flags of the server, by requests in flight.", setting);
  for (const ExportColumn& column : setting.columns) {
    const EngineChoice* choice = choice_of(column, Engine::sglang);
    if (choice == nullptr) continue;
    file.add_choice(column, *choice, cost);
    if (!choice->setting.speculates) file.add_comment("Leave --speculative-algorithm out.");
    file.assign("SGLANG_ENV", column.requests, choice->setting.environment);
    file.assign("SGLANG_FLAGS", column.requests, choice->setting.flags);
  }
  return file.text();
}

std::string deepspec_text(const ExportSetting& setting, const CostSummary& cost) {
  ShellFile file("DeepSpec: flags of its evaluation, one request at a time.", setting);
  for (const ExportColumn& column : setting.columns) {
    const EngineChoice* choice = choice_of(column, Engine::deepspec);
    if (choice == nullptr) continue;
    file.add_choice(column, *choice, cost);
    file.assign("DEEPSPEC_FLAGS", column.requests, choice->setting.flags);
  }
  return file.text();
}

// --- TensorRT-LLM ---

/// draft_len_schedule: lengths by the fewest requests that have them. Key 1 is always there.
using Schedule = std::vector<std::pair<std::int32_t, std::int64_t>>;

// Empty where nothing would be drafted at all.
Schedule schedule_of(const ExportSetting& setting) {
  Schedule out;
  for (const ExportColumn& column : setting.columns) {
    if (!column.scheduled) continue;
    const std::int64_t length = column.scheduled->length;
    if (out.empty()) {
      out.emplace_back(1, length);
    } else if (out.back().second != length) {
      out.emplace_back(column.requests, length);
    }
  }
  if (!out.empty() && out.front().second == 0) out.clear();
  return out;
}

std::string tensorrt_json(const ExportSetting& setting) {
  Json file = Json::object();
  const Schedule schedule = schedule_of(setting);
  if (!schedule.empty()) {
    Json lengths = Json::object();
    for (const auto& [requests, length] : schedule) lengths[std::to_string(requests)] = length;
    file["max_draft_len"] = schedule.front().second;
    file["draft_len_schedule"] = std::move(lengths);
  }
  Json& best = file["by_requests"] = Json::object();
  for (const ExportColumn& column : setting.columns) {
    const EngineChoice* choice = choice_of(column, Engine::tensorrt_llm);
    if (choice == nullptr) continue;
    best[std::to_string(column.requests)] =
        choice->setting.speculates ? choice->setting.options : Json(nullptr);
  }
  return json_text(file);
}

std::string python_value(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string python_call(const Json& options) {
  std::string out;
  for (const auto& [name, value] : options.items()) {
    out += (out.empty() ? "" : ", ") + name + "=" + python_value(value);
  }
  return "dict(" + out + ")";
}

std::string tensorrt_python(const ExportSetting& setting, const CostSummary& cost) {
  std::string out =
      fmt::format("# TensorRT-LLM: arguments of DSparkDecodingConfig.\n# {}\n", setting.title);
  const Schedule schedule = schedule_of(setting);
  out += "\n# The length of all requests of a batch, by requests in flight; 0: no speculation.\n";
  if (schedule.empty()) {
    out += "SCHEDULE = None  # no length that could be priced beats decoding without speculation\n";
  } else {
    std::string lengths;
    for (const auto& [requests, length] : schedule) {
      lengths += fmt::format("{}{}: {}", lengths.empty() ? "" : ", ", requests, length);
    }
    out += fmt::format("SCHEDULE = dict(max_draft_len={}, draft_len_schedule={{{}}})\n",
                       schedule.front().second, lengths);
  }
  out +=
      "\n# The best for one number of requests in flight; None: no speculation.\nBY_REQUESTS = {\n";
  for (const ExportColumn& column : setting.columns) {
    const EngineChoice* choice = choice_of(column, Engine::tensorrt_llm);
    if (choice == nullptr) continue;
    out += fmt::format(
        "    # {}, {}\n    {}: {},\n", policy_text(*choice->row),
        expectation_text(*choice->row, cost), column.requests,
        choice->setting.speculates ? python_call(choice->setting.options) : std::string("None"));
  }
  return out + "}\n";
}

// The one minimum gain of all rows that read the table; empty where they differ, or there are none.
std::optional<double> common_min_gain(const std::vector<ExportSetting>& settings) {
  std::set<double> gains;
  for (const ExportSetting& setting : settings) {
    for (const ExportColumn& column : setting.columns) {
      const EngineChoice* choice = choice_of(column, Engine::tensorrt_llm);
      if (choice == nullptr) continue;
      const auto gain = choice->setting.options.find("confidence_min_predicted_gain");
      if (gain != choice->setting.options.end()) gains.insert(gain->get<double>());
    }
  }
  if (gains.size() != 1) return std::nullopt;
  return *gains.begin();
}

// --- cost tables ---

// Equal for all traces, or 0.
std::int32_t common_block_size(const ReplayResult& result) {
  std::int32_t common = 0;
  for (const TraceSummary& trace : result.traces) {
    if (common != 0 && trace.block_size != common) return 0;
    common = trace.block_size;
  }
  return common;
}

TableRange range_of(const ReplayResult& result, std::int32_t block_size) {
  std::set<std::int32_t> requests;
  for (const PolicyResult& row : result.results) requests.insert(row.concurrency);
  return {{requests.begin(), requests.end()}, block_size};
}

ExportedTable make_table(const char* name, const CostModel& cost, CostFormat format,
                         const TableRange& range) {
  try {
    return {name, make_engine_table(cost, format, range), {}};
  } catch (const Error& error) {
    if (error.code() != ExitCode::policy) throw;
    return {name, std::nullopt, fmt::format("{} cannot hold the table", cost_format_name(format))};
  }
}

// In the order SGLang, TensorRT-LLM, vllm-ascend; or none.
std::vector<ExportedTable> make_tables(const ReplayResult& result, const CostModel& cost) {
  const std::int32_t block_size = common_block_size(result);
  if (cost.table() == nullptr || block_size == 0) return {};
  const TableRange range = range_of(result, block_size);
  return {make_table(kSglangTable, cost, sglang_format(cost, range), range),
          make_table(kTensorrtTable, cost, CostFormat::trtllm, range),
          make_table(kAscendProfile, cost, CostFormat::vllm_ascend, range)};
}

void set_confidence_temperatures(CostTable& profile, std::span<const double> temperatures) {
  if (temperatures.empty()) return;
  constexpr const char* key = "confidence_temperatures";
  std::erase_if(profile.carried, [&](const auto& entry) { return entry.first == key; });
  profile.carried.emplace_back(
      key, Json(std::vector<double>(temperatures.begin(), temperatures.end())).dump());
}

// --- all files ---

class Export {
 public:
  Export(const ReplayResult& result, const CostModel& cost, std::span<const double> temperatures)
      : result_(result),
        cost_(cost),
        temperatures_(temperatures),
        tables_(make_tables(result, cost)) {
    context_.cost = result.cost;
    context_.linear = cost.linear();
    context_.calibrated = !temperatures.empty();
    context_.has_sglang_table = !tables_.empty() && tables_[0].table;
    context_.has_tensorrt_table = !tables_.empty() && tables_[1].table;
    settings_ = choose_export(result, context_);
  }

  [[nodiscard]] std::vector<ExportFile> files() {
    for (const ExportSetting& setting : settings_) add_setting(setting);
    add_tables();
    add_calibrations();
    about_.push_back({kReadme, "this page"});
    std::sort(about_.begin(), about_.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    files_.push_back({kReadme, export_readme({result_, cost_, context_, settings_, about_, tables_,
                                              temperatures_})});
    std::sort(files_.begin(), files_.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return std::move(files_);
  }

 private:
  void add(const std::string& name, const std::string& about, std::string content) {
    about_.push_back({name, about});
    files_.push_back({name, std::move(content)});
  }

  void add_setting(const ExportSetting& setting) {
    const auto runs = [&](Engine engine) {
      return std::any_of(
          setting.columns.begin(), setting.columns.end(),
          [&](const ExportColumn& column) { return choice_of(column, engine) != nullptr; });
    };
    if (runs(Engine::edge_llm)) {
      add(name_of(kEdge, setting), "TensorRT-Edge-LLM: flags, by requests in flight",
          edge_text(setting, result_.cost));
    }
    if (runs(Engine::sglang)) {
      add(name_of(kSglang, setting), "SGLang: environment and flags, by requests in flight",
          sglang_text(setting, result_.cost));
    }
    if (runs(Engine::tensorrt_llm)) {
      add(name_of(kTensorrtJson, setting),
          "TensorRT-LLM: draft_len_schedule, and the best by requests in flight",
          tensorrt_json(setting));
      add(name_of(kTensorrtPython, setting), "the same as arguments in Python",
          tensorrt_python(setting, result_.cost));
    }
    if (runs(Engine::deepspec)) {
      add(name_of(kDeepspec, setting), "DeepSpec: flags of its evaluation",
          deepspec_text(setting, result_.cost));
    }
  }

  void add_tables() {
    constexpr std::array about = {"SGLang: cost table", "TensorRT-LLM: cost table",
                                  "vllm-ascend: hardware profile"};
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      if (!tables_[i].table) continue;
      CostTable& table = tables_[i].table->table;
      // Beside a minimum gain of the run the one of the source means nothing.
      if (const auto gain = common_min_gain(settings_);
          gain && table.format == CostFormat::trtllm) {
        table.min_predicted_gain = gain;
      }
      if (table.format == CostFormat::vllm_ascend) {
        set_confidence_temperatures(table, temperatures_);
      }
      add(tables_[i].name, about[i], write_cost_table(table));
    }
  }

  void add_calibrations() {
    if (temperatures_.empty()) return;
    Calibration calibration;
    calibration.temperatures.assign(temperatures_.begin(), temperatures_.end());
    const auto add_as = [&](CalibrationFormat format, const char* name, const char* about) {
      calibration.format = format;
      add(name, about, calibration_text(calibration));
    };
    add_as(CalibrationFormat::sglang, kSglangCalibration, "SGLang: temperatures");
    add_as(CalibrationFormat::trtllm, kTensorrtCalibration, "TensorRT-LLM: temperatures");
    add_as(CalibrationFormat::deepspec, kDeepspecCalibration, "DeepSpec: temperatures");
  }

  const ReplayResult& result_;
  const CostModel& cost_;
  std::span<const double> temperatures_;
  std::vector<ExportedTable> tables_;
  EngineContext context_;
  std::vector<ExportSetting> settings_;
  std::vector<ExportedFile> about_;
  std::vector<ExportFile> files_;
};

}  // namespace

std::vector<ExportFile> export_settings(const ReplayResult& result, const CostModel& cost,
                                        std::span<const double> temperatures) {
  return Export(result, cost, temperatures).files();
}

bool is_export_name(std::string_view name) {
  for (const char* fixed : {kReadme, kSglangTable, kSglangCalibration, kTensorrtTable,
                            kTensorrtCalibration, kAscendProfile, kDeepspecCalibration}) {
    if (name == fixed) return true;
  }
  for (const SettingFile& file : {kEdge, kSglang, kTensorrtJson, kTensorrtPython, kDeepspec}) {
    if (!name.starts_with(file.name) || !name.ends_with(file.extension)) continue;
    const std::string_view rest = name.substr(std::string_view(file.name).size());
    if (rest == file.extension) return true;
    const std::string_view number =
        rest.substr(0, rest.size() - std::string_view(file.extension).size());
    const bool is_number = number.size() > 1 && number.front() == '_' &&
                           number.find_first_not_of("0123456789", 1) == std::string_view::npos;
    if (is_number) return true;
  }
  return false;
}

}  // namespace dspark
