// The result as JSON and JSON lines; both are made of the same objects.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/formats.h"
#include "support/text.h"

namespace dspark {
namespace {

// Text that came from files is escaped first, so only quotes and backslashes are left to JSON.
std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : escape_text(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// A number that does not exist is null, and so is one that JSON cannot write.
std::string json_number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? shortest(*value) : "null";
}

std::string json_integer(const std::optional<std::int64_t>& value) {
  return value ? std::to_string(*value) : "null";
}

std::string json_parameter(const ParameterValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return json_number(*number);
  return json_text(std::get<std::string>(value));
}

// Fields in the order in which they are added.
class Object {
 public:
  Object& raw(std::string_view name, const std::string& json) {
    if (!text_.empty()) text_ += ", ";
    text_ += json_text(name) + ": " + json;
    return *this;
  }
  Object& text(std::string_view name, std::string_view value) {
    return raw(name, json_text(value));
  }
  Object& integer(std::string_view name, const std::optional<std::int64_t>& value) {
    return raw(name, json_integer(value));
  }
  Object& number(std::string_view name, const std::optional<double>& value) {
    return raw(name, json_number(value));
  }
  Object& boolean(std::string_view name, bool value) { return raw(name, value ? "true" : "false"); }

  [[nodiscard]] std::string str() const { return "{" + text_ + "}"; }
  /// The fields alone, to go on from in another object.
  [[nodiscard]] const std::string& fields() const { return text_; }

 private:
  std::string text_;
};

Object tool_of(const ReplayResult& result) {
  Object out;
  out.text("version", result.version).text("backend", result.backend).text("device", result.device);
  return out;
}

std::string json_integers(const std::vector<std::int64_t>& values) {
  std::string out = "[";
  for (const std::int64_t value : values) {
    out += (out.size() > 1 ? ", " : "") + std::to_string(value);
  }
  return out + "]";
}

// What the numbers depend on besides the traces and the policies.
Object settings_of(const ReplayResult& result) {
  Object cost;
  if (result.cost.linear) {
    Object linear;
    linear.number("draft", result.cost.linear->draft)
        .number("verify_base", result.cost.linear->verify_base)
        .number("verify_token", result.cost.linear->verify_token)
        .number("accept", result.cost.linear->accept);
    cost.raw("linear", linear.str());
  } else {
    cost.text("table", result.cost.file).text("format", result.cost.format);
  }
  cost.text("unit", result.cost.unit)
      .number("overhead", result.cost.overhead)
      .raw("buckets", json_integers(result.cost.buckets))
      .text("width", result.cost.width);
  Object out;
  out.raw("seed", std::to_string(result.seed))
      .integer("repeats", result.repeats)
      .text("products", result.products)
      .number("confidence", result.confidence)
      .integer("reference", result.reference)
      .raw("cost", cost.str())
      .raw("calibration", result.calibration.empty() ? "null" : json_text(result.calibration));
  return out;
}

Object sampling_of(const SamplingLabel& sampling) {
  Object out;
  out.number("temperature", sampling.temperature)
      .integer("top_k", sampling.top_k)
      .number("top_p", sampling.top_p)
      .text("top_p_rule", sampling.top_p_rule)
      .text("drafts", sampling.drafts);
  return out;
}

// Every kind of object is made from itself and the level of the intervals.
Object object_of(const TraceSummary& trace, double) {
  Object out;
  out.text("file", trace.file)
      .text("kind", trace.kind)
      .integer("vocab_size", trace.vocab_size)
      .integer("block_size", trace.block_size)
      .integer("anchors", trace.anchors)
      .integer("sequences", trace.sequences)
      .number("temperature", trace.temperature)
      .text("domain", trace.domain)
      .integer("rounds", trace.rounds)
      .integer("reproduced", trace.reproduced)
      .integer("diverged", trace.diverged)
      .integer("censored", trace.censored)
      .integer("invalid_rows", trace.invalid_rows)
      .integer("impossible_tokens", trace.impossible_tokens)
      .integer("near_ties", trace.near_ties);
  return out;
}

// An interval: [lo, hi], or null.
std::string json_range(const std::optional<Range>& range) {
  if (!range || !std::isfinite(range->lo) || !std::isfinite(range->hi)) return "null";
  return "[" + shortest(range->lo) + ", " + shortest(range->hi) + "]";
}

// Numbers, or null where there are none.
std::string json_numbers(const std::vector<double>& values) {
  if (values.empty()) return "null";
  std::string out = "[";
  for (const double value : values) out += (out.size() > 1 ? ", " : "") + json_number(value);
  return out + "]";
}

Object object_of(const PositionIntervals& intervals, double confidence) {
  Object out;
  out.number("confidence", confidence)
      .raw("survival", json_range(intervals.survival))
      .raw("survival_trajectory", json_range(intervals.survival_trajectory))
      .raw("survival_visited", json_range(intervals.survival_visited))
      .raw("conditional", json_range(intervals.conditional))
      .raw("predicted_conditional", json_range(intervals.predicted_conditional))
      .raw("conditional_ece", json_range(intervals.conditional_ece))
      .raw("predicted", json_range(intervals.predicted))
      .raw("top1_agreement", json_range(intervals.top1_agreement));
  return out;
}

Object object_of(const RowIntervals& intervals, double confidence) {
  Object out;
  out.number("confidence", confidence)
      .raw("tau", json_range(intervals.tau))
      .raw("tau_interior", json_range(intervals.tau_interior))
      .raw("rounds", json_range(intervals.rounds))
      .raw("accepted_per_round", json_range(intervals.accepted_per_round))
      .raw("verified_per_round", json_range(intervals.verified_per_round))
      .raw("acceptance_rate", json_range(intervals.acceptance_rate))
      .raw("cost_per_round", json_range(intervals.cost_per_round))
      .raw("cost_per_step", json_range(intervals.cost_per_step))
      .raw("tokens_per_cost", json_range(intervals.tokens_per_cost))
      .raw("tokens_per_cost_per_user", json_range(intervals.tokens_per_cost_per_user))
      .raw("speedup", json_range(intervals.speedup));
  return out;
}

std::string json_comparison(const std::optional<PairedComparison>& versus) {
  if (!versus) return "null";
  Object out;
  out.number("difference", versus->difference)
      .raw("interval", json_range(versus->interval))
      .text("verdict", versus->verdict);
  return out.str();
}

std::string json_ledger(const std::optional<Ledger>& ledger) {
  if (!ledger) return "null";
  Object out;
  out.number("rounds", ledger->rounds)
      .number("proposed", ledger->proposed)
      .number("verified", ledger->verified)
      .number("accepted", ledger->accepted)
      .number("wasted", ledger->wasted)
      .number("draft_cost", ledger->draft_cost)
      .number("verify_cost", ledger->verify_cost)
      .number("accept_cost", ledger->accept_cost)
      .number("overhead_cost", ledger->overhead_cost)
      .number("rounds_without_acceptance", ledger->rounds_without_acceptance)
      .number("rounds_trimmed", ledger->rounds_trimmed)
      .number("break_even_tau", ledger->break_even_tau)
      .raw("scheduled_histogram", json_numbers(ledger->scheduled_histogram))
      .raw("accepted_histogram", json_numbers(ledger->accepted_histogram));
  return out.str();
}

Object object_of(const StratumIntervals& intervals, double confidence) {
  Object out;
  out.number("confidence", confidence)
      .raw("survival", json_range(intervals.survival))
      .raw("tau_open_loop", json_range(intervals.tau_open_loop))
      .raw("predicted_conditional", json_range(intervals.predicted_conditional));
  return out;
}

Object object_of(const Stratum& stratum, double confidence) {
  Object out;
  out.text("trace", stratum.trace)
      .text("verification", stratum.verification)
      .raw("sampling", sampling_of(stratum.sampling).str())
      .text("by", stratum.by)
      .text("label", stratum.label)
      .number("anchors", stratum.anchors)
      .number("survival", stratum.survival)
      .number("tau_open_loop", stratum.tau_open_loop)
      .number("predicted_conditional", stratum.predicted_conditional)
      .boolean("worst", stratum.worst)
      .raw("interval", object_of(stratum.intervals, confidence).str());
  return out;
}

Object object_of(const StrataMean& mean, double confidence) {
  Object interval;
  interval.number("confidence", confidence)
      .raw("macro", json_range(mean.macro_interval))
      .raw("micro", json_range(mean.micro_interval));
  Object out;
  // The mean over all traces belongs to none.
  out.raw("trace", mean.trace.empty() ? "null" : json_text(mean.trace))
      .text("verification", mean.verification)
      .raw("sampling", sampling_of(mean.sampling).str())
      .text("by", mean.by)
      .number("macro", mean.macro)
      .number("micro", mean.micro)
      .raw("interval", interval.str());
  return out;
}

Object object_of(const PositionResult& position, double confidence) {
  Object out;
  out.text("trace", position.trace)
      .text("verification", position.verification)
      .raw("sampling", sampling_of(position.sampling).str())
      .integer("position", position.position)
      .number("survival", position.survival)
      .number("survival_trajectory", position.survival_trajectory)
      .number("survival_visited", position.survival_visited)
      .number("conditional", position.conditional)
      .number("predicted_conditional", position.predicted_conditional)
      .number("conditional_ece", position.conditional_ece)
      .number("predicted", position.predicted)
      .number("predicted_se", position.predicted_se)
      .number("top1_agreement", position.top1_agreement)
      .number("effective_samples", position.effective_samples)
      .number("survival_se", position.survival_se)
      .raw("interval", object_of(position.intervals, confidence).str());
  return out;
}

std::string parameters_of(const std::vector<std::pair<std::string, ParameterValue>>& parameters) {
  Object out;
  for (const auto& [name, value] : parameters) out.raw(name, json_parameter(value));
  return out.str();
}

Object object_of(const PairSide& side) {
  Object out;
  out.text("trace", side.trace)
      .raw("sampling", sampling_of(side.sampling).str())
      .boolean("off_policy", side.off_policy)
      .number("tau", side.tau)
      .number("tokens_per_cost", side.tokens_per_cost);
  return out;
}

Object object_of(const VerificationPair& pair, double confidence) {
  Object difference;
  difference.number("confidence", confidence)
      .number("tau", pair.tau_difference)
      .raw("tau_interval", json_range(pair.tau_interval))
      .number("tokens_per_cost", pair.efficiency_difference)
      .raw("tokens_per_cost_interval", json_range(pair.efficiency_interval));
  Object out;
  out.text("domain", pair.domain)
      .text("policy", pair.policy)
      .raw("parameters", parameters_of(pair.parameters))
      .integer("concurrency", pair.concurrency)
      .raw("greedy", object_of(pair.greedy).str())
      .raw("probabilistic", object_of(pair.probabilistic).str())
      .raw("difference", difference.str());
  return out;
}

Object object_of(const PolicyResult& row, double confidence) {
  Object out;
  out.text("trace", row.trace)
      .text("verification", row.verification)
      .raw("sampling", sampling_of(row.sampling).str())
      .text("policy", row.policy)
      .raw("parameters", parameters_of(row.parameters))
      .integer("concurrency", row.concurrency)
      .boolean("lossless", row.lossless)
      .number("tau", row.tau)
      .number("tau_interior", row.tau_interior)
      .number("tau_lo", row.tau_lo)
      .number("tau_hi", row.tau_hi)
      .integer("censored_rounds", row.censored_rounds)
      .number("rounds", row.rounds)
      .number("tokens", row.tokens)
      .number("accepted_per_round", row.accepted_per_round)
      .number("verified_per_round", row.verified_per_round)
      .number("verified_per_round_se", row.verified_per_round_se)
      .number("verified_per_round_on_trajectory", row.verified_per_round_on_trajectory)
      .number("acceptance_rate", row.acceptance_rate)
      .number("cost_per_round", row.cost_per_round)
      .number("cost_per_step", row.cost_per_step)
      .number("tokens_per_cost", row.tokens_per_cost)
      .number("tokens_per_cost_per_user", row.tokens_per_cost_per_user)
      .number("speedup", row.speedup)
      .number("budget", row.budget)
      .number("padded_tokens", row.padded_tokens)
      .boolean("pareto", row.pareto)
      .boolean("walked", row.walked)
      .boolean("off_policy", row.off_policy)
      .number("effective_samples", row.effective_samples)
      .number("tau_se", row.tau_se)
      .number("censored_share", row.censored_share)
      .number("early_stop_difference", row.early_stop_difference)
      .boolean("bound", row.bound)
      .raw("interval", object_of(row.intervals, confidence).str())
      .boolean("reference", row.is_reference)
      .raw("versus_reference", json_comparison(row.versus))
      .raw("ledger", json_ledger(row.ledger));
  return out;
}

Object object_of(const BestPolicy& best, double confidence) {
  Object interval;
  interval.number("confidence", confidence)
      .raw("tokens_per_cost", json_range(best.tokens_per_cost_interval));
  Object out;
  out.text("trace", best.trace)
      .text("verification", best.verification)
      .raw("sampling", sampling_of(best.sampling).str())
      .integer("concurrency", best.concurrency)
      .text("policy", best.policy)
      .raw("parameters", parameters_of(best.parameters))
      .number("tokens_per_cost", best.tokens_per_cost)
      .number("tokens_per_cost_per_user", best.tokens_per_cost_per_user)
      .number("speedup", best.speedup)
      .number("budget", best.budget)
      .number("padded_tokens", best.padded_tokens)
      .boolean("changes", best.changes)
      .raw("interval", interval.str());
  return out;
}

std::string json_value(const PolicyValue& value) {
  Object out;
  out.text("policy", value.policy)
      .raw("parameters", parameters_of(value.parameters))
      .number("tokens_per_cost", value.tokens_per_cost);
  return out.str();
}

Object object_of(const CalibrationWorth& worth, double) {
  Object out;
  out.text("trace", worth.trace)
      .text("verification", worth.verification)
      .raw("sampling", sampling_of(worth.sampling).str())
      .integer("concurrency", worth.concurrency)
      .raw("before", json_value(worth.before))
      .raw("after", json_value(worth.after))
      .raw("oracle_confidence", worth.oracle ? json_value(*worth.oracle) : "null");
  return out;
}

Object run_of(const ReplayResult& result) {
  Object out;
  out.number("seconds", result.seconds);
  if (result.cached) out.boolean("cached", *result.cached);
  return out;
}

template <class Item>
std::string json_array(const std::vector<Item>& items, double confidence) {
  if (items.empty()) return "[]";
  std::string out = "[\n";
  for (std::size_t i = 0; i < items.size(); ++i) {
    out += "    " + object_of(items[i], confidence).str() + (i + 1 < items.size() ? ",\n" : "\n");
  }
  return out + "  ]";
}

std::string json_texts(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (const std::string& text : texts) out += (out.size() > 1 ? ", " : "") + json_text(text);
  return out + "]";
}

std::string json_line(std::string_view type, const Object& object) {
  Object out;
  out.text("type", type);
  return "{" + out.fields() + ", " + object.fields() + "}\n";
}

constexpr const char* kFormatName = "dspark-replay-result";
constexpr std::int64_t kFormatVersion = 1;

}  // namespace

std::string render_json(const ReplayResult& result) {
  std::string out = "{\n";
  out += "  \"format\": " + json_text(kFormatName) + ",\n";
  out += "  \"format_version\": " + json_integer(kFormatVersion) + ",\n";
  out += "  \"tool\": " + tool_of(result).str() + ",\n";
  out += "  \"settings\": " + settings_of(result).str() + ",\n";
  out += "  \"traces\": " + json_array(result.traces, result.confidence) + ",\n";
  out += "  \"positions\": " + json_array(result.positions, result.confidence) + ",\n";
  out += "  \"results\": " + json_array(result.results, result.confidence) + ",\n";
  out += "  \"best\": " + json_array(result.best, result.confidence) + ",\n";
  out +=
      "  \"calibration_worth\": " + json_array(result.calibration_worth, result.confidence) + ",\n";
  out += "  \"pairs\": " + json_array(result.pairs, result.confidence) + ",\n";
  out += "  \"strata\": " + json_array(result.strata, result.confidence) + ",\n";
  out += "  \"strata_means\": " + json_array(result.strata_means, result.confidence) + ",\n";
  out += "  \"notes\": " + json_texts(result.notes) + ",\n";
  out += "  \"run\": " + run_of(result).str() + "\n";
  return out + "}\n";
}

std::string render_jsonl(const ReplayResult& result) {
  Object header;
  header.text("format", kFormatName)
      .integer("format_version", kFormatVersion)
      .raw("tool", tool_of(result).str())
      .raw("settings", settings_of(result).str());
  std::string out = json_line("header", header);
  const auto add = [&](const char* type, const auto& items) {
    for (const auto& item : items) out += json_line(type, object_of(item, result.confidence));
  };
  add("trace", result.traces);
  add("position", result.positions);
  add("result", result.results);
  add("best", result.best);
  add("calibration_worth", result.calibration_worth);
  add("pair", result.pairs);
  add("stratum", result.strata);
  add("strata_mean", result.strata_means);
  for (const std::string& note : result.notes) {
    Object object;
    object.text("text", note);
    out += json_line("note", object);
  }
  return out + json_line("run", run_of(result));
}

}  // namespace dspark
