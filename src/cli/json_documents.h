// Reports of several files as JSON: one document, or one object per line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dspark {

using JsonObject = nlohmann::ordered_json;

/// {"format", "format_version": 1}
[[nodiscard]] inline JsonObject json_header(const char* format) {
  JsonObject header;
  header["format"] = format;
  header["format_version"] = 1;
  return header;
}

/// The header's fields, and the reports as the list `plural`; `add(object, report)` fills one.
template <class Report, class Add>
[[nodiscard]] std::string json_document(const char* format, const char* plural,
                                        const std::vector<Report>& reports, const Add& add) {
  JsonObject out = json_header(format);
  out[plural] = JsonObject::array();
  for (const Report& report : reports) {
    JsonObject object;
    add(object, report);
    out[plural].push_back(std::move(object));
  }
  return out.dump(2) + "\n";
}

/// A line {"type": "header", ...}, and one {"type": singular, ...} for each report.
template <class Report, class Add>
[[nodiscard]] std::string json_lines(const char* format, const char* singular,
                                     const std::vector<Report>& reports, const Add& add) {
  JsonObject header;
  header["type"] = "header";
  header.update(json_header(format));
  std::string text = header.dump() + "\n";
  for (const Report& report : reports) {
    JsonObject object;
    object["type"] = singular;
    add(object, report);
    text += object.dump() + "\n";
  }
  return text;
}

}  // namespace dspark
