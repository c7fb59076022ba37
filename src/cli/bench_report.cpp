#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/json_documents.h"
#include "report/layout.h"
#include "support/error.h"
#include "support/text.h"
#include "support/version.h"

namespace dspark {
namespace {

using Json = JsonObject;

/// What follows from a case's time and bytes.
struct Derived {
  double gb_per_s;
  double copy_share;  ///< of the measured copy bandwidth
  double floor_us;    ///< its bytes at that bandwidth
  double times_floor;
  std::optional<double> tflop_per_s;
  std::optional<double> us_per_anchor;
  std::optional<double> anchors_per_s;
};

Derived derive(const CaseResult& one, const BenchResult& result) {
  const double median = std::max(one.time.median, 1e-6);
  Derived out = {};
  out.gb_per_s = 1e-3 * one.bytes / median;
  out.copy_share = 1e9 * out.gb_per_s / result.copy_bytes_per_second;
  out.floor_us = 1e6 * one.bytes / result.copy_bytes_per_second;
  out.times_floor = median / out.floor_us;
  if (one.flops > 0) out.tflop_per_s = 1e-6 * one.flops / median;
  if (one.what.anchors > 0) {
    out.us_per_anchor = median / one.what.anchors;
    out.anchors_per_s = 1e6 * one.what.anchors / median;
  }
  return out;
}

std::optional<std::string> rule_of(const BenchCase& what) {
  if (what.rule == BenchRule::unused) return std::nullopt;
  return rule_text(what);
}

std::optional<std::string> products_of(const BenchCase& what) {
  if (!what.family->has_products()) return std::nullopt;
  return products_text(what);
}

bool is_cuda(const BenchResult& result) { return result.backend == "cuda"; }

// --- JSON ---

template <class T>
Json json_value(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json json_size(std::int32_t size) { return size > 0 ? Json(size) : Json(nullptr); }

Json json_text(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(escape_text(text));
}

void add_sizes(Json& out, const BenchCase& what) {
  out["family"] = what.family->name;
  out["rule"] = json_value(rule_of(what));
  out["products"] = json_value(products_of(what));
  out["batch"] = json_size(what.batch);
  out["vocab"] = json_size(what.vocab);
  out["rank"] = json_size(what.rank);
  out["block_size"] = json_size(what.block_size);
  out["hidden"] = json_size(what.hidden);
  out["top_k"] = json_size(what.top_k);
  out["anchors"] = json_size(what.anchors);
}

Json json_case(const CaseResult& one, const BenchResult& result) {
  const Derived derived = derive(one, result);
  Json out;
  add_sizes(out, one.what);
  out["median_us"] = one.time.median;
  out["min_us"] = one.time.least;
  out["p10_us"] = one.time.p10;
  out["p90_us"] = one.time.p90;
  out["samples"] = one.samples;
  out["repeats"] = one.repeats;
  out["sets"] = one.sets;
  out["cold"] = one.cold;
  out["graph"] = one.graph;
  out["bytes"] = one.bytes;
  out["gb_per_s"] = derived.gb_per_s;
  out["copy_share"] = derived.copy_share;
  out["floor_us"] = derived.floor_us;
  out["times_floor"] = derived.times_floor;
  out["flops"] = one.flops > 0 ? Json(one.flops) : Json(nullptr);
  out["tflop_per_s"] = json_value(derived.tflop_per_s);
  out["us_per_anchor"] = json_value(derived.us_per_anchor);
  out["anchors_per_s"] = json_value(derived.anchors_per_s);
  out["checked"] = one.checked;
  return out;
}

Json json_device(const BenchResult& result) {
  const bool cuda = is_cuda(result);
  const Json processors = Json(result.facts.processors);
  const Json cache = result.facts.cache_bytes > 0 ? Json(result.facts.cache_bytes) : Json(nullptr);
  Json out;
  out["backend"] = result.backend;
  out["name"] = escape_text(result.device);
  out["driver"] = json_text(result.facts.driver);
  out["runtime"] = json_text(result.facts.runtime);
  out["multiprocessors"] = cuda ? processors : Json(nullptr);
  out["l2_bytes"] = cuda ? cache : Json(nullptr);
  out["threads"] = cuda ? Json(nullptr) : processors;
  out["cache_bytes"] = cuda ? Json(nullptr) : cache;
  return out;
}

void add_head(Json& out, const BenchResult& result) {
  out["version"] = version();
  out["commit"] = json_text(commit());
  out["device"] = json_device(result);
  out["copy_bytes"] = result.copy_bytes;
  out["copy_gb_per_s"] = 1e-9 * result.copy_bytes_per_second;
  out["reference"] = result.reference;
  out["refused"] = Json::array();
  for (const RefusedCase& refused : result.refused) {
    Json entry;
    add_sizes(entry, refused.what);
    entry["why"] = escape_text(refused.why);
    out["refused"].push_back(std::move(entry));
  }
}

std::string as_json(const BenchResult& result) {
  Json out = json_header("dspark-bench");
  add_head(out, result);
  out["cases"] = Json::array();
  for (const CaseResult& one : result.cases) out["cases"].push_back(json_case(one, result));
  return out.dump(2) + "\n";
}

std::string as_json_lines(const BenchResult& result) {
  Json header;
  header["type"] = "header";
  header.update(json_header("dspark-bench"));
  add_head(header, result);
  std::string text = header.dump() + "\n";
  for (const CaseResult& one : result.cases) {
    Json line;
    line["type"] = "case";
    line.update(json_case(one, result));
    text += line.dump() + "\n";
  }
  return text;
}

// --- CSV: the fields of a case in JSON, in their order, and why a case was refused ---

std::string csv_cell(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_string()) return csv_text(value.get<std::string>());
  if (value.is_number_float()) return shortest(value.get<double>());
  return value.dump();
}

std::string as_csv(const BenchResult& result) {
  CaseResult any;
  any.what.family = &bench_families().front();
  any.bytes = 1;
  std::vector<std::string> cells;
  const Json fields = json_case(any, result);
  for (const auto& [name, value] : fields.items()) cells.push_back(name);
  cells.emplace_back("refused");
  std::string text = csv_line(cells);
  for (const CaseResult& one : result.cases) {
    cells.clear();
    const Json values = json_case(one, result);
    for (const auto& [name, value] : values.items()) {
      cells.push_back(csv_cell(value));
    }
    cells.emplace_back();
    text += csv_line(cells);
  }
  for (const RefusedCase& refused : result.refused) {
    Json sizes;
    add_sizes(sizes, refused.what);
    cells.assign(fields.size(), "");  // nothing was measured
    std::size_t next = 0;
    for (const auto& [name, value] : sizes.items()) cells[next++] = csv_cell(value);
    cells.push_back(csv_text(refused.why));
    text += csv_line(cells);
  }
  return text;
}

// --- What people read ---

constexpr const char* kMissing = "-";

/// Four significant digits, without an exponent.
std::string number_text(double value) {
  const int decimals = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : 3;
  return fmt::format("{:.{}f}", value, decimals);
}

std::string number_text(const std::optional<double>& value) {
  return value ? number_text(*value) : std::string(kMissing);
}

std::string size_text(std::int32_t size) {
  return size > 0 ? fmt::format("{}", size) : std::string(kMissing);
}

void drop_empty_columns(Grid& grid) {
  std::erase_if(grid.columns, [](const GridColumn& column) {
    return std::all_of(column.cells.begin(), column.cells.end(),
                       [](const std::string& cell) { return cell == kMissing; });
  });
}

Grid case_grid(const BenchResult& result) {
  Grid grid;
  grid.columns = {{"case", false, {}},     {"rule", false, {}},     {"products", false, {}},
                  {"B", true, {}},         {"anchors", true, {}},   {"V", true, {}},
                  {"R", true, {}},         {"P", true, {}},         {"H", true, {}},
                  {"K", true, {}},         {"median us", true, {}}, {"min", true, {}},
                  {"p10", true, {}},       {"p90", true, {}},       {"MB", true, {}},
                  {"GB/s", true, {}},      {"% copy", true, {}},    {"floor us", true, {}},
                  {"x floor", true, {}},   {"TFLOP/s", true, {}},   {"us/anchor", true, {}},
                  {"anchors/s", true, {}}, {"graph", false, {}},    {"cold", false, {}},
                  {"checked", false, {}}};
  for (const CaseResult& one : result.cases) {
    const BenchCase& what = one.what;
    const Derived derived = derive(one, result);
    grid.add_row({what.family->name,
                  rule_text(what),
                  products_text(what),
                  size_text(what.batch),
                  size_text(what.anchors),
                  size_text(what.vocab),
                  size_text(what.rank),
                  size_text(what.block_size),
                  size_text(what.hidden),
                  size_text(what.own_top_k()),
                  number_text(one.time.median),
                  number_text(one.time.least),
                  number_text(one.time.p10),
                  number_text(one.time.p90),
                  number_text(1e-6 * one.bytes),
                  number_text(derived.gb_per_s),
                  fmt::format("{:.1f}", 100 * derived.copy_share),
                  number_text(derived.floor_us),
                  number_text(derived.times_floor),
                  number_text(derived.tflop_per_s),
                  number_text(derived.us_per_anchor),
                  number_text(derived.anchors_per_s),
                  one.graph ? "yes" : "no",
                  one.cold ? "yes" : "no",
                  one.checked});
  }
  drop_empty_columns(grid);
  return grid;
}

std::vector<std::pair<const char*, std::string>> facts_of(const BenchResult& result) {
  const DeviceFacts& facts = result.facts;
  std::string device = fmt::format("{} ({})", escape_text(result.device), result.backend);
  if (is_cuda(result)) {
    device += fmt::format(", {}, L2 {}, driver for CUDA {}, runtime {}",
                          counted(facts.processors, "multiprocessor"),
                          human_bytes(facts.cache_bytes), facts.driver, facts.runtime);
  } else {
    device += fmt::format(", {}", counted(facts.processors, "thread"));
    if (facts.cache_bytes > 0) device += ", cache " + human_bytes(facts.cache_bytes);
  }
  return {
      {"device", device},
      {"copy", fmt::format("{:.1f} GB/s, {} read and written", 1e-9 * result.copy_bytes_per_second,
                           human_bytes(static_cast<std::uint64_t>(result.copy_bytes)))},
      {"checked", fmt::format("every case, against the {}", result.reference)},
      {"version", version()}};
}

std::string refused_text(const RefusedCase& refused) {
  return escape_text(fmt::format("{}: {}", case_text(refused.what), refused.why));
}

std::string as_table(const BenchResult& result) {
  std::string text;
  for (const auto& [label, fact] : facts_of(result)) text += fmt::format("{:<8} {}\n", label, fact);
  if (!result.cases.empty()) append_aligned(text, case_grid(result));
  if (!result.refused.empty()) text += "\n";
  for (const RefusedCase& refused : result.refused) {
    text += fmt::format("refused: {}\n", refused_text(refused));
  }
  return text;
}

std::string as_markdown(const BenchResult& result) {
  std::string text = "## dspark-replay bench\n\n";
  for (const auto& [label, fact] : facts_of(result)) {
    text += fmt::format("- {}: {}\n", label, markdown_text(fact));
  }
  if (!result.cases.empty()) append_markdown(text, case_grid(result));
  if (!result.refused.empty()) text += "\n";
  for (const RefusedCase& refused : result.refused) {
    text += fmt::format("- refused: {}\n", markdown_text(refused_text(refused)));
  }
  return text;
}

// --- families ---

std::vector<std::string> axes_of(const Family& family) {
  std::vector<std::string> out;
  for (const auto& [axis, name] : {std::pair{kAxisBatch, "batch"},
                                   {kAxisAnchors, "anchors"},
                                   {kAxisVocab, "vocab"},
                                   {kAxisRank, "rank"},
                                   {kAxisBlock, "block-size"},
                                   {kAxisHidden, "hidden"}}) {
    if ((family.axes & axis) != 0) out.emplace_back(name);
  }
  const bool filters = std::find(family.rules.begin(), family.rules.end(),
                                 BenchRule::top_k_top_p) != family.rules.end();
  if (filters || (family.axes & kAxisTopK) != 0) {
    out.emplace_back("top-k");
  }
  if (family.has_products()) out.emplace_back("products");
  return out;
}

Grid family_grid() {
  Grid grid;
  grid.columns = {{"family", false, {}}, {"what it times", false, {}}, {"sizes", false, {}}};
  for (const Family& family : bench_families()) {
    grid.add_row({family.name, family.what, fmt::format("{}", fmt::join(axes_of(family), " "))});
  }
  return grid;
}

Json json_family(const Family& family) {
  Json out;
  out["family"] = family.name;
  out["what"] = family.what;
  out["sizes"] = axes_of(family);
  return out;
}

}  // namespace

std::string render_bench(const BenchResult& result, OutputFormat format) {
  switch (format) {
    case OutputFormat::table:
      return as_table(result);
    case OutputFormat::md:
      return as_markdown(result);
    case OutputFormat::csv:
      return as_csv(result);
    case OutputFormat::json:
      return as_json(result);
    case OutputFormat::jsonl:
      return as_json_lines(result);
  }
  throw internal_error("render_bench", "unknown format");
}

std::string render_bench_families(OutputFormat format) {
  std::string text;
  switch (format) {
    case OutputFormat::table:
      append_aligned(text, family_grid());
      return text.substr(1);  // without the empty line above a grid
    case OutputFormat::md:
      append_markdown(text, family_grid());
      return text.substr(1);
    case OutputFormat::csv: {
      text = "family,what,sizes\n";
      for (const Family& family : bench_families()) {
        text += csv_line({family.name, csv_text(family.what),
                          fmt::format("{}", fmt::join(axes_of(family), " "))});
      }
      return text;
    }
    case OutputFormat::json:
      return json_document("dspark-bench-families", "families", bench_families(),
                           [](Json& out, const Family& family) { out = json_family(family); });
    case OutputFormat::jsonl:
      return json_lines("dspark-bench-families", "family", bench_families(),
                        [](Json& out, const Family& family) { out.update(json_family(family)); });
  }
  throw internal_error("render_bench_families", "unknown format");
}

}  // namespace dspark
