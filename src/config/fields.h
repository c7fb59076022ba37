// Typed access to the values of a policy file: YAML 1.2 scalars, ranges of values, sweep axes, and
// errors that say where.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "config/yaml_tree.h"

namespace dspark {

/// A value with the place it was written at.
template <class T>
struct Placed {
  T value{};
  SourcePosition position;
};

/// The values of one field, in the order of the file, equal ones once; at least one.
template <class T>
using Axis = std::vector<Placed<T>>;

/// An integer field's name, for messages, and its bounds.
struct IntegerField {
  std::string_view name;
  std::int64_t least = 0;
  std::int64_t most = 0;
};

/// A number field's name, for messages, and its bounds; `least_excluded`: greater than `least`.
struct NumberField {
  std::string_view name;
  double least = 0;
  double most = 0;
  bool least_excluded = false;
};

/// A word field's name and the words it may be.
struct WordField {
  std::string_view name;
  std::vector<std::string_view> words;
};

/// What a map may hold.
struct KnownKeys {
  std::string_view where;  ///< for messages: "in 'sampling'"
  std::vector<std::string_view> known;
};

/// The entry of the closest of `words` to `text` (a slip of a letter or two), or an empty view.
[[nodiscard]] std::string_view nearest_word(std::string_view text,
                                            const std::vector<std::string_view>& words);

/// "a, b, c".
[[nodiscard]] std::string join_words(const std::vector<std::string_view>& words);

/// Reads the nodes of one file; every error is Error(policy) with name:line:column.
class FieldReader {
 public:
  explicit FieldReader(const std::string& name) : name_(name) {}

  [[noreturn]] void fail(SourcePosition position, const std::string& what,
                         const std::string& remedy) const;

  /// Refuses anything but a map with at least one key, all of them known.
  void check_map(const YamlNode& node, const std::string& what, const KnownKeys& keys) const;

  /// The value of a key, or null where the map does not have it.
  [[nodiscard]] static const YamlNode* find(const YamlNode& map, std::string_view key);
  /// The value of a key that must be there; `what` names the map in the message.
  [[nodiscard]] const YamlNode& require(const YamlNode& map, std::string_view key,
                                        const std::string& what) const;

  /// One value.
  [[nodiscard]] std::int64_t integer(const YamlNode& node, const IntegerField& field) const;
  [[nodiscard]] double number(const YamlNode& node, const NumberField& field) const;
  /// An index into field.words.
  [[nodiscard]] std::size_t word(const YamlNode& node, const WordField& field) const;

  /// One value, a list, or for numbers {from, to, step}: from + i·step while not above `to` (which
  /// is included where it is met within half a billionth of a step). At most kMaxPlanRows values;
  /// that is checked before a range is expanded.
  [[nodiscard]] Axis<std::int64_t> integer_axis(const YamlNode& node,
                                                const IntegerField& field) const;
  [[nodiscard]] Axis<double> number_axis(const YamlNode& node, const NumberField& field) const;
  [[nodiscard]] Axis<std::size_t> word_axis(const YamlNode& node, const WordField& field) const;

 private:
  template <class T, class ReadOne>
  [[nodiscard]] Axis<T> list_axis(const YamlNode& node, std::string_view name,
                                  const ReadOne& read_one) const;
  void check_range_map(const YamlNode& node, std::string_view name) const;

  const std::string& name_;
};

}  // namespace dspark
