// Reads a policy file: what its keys mean.
#include "config/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <set>
#include <type_traits>
#include <utility>

#include "config/fields.h"
#include "support/error.h"
#include "support/text.h"
#include "support/text_file.h"

namespace dspark {
namespace {

constexpr std::int64_t kMaxLength = 64;  // block_size is at most this (trace format)
const double kNoBound = HUGE_VAL;
constexpr double kMostCost = 1e15;  // of one term; far from where sums overflow

const std::vector<std::string_view> kPolicies = {
    "none",        "fixed",       "threshold",       "sps",          "oracle",
    "softmax_min", "schedule",    "budget_fraction", "count_budget", "algorithm1",
    "global",      "exact_table", "capped_ewma",     "gate",         "oracle_confidence"};
const std::vector<std::string_view> kOracleWraps = {"threshold", "sps"};
const std::vector<std::string_view> kGateWraps = {"fixed",        "threshold",  "sps",
                                                  "softmax_min",  "schedule",   "budget_fraction",
                                                  "count_budget", "algorithm1", "global"};
constexpr std::int64_t kMaxBuckets = 4096;
constexpr std::int64_t kMaxConcurrencies = 64;
constexpr std::int64_t kMaxCount = 1'000'000;  // of steps, rounds and requests

// a · b, or kMaxPlanRows + 1 where it is more than that; neither is negative.
std::int64_t bounded_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > kMaxPlanRows) return kMaxPlanRows + 1;
  return product;
}

template <class T>
std::int64_t size_of(const Axis<T>& axis) {
  return static_cast<std::int64_t>(axis.size());
}

// Which of two named lengths a message about the block size should point at.
SourcePosition position_of_larger(const Placed<std::int64_t>& a, const Placed<std::int64_t>& b) {
  return a.value >= b.value ? a.position : b.position;
}

class PlanReader {
 public:
  PlanReader(const std::string& text, const std::string& name,
             const std::optional<std::string>& cost_table)
      : name_(name), document_(parse_yaml(text, name)), reader_(name), cost_table_(cost_table) {}

  Plan read() {
    const YamlNode& root = *document_.root;
    plan_.file = name_;
    if (root.kind != YamlNode::Kind::map) {
      reader_.fail(root.position, "a policy file must be a map", "start with 'version: 1'");
    }
    check_version(root);
    reader_.check_map(root, "a policy file",
                      {.where = "",
                       .known = {"version", "verification", "sampling", "cost", "concurrency",
                                 "width", "policies"}});
    if (const YamlNode* node = FieldReader::find(root, "verification")) read_verification(*node);
    if (const YamlNode* node = FieldReader::find(root, "sampling")) {
      read_sampling(*node);
    } else {
      plan_.sampling = {SamplingChoice{}};
    }
    if (cost_table_) {
      plan_.cost.table = *cost_table_;
      plan_.model = model_of(plan_.cost);
    } else if (const YamlNode* node = FieldReader::find(root, "cost")) {
      read_cost(*node);
    }
    read_concurrency(FieldReader::find(root, "concurrency"));
    if (const YamlNode* node = FieldReader::find(root, "width")) {
      const WordField field = {"width", {"ragged", "uniform", "cap_accept"}};
      constexpr Width widths[] = {Width::ragged, Width::uniform, Width::cap_accept};
      plan_.width = widths[reader_.word(*node, field)];
    }
    if (const YamlNode* node = FieldReader::find(root, "policies")) {
      read_policies(*node);
    } else {
      plan_.default_sweep = true;
    }
    return std::move(plan_);
  }

 private:
  void check_version(const YamlNode& root) const {
    const YamlNode& node = reader_.require(root, "version", "the policy file");
    const std::int64_t version = reader_.integer(node, {"version", 0, INT64_MAX});
    if (version != 1) {
      reader_.fail(node.position, fmt::format("policy file version {} is not supported", version),
                   "this tool reads version 1");
    }
  }

  void read_verification(const YamlNode& node) {
    const WordField field = {"verification", {"greedy", "probabilistic"}};
    plan_.verification_position = node.position;
    const auto choices = reader_.word_axis(node, field);
    multiply_runs(size_of(choices), node.position);
    for (const auto& choice : choices) {
      plan_.verification.push_back(choice.value == 0 ? Verification::greedy
                                                     : Verification::probabilistic);
    }
  }

  void read_sampling(const YamlNode& node) {
    reader_.check_map(node, "'sampling'",
                      {.where = "in 'sampling'",
                       .known = {"temperature", "top_k", "top_p", "top_p_rule", "drafts"}});
    // A field that is not given is an axis of one: the trace's own value.
    std::vector<SamplingChoice> choices = {SamplingChoice{}};
    choices.front().position = node.position;
    if (const YamlNode* field = FieldReader::find(node, "temperature")) {
      const auto axis = reader_.number_axis(*field, {"temperature", 0, kNoBound});
      check_greedy_temperature(axis);
      cross(choices, axis, [](SamplingChoice& c, double v) { c.temperature = v; });
    }
    if (const YamlNode* field = FieldReader::find(node, "top_k")) {
      cross(choices, reader_.integer_axis(*field, {"top_k", 0, INT64_MAX}),
            [](SamplingChoice& c, std::int64_t v) { c.top_k = v; });
    }
    if (const YamlNode* field = FieldReader::find(node, "top_p")) {
      cross(choices, reader_.number_axis(*field, {"top_p", 0, 1, true}),
            [](SamplingChoice& c, double v) { c.top_p = v; });
    }
    if (const YamlNode* field = FieldReader::find(node, "top_p_rule")) {
      cross(choices,
            reader_.word_axis(*field, {"top_p_rule", {"water_filling", "include_crossing"}}),
            [](SamplingChoice& c, std::size_t v) {
              c.top_p_rule = v == 0 ? TopPRule::water_filling : TopPRule::include_crossing;
            });
    }
    if (const YamlNode* field = FieldReader::find(node, "drafts")) {
      cross(choices, reader_.word_axis(*field, {"drafts", {"sampled", "greedy"}}),
            [](SamplingChoice& c, std::size_t v) { c.greedy_drafts = v == 1; });
    }
    plan_.sampling = std::move(choices);
  }

  // Every choice with every value of one more axis.
  template <class T, class Set>
  void cross(std::vector<SamplingChoice>& choices, const Axis<T>& axis, const Set& set) {
    multiply_runs(size_of(axis), axis.front().position);
    std::vector<SamplingChoice> out;
    out.reserve(choices.size() * axis.size());
    for (const SamplingChoice& choice : choices) {
      for (const Placed<T>& value : axis) {
        set(out.emplace_back(choice), value.value);
      }
    }
    choices = std::move(out);
  }

  void check_greedy_temperature(const Axis<double>& axis) const {
    bool probabilistic = false;
    for (const Verification v : plan_.verification) {
      probabilistic = probabilistic || v == Verification::probabilistic;
    }
    if (!probabilistic) return;
    for (const Placed<double>& temperature : axis) {
      if (temperature.value < kGreedyTemperature) {
        reader_.fail(temperature.position,
                     fmt::format("probabilistic verification needs a temperature of at least {}, "
                                 "not {}",
                                 shortest(kGreedyTemperature), shortest(temperature.value)),
                     "use 'verification: greedy' or a higher temperature");
      }
    }
  }

  void read_cost(const YamlNode& node) {
    reader_.check_map(node, "'cost'",
                      {.where = "in 'cost'",
                       .known = {"linear", "table", "entry", "draft", "overhead", "buckets"}});
    PlanCost& cost = plan_.cost;
    const YamlNode* table = FieldReader::find(node, "table");
    const YamlNode* linear = FieldReader::find(node, "linear");
    if ((table == nullptr) == (linear == nullptr)) {
      reader_.fail(node.position, "'cost' must have one of 'linear' and 'table'",
                   "write '{linear: {draft: ..., verify_base: ..., verify_token: ..., accept: "
                   "...}}' or '{table: FILE}'");
    }
    if (linear != nullptr) read_linear(*linear);
    if (table != nullptr) cost.table = path_of(*table);
    for (const char* key : {"entry", "draft"}) {
      const YamlNode* field = FieldReader::find(node, key);
      if (field == nullptr || table != nullptr) continue;
      reader_.fail(field->position, fmt::format("'{}' goes with a table", key),
                   "leave it out; a linear cost has its draft in 'linear'");
    }
    if (const YamlNode* field = FieldReader::find(node, "entry")) cost.entry = text_of(*field);
    if (const YamlNode* field = FieldReader::find(node, "draft")) read_draft(*field);
    if (const YamlNode* field = FieldReader::find(node, "overhead")) {
      cost.overhead = one_number(*field, {"overhead", 0, kMostCost});
    }
    if (const YamlNode* field = FieldReader::find(node, "buckets")) {
      cost.buckets = increasing(*field, {"buckets", 1, kMaxCostTokens}, kMaxBuckets);
    }
    plan_.model = model_of(cost);
  }

  void read_linear(const YamlNode& linear) {
    reader_.check_map(
        linear, "'cost.linear'",
        {.where = "in 'cost.linear'", .known = {"draft", "verify_base", "verify_token", "accept"}});
    LinearCost& cost = plan_.cost.linear;
    cost = {.draft = cost_term(linear, "draft"),
            .verify_base = cost_term(linear, "verify_base"),
            .verify_token = cost_term(linear, "verify_token"),
            .accept = cost_term(linear, "accept")};
    const double dearest =
        cost.draft + cost.verify_base +
        (cost.verify_token + cost.accept) * static_cast<double>(kMaxLength + 1) * kMaxConcurrency;
    if (dearest == 0) {
      reader_.fail(linear.position, "all terms of 'cost.linear' are 0",
                   "give at least one a positive value");
    }
    if (!std::isfinite(dearest)) {
      reader_.fail(linear.position, "the terms of 'cost.linear' are too large to add up",
                   "use a larger unit");
    }
  }

  // One number, or {requests: cost}.
  void read_draft(const YamlNode& node) {
    if (node.kind != YamlNode::Kind::map) {
      plan_.cost.draft = one_number(node, {"draft", 0, kMostCost});
      return;
    }
    for (const auto& [requests, value] : integer_map(node, "draft", kMaxConcurrency)) {
      plan_.cost.draft_by_requests.emplace_back(requests,
                                                reader_.number(*value, {"draft", 0, kMostCost}));
    }
  }

  // A map from increasing whole numbers of at least 1; none is an error.
  [[nodiscard]] std::vector<std::pair<std::int64_t, const YamlNode*>> integer_map(
      const YamlNode& node, std::string_view name, std::int64_t most) const {
    if (node.kind != YamlNode::Kind::map || node.entries.empty()) {
      reader_.fail(node.position, fmt::format("'{}' must be a map with at least one entry", name),
                   "write '{1: ..., 8: ...}'");
    }
    std::vector<std::pair<std::int64_t, const YamlNode*>> out;
    for (const YamlNode::Entry& entry : node.entries) {
      YamlNode key;
      key.kind = YamlNode::Kind::plain;
      key.position = entry.key_position;
      key.text = entry.key;
      const std::int64_t at = reader_.integer(key, {name, 1, most});
      if (!out.empty() && at <= out.back().first) {
        reader_.fail(entry.key_position, fmt::format("the keys of '{}' must increase", name),
                     "put them in order, each once");
      }
      out.emplace_back(at, entry.value);
    }
    return out;
  }

  // A list of increasing whole numbers.
  [[nodiscard]] std::vector<std::int64_t> increasing(const YamlNode& node,
                                                     const IntegerField& field,
                                                     std::int64_t most) const {
    std::vector<std::int64_t> out;
    for (const auto& value : reader_.integer_axis(node, field)) {
      if (!out.empty() && value.value <= out.back()) {
        reader_.fail(value.position, fmt::format("'{}' must increase", field.name),
                     "put them in order, each once");
      }
      out.push_back(value.value);
    }
    if (static_cast<std::int64_t>(out.size()) > most) {
      reader_.fail(node.position, fmt::format("'{}' has more than {} values", field.name, most),
                   "give fewer");
    }
    return out;
  }

  [[nodiscard]] std::string text_of(const YamlNode& node) const {
    const bool is_text = node.kind == YamlNode::Kind::plain || node.kind == YamlNode::Kind::quoted;
    if (!is_text || node.text.empty()) {
      reader_.fail(node.position, "this must be a text", "give one, in quotes if need be");
    }
    return node.text;
  }

  // Relative to the policy file; to the working folder where that is standard input.
  [[nodiscard]] std::string path_of(const YamlNode& node) const {
    const std::filesystem::path path = text_of(node);
    if (path.is_absolute() || name_ == text_file_name("-")) return path.string();
    return (std::filesystem::path(name_).parent_path() / path).string();
  }

  [[nodiscard]] double one_number(const YamlNode& node, const NumberField& field) const {
    if (node.kind == YamlNode::Kind::list || node.kind == YamlNode::Kind::map) {
      reader_.fail(node.position, fmt::format("'{}' of 'cost' is no sweep axis", field.name),
                   "give one number");
    }
    return reader_.number(node, field);
  }

  [[nodiscard]] double cost_term(const YamlNode& linear, std::string_view name) const {
    const YamlNode& node = reader_.require(linear, name, "'cost.linear'");
    if (node.kind == YamlNode::Kind::list || node.kind == YamlNode::Kind::map) {
      reader_.fail(node.position, fmt::format("'{}' of 'cost.linear' is no sweep axis", name),
                   "give one number");
    }
    return reader_.number(node, {name, 0, kNoBound});
  }

  void read_concurrency(const YamlNode* node) {
    plan_.concurrency = {1};
    if (node == nullptr) return;
    plan_.concurrency.clear();
    const auto axis = reader_.integer_axis(*node, {"concurrency", 1, kMaxConcurrency});
    // Each has prices of its own, up to a few MiB of them.
    if (size_of(axis) > kMaxConcurrencies) {
      reader_.fail(node->position,
                   fmt::format("'concurrency' has more than {} values", kMaxConcurrencies),
                   "give fewer");
    }
    multiply_runs(size_of(axis), node->position);
    for (const auto& requests : axis) {
      plan_.concurrency.push_back(static_cast<std::int32_t>(requests.value));
    }
    std::sort(plan_.concurrency.begin(), plan_.concurrency.end());
  }

  void read_policies(const YamlNode& node) {
    if (node.kind != YamlNode::Kind::list || node.items.empty()) {
      reader_.fail(node.position, "'policies' must be a list with at least one policy",
                   "write '- {policy: ...}' lines, or remove the key for the default sweep");
    }
    for (const YamlNode* item : node.items) read_policy(*item);
  }

  void read_policy(const YamlNode& node) {
    if (node.kind != YamlNode::Kind::map) {
      reader_.fail(node.position, "a policy must be a map", "write '{policy: NAME, ...}'");
    }
    const YamlNode& name = reader_.require(node, "policy", "this entry of 'policies'");
    const bool is_word = name.kind == YamlNode::Kind::plain || name.kind == YamlNode::Kind::quoted;
    if (!is_word) {
      reader_.fail(name.position, "'policy' must be one name",
                   fmt::format("use {}", join_words(kPolicies)));
    }
    read_named(node, name);
  }

  void read_named(const YamlNode& node, const YamlNode& name) {
    const std::string& text = name.text;
    if (text == "none") {
      check_fields(node, text, {"policy"});
      add_rows(node, {NoSpeculation{}});
    } else if (text == "fixed") {
      read_fixed(node);
    } else if (text == "threshold") {
      read_threshold(node);
    } else if (text == "sps") {
      read_sps(node);
    } else if (text == "oracle") {
      read_oracle(node);
    } else if (text == "oracle_confidence") {
      read_oracle_confidence(node);
    } else if (text == "softmax_min") {
      read_softmax_min(node);
    } else if (text == "schedule") {
      read_schedule(node);
    } else if (text == "budget_fraction") {
      read_budget_fraction(node);
    } else if (text == "count_budget") {
      read_count_budget(node);
    } else if (text == "algorithm1") {
      read_algorithm1(node);
    } else if (text == "global") {
      read_global(node);
    } else if (text == "exact_table") {
      read_exact_table(node);
    } else if (text == "capped_ewma") {
      read_capped_ewma(node);
    } else if (text == "gate") {
      read_gate(node);
    } else {
      refuse_policy(name);
    }
  }

  [[noreturn]] void refuse_policy(const YamlNode& name) const {
    const std::string known = fmt::format("known policies: {}", join_words(kPolicies));
    const std::string_view nearest = nearest_word(name.text, kPolicies);
    reader_.fail(name.position, fmt::format("unknown policy {}", quoted(name.text)),
                 nearest.empty() ? known : fmt::format("did you mean '{}'? {}", nearest, known));
  }

  void check_fields(const YamlNode& node, const std::string& policy,
                    std::vector<std::string_view> fields) const {
    const std::string where = fmt::format("in policy '{}'", policy);
    reader_.check_map(node, "a policy", {.where = where, .known = std::move(fields)});
  }

  void read_fixed(const YamlNode& node) {
    check_fields(node, "fixed", {"policy", "length"});
    const auto lengths = reader_.integer_axis(reader_.require(node, "length", "policy 'fixed'"),
                                              {"length", 0, kMaxLength});
    count_rows(size_of(lengths), node.position);
    for (const auto& length : lengths) {
      add_row(FixedLength{static_cast<std::int32_t>(length.value)}, node.position, length.position);
    }
  }

  struct Limits {
    Axis<std::int64_t> least;
    Axis<std::int64_t> most;
  };

  Limits read_limits(const YamlNode& node, std::int64_t default_min) const {
    Limits limits = {{{default_min, {}}}, {{0, {}}}};
    if (const YamlNode* field = FieldReader::find(node, "min_length")) {
      limits.least = reader_.integer_axis(*field, {"min_length", 0, kMaxLength});
    }
    if (const YamlNode* field = FieldReader::find(node, "max_length")) {
      limits.most = reader_.integer_axis(*field, {"max_length", 0, kMaxLength});
    }
    return limits;
  }

  // Calls add(min_length, max_length, position of the larger) for every pair.
  template <class Add>
  void for_each_limit(const YamlNode& node, const Limits& limits, const Add& add) const {
    for (const auto& least : limits.least) {
      for (const auto& most : limits.most) {
        if (most.value != 0 && least.value > most.value) {
          const SourcePosition at = least.position.line > 0  ? least.position
                                    : most.position.line > 0 ? most.position
                                                             : node.position;
          reader_.fail(at,
                       fmt::format("min_length {} is above max_length {}", least.value, most.value),
                       "lower min_length or raise max_length");
        }
        add(static_cast<std::int32_t>(least.value), static_cast<std::int32_t>(most.value),
            position_of_larger(least, most));
      }
    }
  }

  void read_threshold(const YamlNode& node) {
    check_fields(node, "threshold", {"policy", "rule", "threshold", "min_length", "max_length"});
    Axis<std::size_t> rules = {{0, node.position}};
    if (const YamlNode* field = FieldReader::find(node, "rule")) {
      rules = reader_.word_axis(*field, {"rule", {"cumulative", "per_position"}});
    }
    const auto thresholds = reader_.number_axis(
        reader_.require(node, "threshold", "policy 'threshold'"), {"threshold", 0, 1});
    for (const auto& rule : rules) {
      // As the engines have it: Edge-LLM verifies at least one draft, the per-position rule may
      // verify none.
      const bool cumulative = rule.value == 0;
      const Limits limits = read_limits(node, cumulative ? 1 : 0);
      std::int64_t rows = bounded_product(size_of(thresholds), size_of(limits.least));
      rows = bounded_product(rows, size_of(limits.most));
      count_rows(rows, node.position);
      for (const auto& threshold : thresholds) {
        for_each_limit(node, limits, [&](std::int32_t least, std::int32_t most, SourcePosition at) {
          add_row(Threshold{.rule = cumulative ? ThresholdRule::cumulative
                                               : ThresholdRule::per_position,
                            .threshold = threshold.value,
                            .min_length = least,
                            .max_length = most},
                  node.position, at);
        });
      }
    }
  }

  void read_sps(const YamlNode& node) {
    check_fields(node, "sps", {"policy", "survival_floor", "min_length", "max_length"});
    Axis<double> floors = {{0, {}}};
    if (const YamlNode* field = FieldReader::find(node, "survival_floor")) {
      floors = reader_.number_axis(*field, {"survival_floor", 0, 1});
    }
    const Limits limits = read_limits(node, 1);
    std::int64_t rows = bounded_product(size_of(floors), size_of(limits.least));
    rows = bounded_product(rows, size_of(limits.most));
    count_rows(rows, node.position);
    for (const auto& floor : floors) {
      for_each_limit(node, limits, [&](std::int32_t least, std::int32_t most, SourcePosition at) {
        add_row(Sps{.survival_floor = floor.value, .min_length = least, .max_length = most},
                node.position, at);
      });
    }
  }

  void read_oracle(const YamlNode& node) {
    check_fields(node, "oracle", {"policy", "bound"});
    const auto bounds = reader_.word_axis(reader_.require(node, "bound", "policy 'oracle'"),
                                          {"bound", {"no_waste", "shortest"}});
    count_rows(size_of(bounds), node.position);
    for (const auto& bound : bounds) {
      add_row(Oracle{bound.value == 0 ? OracleBound::no_waste : OracleBound::shortest},
              node.position, {});
    }
  }

  void read_oracle_confidence(const YamlNode& node) {
    check_fields(node, "oracle_confidence", {"policy", "wrap"});
    if (FieldReader::find(node, "wrap") == nullptr) {
      add_rows(node, {OracleConfidence{}});
      return;
    }
    wrap_ = [](const Policy& inner) {
      if (const auto* rule = std::get_if<Threshold>(&inner)) return Policy(OracleConfidence{*rule});
      return Policy(OracleConfidence{std::get<Sps>(inner)});
    };
    read_wrapped(*FieldReader::find(node, "wrap"), kOracleWraps);
    wrap_ = nullptr;
  }

  // One policy or a list of them.
  void read_wrapped(const YamlNode& node, const std::vector<std::string_view>& allowed) {
    if (node.kind == YamlNode::Kind::list) {
      if (node.items.empty()) {
        reader_.fail(node.position, "'wrap' is an empty list",
                     "give at least one policy, or remove the key");
      }
      for (const YamlNode* item : node.items) read_one_wrapped(*item, allowed);
    } else {
      read_one_wrapped(node, allowed);
    }
  }

  void read_one_wrapped(const YamlNode& node, const std::vector<std::string_view>& allowed) {
    if (node.kind != YamlNode::Kind::map) {
      reader_.fail(node.position, "'wrap' must be a policy", "write '{policy: NAME, ...}'");
    }
    const YamlNode& name = reader_.require(node, "policy", "'wrap'");
    static_cast<void>(reader_.word(name, {"policy", allowed}));
    read_named(node, name);
  }

  // The values of an optional axis of numbers.
  [[nodiscard]] Axis<double> numbers(const YamlNode& node, const NumberField& field,
                                     double otherwise) const {
    const YamlNode* found = FieldReader::find(node, field.name);
    if (found == nullptr) return {{otherwise, {}}};
    return reader_.number_axis(*found, field);
  }
  [[nodiscard]] Axis<std::int64_t> integers(const YamlNode& node, const IntegerField& field,
                                            std::int64_t otherwise) const {
    const YamlNode* found = FieldReader::find(node, field.name);
    if (found == nullptr) return {{otherwise, {}}};
    return reader_.integer_axis(*found, field);
  }

  void read_softmax_min(const YamlNode& node) {
    check_fields(node, "softmax_min", {"policy", "minimum", "max_length"});
    const auto minimums = reader_.number_axis(
        reader_.require(node, "minimum", "policy 'softmax_min'"), {"minimum", 0, 1});
    const auto most = integers(node, {"max_length", 0, kMaxLength}, 0);
    count_rows(bounded_product(size_of(minimums), size_of(most)), node.position);
    for (const auto& minimum : minimums) {
      for (const auto& length : most) {
        add_row(SoftmaxMin{minimum.value, static_cast<std::int32_t>(length.value)}, node.position,
                length.position);
      }
    }
  }

  void read_schedule(const YamlNode& node) {
    check_fields(node, "schedule", {"policy", "lengths"});
    const YamlNode& lengths = reader_.require(node, "lengths", "policy 'schedule'");
    RequestSchedule schedule;
    SourcePosition longest = lengths.position;
    std::int32_t most = -1;
    for (const auto& [requests, value] : integer_map(lengths, "lengths", kMaxConcurrency)) {
      const auto length =
          static_cast<std::int32_t>(reader_.integer(*value, {"lengths", 0, kMaxLength}));
      schedule.entries.push_back({static_cast<std::int32_t>(requests), length});
      if (length > most) longest = value->position;
      most = std::max(most, length);
    }
    if (schedule.entries.front().requests != 1) {
      reader_.fail(lengths.position, "'lengths' does not say what to do with one request",
                   "add the key 1");
    }
    count_rows(1, node.position);
    add_row(std::move(schedule), node.position, longest);
  }

  void read_budget_fraction(const YamlNode& node) {
    check_fields(node, "budget_fraction", {"policy", "fraction"});
    const auto fractions = reader_.number_axis(
        reader_.require(node, "fraction", "policy 'budget_fraction'"), {"fraction", 0, 1});
    std::vector<Policy> rows;
    count_rows(size_of(fractions), node.position);
    for (const auto& fraction : fractions) rows.emplace_back(BudgetFraction{fraction.value});
    add_counted(node, std::move(rows));
  }

  void read_count_budget(const YamlNode& node) {
    check_fields(node, "count_budget", {"policy", "threshold", "refresh", "initial"});
    const CountBudgetOptions own;
    const auto thresholds = numbers(node, {"threshold", 0, 1}, own.threshold);
    const auto refreshes = integers(node, {"refresh", 1, kMaxCount}, own.refresh);
    const auto initials = integers(node, {"initial", 0, kMaxLength}, own.initial);
    count_product(node, {size_of(thresholds), size_of(refreshes), size_of(initials)});
    std::vector<Policy> rows;
    for (const auto& threshold : thresholds) {
      for (const auto& refresh : refreshes) {
        for (const auto& initial : initials) {
          rows.emplace_back(
              PromisingBudget{{threshold.value, static_cast<std::int32_t>(refresh.value),
                               static_cast<std::int32_t>(initial.value)}});
        }
      }
    }
    add_counted(node, std::move(rows));
  }

  void read_algorithm1(const YamlNode& node) {
    check_fields(node, "algorithm1", {"policy", "min_length"});
    const auto least = integers(node, {"min_length", 0, 1}, 0);
    count_rows(size_of(least), node.position);
    std::vector<Policy> rows;
    for (const auto& floor : least) {
      rows.emplace_back(Algorithm1{static_cast<std::int32_t>(floor.value)});
    }
    add_counted(node, std::move(rows));
  }

  void read_global(const YamlNode& node) {
    check_fields(node, "global",
                 {"policy", "lag", "min_gain", "min_length", "tiers", "fill_buckets"});
    const auto lags = integers(node, {"lag", 0, 2}, 0);
    const auto gains = numbers(node, {"min_gain", 0, 1}, 0);
    const auto least = integers(node, {"min_length", 0, 1}, 0);
    Axis<std::size_t> fills = {{0, {}}};
    if (const YamlNode* field = FieldReader::find(node, "fill_buckets")) {
      fills = reader_.word_axis(*field, {"fill_buckets", {"false", "true"}});
      if (plan_.cost.buckets.empty()) {
        reader_.fail(field->position, "'fill_buckets' needs captured sizes",
                     "give them as 'cost.buckets'");
      }
    }
    GlobalBudget rule;
    SourcePosition tiers_at{};
    if (const YamlNode* field = FieldReader::find(node, "tiers")) {
      tiers_at = field->position;
      for (const std::int64_t tier : increasing(*field, {"tiers", 0, kMaxLength}, kMaxLength + 1)) {
        rule.tiers.push_back(static_cast<std::int32_t>(tier));
      }
    }
    count_product(node, {size_of(lags), size_of(gains), size_of(least), size_of(fills)});
    for (const auto& lag : lags) {
      for (const auto& gain : gains) {
        for (const auto& floor : least) {
          for (const auto& fill : fills) {
            rule.lag = static_cast<std::int32_t>(lag.value);
            rule.min_gain = gain.value;
            rule.min_length = static_cast<std::int32_t>(floor.value);
            rule.fill_buckets = fill.value == 1;
            add_row(rule, node.position, tiers_at);
          }
        }
      }
    }
  }

  void read_exact_table(const YamlNode& node) {
    check_fields(node, "exact_table", {"policy", "min_gain"});
    if (FieldReader::find(node, "min_gain") == nullptr) {
      add_rows(node, {ExactTable{}});
      return;
    }
    const auto gains = numbers(node, {"min_gain", 0, 1}, 0);
    count_rows(size_of(gains), node.position);
    std::vector<Policy> rows;
    for (const auto& gain : gains) rows.emplace_back(ExactTable{gain.value});
    add_counted(node, std::move(rows));
  }

  void read_capped_ewma(const YamlNode& node) {
    check_fields(node, "capped_ewma",
                 {"policy", "prior", "alpha", "hysteresis", "repick", "probe"});
    const CappedEwmaOptions own;
    const auto priors = numbers(node, {"prior", 0, 1}, own.prior);
    const auto alphas = numbers(node, {"alpha", 0, 1}, own.alpha);
    const auto hystereses = numbers(node, {"hysteresis", 1, 1000}, own.hysteresis);
    const auto repicks = integers(node, {"repick", 1, kMaxCount}, own.repick);
    const auto probes = integers(node, {"probe", 1, kMaxCount}, own.probe);
    count_product(node, {size_of(priors), size_of(alphas), size_of(hystereses), size_of(repicks),
                         size_of(probes)});
    std::vector<Policy> rows;
    for (const auto& prior : priors) {
      for (const auto& alpha : alphas) {
        for (const auto& hysteresis : hystereses) {
          for (const auto& repick : repicks) {
            for (const auto& probe : probes) {
              rows.emplace_back(CapController{{prior.value, alpha.value, hysteresis.value,
                                               static_cast<std::int32_t>(repick.value),
                                               static_cast<std::int32_t>(probe.value)}});
            }
          }
        }
      }
    }
    add_counted(node, std::move(rows));
  }

  void read_gate(const YamlNode& node) {
    check_fields(node, "gate", {"policy", "window", "min_accepted", "wrap"});
    const auto windows = reader_.integer_axis(reader_.require(node, "window", "policy 'gate'"),
                                              {"window", 1, kMaxCount});
    const auto least = reader_.number_axis(reader_.require(node, "min_accepted", "policy 'gate'"),
                                           {"min_accepted", 0, kMaxLength});
    const YamlNode& wrapped = reader_.require(node, "wrap", "policy 'gate'");
    // Each pair reads the wrapped policies, and counts their rows, anew.
    count_product(node, {size_of(windows), size_of(least)});
    for (const auto& window : windows) {
      for (const auto& accepted : least) {
        wrap_ = [&](const Policy& inner) {
          return gate_around(inner, static_cast<std::int32_t>(window.value), accepted.value);
        };
        read_wrapped(wrapped, kGateWraps);
      }
    }
    wrap_ = nullptr;
  }

  static Policy gate_around(const Policy& inner, std::int32_t window, double min_accepted) {
    return std::visit(
        [&](const auto& rule) -> Policy {
          using Rule = std::decay_t<decltype(rule)>;
          if constexpr (std::is_constructible_v<Gate::Inside, Rule>) {
            return Gate{window, min_accepted, rule};
          } else {
            throw internal_error("gate", "a policy that it cannot be around");
          }
        },
        inner);
  }

  void add_rows(const YamlNode& node, std::vector<Policy> rows) {
    count_rows(static_cast<std::int64_t>(rows.size()), node.position);
    add_counted(node, std::move(rows));
  }
  void add_counted(const YamlNode& node, std::vector<Policy> rows) {
    for (Policy& row : rows) add_row(std::move(row), node.position, {});
  }
  void count_product(const YamlNode& node, std::initializer_list<std::int64_t> sizes) {
    std::int64_t rows = 1;
    for (const std::int64_t size : sizes) rows = bounded_product(rows, size);
    count_rows(rows, node.position);
  }

  // Called before the rows are made, so that no product of axes is expanded beyond the limit.
  void count_rows(std::int64_t rows, SourcePosition position) {
    rows_ += rows;
    if (bounded_product(rows_, runs_) > kMaxPlanRows) too_many_rows(position);
  }

  void multiply_runs(std::int64_t values, SourcePosition position) {
    runs_ = bounded_product(runs_, values);
    if (runs_ > kMaxPlanRows) too_many_rows(position);
  }

  [[noreturn]] void too_many_rows(SourcePosition position) const {
    reader_.fail(position, fmt::format("the axes give more than {} rows", kMaxPlanRows),
                 "give fewer values");
  }

  void add_row(Policy policy, SourcePosition position, SourcePosition length_position) {
    if (wrap_) policy = wrap_(policy);
    if (!seen_.insert({policy_name(policy), policy_parameters(policy)}).second) return;
    plan_.rows.push_back({std::move(policy), position, length_position});
  }

  std::string name_;
  YamlDocument document_;
  FieldReader reader_;
  std::optional<std::string> cost_table_;
  Plan plan_;
  std::int64_t rows_ = 0;  // of the policies, before equal ones are dropped
  std::int64_t runs_ = 1;  // verifications times sampling choices times concurrencies
  std::function<Policy(const Policy&)> wrap_;  // set while rows are the inner rules of another
  std::set<std::pair<std::string, std::vector<std::pair<std::string, ParameterValue>>>> seen_;
};

}  // namespace

CostModel model_of(const PlanCost& cost) {
  CostModel model = cost.table.empty() ? CostModel(cost.linear)
                                       : CostModel(read_cost_table(cost.table, cost.entry));
  if (cost.draft) model.set_draft(*cost.draft);
  if (!cost.draft_by_requests.empty()) model.set_draft(cost.draft_by_requests);
  if (cost.overhead) model.set_overhead(*cost.overhead);
  if (!cost.buckets.empty()) model.set_buckets(cost.buckets);
  return model;
}

Plan parse_plan(const std::string& text, const std::string& name,
                const std::optional<std::string>& cost_table) {
  return PlanReader(text, name, cost_table).read();
}

Plan read_plan(const std::string& path, const std::optional<std::string>& cost_table) {
  return parse_plan(read_text_file(path, kMaxPolicyFileBytes, "policy file"), text_file_name(path),
                    cost_table);
}

}  // namespace dspark
