#include "report/export_engines.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <variant>

#include "policy/width.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

using Json = nlohmann::ordered_json;

// The first parameter of that name: of a gate its own, then those of the policy inside.
template <class Value>
std::optional<Value> parameter(const PolicyResult& row, const char* name) {
  for (const auto& [key, value] : row.parameters) {
    if (key != name) continue;
    if (const auto* found = std::get_if<Value>(&value)) return *found;
    return std::nullopt;
  }
  return std::nullopt;
}

bool has_parameter(const PolicyResult& row, const char* name) {
  for (const auto& [key, value] : row.parameters) {
    if (key == name) return true;
  }
  return false;
}

// Widths agree for one request, unless all drafts are verified whatever the policy says.
bool is_width(const PolicyResult& row, const EngineContext& context, Width width) {
  if (context.cost.width == width_name(width)) return true;
  return row.concurrency == 1 && context.cost.width != width_name(Width::cap_accept);
}

// Equal lengths are ragged and uniform at once.
bool is_charged_as_fixed(std::int64_t length, const EngineContext& context) {
  return length == context.block_size || context.cost.width != width_name(Width::cap_accept);
}

std::optional<std::int64_t> charged_length(const PolicyResult& row, const EngineContext& context) {
  const std::optional<std::int64_t> length = fixed_length_of(row);
  if (!length || *length < 1 || !is_charged_as_fixed(*length, context)) return std::nullopt;
  return length;
}

bool is_full_block(const PolicyResult& row, const EngineContext& context) {
  return fixed_length_of(row) == std::int64_t{context.block_size};
}

bool is_edge_cost(const EngineContext& context) {
  constexpr LinearCost edge;
  const std::optional<LinearCost>& cost = context.linear;
  return cost && cost->draft == edge.draft && cost->verify_base == edge.verify_base &&
         cost->verify_token == edge.verify_token && cost->accept == edge.accept;
}

/// What `global` of the engines is asked for; empty for the other policies.
struct GlobalRow {
  std::int64_t lag = 0, min_length = 0;
  double min_gain = 0;
  bool tiers = false, fill_buckets = false;
};

std::optional<GlobalRow> global_of(const PolicyResult& row) {
  if (row.policy != "global") return std::nullopt;
  const auto lag = parameter<std::int64_t>(row, "lag");
  const auto min_length = parameter<std::int64_t>(row, "min_length");
  const auto min_gain = parameter<double>(row, "min_gain");
  if (!lag || !min_length || !min_gain) return std::nullopt;
  return GlobalRow{*lag, *min_length, *min_gain, has_parameter(row, "tiers"),
                   has_parameter(row, "fill_buckets")};
}

std::string edge_flags(const char* scheduler, double threshold, std::int64_t least,
                       std::int64_t most) {
  return fmt::format(
      "--dsparkScheduler {} --dsparkConfidenceThreshold {} --dsparkMinProposalLen {} "
      "--dsparkMaxProposalLen {}",
      scheduler, shortest(threshold), least, most);
}

// Every request by itself, as wide as the longest; at least one draft; no calibration.
std::optional<EngineSetting> edge_setting(const PolicyResult& row, const EngineContext& context) {
  EngineSetting setting;
  if (is_full_block(row, context)) {
    setting.flags = "--dsparkScheduler off";
    return setting;
  }
  if (const auto length = charged_length(row, context)) {
    setting.flags = edge_flags("threshold", 0, *length, *length);  // at 0 nothing is cut but by max
    return setting;
  }
  const bool cumulative =
      row.policy == "threshold" && parameter<std::string>(row, "rule") == "cumulative";
  const bool sps = row.policy == "sps" && is_edge_cost(context);  // its constants are built in
  const std::int64_t least = parameter<std::int64_t>(row, "min_length").value_or(0);
  if (!(cumulative || sps) || least < 1 || context.calibrated ||
      !is_width(row, context, Width::uniform)) {
    return std::nullopt;
  }
  const auto threshold = parameter<double>(row, sps ? "survival_floor" : "threshold");
  if (!threshold) return std::nullopt;
  const std::int64_t most = parameter<std::int64_t>(row, "max_length").value_or(context.block_size);
  setting.flags = edge_flags(sps ? "sps" : "threshold", *threshold, least, most);
  return setting;
}

std::optional<EngineSetting> sglang_setting(const PolicyResult& row, const EngineContext& context) {
  EngineSetting setting;
  setting.flags = fmt::format("--speculative-algorithm DSPARK --speculative-dspark-block-size {}",
                              context.block_size);
  if (is_full_block(row, context)) {
    setting.environment = "SGLANG_RAGGED_VERIFY_MODE=static";
    return setting;
  }
  const std::optional<GlobalRow> global = global_of(row);
  // With overlapped scheduling, its default, budgets are never less than two steps old.
  if (!global || global->lag != 2 || global->min_length != 0 || global->min_gain != 0 ||
      global->tiers || !context.has_sglang_table || !is_width(row, context, Width::ragged)) {
    return std::nullopt;
  }
  setting.environment = fmt::format(
      "SGLANG_RAGGED_VERIFY_MODE=compact SGLANG_DSPARK_CONFIDENCE_RELAY_LAG_STEPS={}", global->lag);
  setting.flags += fmt::format(" --speculative-dspark-sps-table-path {}", kSglangTable);
  if (context.calibrated) {
    setting.flags +=
        fmt::format(" --speculative-dspark-confidence-sts-path {}", kSglangCalibration);
  }
  if (global->fill_buckets) {
    setting.flags += " --speculative-dspark-align-verify-tokens-to-graph-tier";
  }
  return setting;
}

void add_calibration(EngineSetting& setting, const EngineContext& context) {
  if (context.calibrated) setting.options["confidence_calibration_path"] = kTensorrtCalibration;
}

std::optional<EngineSetting> tensorrt_setting(const PolicyResult& row,
                                              const EngineContext& context) {
  EngineSetting setting;
  Json& options = setting.options;
  if (const auto length = charged_length(row, context)) {
    options["max_draft_len"] = *length;
    return setting;
  }
  if (row.policy == "gate" && parameter<std::string>(row, "wrap") == "fixed") {
    const auto length = parameter<std::int64_t>(row, "length");
    const auto window = parameter<std::int64_t>(row, "window");
    const auto least = parameter<double>(row, "min_accepted");
    // It counts accepted drafts, and its threshold is at most 1.
    if (!length || *length < 1 || !is_charged_as_fixed(*length, context) || !window || !least ||
        *least < 0 || *least > 1) {
      return std::nullopt;
    }
    options["max_draft_len"] = *length;
    options["acceptance_rate_window_size"] = *window;
    options["acceptance_rate_threshold"] = *least;
    return setting;
  }
  if (!is_width(row, context, Width::ragged)) return std::nullopt;
  const std::optional<GlobalRow> global = global_of(row);
  if (global && global->lag >= 1 && global->min_length == 1 && !global->tiers &&
      !global->fill_buckets && context.has_tensorrt_table) {
    options["max_draft_len"] = context.block_size;
    options["enable_confidence_scheduling"] = true;
    options["confidence_cost_table_path"] = kTensorrtTable;
    add_calibration(setting, context);
    options["confidence_min_predicted_gain"] = global->min_gain;
    return setting;
  }
  // The exact table and its gain are the user's own.
  if (row.policy == "exact_table" && row.parameters.empty()) {
    options["max_draft_len"] = context.block_size;
    options["enable_confidence_scheduling"] = true;
    // It belongs to the engine and is not copied; a path that looks right could name another file.
    options["confidence_cost_table_path"] =
        "PATH OF YOUR " + escape_text(std::filesystem::path(context.cost.file).filename().string());
    add_calibration(setting, context);
    return setting;
  }
  return std::nullopt;
}

std::optional<EngineSetting> ascend_setting(const PolicyResult& row, const EngineContext& context) {
  EngineSetting setting;
  setting.options["num_speculative_tokens"] = context.block_size;
  if (is_full_block(row, context)) return setting;
  if (row.policy != "count_budget" || context.calibrated ||
      !is_width(row, context, Width::ragged)) {
    return std::nullopt;
  }
  const auto threshold = parameter<double>(row, "threshold");
  const auto refresh = parameter<std::int64_t>(row, "refresh");
  const auto initial = parameter<std::int64_t>(row, "initial");
  if (!threshold || !refresh || !initial) return std::nullopt;
  setting.options["policy"] = "confidence_budget";
  setting.options["budget_threshold"] = *threshold;
  setting.options["budget_update_interval"] = *refresh;
  setting.options["initial_verify_budget_per_req"] = *initial;
  return setting;
}

std::optional<EngineSetting> vllm_setting(const PolicyResult& row, const EngineContext& context) {
  EngineSetting setting;
  setting.options["num_speculative_tokens"] = context.block_size;
  setting.options["enable_adaptive_verification"] = false;
  if (is_full_block(row, context)) return setting;
  const std::optional<GlobalRow> global = global_of(row);
  // It measures its own costs: a linear model in units of its own says nothing about them.
  if (!global || global->lag < 1 || global->min_length != 0 || global->min_gain != 0 ||
      global->tiers || global->fill_buckets || context.calibrated || context.cost.linear ||
      !is_width(row, context, Width::ragged)) {
    return std::nullopt;
  }
  setting.options["enable_adaptive_verification"] = true;
  return setting;
}

// One request at a time, every confidence by itself.
std::optional<EngineSetting> deepspec_setting(const PolicyResult& row,
                                              const EngineContext& context) {
  if (row.concurrency != 1) return std::nullopt;
  double threshold = 0;
  if (!is_full_block(row, context)) {
    const auto given = parameter<double>(row, "threshold");
    if (row.policy != "threshold" || parameter<std::string>(row, "rule") != "per_position" ||
        parameter<std::int64_t>(row, "min_length") != 0 || has_parameter(row, "max_length") ||
        !given || !is_width(row, context, Width::ragged)) {
      return std::nullopt;
    }
    threshold = *given;
  }
  EngineSetting setting;
  setting.flags = fmt::format("--confidence-threshold {}", shortest(threshold));
  if (context.calibrated) {
    setting.flags += fmt::format(" --confidence-calibration-path {}", kDeepspecCalibration);
  }
  return setting;
}

}  // namespace

const std::vector<Engine>& engines() {
  static const std::vector<Engine> all = {Engine::edge_llm,    Engine::sglang, Engine::tensorrt_llm,
                                          Engine::vllm_ascend, Engine::vllm,   Engine::deepspec};
  return all;
}

const char* engine_name(Engine engine) {
  switch (engine) {
    case Engine::edge_llm:
      return "TensorRT-Edge-LLM";
    case Engine::sglang:
      return "SGLang";
    case Engine::tensorrt_llm:
      return "TensorRT-LLM";
    case Engine::vllm_ascend:
      return "vllm-ascend";
    case Engine::vllm:
      return "vLLM";
    case Engine::deepspec:
      return "DeepSpec";
  }
  throw internal_error("engine_name", "unknown engine");
}

std::string EngineSetting::text() const {
  if (!speculates) return "no speculation";
  std::string out = environment;
  if (!flags.empty()) out += (out.empty() ? "" : " ") + flags;
  for (const auto& [name, value] : options.items()) {
    out += (out.empty() ? "" : ", ") + name + "=" +
           (value.is_string() ? value.get<std::string>() : value.dump());
  }
  return out;
}

bool is_exportable(const PolicyResult& row) {
  return !row.bound && !row.off_policy && row.tokens_per_cost &&
         std::isfinite(*row.tokens_per_cost);
}

std::optional<std::int64_t> fixed_length_of(const PolicyResult& row) {
  if (row.policy != "fixed") return std::nullopt;
  return parameter<std::int64_t>(row, "length");
}

std::optional<EngineSetting> engine_setting(Engine engine, const PolicyResult& row,
                                            const EngineContext& context) {
  if (!is_exportable(row)) return std::nullopt;
  if (row.policy == "none") {
    if (engine == Engine::deepspec) return std::nullopt;  // it evaluates drafters
    EngineSetting setting;
    setting.speculates = false;
    return setting;
  }
  switch (engine) {
    case Engine::edge_llm:
      return edge_setting(row, context);
    case Engine::sglang:
      return sglang_setting(row, context);
    case Engine::tensorrt_llm:
      return tensorrt_setting(row, context);
    case Engine::vllm_ascend:
      return ascend_setting(row, context);
    case Engine::vllm:
      return vllm_setting(row, context);
    case Engine::deepspec:
      return deepspec_setting(row, context);
  }
  throw internal_error("engine_setting", "unknown engine");
}

}  // namespace dspark
