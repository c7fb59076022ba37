// Reads the engines' cost tables.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cost/cost_table.h"
#include "cost/lines.h"
#include "support/error.h"
#include "support/json_reader.h"
#include "support/sha256.h"
#include "support/text.h"
#include "support/text_file.h"

namespace dspark {
namespace {

// Beyond any step of any engine, in any unit; within it sums and inverses stay finite.
constexpr double kLeastTime = 1e-15;
constexpr double kMostTime = 1e15;

void check_magnitude(const JsonNode& node, double value) {
  if (!(value <= kMostTime)) {
    node.fail(fmt::format("{} is out of range", shortest(value)),
              fmt::format("give at most {}", kMostTime));
  }
}

// A time or a rate.
double read_time(const JsonNode& node) {
  const double value = node.positive();
  check_magnitude(node, value);
  if (value < kLeastTime) {
    node.fail(fmt::format("{} is out of range", shortest(value)),
              fmt::format("give at least {}", kLeastTime));
  }
  return value;
}

// A part of a time; 0 too.
double read_part(const JsonNode& node) {
  const double value = node.not_negative();
  check_magnitude(node, value);
  return value;
}

// A part of a time of either sign.
double read_signed_part(const JsonNode& node) {
  const double value = node.number();
  check_magnitude(node, std::abs(value));
  return value;
}

double read_positive(const JsonNode& node) { return node.positive(); }

constexpr std::int64_t kMaxBlock = 64;  // drafts of a block: the trace format's bound

std::string count_text(std::size_t count, std::string_view noun) {
  return counted(static_cast<std::int64_t>(count), noun);
}

std::vector<std::int64_t> read_places(const JsonNode& list, std::int64_t least) {
  std::vector<std::int64_t> places;
  for (const JsonNode& item : list.items(kMaxCostProbes)) {
    places.push_back(item.integer(least, kMaxCostTokens));
    if (places.size() > 1 && places.back() <= places[places.size() - 2]) {
      item.fail(
          fmt::format("{} does not increase from {}", places.back(), places[places.size() - 2]),
          "sort the probes, each once");
    }
  }
  return places;
}

std::vector<double> read_values(const JsonNode& list, double (*get)(const JsonNode&)) {
  std::vector<double> values;
  for (const JsonNode& item : list.items(kMaxCostProbes)) values.push_back(get(item));
  return values;
}

// Two lists of one object that belong together.
CostCurve read_lists(const JsonNode& node, const std::string& places, std::int64_t least,
                     const std::string& values, double (*get)(const JsonNode&)) {
  CostCurve curve;
  curve.at = read_places(node.require(places), least);
  curve.value = read_values(node.require(values), get);
  if (curve.at.size() != curve.value.size()) {
    node.require(values).fail(
        fmt::format("{} for {} in '{}'", count_text(curve.value.size(), "value"),
                    count_text(curve.at.size(), "probe"), places),
        "give one for each");
  }
  return curve;
}

CostCurve read_filled_lists(const JsonNode& node, const std::string& places, std::int64_t least,
                            const std::string& values, double (*get)(const JsonNode&)) {
  CostCurve curve = read_lists(node, places, least, values, get);
  if (curve.empty()) node.require(places).fail("there are no probes", "give at least one");
  return curve;
}

// The number that a key is; keys are written as JSON writes numbers.
std::int64_t read_key(const JsonNode& parent, const std::string& key) {
  std::int64_t number = 0;
  const char* const end = key.data() + key.size();
  const auto [stop, error] = std::from_chars(key.data(), end, number);
  if (stop != end || error != std::errc() || number < 1 || number > kMaxCostTokens ||
      fmt::format("{}", number) != key) {
    parent.fail(fmt::format("the key '{}' is not a count", key),
                fmt::format("give whole numbers from 1 to {}, as in \"16\"", kMaxCostTokens));
  }
  return number;
}

// {"16": value, ...} by increasing number.
std::vector<std::pair<std::int64_t, JsonNode>> read_map(const JsonNode& node) {
  std::vector<std::pair<std::int64_t, JsonNode>> entries;
  const std::vector<std::string> keys = node.keys();
  if (keys.empty()) node.fail("this is empty", "give at least one probe");
  if (keys.size() > kMaxCostProbes) {
    node.fail(fmt::format("{} entries are too many", keys.size()),
              fmt::format("give at most {}", kMaxCostProbes));
  }
  for (const std::string& key : keys) {
    entries.emplace_back(read_key(node, key), node.require(key));
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return entries;
}

CostCurve read_curve_map(const JsonNode& node) {
  CostCurve curve;
  for (const auto& [at, value] : read_map(node)) {
    curve.at.push_back(at);
    curve.value.push_back(read_time(value));
  }
  return curve;
}

// Keeps the entries that have no part in the cost.
void carry_others(CostTable& table, const JsonNode& root, const std::set<std::string>& read) {
  for (const std::string& key : root.keys()) {
    if (!read.contains(key)) {
      table.carried.emplace_back(key, root.require(key).json().dump());
    }
  }
}

// --- SGLang ---

CostTable read_sglang_1d(const JsonNode& root) {
  CostTable table;
  table.format = CostFormat::sglang_1d;
  table.rates = true;
  table.tokens =
      read_filled_lists(root, "sample_batch_tokens", 1, "sample_steps_per_sec", read_time);
  table.max_batch_tokens =
      root.require("max_batch_tokens").integer(table.tokens.at.back(), kMaxCostTokens);
  carry_others(table, root, {"sample_batch_tokens", "sample_steps_per_sec", "max_batch_tokens"});
  return table;
}

CostTable read_sglang_2d(const JsonNode& root) {
  CostTable table;
  table.format = CostFormat::sglang_2d;
  table.constant = read_time(root.require("bias_seconds"));
  table.requests = read_filled_lists(root, "bs_probes", 1, "alpha_seconds", read_signed_part);
  table.tokens = read_filled_lists(root, "m_probes", 0, "theta_seconds", read_signed_part);
  const double least = table.constant + least_or_zero(table.requests) + least_or_zero(table.tokens);
  if (!(least > 0)) {
    root.require("theta_seconds")
        .fail(fmt::format("the least sum of bias, alpha and theta is {} s, not above 0",
                          shortest(least)),
              "fit the table again");
  }
  carry_others(table, root,
               {"bias_seconds", "bs_probes", "alpha_seconds", "m_probes", "theta_seconds"});
  return table;
}

// --- TensorRT-LLM, the table that is interpolated ---

CostTable read_trtllm(const JsonNode& root) {
  CostTable table;
  table.format = CostFormat::trtllm;
  table.tokens = read_filled_lists(root, "token_counts", 0, "step_time_ms", read_time);
  if (const auto fixed = root.find("fixed_overhead_ms")) table.constant = read_part(*fixed);
  if (root.has("batch_sizes") || root.has("batch_overhead_ms")) {
    table.requests = read_lists(root, "batch_sizes", 1, "batch_overhead_ms", read_part);
  }
  if (const auto gain = root.find("minimum_predicted_gain")) {
    table.min_predicted_gain = gain->not_negative();
  }
  carry_others(table, root,
               {"token_counts", "step_time_ms", "fixed_overhead_ms", "batch_sizes",
                "batch_overhead_ms", "minimum_predicted_gain"});
  return table;
}

// --- TensorRT-LLM, the table of exact cells ---

constexpr std::size_t kMaxCompactCells = 4;      // per graph batch
constexpr std::size_t kMaxAllCompactCells = 32;  // of the table

struct Fingerprint {
  std::int64_t gpu_count = 0;
  std::int64_t max_draft_len = 0;
  std::vector<std::int64_t> local_batches;
};

Fingerprint read_fingerprint(const JsonNode& root) {
  const JsonNode node = root.require("engine_fingerprint");
  node.check_keys({"gpu", "gpu_count", "gpu_snapshot_sha256", "global_graph_batch_sizes",
                   "max_draft_len", "rank_local_graph_batch_sizes", "runtime_snapshot",
                   "source_diff_sha256", "source_head", "topology"});
  Fingerprint fingerprint;
  fingerprint.gpu_count = node.require("gpu_count").integer(1, 1'000'000);
  fingerprint.max_draft_len = node.require("max_draft_len").integer(1, kMaxBlock);
  fingerprint.local_batches = read_places(node.require("rank_local_graph_batch_sizes"), 1);
  const JsonNode global_list = node.require("global_graph_batch_sizes");
  const std::vector<std::int64_t> global = read_places(global_list, 1);
  std::vector<std::int64_t> expected;
  for (const std::int64_t batch : fingerprint.local_batches) {
    expected.push_back(batch * fingerprint.gpu_count);
  }
  if (global != expected) {
    global_list.fail("these are not the rank-local batch sizes times gpu_count",
                     "take the table of this engine, or profile it again");
  }
  for (const char* key : {"gpu", "runtime_snapshot", "source_head", "topology"}) {
    (void)node.require(key).text();
  }
  for (const char* key : {"gpu_snapshot_sha256", "source_diff_sha256"}) {
    (void)node.require(key).sha256();
  }

  // The canonical form: sorted keys, no spaces, ASCII.
  const std::string actual = sha256_hex(node.json().dump(-1, ' ', true));
  const JsonNode stated = root.require("engine_fingerprint_sha256");
  if (stated.sha256() != actual) {
    stated.fail(fmt::format("this is not the hash of engine_fingerprint, which is {}", actual),
                "take the table of this engine, or profile it again");
  }
  return fingerprint;
}

CostRow read_cells(const JsonNode& node, std::int64_t batch, std::int64_t max_draft_len) {
  node.check_keys({"token_counts", "step_time_ms"});
  CostRow row = {batch, read_filled_lists(node, "token_counts", 0, "step_time_ms", read_time)};
  const JsonNode counts = node.require("token_counts");
  if (row.curve.at.front() != 0) {
    counts.fail("the first entry is not 0, the native path", "add it");
  }
  const std::int64_t full = batch * (max_draft_len + 1);
  std::size_t compact = 0;
  for (std::size_t i = 1; i < row.curve.size(); ++i) {
    const std::int64_t tokens = row.curve.at[i];
    if (tokens < batch || tokens > full) {
      counts.items(kMaxCostProbes)[i].fail(
          fmt::format("{} tokens are none that a batch of {} can verify", tokens, batch),
          fmt::format("give {} to {}", batch, full));
    }
    compact += tokens < full ? 1 : 0;
  }
  if (compact > kMaxCompactCells) {
    counts.fail(fmt::format("{} counts below the full block are too many", compact),
                fmt::format("give at most {}", kMaxCompactCells));
  }
  return row;
}

// Every cell stands once among the measurements, with the same time.
void check_measurements(const JsonNode& root, const std::vector<CostRow>& rows) {
  std::map<std::pair<std::int64_t, std::int64_t>, double> cells;
  for (const CostRow& row : rows) {
    for (std::size_t i = 0; i < row.curve.size(); ++i) {
      cells.emplace(std::pair(row.requests, row.curve.at[i]), row.curve.value[i]);
    }
  }
  const JsonNode list = root.require("measurements");
  for (const JsonNode& item : list.items(kMaxCostProbes)) {
    item.check_keys({"rank_local_graph_batch_size", "rank_local_verifier_budget", "step_time_ms",
                     "source_result_sha256"});
    const std::int64_t batch =
        item.require("rank_local_graph_batch_size").integer(1, kMaxCostTokens);
    const std::int64_t tokens =
        item.require("rank_local_verifier_budget").integer(0, kMaxCostTokens);
    (void)item.require("source_result_sha256").sha256();
    const auto cell = cells.find({batch, tokens});
    if (cell == cells.end()) {
      item.fail(fmt::format("({}, {}) is no cell of cost_tables, or is given twice", batch, tokens),
                "give one measurement for each cell");
    }
    if (const JsonNode time = item.require("step_time_ms"); time.positive() != cell->second) {
      time.fail(fmt::format("the cell has {} ms", shortest(cell->second)), "make them agree");
    }
    cells.erase(cell);
  }
  if (!cells.empty()) {
    const auto& [batch, tokens] = cells.begin()->first;
    list.fail(fmt::format("the cell ({}, {}) is missing", batch, tokens),
              "give one measurement for each cell");
  }
}

CostDrainGuard read_drain_guard(const JsonNode& node, const std::vector<CostRow>& rows) {
  node.check_keys({"loss_multiplier", "mean_output_tokens_per_request_iteration",
                   "minimum_group_value_ms", "source_result_sha256", "tail_graph_batch_size"});
  CostDrainGuard guard;
  guard.loss_multiplier = node.require("loss_multiplier").positive();
  guard.mean_output_tokens_per_request_iteration =
      node.require("mean_output_tokens_per_request_iteration").positive();
  guard.minimum_group_value_ms = read_part(node.require("minimum_group_value_ms"));
  (void)node.require("source_result_sha256").sha256();
  const JsonNode tail = node.require("tail_graph_batch_size");
  guard.tail_graph_batch_size = tail.integer(1, kMaxCostTokens);
  if (std::none_of(rows.begin(), rows.end(), [&guard](const CostRow& row) {
        return row.requests == guard.tail_graph_batch_size;
      })) {
    tail.fail(fmt::format("{} is no graph batch of cost_tables", guard.tail_graph_batch_size),
              "give one of those");
  }
  return guard;
}

CostTable read_trtllm_exact(const JsonNode& root) {
  if (const JsonNode version = root.require("schema_version");
      version.integer(0, kMaxCostTokens) != 2) {
    version.fail(fmt::format("version {} is not known", version.json().dump()),
                 "give a table of version 2");
  }
  root.check_keys({"schema_version", "minimum_predicted_gain", "cost_tables", "engine_fingerprint",
                   "engine_fingerprint_sha256", "measurements", "iteration_drain_guard"});
  CostTable table;
  table.format = CostFormat::trtllm_exact;
  table.min_predicted_gain = root.require("minimum_predicted_gain").not_negative();
  const Fingerprint fingerprint = read_fingerprint(root);
  table.max_draft_len = fingerprint.max_draft_len;

  const JsonNode tables = root.require("cost_tables");
  std::vector<std::int64_t> batches;
  std::size_t compact = 0;
  for (const auto& [batch, node] : read_map(tables)) {
    table.rows.push_back(read_cells(node, batch, table.max_draft_len));
    batches.push_back(batch);
    const std::int64_t full = batch * (table.max_draft_len + 1);
    for (const std::int64_t tokens : table.rows.back().curve.at) {
      compact += tokens > 0 && tokens < full ? 1 : 0;
    }
  }
  if (batches != fingerprint.local_batches) {
    tables.fail("the batches are not the rank_local_graph_batch_sizes of the fingerprint",
                "take the table of this engine, or profile it again");
  }
  if (compact > kMaxAllCompactCells) {
    tables.fail(fmt::format("{} cells below the full block are too many", compact),
                fmt::format("give at most {}", kMaxAllCompactCells));
  }
  check_measurements(root, table.rows);
  if (const auto guard = root.find("iteration_drain_guard")) {
    table.drain_guard = read_drain_guard(*guard, table.rows);
  }
  return table;
}

// --- vllm-ascend ---

// {"16": ms, ...}, or one such map per graph mode.
JsonNode choose_graph_mode(const JsonNode& root, const JsonNode& curve, CostTable& table) {
  const std::vector<std::string> keys = curve.keys();
  if (keys.empty()) curve.fail("this is empty", "give at least one probe");
  if (!curve.require(keys.front()).is_object()) return curve;
  const auto given = root.find("graph_mode");
  if (!given && keys.size() > 1) {
    curve.fail(fmt::format("{} graph modes, and no 'graph_mode' that says which", keys.size()),
               "add \"graph_mode\" beside \"curves\"");
  }
  const std::string mode = given ? given->text() : keys.front();
  table.notes.push_back(fmt::format("graph mode {}", mode));
  return curve.require(mode);
}

CostTable read_vllm_ascend(const JsonNode& outer) {
  const auto nested = outer.find("hardware_profile");
  const JsonNode& root = nested ? *nested : outer;
  CostTable table;
  table.format = CostFormat::vllm_ascend;
  std::string form;
  for (const char* key : {"latency_ms", "sps", "curves"}) {
    if (!root.has(key)) continue;
    if (!form.empty()) {
      root.require(key).fail(fmt::format("'{}' is given besides", form), "keep one of the two");
    }
    form = key;
  }
  if (form.empty()) {
    root.fail("there is no latency_ms, sps or curves", "add one of them");
  }
  const JsonNode node = root.require(form);
  if (form == "curves") {
    const auto workload = root.find("workload");
    const std::string name = workload ? workload->text() : "decode_only";
    table.notes.push_back(fmt::format("workload {}", name));
    table.tokens = read_curve_map(choose_graph_mode(root, node.require(name), table));
  } else {
    table.tokens = read_curve_map(node);
    table.rates = form == "sps";
  }
  if (const auto temperatures = root.find("confidence_temperatures")) {
    (void)read_values(*temperatures, read_positive);
  }
  if (const auto fingerprint = root.find("fingerprint")) (void)fingerprint->keys();
  std::set<std::string> read = {form};
  if (form == "curves") read.insert({"workload", "graph_mode"});
  carry_others(table, root, read);
  return table;
}

// --- mlx ---

std::vector<std::string> mlx_entries(const JsonNode& root) {
  std::vector<std::string> entries;
  for (const std::string& key : root.keys()) {
    const JsonNode node = root.require(key);
    if (!node.is_object()) continue;
    if (const auto verify = node.find("verify"); verify && verify->is_object()) {
      entries.push_back(key);
    }
  }
  return entries;
}

std::string choose_mlx_entry(const JsonNode& root, const std::string& wanted) {
  std::vector<std::string> found;
  std::string names;
  for (const std::string& entry : mlx_entries(root)) {
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", entry);
    if (entry == wanted) return entry;
    if (entry.find(wanted) != std::string::npos) found.push_back(entry);
  }
  if (found.size() == 1) return found.front();
  if (wanted.empty()) {
    root.fail(fmt::format("{} entries: {}", found.size(), names),
              "say which with --entry, or keep one");
  }
  root.fail(
      fmt::format("'{}' is part of the names of {} entries, of {}", wanted, found.size(), names),
      "give a part that one name alone has");
}

// Time by tokens per request, as ms by tokens in all.
CostRow read_widths(const JsonNode& node, std::int64_t requests) {
  CostRow row = {requests, read_curve_map(node)};
  for (std::int64_t& width : row.curve.at) {
    if (width > kMaxCostTokens / requests) {
      node.fail(fmt::format("{} requests of {} tokens are too many", requests, width),
                fmt::format("give at most {} tokens", kMaxCostTokens));
    }
    width *= requests;
  }
  return row;
}

CostTable read_mlx(const JsonNode& root, const std::string& wanted) {
  for (const char* key : {"schema", "SCHEMA", "version"}) {
    const auto version = root.find(key);
    if (version && version->integer(0, kMaxCostTokens) != 2) {
      version->fail(fmt::format("version {} is not known", version->json().dump()),
                    "give a file of version 2");
    }
  }
  const std::string name = choose_mlx_entry(root, wanted);
  const JsonNode entry = root.require(name);
  CostTable table;
  table.format = CostFormat::mlx;
  table.clamps_below = true;
  table.notes.push_back(fmt::format("entry {}", name));
  table.rows.push_back(read_widths(entry.require("verify"), 1));
  if (const auto grid = entry.find("verify_grid"); grid && !grid->keys().empty()) {
    std::size_t probes = table.rows.front().curve.size();
    for (const auto& [requests, node] : read_map(*grid)) {
      const CostRow row = read_widths(node, requests);
      probes += row.curve.size();
      if (probes > kMaxCostProbes) {
        grid->fail("too many probes", fmt::format("give at most {}", kMaxCostProbes));
      }
      if (requests > 1) {
        table.rows.push_back(row);
      } else if (row != table.rows.front()) {
        node.fail("this differs from 'verify', which is one request too", "make them agree");
      }
    }
  }
  if (const auto drafter = entry.find("drafter")) {
    const bool by_cap = drafter->is_object();
    const CostCurve caps =
        by_cap ? read_curve_map(*drafter) : CostCurve{{1}, {read_time(*drafter)}};
    table.draft = {{1}, {caps.value.back()}};
    if (by_cap) {
      table.notes.push_back(fmt::format("drafting {} tokens, the largest cap", caps.at.back()));
    }
  }
  if (const auto overhead = entry.find("overhead")) table.overhead = read_part(*overhead);
  return table;
}

// --- measured rows ---

struct Measurement {
  std::int64_t requests = 0;
  std::int64_t tokens = 0;
  double ms = 0;
};

Measurement read_measurement(const JsonNode& item) {
  item.check_keys({"requests", "tokens", "tokens_per_request", "ms"});
  Measurement out;
  out.requests = item.require("requests").integer(1, kMaxCostTokens);
  const JsonNode tokens = item.require("tokens");
  out.tokens = tokens.integer(1, kMaxCostTokens);
  if (out.tokens < out.requests) {
    tokens.fail(fmt::format("{} of {}: every request has one at least",
                            counted(out.tokens, "token"), counted(out.requests, "request")),
                "count the anchors too");
  }
  if (const auto each = item.find("tokens_per_request")) {
    const std::int64_t per_request = each->integer(1, kMaxCostTokens);
    if (out.tokens % out.requests != 0 || out.tokens / out.requests != per_request) {
      each->fail(fmt::format("{} times {} is not {} tokens", per_request,
                             counted(out.requests, "request"), out.tokens),
                 "correct it or leave it out");
    }
  }
  out.ms = read_time(item.require("ms"));
  return out;
}

std::vector<CostRow> read_measured(const JsonNode& list) {
  std::map<std::int64_t, std::map<std::int64_t, double>> cells;
  for (const JsonNode& item : list.items(kMaxCostProbes)) {
    const Measurement found = read_measurement(item);
    if (!cells[found.requests].emplace(found.tokens, found.ms).second) {
      item.fail(fmt::format("{} and {} are given twice", counted(found.requests, "request"),
                            counted(found.tokens, "token")),
                "keep one of the two");
    }
  }
  if (cells.empty()) list.fail("there are no rows", "give at least one");
  std::vector<CostRow> rows;
  for (const auto& [requests, times] : cells) {
    CostRow row = {requests, {}};
    for (const auto& [tokens, ms] : times) {
      row.curve.at.push_back(tokens);
      row.curve.value.push_back(ms);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// Draft blocks: one time for each request count; the tokens are the drafted ones, and optional.
void read_draft_rows(const JsonNode& list, CostTable& table) {
  std::map<std::int64_t, std::pair<double, std::optional<std::int64_t>>> found;
  for (const JsonNode& item : list.items(kMaxCostProbes)) {
    item.check_keys({"requests", "tokens", "ms"});
    const std::int64_t requests = item.require("requests").integer(1, kMaxCostTokens);
    std::optional<std::int64_t> tokens;
    if (const auto node = item.find("tokens")) tokens = node->integer(1, kMaxCostTokens);
    if (!found.emplace(requests, std::pair(read_time(item.require("ms")), tokens)).second) {
      item.fail(fmt::format("{} is given twice", counted(requests, "request")),
                "give one time for each request count: that of a whole block");
    }
  }
  if (found.empty()) list.fail("there are no rows", "give at least one, or leave 'draft' out");
  for (const auto& [requests, entry] : found) {
    table.draft.at.push_back(requests);
    table.draft.value.push_back(entry.first);
    table.draft_tokens.push_back(entry.second);
  }
}

CostTable read_rows(const JsonNode& root) {
  CostTable table;
  table.format = CostFormat::rows;
  table.rows = read_measured(root.require("verify"));
  if (const auto draft = root.find("draft")) read_draft_rows(*draft, table);
  if (const auto overhead = root.find("overhead_ms")) table.overhead = read_part(*overhead);
  carry_others(table, root, {"verify", "draft", "overhead_ms"});
  return table;
}

// --- which one it is ---

struct Signature {
  const char* key;
  CostFormat format;
};
// The first keys of each format; a file has those of one format alone.
constexpr Signature kSignatures[] = {
    {"sample_batch_tokens", CostFormat::sglang_1d},
    {"sample_steps_per_sec", CostFormat::sglang_1d},
    {"bias_seconds", CostFormat::sglang_2d},
    {"alpha_seconds", CostFormat::sglang_2d},
    {"theta_seconds", CostFormat::sglang_2d},
    {"token_counts", CostFormat::trtllm},
    {"step_time_ms", CostFormat::trtllm},
    {"cost_tables", CostFormat::trtllm_exact},
    {"schema_version", CostFormat::trtllm_exact},
    {"latency_ms", CostFormat::vllm_ascend},
    {"sps", CostFormat::vllm_ascend},
    {"curves", CostFormat::vllm_ascend},
    {"hardware_profile", CostFormat::vllm_ascend},
    {"verify", CostFormat::rows},
};

CostFormat recognise(const JsonNode& root) {
  const Signature* found = nullptr;
  for (const Signature& signature : kSignatures) {
    if (!root.has(signature.key)) continue;
    if (found != nullptr && found->format != signature.format) {
      root.fail(fmt::format("'{}' belongs to {} and '{}' to {}", found->key,
                            cost_format_name(found->format), signature.key,
                            cost_format_name(signature.format)),
                "keep the keys of one format");
    }
    if (found == nullptr) found = &signature;
  }
  if (found != nullptr) return found->format;
  if (!mlx_entries(root).empty()) return CostFormat::mlx;
  std::string names;
  for (const Signature& signature : kSignatures) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", signature.key);
  }
  root.fail("no cost table that is known has these keys",
            fmt::format("one has one of {}, or (mlx) entries with 'verify'", names));
}

CostTable read_as(CostFormat format, const JsonNode& root, const std::string& entry) {
  switch (format) {
    case CostFormat::sglang_1d:
      return read_sglang_1d(root);
    case CostFormat::sglang_2d:
      return read_sglang_2d(root);
    case CostFormat::trtllm:
      return read_trtllm(root);
    case CostFormat::trtllm_exact:
      return read_trtllm_exact(root);
    case CostFormat::vllm_ascend:
      return read_vllm_ascend(root);
    case CostFormat::mlx:
      return read_mlx(root, entry);
    case CostFormat::rows:
      return read_rows(root);
  }
  throw internal_error("read_cost_table", "unknown format");
}

}  // namespace

CostTable parse_cost_table(std::string_view text, const std::string& name,
                           const std::string& entry) {
  const nlohmann::json document = parse_json(text, name);
  const JsonNode root(document, name);
  if (!root.is_object()) root.fail("this is not an object", "give a cost table");
  const CostFormat format = recognise(root);
  if (!entry.empty() && format != CostFormat::mlx) {
    root.fail(fmt::format("a table in the format {} has no entries", cost_format_name(format)),
              "leave the entry out");
  }
  CostTable table = read_as(format, root, entry);
  table.file = name;
  if (format == CostFormat::mlx || format == CostFormat::trtllm_exact) {
    table.document = document.dump(2) + "\n";
  }
  return table;
}

CostTable read_cost_table(const std::string& path, const std::string& entry) {
  return parse_cost_table(read_text_file(path, kMaxJsonBytes, "cost table"), text_file_name(path),
                          entry);
}

}  // namespace dspark
