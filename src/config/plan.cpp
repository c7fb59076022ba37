// Reads a policy file: what its keys mean.
#include "config/plan.h"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "config/fields.h"
#include "support/error.h"
#include "support/text.h"
#include "support/text_file.h"

namespace dspark {
namespace {

constexpr std::int64_t kMaxLength = 64;  // block_size is at most this (trace format)
const double kNoBound = HUGE_VAL;

const std::vector<std::string_view> kPolicies = {"none", "fixed",  "threshold",
                                                 "sps",  "oracle", "oracle_confidence"};
const std::vector<std::string_view> kWrappedPolicies = {"threshold", "sps"};
const std::vector<std::string_view> kLaterPolicies = {
    "softmax_min", "schedule",    "budget_fraction", "count_budget", "algorithm1",
    "global",      "exact_table", "capped_ewma",     "gate"};
// Fields of policies that come later; a policy of this version has none of them.
const std::vector<std::string_view> kLaterFields = {
    "lengths",      "fraction", "lag", "min_gain", "tiers", "window",
    "min_accepted", "wrap",     "p",   "width",    "bound", "refresh"};

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
  PlanReader(const std::string& text, const std::string& name)
      : name_(name), document_(parse_yaml(text, name)), reader_(name) {}

  Plan read() {
    const YamlNode& root = *document_.root;
    plan_.file = name_;
    if (root.kind != YamlNode::Kind::map) {
      reader_.fail(root.position, "a policy file must be a map", "start with 'version: 1'");
    }
    check_version(root);
    reader_.check_map(
        root, "a policy file",
        {.where = "",
         .known = {"version", "verification", "sampling", "cost", "concurrency", "policies"},
         .later = {"width", "calibration"}});
    if (const YamlNode* node = FieldReader::find(root, "verification")) read_verification(*node);
    if (const YamlNode* node = FieldReader::find(root, "sampling")) {
      read_sampling(*node);
    } else {
      plan_.sampling = {SamplingChoice{}};
    }
    if (const YamlNode* node = FieldReader::find(root, "cost")) read_cost(*node);
    read_concurrency(FieldReader::find(root, "concurrency"));
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
                      {.where = "in 'cost'", .known = {"linear"}, .later = {"table", "buckets"}});
    const YamlNode& linear = reader_.require(node, "linear", "'cost'");
    reader_.check_map(
        linear, "'cost.linear'",
        {.where = "in 'cost.linear'", .known = {"draft", "verify_base", "verify_token", "accept"}});
    plan_.cost = {.draft = cost_term(linear, "draft"),
                  .verify_base = cost_term(linear, "verify_base"),
                  .verify_token = cost_term(linear, "verify_token"),
                  .accept = cost_term(linear, "accept")};
    const LinearCost& cost = plan_.cost;
    const double dearest = cost.draft + cost.verify_base +
                           cost.verify_token * static_cast<double>(kMaxLength + 1) +
                           cost.accept * static_cast<double>(kMaxLength);
    if (dearest == 0) {
      reader_.fail(linear.position, "all terms of 'cost.linear' are 0",
                   "give at least one a positive value");
    }
    if (!std::isfinite(dearest)) {
      reader_.fail(linear.position, "the terms of 'cost.linear' are too large to add up",
                   "use a larger unit");
    }
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
    if (node != nullptr) {
      for (const auto& requests : reader_.integer_axis(*node, {"concurrency", 1, INT32_MAX})) {
        if (requests.value != 1) {
          reader_.fail(
              requests.position,
              fmt::format("concurrency {} is not supported in this version", requests.value),
              "use 1");
        }
      }
    }
    plan_.concurrency = {1};
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
    if (name.text == "none") {
      check_fields(node, name.text, {"policy"});
      count_rows(1, node.position);
      add_row(NoSpeculation{}, node.position, {});
    } else if (name.text == "fixed") {
      read_fixed(node);
    } else if (name.text == "threshold") {
      read_threshold(node);
    } else if (name.text == "sps") {
      read_sps(node);
    } else if (name.text == "oracle") {
      read_oracle(node);
    } else if (name.text == "oracle_confidence") {
      read_oracle_confidence(node);
    } else {
      refuse_policy(name);
    }
  }

  [[noreturn]] void refuse_policy(const YamlNode& name) const {
    const std::string known = fmt::format("known policies: {}", join_words(kPolicies));
    for (const std::string_view later : kLaterPolicies) {
      if (name.text == later) {
        reader_.fail(name.position,
                     fmt::format("policy '{}' is not supported in this version", later), known);
      }
    }
    const std::string_view nearest = nearest_word(name.text, kPolicies);
    reader_.fail(name.position, fmt::format("unknown policy {}", quoted(name.text)),
                 nearest.empty() ? known : fmt::format("did you mean '{}'? {}", nearest, known));
  }

  void check_fields(const YamlNode& node, const std::string& policy,
                    std::vector<std::string_view> fields) const {
    const std::string where = fmt::format("in policy '{}'", policy);
    reader_.check_map(node, "a policy",
                      {.where = where, .known = std::move(fields), .later = kLaterFields});
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
    const YamlNode* wrap = FieldReader::find(node, "wrap");
    if (wrap == nullptr) {
      count_rows(1, node.position);
      add_row(OracleConfidence{}, node.position, {});
    } else if (wrap->kind != YamlNode::Kind::list) {
      read_wrapped(*wrap);
    } else if (wrap->items.empty()) {
      reader_.fail(wrap->position, "'wrap' is an empty list",
                   "give at least one policy, or remove the key");
    } else {
      for (const YamlNode* item : wrap->items) read_wrapped(*item);
    }
  }

  void read_wrapped(const YamlNode& node) {
    if (node.kind != YamlNode::Kind::map) {
      reader_.fail(node.position, "'wrap' must be a policy", "write '{policy: NAME, ...}'");
    }
    const WordField field = {"policy", kWrappedPolicies};
    const std::size_t name = reader_.word(reader_.require(node, "policy", "'wrap'"), field);
    wrapping_ = true;
    if (name == 0) {
      read_threshold(node);
    } else {
      read_sps(node);
    }
    wrapping_ = false;
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
    if (wrapping_) policy = wrapped(policy);
    if (!seen_.insert(key_of(policy)).second) return;
    plan_.rows.push_back({std::move(policy), position, length_position});
  }

  static Policy wrapped(const Policy& policy) {
    if (const auto* rule = std::get_if<Threshold>(&policy)) return OracleConfidence{*rule};
    return OracleConfidence{std::get<Sps>(policy)};
  }

  // Kind, kind of the wrapped policy, word, number and limits: equal for equal policies alone.
  using Key = std::tuple<std::size_t, std::size_t, int, double, std::int32_t, std::int32_t>;

  static Key key_of(const Policy& policy) {
    Key key = {policy.index(), 0, 0, 0.0, 0, 0};
    if (const auto* fixed = std::get_if<FixedLength>(&policy)) {
      std::get<4>(key) = fixed->length;
    } else if (const auto* rule = std::get_if<Threshold>(&policy)) {
      key = {policy.index(),
             0,
             rule->rule == ThresholdRule::cumulative ? 0 : 1,
             rule->threshold,
             rule->min_length,
             rule->max_length};
    } else if (const auto* sps = std::get_if<Sps>(&policy)) {
      key = {policy.index(), 0, 0, sps->survival_floor, sps->min_length, sps->max_length};
    } else if (const auto* oracle = std::get_if<Oracle>(&policy)) {
      std::get<2>(key) = oracle->bound == OracleBound::no_waste ? 0 : 1;
    } else if (const auto* confidence = std::get_if<OracleConfidence>(&policy)) {
      key =
          key_of(std::visit([](const auto& inner) { return Policy(inner); }, confidence->wrapped));
      std::get<1>(key) = 1 + std::exchange(std::get<0>(key), policy.index());
    }
    return key;
  }

  std::string name_;
  YamlDocument document_;
  FieldReader reader_;
  Plan plan_;
  std::int64_t rows_ = 0;  // of the policies, before equal ones are dropped
  std::int64_t runs_ = 1;  // verifications times sampling choices
  bool wrapping_ = false;  // rows are the inner rules of `oracle_confidence`
  std::set<Key> seen_;
};

}  // namespace

Plan parse_plan(const std::string& text, const std::string& name) {
  return PlanReader(text, name).read();
}

Plan read_plan(const std::string& path) {
  return parse_plan(read_text_file(path, kMaxPolicyFileBytes, "policy file"), text_file_name(path));
}

}  // namespace dspark
