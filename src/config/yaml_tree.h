// A YAML document as a checked tree: what a policy file may contain at all, before anything looks
// at its meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "config/plan.h"

namespace dspark {

/// A value of the document. Aliases are already replaced by what they stand for.
struct YamlNode {
  enum class Kind { null, plain, quoted, list, map };
  struct Entry {
    std::string key;
    SourcePosition key_position;
    const YamlNode* value = nullptr;
  };

  Kind kind = Kind::null;
  SourcePosition position;             ///< where it stands; for an alias, where the alias stands
  std::string text;                    ///< plain and quoted scalars
  std::vector<const YamlNode*> items;  ///< list
  std::vector<Entry> entries;          ///< map, in the order of the file; keys are unique
};

/// One document. Owns its nodes; `root` points into it.
struct YamlDocument {
  std::deque<YamlNode> nodes;
  const YamlNode* root = nullptr;
};

/// Bounds on what is read, so that a file from a stranger costs little.
inline constexpr std::size_t kMaxPolicyFileBytes = std::size_t{16} << 20;
inline constexpr std::int64_t kMaxYamlNodes = 2'000'000;
inline constexpr std::int64_t kMaxNodesWithAliases = 10'000;
inline constexpr std::size_t kMaxYamlDepth = 32;

/// Parses `text`, which must be UTF-8 without control characters, and hold one document, without
/// tags, of at most kMaxYamlDepth levels, with unique keys; with aliases replaced, of at most
/// kMaxNodesWithAliases nodes. Throws Error(policy) with "name:line:column". Columns count code
/// points.
[[nodiscard]] YamlDocument parse_yaml(const std::string& text, const std::string& name);

/// "name:line:column", or `name` alone where the position is unknown.
[[nodiscard]] std::string place(const std::string& name, SourcePosition position);

/// `text` in quotes for a message, cut after 40 code points.
[[nodiscard]] std::string quoted(const std::string& text);

}  // namespace dspark
