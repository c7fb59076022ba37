#include "config/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <set>
#include <system_error>

#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

enum class Parsed { other, out_of_range, ok };

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

// YAML 1.2 core schema: [-+]?[0-9]+, 0o[0-7]+, 0x[0-9a-fA-F]+.
Parsed parse_integer(std::string_view text, std::int64_t& value) {
  int base = 10;
  std::string_view digits = text;
  if (text.starts_with("0o") || text.starts_with("0x")) {
    base = text[1] == 'o' ? 8 : 16;
    digits = text.substr(2);
    if (digits.starts_with('-')) return Parsed::other;
  } else {
    const bool has_sign = text.starts_with('-') || text.starts_with('+');
    if (!all_digits(text.substr(has_sign ? 1 : 0))) return Parsed::other;
    if (text.starts_with('+')) digits = text.substr(1);
  }
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, base);
  if (stop != end || error == std::errc::invalid_argument) return Parsed::other;
  return error == std::errc() ? Parsed::ok : Parsed::out_of_range;
}

// YAML 1.2 core schema: an integer, or [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?.
Parsed parse_number(std::string_view text, double& value) {
  std::int64_t integer = 0;
  if (text.starts_with("0o") || text.starts_with("0x")) {
    const Parsed parsed = parse_integer(text, integer);
    value = static_cast<double>(integer);
    return parsed;
  }
  std::string_view rest = text;
  if (rest.starts_with('+') || rest.starts_with('-')) rest.remove_prefix(1);
  const auto skip_digits = [&rest] {
    const std::size_t before = rest.size();
    while (!rest.empty() && is_digit(rest.front())) rest.remove_prefix(1);
    return before - rest.size();
  };
  std::size_t digits = skip_digits();
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    digits += skip_digits();
  }
  if (digits == 0) return Parsed::other;
  if (rest.starts_with('e') || rest.starts_with('E')) {
    rest.remove_prefix(1);
    if (rest.starts_with('+') || rest.starts_with('-')) rest.remove_prefix(1);
    if (skip_digits() == 0) return Parsed::other;
  }
  if (!rest.empty()) return Parsed::other;
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  (void)stop;
  return error == std::errc() ? Parsed::ok : Parsed::out_of_range;
}

bool is_infinity_or_nan(std::string_view text) {
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  return text == ".inf" || text == ".Inf" || text == ".INF" || text == ".nan" || text == ".NaN" ||
         text == ".NAN";
}

// What stands there, for "must be ..., not ...".
std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::list:
      return node.items.empty() ? "an empty list" : "a list";
    case YamlNode::Kind::map:
      return node.entries.empty() ? "an empty map" : "a map";
    case YamlNode::Kind::quoted:
      return "the string " + quoted(node.text);
    case YamlNode::Kind::plain:
      break;
  }
  return quoted(node.text);
}

std::string bounds_text(const IntegerField& field) {
  if (field.most == INT64_MAX) return fmt::format("an integer of at least {}", field.least);
  return fmt::format("an integer from {} to {}", field.least, field.most);
}

std::string bounds_text(const NumberField& field) {
  const char* relation = field.least_excluded ? "above" : "of at least";
  std::string text = fmt::format("a finite number {} {}", relation, shortest(field.least));
  if (std::isfinite(field.most)) text += fmt::format(" and at most {}", shortest(field.most));
  return text;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// from + i·step, as a person would write it: 0.1 + 0.05 is 0.15, not 0.15000000000000002, so that a
// range and a list give equal values. 15 digits hold any decimal of a policy file and drop the
// noise of the sum.
double range_value(double from, double step, std::int64_t i) {
  const double sum = from + static_cast<double>(i) * step;
  const std::string digits = fmt::format("{:.15g}", sum);
  double value = sum;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

constexpr double kRangeSlack = 0.5e-9;  // of a step

}  // namespace

std::string_view nearest_word(std::string_view text, const std::vector<std::string_view>& words) {
  constexpr std::size_t longest = 64;  // the distance is quadratic; no key is that long
  std::string_view best;
  if (text.size() > longest) return best;
  std::size_t best_distance = std::max<std::size_t>(2, text.size() / 3) + 1;
  for (const std::string_view word : words) {
    const std::size_t distance = edit_distance(text, word);
    if (distance < best_distance && distance < word.size()) {
      best = word;
      best_distance = distance;
    }
  }
  return best;
}

std::string join_words(const std::vector<std::string_view>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

void FieldReader::fail(SourcePosition position, const std::string& what,
                       const std::string& remedy) const {
  throw policy_error(place(name_, position), what, remedy);
}

void FieldReader::check_map(const YamlNode& node, const std::string& what,
                            const KnownKeys& keys) const {
  const std::string known = join_words(keys.known);
  if (node.kind != YamlNode::Kind::map || node.entries.empty()) {
    fail(node.position, fmt::format("{} must be a map, not {}", what, describe(node)),
         fmt::format("known keys: {}", known));
  }
  for (const YamlNode::Entry& entry : node.entries) {
    if (std::find(keys.known.begin(), keys.known.end(), entry.key) != keys.known.end()) continue;
    const std::string where = keys.where.empty() ? "" : fmt::format(" {}", keys.where);
    const std::string_view nearest = nearest_word(entry.key, keys.known);
    fail(entry.key_position, fmt::format("unknown key {}{}", quoted(entry.key), where),
         nearest.empty() ? fmt::format("known keys: {}", known)
                         : fmt::format("did you mean '{}'? known keys: {}", nearest, known));
  }
}

const YamlNode* FieldReader::find(const YamlNode& map, std::string_view key) {
  for (const YamlNode::Entry& entry : map.entries) {
    if (entry.key == key) return entry.value;
  }
  return nullptr;
}

const YamlNode& FieldReader::require(const YamlNode& map, std::string_view key,
                                     const std::string& what) const {
  const YamlNode* node = find(map, key);
  if (node == nullptr) {
    fail(map.position, fmt::format("{} has no '{}'", what, key), fmt::format("add '{}'", key));
  }
  return *node;
}

std::int64_t FieldReader::integer(const YamlNode& node, const IntegerField& field) const {
  std::int64_t value = 0;
  const Parsed parsed =
      node.kind == YamlNode::Kind::plain ? parse_integer(node.text, value) : Parsed::other;
  const std::string bounds = bounds_text(field);
  if (parsed == Parsed::other) {
    fail(node.position, fmt::format("'{}' must be {}, not {}", field.name, bounds, describe(node)),
         node.kind == YamlNode::Kind::quoted ? "give a number without quotes" : "give an integer");
  }
  if (parsed == Parsed::out_of_range || value < field.least || value > field.most) {
    fail(node.position, fmt::format("'{}' is {}", field.name, quoted(node.text)),
         fmt::format("give {}", bounds));
  }
  return value;
}

double FieldReader::number(const YamlNode& node, const NumberField& field) const {
  double value = 0;
  const bool plain = node.kind == YamlNode::Kind::plain;
  const Parsed parsed = plain ? parse_number(node.text, value) : Parsed::other;
  const std::string bounds = bounds_text(field);
  if (parsed == Parsed::other && !(plain && is_infinity_or_nan(node.text))) {
    fail(node.position, fmt::format("'{}' must be {}, not {}", field.name, bounds, describe(node)),
         node.kind == YamlNode::Kind::quoted ? "give a number without quotes" : "give a number");
  }
  const bool inside = parsed == Parsed::ok && value <= field.most &&
                      (field.least_excluded ? value > field.least : value >= field.least);
  if (!inside) {
    fail(node.position, fmt::format("'{}' is {}", field.name, quoted(node.text)),
         fmt::format("give {}", bounds));
  }
  return value == 0 ? 0.0 : value;  // -0 and 0 are one value
}

std::size_t FieldReader::word(const YamlNode& node, const WordField& field) const {
  const std::string choices = fmt::format("{}", fmt::join(field.words, " or "));
  if (node.kind != YamlNode::Kind::plain && node.kind != YamlNode::Kind::quoted) {
    fail(node.position, fmt::format("'{}' must be a word, not {}", field.name, describe(node)),
         fmt::format("give {}", choices));
  }
  const auto found = std::find(field.words.begin(), field.words.end(), node.text);
  if (found == field.words.end()) {
    fail(node.position, fmt::format("'{}' is {}", field.name, quoted(node.text)),
         fmt::format("give {}", choices));
  }
  return static_cast<std::size_t>(found - field.words.begin());
}

template <class T, class ReadOne>
Axis<T> FieldReader::list_axis(const YamlNode& node, std::string_view name,
                               const ReadOne& read_one) const {
  if (node.kind != YamlNode::Kind::list) return {{read_one(node), node.position}};
  if (node.items.empty()) {
    fail(node.position, fmt::format("'{}' is an empty list", name),
         "give at least one value, or remove the key");
  }
  Axis<T> axis;
  std::set<T> seen;
  for (const YamlNode* item : node.items) {
    const T value = read_one(*item);
    if (seen.insert(value).second) axis.push_back({value, item->position});
  }
  return axis;
}

void FieldReader::check_range_map(const YamlNode& node, std::string_view name) const {
  const std::string what = fmt::format("the range of '{}'", name);
  check_map(node, what, {.where = "in a range", .known = {"from", "to", "step"}});
  for (const char* key : {"from", "to", "step"}) (void)require(node, key, what);
}

Axis<std::int64_t> FieldReader::integer_axis(const YamlNode& node,
                                             const IntegerField& field) const {
  if (node.kind != YamlNode::Kind::map) {
    return list_axis<std::int64_t>(node, field.name,
                                   [&](const YamlNode& one) { return integer(one, field); });
  }
  check_range_map(node, field.name);
  const std::int64_t from = integer(*find(node, "from"), field);
  const std::int64_t to = integer(*find(node, "to"), field);
  const std::int64_t step = integer(*find(node, "step"), {"step", 1, INT64_MAX});
  if (from > to) fail(find(node, "from")->position, "'from' is above 'to'", "swap them");
  const std::int64_t last = (to - from) / step;  // no overflow: both are at least 0
  if (last >= kMaxPlanRows) {
    fail(node.position,
         fmt::format("the range of '{}' has more than {} values", field.name, kMaxPlanRows),
         "give a larger step");
  }
  Axis<std::int64_t> axis;
  for (std::int64_t i = 0; i <= last; ++i) axis.push_back({from + i * step, node.position});
  return axis;
}

Axis<double> FieldReader::number_axis(const YamlNode& node, const NumberField& field) const {
  if (node.kind != YamlNode::Kind::map) {
    return list_axis<double>(node, field.name,
                             [&](const YamlNode& one) { return number(one, field); });
  }
  check_range_map(node, field.name);
  const double from = number(*find(node, "from"), field);
  const double to = number(*find(node, "to"), field);
  const double step = number(*find(node, "step"), {"step", 0, HUGE_VAL, true});
  if (from > to) fail(find(node, "from")->position, "'from' is above 'to'", "swap them");
  const double steps = (to - from) / step;
  if (!(steps < static_cast<double>(kMaxPlanRows))) {
    fail(node.position,
         fmt::format("the range of '{}' has more than {} values", field.name, kMaxPlanRows),
         "give a larger step");
  }
  const auto last = static_cast<std::int64_t>(steps + kRangeSlack);
  const bool meets_to = std::abs(steps - static_cast<double>(last)) <= kRangeSlack;
  Axis<double> axis = {{from, node.position}};
  for (std::int64_t i = 1; i <= last; ++i) {
    const double value = i == last && meets_to ? to : range_value(from, step, i);
    if (value > axis.back().value) axis.push_back({value, node.position});
  }
  return axis;
}

Axis<std::size_t> FieldReader::word_axis(const YamlNode& node, const WordField& field) const {
  return list_axis<std::size_t>(node, field.name,
                                [&](const YamlNode& one) { return word(one, field); });
}

}  // namespace dspark
