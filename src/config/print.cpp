// Writes a plan as a policy file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/plan.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

const char* top_p_rule_name(TopPRule rule) {
  return rule == TopPRule::water_filling ? "water_filling" : "include_crossing";
}

// One value, or a list of them.
std::string print_values(const std::vector<std::string>& values) {
  if (values.size() == 1) return values.front();
  return fmt::format("[{}]", fmt::join(values, ", "));
}

// A policy as texts, so that equal texts are equal values; the fields stand in the order in which
// the reader multiplies them, the last one fastest.
struct PrintedRow {
  std::string policy;
  std::vector<std::pair<std::string, std::string>> fields;
};

PrintedRow print_row(const Policy& policy) {
  PrintedRow row = {policy_name(policy), {}};
  const auto add = [&row](const char* name, std::string value) {
    row.fields.emplace_back(name, std::move(value));
  };
  const auto add_limits = [&add](const auto& p) {
    add("min_length", fmt::format("{}", p.min_length));
    add("max_length", fmt::format("{}", p.max_length));
  };
  if (const auto* fixed = std::get_if<FixedLength>(&policy)) {
    add("length", fmt::format("{}", fixed->length));
  } else if (const auto* rule = std::get_if<Threshold>(&policy)) {
    add("rule", threshold_rule_name(rule->rule));
    add("threshold", shortest(rule->threshold));
    add_limits(*rule);
  } else if (const auto* sps = std::get_if<Sps>(&policy)) {
    add("survival_floor", shortest(sps->survival_floor));
    add_limits(*sps);
  } else if (const auto* oracle = std::get_if<Oracle>(&policy)) {
    add("bound", oracle_bound_name(oracle->bound));
  } else if (const auto* confidence = std::get_if<OracleConfidence>(&policy)) {
    const PrintedRow inner = print_row(
        std::visit([](const auto& inner_rule) { return Policy(inner_rule); }, confidence->wrapped));
    std::string wrap = "{policy: " + inner.policy;
    for (const auto& [name, value] : inner.fields) wrap += fmt::format(", {}: {}", name, value);
    add("wrap", wrap + "}");
  }
  return row;
}

// Rows [start, start + size) as one entry: the product of `axes`.
struct Product {
  std::vector<std::vector<std::string>> axes;
  std::size_t size = 1;
};

// True if the `size` rows at `next` are those at `start` but for one value of field `f`, the same
// in all of them.
bool repeats(const std::vector<PrintedRow>& rows, std::size_t start, std::size_t next,
             std::size_t size, std::size_t f) {
  if (next + size > rows.size()) return false;
  for (std::size_t i = 0; i < size; ++i) {
    const PrintedRow& a = rows[start + i];
    const PrintedRow& b = rows[next + i];
    if (a.policy != b.policy || b.fields[f] != rows[next].fields[f]) return false;
    for (std::size_t g = 0; g < a.fields.size(); ++g) {
      if (g != f && a.fields[g] != b.fields[g]) return false;
    }
  }
  return true;
}

// The longest product of axes that starts at `start`, grown from the fastest field to the slowest.
Product longest_product(const std::vector<PrintedRow>& rows, std::size_t start) {
  Product product;
  const PrintedRow& first = rows[start];
  for (const auto& field : first.fields) product.axes.push_back({field.second});
  for (std::size_t f = first.fields.size(); f-- > 0;) {
    const std::size_t block = product.size;
    for (std::size_t next = start + block; repeats(rows, start, next, block, f); next += block) {
      product.axes[f].push_back(rows[next].fields[f].second);
      product.size += block;
    }
  }
  return product;
}

std::string print_policies(const std::vector<PlanRow>& plan_rows) {
  std::vector<PrintedRow> rows;
  rows.reserve(plan_rows.size());
  for (const PlanRow& row : plan_rows) rows.push_back(print_row(row.policy));
  std::string out = "policies:\n";
  for (std::size_t start = 0; start < rows.size();) {
    const Product product = longest_product(rows, start);
    out += fmt::format("  - {{policy: {}", rows[start].policy);
    for (std::size_t f = 0; f < product.axes.size(); ++f) {
      out += fmt::format(", {}: {}", rows[start].fields[f].first, print_values(product.axes[f]));
    }
    out += "}\n";
    start += product.size;
  }
  return out;
}

constexpr const char* kDefaultSweep =
    "# No policies: the default sweep, which depends on the block size of the trace:\n"
    "#   none, every fixed length 0..block_size, cumulative thresholds 0.05, 0.10 .. 0.95,\n"
    "#   sps with the survival floors 0, 0.1, 0.3, and the bounds: oracle no_waste and shortest,\n"
    "#   oracle_confidence with sps.\n";

using OptionalTexts = std::vector<std::optional<std::string>>;

// The values of one field of the sampling choices, in order of appearance; one empty one where the
// file does not give it.
template <class Get>
OptionalTexts axis_of(const std::vector<SamplingChoice>& choices, const Get& get) {
  OptionalTexts axis;
  std::set<std::optional<std::string>> seen;
  for (const SamplingChoice& choice : choices) {
    const std::optional<std::string> value = get(choice);
    if (seen.insert(value).second) axis.push_back(value);
  }
  return axis;
}

std::string print_sampling(const std::vector<SamplingChoice>& choices) {
  const std::vector<std::pair<std::string, OptionalTexts>> axes = {
      {"temperature", axis_of(choices,
                              [](const SamplingChoice& c) -> std::optional<std::string> {
                                if (!c.temperature) return std::nullopt;
                                return shortest(*c.temperature);
                              })},
      {"top_k", axis_of(choices,
                        [](const SamplingChoice& c) -> std::optional<std::string> {
                          if (!c.top_k) return std::nullopt;
                          return fmt::format("{}", *c.top_k);
                        })},
      {"top_p", axis_of(choices,
                        [](const SamplingChoice& c) -> std::optional<std::string> {
                          if (!c.top_p) return std::nullopt;
                          return shortest(*c.top_p);
                        })},
      {"top_p_rule", axis_of(choices,
                             [](const SamplingChoice& c) -> std::optional<std::string> {
                               return top_p_rule_name(c.top_p_rule);
                             })},
      {"drafts", axis_of(choices,
                         [](const SamplingChoice& c) -> std::optional<std::string> {
                           return c.greedy_drafts ? "greedy" : "sampled";
                         })},
  };
  std::size_t product = 1;
  std::vector<std::string> fields;
  for (const auto& [name, axis] : axes) {
    product *= axis.size();
    std::vector<std::string> values;
    for (const auto& value : axis) {
      if (value) values.push_back(*value);
    }
    if (values.size() != axis.size() && axis.size() > 1) product = 0;  // given in some choices only
    if (!values.empty()) fields.push_back(fmt::format("{}: {}", name, print_values(values)));
  }
  if (product != choices.size()) {
    throw internal_error("print_plan", "the sampling choices are no product of axes");
  }
  return fmt::format("sampling: {{{}}}\n", fmt::join(fields, ", "));
}

}  // namespace

std::string print_plan(const Plan& plan) {
  std::string out = "version: 1\n";
  if (!plan.verification.empty()) {
    std::vector<std::string> names;
    for (const Verification v : plan.verification) names.emplace_back(verification_name(v));
    out += fmt::format("verification: {}\n", print_values(names));
  }
  out += print_sampling(plan.sampling);
  out += fmt::format(
      "cost: {{linear: {{draft: {}, verify_base: {}, verify_token: {}, accept: {}}}}}\n",
      shortest(plan.cost.draft), shortest(plan.cost.verify_base), shortest(plan.cost.verify_token),
      shortest(plan.cost.accept));
  out += fmt::format("concurrency: [{}]\n", fmt::join(plan.concurrency, ", "));
  out += plan.default_sweep ? kDefaultSweep : print_policies(plan.rows);
  return out;
}

}  // namespace dspark
