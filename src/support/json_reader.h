// JSON files of the engines: parsed strictly and with bounds, read with errors that name the file
// and the key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dspark {

/// Bounds on what is read, so that a file from a stranger costs little.
inline constexpr std::size_t kMaxJsonBytes = std::size_t{64} << 20;
inline constexpr std::size_t kMaxJsonDepth = 32;
inline constexpr std::size_t kMaxJsonValues = 2'000'000;

/// Parses one document. Throws Error(policy) with file:line:column and, where there is one, the key
/// for anything that is no JSON (NaN and Infinity are none), a key given twice in one object, and
/// what goes beyond the bounds above. `name` stands in messages.
[[nodiscard]] nlohmann::json parse_json(std::string_view text, const std::string& name);

/// A value of a document and the way to it ("cost_tables.16.step_time_ms[3]"). Every getter throws
/// Error(policy) that names the file, that path and what belongs there. Refers to the document and
/// to the file's name, which must outlive it.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, const std::string& file, std::string path = {});

  /// Throws Error(policy) about this value.
  [[noreturn]] void fail(const std::string& what, const std::string& remedy) const;

  [[nodiscard]] const nlohmann::json& json() const { return *value_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool is_object() const;
  [[nodiscard]] bool is_list() const;

  /// Of an object: the keys, sorted; the value of a key; the value of a key that must be there.
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] bool has(const std::string& key) const;
  [[nodiscard]] std::optional<JsonNode> find(const std::string& key) const;
  [[nodiscard]] JsonNode require(const std::string& key) const;
  /// Refuses keys other than these.
  void check_keys(const std::vector<std::string_view>& known) const;

  /// Of a list: its values; refuses more than `most`.
  [[nodiscard]] std::vector<JsonNode> items(std::size_t most) const;

  /// A finite number (a boolean or a text is none).
  [[nodiscard]] double number() const;
  [[nodiscard]] double positive() const;
  [[nodiscard]] double not_negative() const;
  /// A whole number written as one, within bounds.
  [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most) const;
  [[nodiscard]] std::string text() const;
  /// A text of 64 hexadecimal digits, lower case.
  [[nodiscard]] std::string sha256() const;

 private:
  [[nodiscard]] JsonNode child(const nlohmann::json& value, const std::string& key) const;
  const nlohmann::json* value_;
  const std::string* file_;
  std::string path_;
};

}  // namespace dspark
