#include "config/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

std::int32_t count_code_points(std::string_view text) {
  return static_cast<std::int32_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !is_continuation(byte); }));
}

// Of a byte offset.
SourcePosition position_of(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t newline = before.rfind('\n');
  const std::size_t start = newline == std::string_view::npos ? 0 : newline + 1;
  return {1 + static_cast<std::int32_t>(std::count(before.begin(), before.end(), '\n')),
          1 + count_code_points(before.substr(start))};
}

// The parser takes some control characters for the end of the file, so none may reach it.
void check_characters(std::string_view text, const std::string& name) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = utf8_length(text, i);
    if (length == 0) {
      throw policy_error(place(name, position_of(text, i)),
                         fmt::format("byte 0x{:02x} is not UTF-8 text", byte),
                         "save the file as UTF-8");
    }
    if ((byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7F) {
      throw policy_error(place(name, position_of(text, i)),
                         fmt::format("control character 0x{:02x}", byte), "remove it");
    }
    i += length;
  }
}

// Builds the tree from the parser's events and refuses what a policy file may not contain.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& text, const std::string& name) : text_(text), name_(name) {}

  [[nodiscard]] YamlDocument take() { return std::move(document_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    YamlNode& node = add(YamlNode::Kind::null, mark, anchor);
    // Nothing has no place of its own; the parser gives that of whatever comes next.
    if (awaits_value()) node.position = open_.back().key_position;
    attach(node);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool quoted_scalar = tag == "!";
    if (tag != "?" && !(quoted_scalar && starts_with_quote(mark))) refuse_tag(mark);
    YamlNode& node =
        add(quoted_scalar ? YamlNode::Kind::quoted : YamlNode::Kind::plain, mark, anchor);
    node.text = value;
    attach(node);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end() || !found->second.finished) {
      fail(mark, "an alias inside the node that it names", "write the value out");
    }
    // Nodes inside the target were counted with what their own aliases stand for, so this sum is
    // the size of the whole document written out. It is checked before anything is copied.
    has_aliases_ = true;
    count(found->second.size, mark);
    YamlNode& node = document_.nodes.emplace_back(*found->second.node);
    node.position = position(mark);
    attach(node);
  }

 private:
  struct Anchor {
    const YamlNode* node = nullptr;
    std::int64_t size = 0;
    bool finished = false;
  };
  struct Open {
    YamlNode* node;
    YAML::anchor_t anchor;
    std::int64_t count_before;
    bool expects_key = true;
    std::string key = {};
    SourcePosition key_position = {};
    std::unordered_set<std::string> keys = {};
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what,
                         const std::string& remedy) const {
    throw policy_error(place(name_, position(mark)), what, remedy);
  }

  [[noreturn]] void refuse_tag(const YAML::Mark& mark) const {
    fail(mark, "tags are not allowed", "remove the tag (the word that begins with '!')");
  }

  // The parser counts columns in bytes; people count characters. It comes mostly forward, so that
  // counting goes on from the last place instead of the start of a line that may be the whole file.
  [[nodiscard]] SourcePosition position(const YAML::Mark& mark) const {
    if (mark.line < 0) return {};
    if (mark.pos < mark.column || static_cast<std::size_t>(mark.pos) > text_.size()) {
      return {mark.line + 1, mark.column + 1};
    }
    const auto offset = static_cast<std::size_t>(mark.pos);
    if (mark.line + 1 != last_.line || offset < last_offset_) {
      last_ = {mark.line + 1, 1};
      last_offset_ = offset - static_cast<std::size_t>(mark.column);
    }
    last_.column +=
        count_code_points(std::string_view(text_).substr(last_offset_, offset - last_offset_));
    last_offset_ = offset;
    return last_;
  }

  // The parser gives quoted scalars and those with the tag "!" the same tag; only the text tells
  // them apart.
  [[nodiscard]] bool starts_with_quote(const YAML::Mark& mark) const {
    auto i = static_cast<std::size_t>(std::max(mark.pos, 0));
    if (i < text_.size() && text_[i] == '&') {
      i = text_.find_first_of(" \t\r\n", i);
      i = i == std::string::npos ? i : text_.find_first_not_of(" \t\r\n", i);
    }
    return i < text_.size() && std::string_view("'\"|>").find(text_[i]) != std::string_view::npos;
  }

  [[nodiscard]] bool in_map() const {
    return !open_.empty() && open_.back().node->kind == YamlNode::Kind::map;
  }
  [[nodiscard]] bool awaits_key() const { return in_map() && open_.back().expects_key; }
  [[nodiscard]] bool awaits_value() const { return in_map() && !open_.back().expects_key; }

  void count(std::int64_t nodes, const YAML::Mark& mark) {
    count_ += nodes;
    if (has_aliases_ && count_ > kMaxNodesWithAliases) {
      fail(mark, fmt::format("more than {} nodes once aliases are replaced", kMaxNodesWithAliases),
           "use fewer aliases");
    }
    if (count_ > kMaxYamlNodes) {
      fail(mark, fmt::format("more than {} nodes", kMaxYamlNodes), "give fewer values");
    }
  }

  YamlNode& add(YamlNode::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    count(1, mark);
    YamlNode& node = document_.nodes.emplace_back();
    node.kind = kind;
    node.position = position(mark);
    if (anchor != YAML::NullAnchor) anchors_[anchor] = {&node, 1, kind < YamlNode::Kind::list};
    return node;
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    if (tag != "?") refuse_tag(mark);
    if (open_.size() >= kMaxYamlDepth) {
      fail(mark, fmt::format("more than {} levels of nesting", kMaxYamlDepth), "nest less");
    }
    if (awaits_key()) {
      // Also what the parser makes of a bracket without its partner.
      fail(mark, "a list or map as a key", "use a word as key, and close every '[' and '{'");
    }
    const std::int64_t before = count_;
    YamlNode& node = add(kind, mark, anchor);
    open_.push_back({.node = &node, .anchor = anchor, .count_before = before});
  }

  void close() {
    const Open done = std::move(open_.back());
    open_.pop_back();
    if (done.anchor != YAML::NullAnchor) {
      anchors_[done.anchor] = {done.node, count_ - done.count_before, true};
    }
    attach(*done.node);
  }

  // Puts a complete node where the innermost open list or map expects it.
  void attach(const YamlNode& node) {
    if (open_.empty()) {
      document_.root = &node;
      return;
    }
    Open& parent = open_.back();
    if (parent.node->kind == YamlNode::Kind::list) {
      parent.node->items.push_back(&node);
    } else if (parent.expects_key) {
      if (node.kind != YamlNode::Kind::plain && node.kind != YamlNode::Kind::quoted) {
        throw policy_error(place(name_, node.position), "a key that is not a word",
                           "use a word as key");
      }
      if (!parent.keys.insert(node.text).second) {
        throw policy_error(place(name_, node.position),
                           fmt::format("key {} is given twice", quoted(node.text)),
                           "give every key once");
      }
      parent.key = node.text;
      parent.key_position = node.position;
      parent.expects_key = false;
    } else {
      parent.node->entries.push_back({std::move(parent.key), parent.key_position, &node});
      parent.expects_key = true;
    }
  }

  const std::string& text_;
  const std::string& name_;
  YamlDocument document_;
  std::unordered_map<YAML::anchor_t, Anchor> anchors_;
  std::vector<Open> open_;
  std::int64_t count_ = 0;
  bool has_aliases_ = false;
  mutable SourcePosition last_;  // where position() last was
  mutable std::size_t last_offset_ = 0;
};

// Only finds out that there is a second document, and where.
class SecondDocument : public YAML::EventHandler {
 public:
  explicit SecondDocument(const std::string& name) : name_(name) {}
  void OnDocumentStart(const YAML::Mark& mark) override {
    throw policy_error(place(name_, {mark.line + 1, mark.column + 1}), "a second document",
                       "give one document per file");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  const std::string& name_;
};

}  // namespace

std::string place(const std::string& name, SourcePosition position) {
  return position.line > 0 ? fmt::format("{}:{}:{}", name, position.line, position.column) : name;
}

std::string quoted(const std::string& text) {
  constexpr int most = 40;
  std::size_t end = 0;
  for (int points = 0; end < text.size() && points < most; ++points) {
    ++end;
    while (end < text.size() && is_continuation(text[end])) ++end;
  }
  return fmt::format("'{}{}'", text.substr(0, end), end < text.size() ? "..." : "");
}

YamlDocument parse_yaml(const std::string& text, const std::string& name) {
  if (text.size() > kMaxPolicyFileBytes) {
    throw policy_error(name, fmt::format("larger than {}", human_bytes(kMaxPolicyFileBytes)),
                       "give a policy file");
  }
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  const std::string body =
      text.starts_with(byte_order_mark) ? text.substr(byte_order_mark.size()) : text;
  check_characters(body, name);
  try {
    std::istringstream stream(body);
    YAML::Parser parser(stream);
    TreeBuilder builder(body, name);
    if (!parser.HandleNextDocument(builder)) {
      throw policy_error(place(name, {1, 1}), "the file has no content", "start with 'version: 1'");
    }
    SecondDocument second(name);
    parser.HandleNextDocument(second);
    return builder.take();
  } catch (const YAML::Exception& error) {
    const auto offset = static_cast<std::size_t>(std::max(error.mark.pos, 0));
    throw policy_error(place(name, position_of(body, std::min(offset, body.size()))),
                       "not valid YAML: " + error.msg, "correct the syntax");
  }
}

}  // namespace dspark
