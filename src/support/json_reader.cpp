#include "support/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

using Json = nlohmann::json;

std::string join_path(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

// Follows the parser through the document: where it is, and whether it stays within the bounds.
class Watch {
 public:
  explicit Watch(const std::string& name) : name_(name) {}

  bool operator()(Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        count();
        open_.push_back({event == Json::parse_event_t::array_start, 0, {}, {}});
        if (open_.size() > kMaxJsonDepth) {
          fail(fmt::format("more than {} levels of lists and objects", kMaxJsonDepth));
        }
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        open_.pop_back();
        go_on();
        break;
      case Json::parse_event_t::key:
        open_.back().key = parsed.get<std::string>();
        if (!open_.back().keys.insert(open_.back().key).second) {
          throw policy_error(fmt::format("{}: {}", name_, path()), "this key is given twice",
                             "keep one of the two");
        }
        break;
      case Json::parse_event_t::value:
        count();
        go_on();
        break;
    }
    return true;
  }

  [[nodiscard]] std::string path() const {
    std::string out;
    for (const Level& level : open_) {
      if (level.is_list) {
        out += fmt::format("[{}]", level.index);
      } else if (!level.key.empty()) {
        out = join_path(out, level.key);
      }
    }
    return out;
  }

 private:
  struct Level {
    bool is_list = false;
    std::size_t index = 0;
    std::string key;
    std::set<std::string> keys;
  };

  void go_on() {
    if (!open_.empty() && open_.back().is_list) ++open_.back().index;
  }
  void count() {
    if (++values_ > kMaxJsonValues) fail(fmt::format("more than {} values", kMaxJsonValues));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw policy_error(name_, what, "give the table of one engine");
  }

  const std::string& name_;
  std::vector<Level> open_;
  std::size_t values_ = 0;
};

// "line:column" of a byte.
std::string place_of(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte);
  const std::size_t newline = before.rfind('\n');
  const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
  return fmt::format("{}:{}", 1 + std::count(before.begin(), before.end(), '\n'), byte - start + 1);
}

// What is wrong at the byte where the parser stopped.
std::string complaint_at(std::string_view text, std::size_t byte) {
  // The parser stops within the word, so its beginning is looked for.
  std::size_t start = std::min(byte, text.size());
  while (start > 0 && std::isalpha(static_cast<unsigned char>(text[start - 1])) != 0) --start;
  for (const std::string_view word : {"NaN", "Infinity"}) {
    if (text.substr(start, word.size()) == word) return fmt::format("{} is not a number", word);
  }
  return byte >= text.size() ? "the file ends too early" : "this is not JSON";
}

}  // namespace

Json parse_json(std::string_view text, const std::string& name) {
  if (text.size() > kMaxJsonBytes) {
    throw policy_error(name, fmt::format("larger than {}", human_bytes(kMaxJsonBytes)),
                       "give the table of one engine");
  }
  Watch watch(name);
  try {
    return Json::parse(text.begin(), text.end(),
                       [&watch](int, Json::parse_event_t event, const Json& parsed) {
                         return watch(event, parsed);
                       });
  } catch (const Json::parse_error& error) {
    const std::size_t byte = error.byte > 0 ? error.byte - 1 : 0;
    const std::string key = watch.path();
    throw policy_error(fmt::format("{}:{}", name, place_of(text, std::min(byte, text.size()))),
                       (key.empty() ? "" : key + ": ") + complaint_at(text, byte),
                       "give one JSON document");
  } catch (const Json::exception&) {  // a number beyond the range of double
    throw policy_error(fmt::format("{}: {}", name, watch.path()), "this number is too large",
                       "give a finite number");
  }
}

JsonNode::JsonNode(const Json& value, const std::string& file, std::string path)
    : value_(&value), file_(&file), path_(std::move(path)) {}

void JsonNode::fail(const std::string& what, const std::string& remedy) const {
  throw policy_error(path_.empty() ? *file_ : fmt::format("{}: {}", *file_, path_), what, remedy);
}

bool JsonNode::is_object() const { return value_->is_object(); }
bool JsonNode::is_list() const { return value_->is_array(); }

JsonNode JsonNode::child(const Json& value, const std::string& key) const {
  return {value, *file_, join_path(path_, key)};
}

std::vector<std::string> JsonNode::keys() const {
  if (!is_object()) fail("this is not an object", "give one: {\"key\": value}");
  std::vector<std::string> keys;
  for (const auto& entry : value_->items()) keys.push_back(entry.key());
  return keys;
}

bool JsonNode::has(const std::string& key) const { return value_->contains(key); }

std::optional<JsonNode> JsonNode::find(const std::string& key) const {
  if (!is_object()) fail("this is not an object", "give one: {\"key\": value}");
  const auto found = value_->find(key);
  if (found == value_->end()) return std::nullopt;
  return child(*found, key);
}

JsonNode JsonNode::require(const std::string& key) const {
  std::optional<JsonNode> found = find(key);
  if (!found) fail(fmt::format("'{}' is missing", key), "add it");
  return *std::move(found);
}

void JsonNode::check_keys(const std::vector<std::string_view>& known) const {
  std::string names;
  for (const std::string_view name : known) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  for (const std::string& key : keys()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      child(value_->at(key), key).fail("unknown key", fmt::format("the keys are {}", names));
    }
  }
}

std::vector<JsonNode> JsonNode::items(std::size_t most) const {
  if (!is_list()) fail("this is not a list", "give one: [1, 2, 4]");
  if (value_->size() > most) {
    fail(fmt::format("{} entries are too many", value_->size()),
         fmt::format("give at most {}", most));
  }
  std::vector<JsonNode> items;
  items.reserve(value_->size());
  for (const Json& value : *value_) {
    items.emplace_back(value, *file_, fmt::format("{}[{}]", path_, items.size()));
  }
  return items;
}

double JsonNode::number() const {
  if (!value_->is_number()) fail("this is not a number", "give a finite number");
  const auto value = value_->get<double>();
  if (!std::isfinite(value)) fail("this number is not finite", "give a finite number");
  return value;
}

double JsonNode::positive() const {
  const double value = number();
  if (!(value > 0))
    fail(fmt::format("{} is not above 0", shortest(value)), "give a number above 0");
  return value;
}

double JsonNode::not_negative() const {
  const double value = number();
  if (!(value >= 0)) fail(fmt::format("{} is below 0", shortest(value)), "give 0 or more");
  return value;
}

std::int64_t JsonNode::integer(std::int64_t least, std::int64_t most) const {
  const std::string remedy = fmt::format("give a whole number from {} to {}", least, most);
  if (!value_->is_number_integer()) fail("this is not a whole number", remedy);
  const bool beyond = value_->is_number_unsigned() &&
                      value_->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  const auto value = beyond ? INT64_MAX : value_->get<std::int64_t>();
  if (beyond || value < least || value > most) {
    fail(fmt::format("{} is out of range", value_->dump()), remedy);
  }
  return value;
}

std::string JsonNode::text() const {
  if (!value_->is_string()) fail("this is not a text", "give a text in quotes");
  return value_->get<std::string>();
}

std::string JsonNode::sha256() const {
  const std::string value = text();
  if (value.size() != 64 || value.find_first_not_of("0123456789abcdef") != std::string::npos) {
    fail("this is not a SHA-256", "give 64 hexadecimal digits, lower case");
  }
  return value;
}

}  // namespace dspark
