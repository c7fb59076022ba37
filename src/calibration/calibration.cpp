#include "calibration/calibration.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "calibration/samples.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

std::string read_text(const std::string& file) {
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  if (stream) stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || (!stream && !stream.eof())) {
    throw policy_error(file, fmt::format("cannot be read: {}", std::strerror(errno)),
                       "give a calibration file");
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kMaxFileBytes) {
    throw policy_error(file, "is larger than 1 MiB", "give a calibration file");
  }
  return text;
}

/// The keys of one file, with messages that name them.
class Fields {
 public:
  Fields(const std::string& text, const std::string& file) : file_(file) {
    std::set<std::string> seen;
    std::string twice;
    const auto watch_keys = [&](int depth, Json::parse_event_t event, Json& value) {
      if (event != Json::parse_event_t::key || depth != 1) return true;
      const auto key = value.get<std::string>();
      if (!seen.insert(key).second && twice.empty()) twice = key;
      return true;
    };
    try {
      json_ = Json::parse(text, watch_keys);
    } catch (const Json::exception&) {
      // What the parser says names its internals; the place is what helps.
      throw policy_error(file, "is no valid JSON", kAdvice);
    }
    if (!json_.is_object()) throw policy_error(file, "is no JSON object", kAdvice);
    if (!twice.empty()) fail(twice, "is there twice", "give it once");
  }

  [[nodiscard]] bool has(const char* key) const { return json_.contains(key); }

  [[nodiscard]] std::vector<double> temperatures(const char* key) const {
    std::vector<double> values = numbers(key);
    if (values.empty()) fail(key, "is empty", "give one temperature per draft position");
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] > 0) continue;
      fail(fmt::format("{}[{}]", key, i), fmt::format("is {}", shortest(values[i])),
           "a temperature is above 0");
    }
    return values;
  }

  /// Empty where the key is not there; else as long as the temperatures.
  [[nodiscard]] std::vector<double> errors(const char* key, std::size_t length) const {
    if (!has(key)) return {};
    std::vector<double> values = numbers(key);
    if (!values.empty() && values.size() != length) {
      fail(key, fmt::format("has {} numbers for {} temperatures", values.size(), length),
           "give one per draft position");
    }
    return values;
  }

  [[nodiscard]] std::optional<std::int64_t> count(const char* key) const {
    if (!has(key)) return std::nullopt;
    return count_in(json_, key, key);
  }

  [[nodiscard]] std::string text(const char* key) const {
    if (!has(key)) return {};
    if (!json_[key].is_string()) fail(key, "is no text", kAdvice);
    return json_[key].get<std::string>();
  }

  [[nodiscard]] std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> out;
    if (!has(key)) return out;
    if (!json_[key].is_array()) fail(key, "is no list", kAdvice);
    for (const Json& item : json_[key]) {
      if (!item.is_string()) fail(key, "has an entry that is no text", kAdvice);
      out.push_back(item.get<std::string>());
    }
    return out;
  }

  [[nodiscard]] std::optional<CalibrationGrid> grid() const {
    if (!has("grid")) return std::nullopt;
    const Json& grid = json_["grid"];
    for (const char* key : {"min", "max", "size"}) {
      if (!grid.is_object() || !grid.contains(key)) {
        fail("grid", fmt::format("has no '{}'", key), "give min, max and size");
      }
    }
    return CalibrationGrid{number(grid["min"], "grid.min"), number(grid["max"], "grid.max"),
                           *count_in(grid, "size", "grid.size")};
  }

  [[noreturn]] void fail(const std::string& key, const std::string& what,
                         const std::string& remedy) const {
    throw policy_error(fmt::format("{}: {}", file_, key), what, remedy);
  }

  static constexpr const char* kAdvice =
      "give a calibration file of SGLang, TensorRT-LLM or DeepSpec";

 private:
  [[nodiscard]] double number(const Json& value, const std::string& name) const {
    const double out = value.is_number() ? value.get<double>() : std::nan("");
    if (!std::isfinite(out)) fail(name, "is no finite number", "give a number");
    return out;
  }

  [[nodiscard]] std::optional<std::int64_t> count_in(const Json& object, const char* key,
                                                     const std::string& name) const {
    const Json& value = object[key];
    // An unsigned number above 2^63 would turn negative.
    if (!value.is_number_integer() || value.get<std::int64_t>() < 0) {
      fail(name, "is no whole number from 0", "give a count");
    }
    return value.get<std::int64_t>();
  }

  [[nodiscard]] std::vector<double> numbers(const char* key) const {
    const Json& list = json_[key];
    if (!list.is_array()) fail(key, "is no list", "give one number per draft position");
    if (list.size() > static_cast<std::size_t>(kMaxCalibratedSlots)) {
      fail(key, fmt::format("has {} numbers", list.size()),
           fmt::format("a block has at most {} drafts", kMaxCalibratedSlots));
    }
    std::vector<double> values;
    for (const Json& item : list) {
      values.push_back(number(item, fmt::format("{}[{}]", key, values.size())));
    }
    return values;
  }

  std::string file_;
  Json json_;
};

bool is_deepspec(const Fields& fields) {
  for (const char* key : {"block_size", "num_bins", "grid", "num_records", "sources",
                          "cumulative_ece_before", "cumulative_ece_after"}) {
    if (fields.has(key)) return true;
  }
  return false;
}

void read_deepspec(const Fields& fields, Calibration& out) {
  const std::size_t length = out.temperatures.size();
  out.samples = fields.count("num_records");
  out.bins = fields.count("num_bins");
  out.grid = fields.grid();
  out.origins = fields.texts("sources");
  out.ece_before = fields.errors("cumulative_ece_before", length);
  out.ece_after = fields.errors("cumulative_ece_after", length);
  const std::optional<std::int64_t> block_size = fields.count("block_size");
  if (block_size && *block_size != static_cast<std::int64_t>(length)) {
    fields.fail("block_size", fmt::format("is {} for {} temperatures", *block_size, length),
                "one of them is wrong");
  }
}

void read_sglang(const Fields& fields, Calibration& out) {
  out.dataset = fields.text("dataset");
  out.samples = fields.count("num_samples");
  out.ece_before = fields.errors("ece_before", out.temperatures.size());
  out.ece_after = fields.errors("ece_after", out.temperatures.size());
}

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
  const Fields fields(text, file);
  const bool has_sts = fields.has("sts_temperatures");
  if (!has_sts && !fields.has("temperatures")) {
    throw policy_error(file, "has neither 'temperatures' nor 'sts_temperatures'", Fields::kAdvice);
  }
  const char* const key = has_sts ? "sts_temperatures" : "temperatures";
  Calibration out;
  out.source = file;
  out.temperatures = fields.temperatures(key);
  if (has_sts && fields.has("temperatures") &&
      fields.temperatures("temperatures") != out.temperatures) {
    fields.fail("sts_temperatures", "is not what 'temperatures' says", "leave one of them out");
  }
  if (block_size && static_cast<std::size_t>(*block_size) != out.temperatures.size()) {
    fields.fail(key,
                fmt::format("has {} temperatures for blocks of {} drafts", out.temperatures.size(),
                            *block_size),
                "give the calibration of this drafter");
  }
  if (is_deepspec(fields)) {
    out.format = CalibrationFormat::deepspec;
    read_deepspec(fields, out);
  } else if (has_sts && !fields.has("temperatures")) {
    out.format = CalibrationFormat::trtllm;
  } else {
    read_sglang(fields, out);
  }
  return out;
}

Calibration read_calibration(const std::string& file, std::optional<std::int32_t> block_size) {
  return parse_calibration(read_text(file), file, block_size);
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
