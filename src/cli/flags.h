// Flags: what every command accepts, and how their texts become values. Errors name the flag and
// what it takes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cli/backend_choice.h"
#include "core/row_ops.h"
#include "report/render.h"
#include "support/error.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace dspark {

/// A flag that takes one value and may be given once.
class ValueFlag {
 public:
  /// `names` as CLI11 writes them ("-o,--output"), `placeholder` stands for the value in the help.
  ValueFlag(CLI::App& app, const std::string& names, const std::string& placeholder,
            const std::string& help);
  ValueFlag(const ValueFlag&) = delete;  // the parser keeps the address of text_
  ValueFlag& operator=(const ValueFlag&) = delete;

  /// The text that was given, if any. Throws Error(usage) if the flag was given twice.
  [[nodiscard]] std::optional<std::string> text() const;
  /// The whole number that was given, if any. Throws Error(usage) if it is none or lies outside
  /// [smallest, largest].
  [[nodiscard]] std::optional<std::uint64_t> whole_number(std::uint64_t smallest,
                                                          std::uint64_t largest) const;
  /// The number that was given, if any. Throws Error(usage) if it is none or lies outside
  /// (above, below), both excluded.
  [[nodiscard]] std::optional<double> number_between(double above, double below) const;
  /// The number of bytes that was given, if any: at least 1, with an optional suffix k, M or G
  /// (powers of 1000).
  [[nodiscard]] std::optional<std::uint64_t> byte_count() const;
  /// "--output": how messages call the flag.
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::string text_;
  CLI::Option* option_;
};

/// The value of `flag` among `words`, or `fallback` if it was not given. Throws Error(usage) if it
/// is none of them.
template <class Value, std::size_t N>
[[nodiscard]] Value one_of(const ValueFlag& flag,
                           const std::array<std::pair<std::string_view, Value>, N>& words,
                           Value fallback) {
  const std::optional<std::string> text = flag.text();
  if (!text) return fallback;
  std::string known;
  for (const auto& [word, value] : words) {
    if (*text == word) return value;
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  throw usage_error(flag.name(), "'" + *text + "' is not a choice", "give one of " + known);
}

/// --products, of the commands that replay traces.
class ProductsFlag {
 public:
  explicit ProductsFlag(CLI::App& app);
  /// Exact if it was not given. Throws Error(usage) if the value is not one it takes.
  [[nodiscard]] Products value() const;

 private:
  ValueFlag flag_;
};

/// The values of the flags that every command accepts.
struct CommonOptions {
  BackendRequest backend = BackendRequest::automatic;
  OutputFormat format = OutputFormat::table;
  std::string output = "-";
  bool quiet = false;
  int threads = 1;
  std::uint64_t seed = 0;
  std::string heads;                ///< empty: not given
  std::uint64_t memory_budget = 0;  ///< bytes; 0: what the machine has
};

/// The flags themselves.
class CommonFlags {
 public:
  explicit CommonFlags(CLI::App& app);
  /// Throws Error(usage) if a value is not one the flag takes.
  [[nodiscard]] CommonOptions values() const;

 private:
  ValueFlag backend_, format_, output_, threads_, seed_, heads_, memory_budget_;
  bool quiet_ = false;
};

}  // namespace dspark
