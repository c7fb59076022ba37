// Writes cost tables in the engines' formats.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "cost/cost_table.h"
#include "support/error.h"
#include "support/text.h"

namespace dspark {
namespace {

std::string number_text(double value) { return shortest(value); }
std::string number_text(std::int64_t value) { return fmt::format("{}", value); }

template <class Number>
std::string list_text(const std::vector<Number>& values) {
  std::string out = "[";
  for (const Number value : values) {
    if (out.size() > 1) out += ", ";
    out += number_text(value);
  }
  return out + "]";
}

// An object with one entry per line.
class Object {
 public:
  void add(const std::string& key, const std::string& value) {
    text_ +=
        fmt::format("{}  {}: {}", text_.empty() ? "" : ",\n", nlohmann::json(key).dump(), value);
  }
  [[nodiscard]] std::string text() const { return "{\n" + text_ + "\n}\n"; }

 private:
  std::string text_;
};

// Entries of an inner list or object, one per line.
std::string lines_text(const std::vector<std::string>& lines, char open, char close) {
  std::string out(1, open);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    out += fmt::format("{}\n    {}", i == 0 ? "" : ",", lines[i]);
  }
  return out + "\n  " + close;
}

void write_sglang_1d(Object& out, const CostTable& table) {
  out.add("sample_batch_tokens", list_text(table.tokens.at));
  out.add("sample_steps_per_sec", list_text(table.tokens.value));
  out.add("max_batch_tokens", number_text(table.max_batch_tokens));
}

void write_sglang_2d(Object& out, const CostTable& table) {
  out.add("bias_seconds", number_text(table.constant));
  out.add("bs_probes", list_text(table.requests.at));
  out.add("alpha_seconds", list_text(table.requests.value));
  out.add("m_probes", list_text(table.tokens.at));
  out.add("theta_seconds", list_text(table.tokens.value));
}

void write_trtllm(Object& out, const CostTable& table) {
  out.add("token_counts", list_text(table.tokens.at));
  out.add("step_time_ms", list_text(table.tokens.value));
  out.add("fixed_overhead_ms", number_text(table.constant));
  out.add("batch_sizes", list_text(table.requests.at));
  out.add("batch_overhead_ms", list_text(table.requests.value));
  if (table.min_predicted_gain) {
    out.add("minimum_predicted_gain", number_text(*table.min_predicted_gain));
  }
}

void write_vllm_ascend(Object& out, const CostTable& table) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < table.tokens.size(); ++i) {
    lines.push_back(
        fmt::format("\"{}\": {}", table.tokens.at[i], number_text(table.tokens.value[i])));
  }
  out.add(table.rates ? "sps" : "latency_ms", lines_text(lines, '{', '}'));
}

std::string row_text(std::int64_t requests, const std::optional<std::int64_t>& tokens, double ms) {
  return fmt::format("{{\"requests\": {}, {}\"ms\": {}}}", requests,
                     tokens ? fmt::format("\"tokens\": {}, ", *tokens) : "", number_text(ms));
}

void write_rows(Object& out, const CostTable& table) {
  std::vector<std::string> lines;
  for (const CostRow& row : table.rows) {
    for (std::size_t i = 0; i < row.curve.size(); ++i) {
      lines.push_back(row_text(row.requests, row.curve.at[i], row.curve.value[i]));
    }
  }
  out.add("verify", lines_text(lines, '[', ']'));
  if (!table.draft.empty()) {
    lines.clear();
    for (std::size_t i = 0; i < table.draft.size(); ++i) {
      const bool stated = i < table.draft_tokens.size();
      lines.push_back(row_text(table.draft.at[i], stated ? table.draft_tokens[i] : std::nullopt,
                               table.draft.value[i]));
    }
    out.add("draft", lines_text(lines, '[', ']'));
  }
  if (table.overhead) out.add("overhead_ms", number_text(*table.overhead));
}

}  // namespace

std::string write_cost_table(const CostTable& table) {
  Object out;
  switch (table.format) {
    case CostFormat::sglang_1d:
      write_sglang_1d(out, table);
      break;
    case CostFormat::sglang_2d:
      write_sglang_2d(out, table);
      break;
    case CostFormat::trtllm:
      write_trtllm(out, table);
      break;
    case CostFormat::vllm_ascend:
      write_vllm_ascend(out, table);
      break;
    case CostFormat::rows:
      write_rows(out, table);
      break;
    case CostFormat::trtllm_exact:
    case CostFormat::mlx:
      if (!table.document.empty()) return table.document;
      throw internal_error("write_cost_table", fmt::format("a table in the format {} is written "
                                                           "back, not made",
                                                           cost_format_name(table.format)));
  }
  for (const auto& [key, value] : table.carried) out.add(key, value);
  return out.text();
}

}  // namespace dspark
