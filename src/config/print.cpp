// Writes a plan as a policy file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
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

// A text in double quotes, as YAML reads it back.
std::string yaml_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// A policy as texts, so that equal texts are equal values; the fields stand in the order in which
// the reader multiplies them, the last one fastest.
struct PrintedRow {
  std::string policy;
  std::vector<std::pair<std::string, std::string>> fields;
};

using Fields = std::vector<std::pair<std::string, std::string>>;

template <class Limited>
void print_limits(Fields& out, const Limited& policy) {
  out.emplace_back("min_length", std::to_string(policy.min_length));
  out.emplace_back("max_length", std::to_string(policy.max_length));
}

void print_fields(Fields&, const NoSpeculation&) {}
void print_fields(Fields& out, const FixedLength& fixed) {
  out.emplace_back("length", std::to_string(fixed.length));
}
void print_fields(Fields& out, const Threshold& rule) {
  out.emplace_back("rule", threshold_rule_name(rule.rule));
  out.emplace_back("threshold", shortest(rule.threshold));
  print_limits(out, rule);
}
void print_fields(Fields& out, const Sps& sps) {
  out.emplace_back("survival_floor", shortest(sps.survival_floor));
  print_limits(out, sps);
}
void print_fields(Fields& out, const Oracle& oracle) {
  out.emplace_back("bound", oracle_bound_name(oracle.bound));
}
void print_fields(Fields& out, const SoftmaxMin& rule) {
  out.emplace_back("minimum", shortest(rule.minimum));
  out.emplace_back("max_length", std::to_string(rule.max_length));
}
void print_fields(Fields& out, const RequestSchedule& schedule) {
  std::vector<std::string> entries;
  for (const ScheduleEntry& entry : schedule.entries) {
    entries.push_back(fmt::format("{}: {}", entry.requests, entry.length));
  }
  out.emplace_back("lengths", fmt::format("{{{}}}", fmt::join(entries, ", ")));
}
void print_fields(Fields& out, const BudgetFraction& budget) {
  out.emplace_back("fraction", shortest(budget.fraction));
}
void print_fields(Fields& out, const PromisingBudget& budget) {
  out.emplace_back("threshold", shortest(budget.options.threshold));
  out.emplace_back("refresh", std::to_string(budget.options.refresh));
  out.emplace_back("initial", std::to_string(budget.options.initial));
}
void print_fields(Fields& out, const Algorithm1& rule) {
  out.emplace_back("min_length", std::to_string(rule.min_length));
}
void print_fields(Fields& out, const GlobalBudget& rule) {
  out.emplace_back("lag", std::to_string(rule.lag));
  out.emplace_back("min_gain", shortest(rule.min_gain));
  out.emplace_back("min_length", std::to_string(rule.min_length));
  if (rule.fill_buckets) out.emplace_back("fill_buckets", "true");
  if (!rule.tiers.empty())
    out.emplace_back("tiers", fmt::format("[{}]", fmt::join(rule.tiers, ", ")));
}
void print_fields(Fields& out, const ExactTable& rule) {
  if (rule.min_gain) out.emplace_back("min_gain", shortest(*rule.min_gain));
}
void print_fields(Fields& out, const CapController& rule) {
  out.emplace_back("prior", shortest(rule.options.prior));
  out.emplace_back("alpha", shortest(rule.options.alpha));
  out.emplace_back("hysteresis", shortest(rule.options.hysteresis));
  out.emplace_back("repick", std::to_string(rule.options.repick));
  out.emplace_back("probe", std::to_string(rule.options.probe));
}

template <class Inner>
void print_wrapped(Fields& out, const Inner& wrapped) {
  std::visit(
      [&](const auto& rule) {
        Fields fields;
        print_fields(fields, rule);
        std::string text = "{policy: " + policy_name(rule);
        for (const auto& [name, value] : fields) text += fmt::format(", {}: {}", name, value);
        out.emplace_back("wrap", text + "}");
      },
      wrapped);
}
void print_fields(Fields& out, const OracleConfidence& oracle) {
  print_wrapped(out, oracle.wrapped);
}
void print_fields(Fields& out, const Gate& gate) {
  out.emplace_back("window", std::to_string(gate.window));
  out.emplace_back("min_accepted", shortest(gate.min_accepted));
  print_wrapped(out, gate.wrapped);
}

PrintedRow print_row(const Policy& policy) {
  PrintedRow row = {policy_name(policy), {}};
  std::visit([&](const auto& rule) { print_fields(row.fields, rule); }, policy);
  return row;
}

// What cannot be a list of values: it is a list, or a map, itself.
bool is_axis(const std::string& field) { return field != "tiers" && field != "lengths"; }

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
    if (a.fields.size() != b.fields.size() || !is_axis(a.fields[f].first)) return false;
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

std::string print_cost(const PlanCost& cost) {
  std::vector<std::string> fields;
  if (cost.table.empty()) {
    fields.push_back(
        fmt::format("linear: {{draft: {}, verify_base: {}, verify_token: {}, accept: {}}}",
                    shortest(cost.linear.draft), shortest(cost.linear.verify_base),
                    shortest(cost.linear.verify_token), shortest(cost.linear.accept)));
  } else {
    // Where the plan is read from a file elsewhere, the path still holds.
    fields.push_back("table: " + yaml_text(std::filesystem::absolute(cost.table).string()));
  }
  if (!cost.entry.empty()) fields.push_back("entry: " + yaml_text(cost.entry));
  if (cost.draft) fields.push_back("draft: " + shortest(*cost.draft));
  if (!cost.draft_by_requests.empty()) {
    std::vector<std::string> entries;
    for (const auto& [requests, draft] : cost.draft_by_requests) {
      entries.push_back(fmt::format("{}: {}", requests, shortest(draft)));
    }
    fields.push_back(fmt::format("draft: {{{}}}", fmt::join(entries, ", ")));
  }
  if (cost.overhead) fields.push_back("overhead: " + shortest(*cost.overhead));
  if (!cost.buckets.empty()) {
    fields.push_back(fmt::format("buckets: [{}]", fmt::join(cost.buckets, ", ")));
  }
  return fmt::format("cost: {{{}}}\n", fmt::join(fields, ", "));
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
  out += print_cost(plan.cost);
  out += fmt::format("concurrency: [{}]\n", fmt::join(plan.concurrency, ", "));
  if (plan.width != Width::ragged) out += fmt::format("width: {}\n", width_name(plan.width));
  out += plan.default_sweep ? kDefaultSweep : print_policies(plan.rows);
  return out;
}

}  // namespace dspark
