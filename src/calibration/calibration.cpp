#include "calibration/calibration.h"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>

#include "calibration/samples.h"
#include "support/error.h"
#include "support/json_reader.h"
#include "support/text_file.h"

namespace dspark {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;
constexpr std::int64_t kMaxCount = std::int64_t{1} << 53;
constexpr const char* kAdvice = "give a calibration file of SGLang, TensorRT-LLM or DeepSpec";

std::vector<double> numbers_of(const JsonNode& list) {
  std::vector<double> values;
  for (const JsonNode& item : list.items(kMaxCalibratedSlots)) values.push_back(item.number());
  return values;
}

std::vector<double> temperatures_of(const JsonNode& list) {
  std::vector<double> values;
  for (const JsonNode& item : list.items(kMaxCalibratedSlots)) values.push_back(item.positive());
  if (values.empty()) list.fail("this list is empty", "give one temperature per draft position");
  return values;
}

/// Empty where the key is not there; else as long as the temperatures.
std::vector<double> errors_of(const JsonNode& file, const char* key, std::size_t length) {
  const std::optional<JsonNode> list = file.find(key);
  if (!list) return {};
  std::vector<double> values = numbers_of(*list);
  if (!values.empty() && values.size() != length) {
    list->fail(fmt::format("{} numbers for {} temperatures", values.size(), length),
               "give one per draft position");
  }
  return values;
}

std::optional<std::int64_t> count_of(const JsonNode& file, const char* key) {
  const std::optional<JsonNode> count = file.find(key);
  if (!count) return std::nullopt;
  return count->integer(0, kMaxCount);
}

bool is_deepspec(const JsonNode& file) {
  for (const char* key : {"block_size", "num_bins", "grid", "num_records", "sources",
                          "cumulative_ece_before", "cumulative_ece_after"}) {
    if (file.has(key)) return true;
  }
  return false;
}

void read_deepspec(const JsonNode& file, Calibration& out) {
  const std::size_t length = out.temperatures.size();
  out.samples = count_of(file, "num_records");
  out.bins = count_of(file, "num_bins");
  if (const std::optional<JsonNode> grid = file.find("grid")) {
    out.grid = CalibrationGrid{grid->require("min").number(), grid->require("max").number(),
                               grid->require("size").integer(0, kMaxCount)};
  }
  if (const std::optional<JsonNode> sources = file.find("sources")) {
    for (const JsonNode& source : sources->items(kMaxJsonValues)) {
      out.origins.push_back(source.text());
    }
  }
  out.ece_before = errors_of(file, "cumulative_ece_before", length);
  out.ece_after = errors_of(file, "cumulative_ece_after", length);
  const std::optional<std::int64_t> block_size = count_of(file, "block_size");
  if (block_size && *block_size != static_cast<std::int64_t>(length)) {
    file.require("block_size")
        .fail(fmt::format("{} does not go with {} temperatures", *block_size, length),
              "one of them is wrong");
  }
}

void read_sglang(const JsonNode& file, Calibration& out) {
  if (const std::optional<JsonNode> dataset = file.find("dataset")) out.dataset = dataset->text();
  out.samples = count_of(file, "num_samples");
  out.ece_before = errors_of(file, "ece_before", out.temperatures.size());
  out.ece_after = errors_of(file, "ece_after", out.temperatures.size());
}

using Json = nlohmann::ordered_json;

template <class List>
void put(Json& json, const char* key, const List& list) {
  if (!list.empty()) json[key] = list;
}
template <class Number>
void put(Json& json, const char* key, const std::optional<Number>& number) {
  if (number) json[key] = *number;
}

}  // namespace

const char* format_name(CalibrationFormat format) {
  switch (format) {
    case CalibrationFormat::sglang:
      return "sglang";
    case CalibrationFormat::trtllm:
      return "trtllm";
    case CalibrationFormat::deepspec:
      return "deepspec";
  }
  throw internal_error("format_name", "unknown calibration format");
}

Calibration parse_calibration(const std::string& text, const std::string& file,
                              std::optional<std::int32_t> block_size) {
  if (text.size() > kMaxFileBytes) throw policy_error(file, "larger than 1 MiB", kAdvice);
  const nlohmann::json document = parse_json(text, file);
  const JsonNode root(document, file);
  const std::optional<JsonNode> plain = root.find("temperatures");
  const std::optional<JsonNode> sts = root.find("sts_temperatures");
  if (!plain && !sts) {
    root.fail("neither 'temperatures' nor 'sts_temperatures' is there", kAdvice);
  }
  const JsonNode& list = plain ? *plain : *sts;
  Calibration out;
  out.source = file;
  out.temperatures = temperatures_of(list);
  if (plain && sts && temperatures_of(*sts) != out.temperatures) {
    sts->fail("this is not what 'temperatures' says", "leave one of them out");
  }
  if (block_size && static_cast<std::size_t>(*block_size) != out.temperatures.size()) {
    list.fail(fmt::format("{} temperatures for blocks of {} drafts", out.temperatures.size(),
                          *block_size),
              "give the calibration of this drafter");
  }
  if (is_deepspec(root)) {
    out.format = CalibrationFormat::deepspec;
    read_deepspec(root, out);
  } else if (!plain) {
    out.format = CalibrationFormat::trtllm;
  } else {
    read_sglang(root, out);
  }
  return out;
}

Calibration read_calibration(const std::string& file, std::optional<std::int32_t> block_size) {
  return parse_calibration(read_text_file(file, kMaxFileBytes, "calibration file"),
                           text_file_name(file), block_size);
}

std::string calibration_text(const Calibration& calibration) {
  Json json;
  switch (calibration.format) {
    case CalibrationFormat::sglang:
      json["temperatures"] = calibration.temperatures;
      put(json, "dataset", calibration.dataset);
      put(json, "num_samples", calibration.samples);
      put(json, "ece_before", calibration.ece_before);
      put(json, "ece_after", calibration.ece_after);
      break;
    case CalibrationFormat::trtllm:
      json["sts_temperatures"] = calibration.temperatures;
      break;
    case CalibrationFormat::deepspec:
      json["temperatures"] = calibration.temperatures;
      json["block_size"] = calibration.temperatures.size();
      put(json, "num_bins", calibration.bins);
      if (calibration.grid) {
        json["grid"] = {{"min", calibration.grid->min},
                        {"max", calibration.grid->max},
                        {"size", calibration.grid->size}};
      }
      put(json, "num_records", calibration.samples);
      put(json, "sources", calibration.origins);
      put(json, "cumulative_ece_before", calibration.ece_before);
      put(json, "cumulative_ece_after", calibration.ece_after);
      break;
  }
  // File names need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace dspark
