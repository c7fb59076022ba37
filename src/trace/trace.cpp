#include "trace/trace.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "support/text.h"
#include "trace/heads.h"
#include "trace/impl.h"
#include "trace/located_error.h"
#include "trace/memory.h"
#include "trace/probe.h"

namespace dspark {
namespace {

// Elements of the small datasets that are read and checked at a time.
constexpr std::int64_t kSliceElements = std::int64_t{1} << 16;

// --- header ---

void read_sampling(const h5::Attributes& root, TraceHeader& header) {
  header.temperature = root.require_real("temperature");
  constexpr double kMaxTemperature = 1e30;  // its inverse is still a normal f32
  if (!(header.temperature >= 0 && header.temperature <= kMaxTemperature)) {
    root.fail("temperature", fmt::format("is {}", header.temperature),
              fmt::format("it must be a number from 0 to {}", kMaxTemperature));
  }
  header.top_k = root.integer("top_k").value_or(0);
  if (header.top_k < 0) {
    root.fail("top_k", fmt::format("is {}", header.top_k), "it must be at least 0 (0 = off)");
  }
  header.top_p = root.real("top_p").value_or(1.0);
  if (!(header.top_p > 0 && header.top_p <= 1)) {
    root.fail("top_p", fmt::format("is {}", header.top_p),
              "it must be above 0 and at most 1 (1 = off)");
  }
}

void read_slot_layout(const h5::Attributes& root) {
  const std::string layout = root.text("slot_layout").value_or("anchor_first");
  if (layout == "anchor_first") return;
  if (layout == "fill_in") {
    root.fail("slot_layout", "is 'fill_in', which this version does not support",
              "record with slot_layout 'anchor_first'");
  }
  root.fail("slot_layout", fmt::format("is '{}'", layout),
            "it must be 'anchor_first' (or absent) or 'fill_in'");
}

std::string read_heads_file(const h5::Attributes& root) {
  const std::string name = root.text("heads_file").value_or("");
  if (name.find_first_of("/\\") != std::string::npos || name == "." || name == "..") {
    root.fail("heads_file", fmt::format("is '{}'", name),
              "it must be a plain file name beside the trace, without a path");
  }
  return name;
}

void read_header(OpenTrace& trace) {
  TraceHeader& header = trace.header;
  header.file = trace.file.name();
  header.kind = read_kind(trace.file);
  const h5::Attributes root = trace.file.root_attributes();

  header.vocab_size = size_attribute(root, "vocab_size", kMaxVocab);
  if (header.vocab_size == 0) (void)root.require_integer("vocab_size");
  header.vocab_size_logical = size_attribute(root, "vocab_size_logical", header.vocab_size);
  if (header.vocab_size_logical == 0) header.vocab_size_logical = header.vocab_size;
  trace.declared_hidden = size_attribute(root, "hidden_size", kMaxHidden);
  trace.declared_target_hidden = size_attribute(root, "target_hidden_size", kMaxHidden);
  header.block_size = size_attribute(root, "block_size", kMaxBlock);
  if (header.kind == TraceKind::heads) {
    header.hidden_size = trace.declared_hidden;
    header.target_hidden_size = trace.declared_target_hidden;
  } else {
    if (header.block_size == 0) (void)root.require_integer("block_size");
    read_sampling(root, header);
    read_slot_layout(root);
    header.heads_file = read_heads_file(root);
  }
  header.seed = root.integer("seed");
  header.model = root.text("model").value_or("");
  header.domain = root.text("domain").value_or("");
  header.producer = root.text("producer").value_or("");
  header.created = root.text("created").value_or("");
  header.has_heads = static_cast<bool>(trace.file.find_group("/heads"));
}

// --- datasets ---

// Opens a dataset that must be there.
h5::Dataset open_required(const h5::File& file, const std::string& path, h5::Dataset::Holds holds) {
  auto data = h5::Dataset::open(file, path, holds);
  if (!data) fail(file.name(), path, "is missing", "record it");
  return std::move(*data);
}

// Number of rows that the first dataset of a kind declares; the others must agree.
std::int64_t row_count(const h5::Dataset& data, const char* symbol) {
  data.expect_rank(1, fmt::format("[{}]", symbol));
  const hsize_t rows = data.shape()[0];
  if (rows == 0) data.fail("is empty; there is nothing to replay", "record at least one block");
  if (rows > static_cast<hsize_t>(kMaxRows)) data.fail(fmt::format("has too many rows ({})", rows));
  return static_cast<std::int64_t>(rows);
}

void add_record(OpenTrace& trace, const std::string& group, const std::string& name,
                std::vector<std::int64_t> shape, const std::string& meaning) {
  h5::Dataset data = open_required(trace.file, group + "/" + name, h5::Dataset::Holds::integers);
  data.expect_shape(shape, meaning);
  trace.records.emplace(name, std::move(data));
}

// A streamed dataset, if it is there: its width is `size`, which the attribute `attribute` declares
// (0: not declared).
void add_stream(OpenTrace& trace, const std::string& group, RowData row_data,
                std::int32_t rows_per_block, std::int32_t size, const char* attribute) {
  const std::string path = group + "/" + dataset_name(row_data);
  auto data = h5::Dataset::open(trace.file, path, h5::Dataset::Holds::floats);
  if (!data) return;
  if (size == 0) {
    trace.file.root_attributes().fail(attribute, fmt::format("is missing, but {} is stored", path),
                                      "store it as an integer");
  }
  // Target rows of an anchors trace have one row per position and no dimension for it.
  const bool flat = rows_per_block == 1 && group == "/anchors" &&
                    (row_data == RowData::target_hidden || row_data == RowData::target_logits);
  const std::string blocks = group == "/anchors" ? "anchors" : "rounds";
  const std::string slots = row_data == RowData::draft_hidden || row_data == RowData::draft_logits
                                ? "block_size"
                                : "block_size + 1";
  if (row_data == RowData::draft_logits && data->shape().size() == 3 &&
      data->shape()[2] != static_cast<hsize_t>(size)) {
    data->fail(fmt::format("has {} columns, but vocab_size is {}; a reduced draft vocabulary is "
                           "not supported in this version",
                           data->shape()[2], size),
               "store draft logits over the whole vocabulary");
  }
  if (flat) {
    data->expect_shape({trace.blocks, size}, fmt::format("[{}, {}]", blocks, attribute));
  } else {
    data->expect_shape({trace.blocks, rows_per_block, size},
                       fmt::format("[{}, {}, {}]", blocks, slots, attribute));
  }
  RowDataInfo info;
  info.type = data->type();
  info.stored_as = data->stored_as();
  info.blocks = trace.blocks;
  info.rows_per_block = rows_per_block;
  info.width = size;
  trace.streams[static_cast<std::size_t>(row_data)] = OpenTrace::Stream{std::move(*data), info};
}

void add_streams(OpenTrace& trace, const std::string& group, std::int32_t target_rows) {
  TraceHeader& header = trace.header;
  const std::int32_t slots = header.block_size;
  add_stream(trace, group, RowData::draft_hidden, slots, trace.declared_hidden, "hidden_size");
  add_stream(trace, group, RowData::draft_logits, slots, header.vocab_size, "vocab_size");
  add_stream(trace, group, RowData::target_hidden, target_rows, trace.declared_target_hidden,
             "target_hidden_size");
  add_stream(trace, group, RowData::target_logits, target_rows, header.vocab_size, "vocab_size");
  if (trace.stream(RowData::draft_hidden)) header.hidden_size = trace.declared_hidden;
  if (trace.stream(RowData::target_hidden)) {
    header.target_hidden_size = trace.declared_target_hidden;
  }
  for (const char* side : {"draft", "target"}) {
    const bool draft = side[0] == 'd';
    if (!trace.stream(draft ? RowData::draft_hidden : RowData::target_hidden) &&
        !trace.stream(draft ? RowData::draft_logits : RowData::target_logits)) {
      fail(trace.file.name(), group, fmt::format("has neither {0}_hidden nor {0}_logits", side),
           "record one of them");
    }
  }
}

void open_anchors(OpenTrace& trace) {
  using Holds = h5::Dataset::Holds;
  if (!trace.file.find_group("/anchors")) {
    fail(trace.file.name(), "/anchors", "is missing", "a trace of kind anchors has this group");
  }
  h5::Dataset tokens = open_required(trace.file, "/anchors/tokens", Holds::integers);
  trace.blocks = row_count(tokens, "anchors");
  trace.records.emplace("tokens", std::move(tokens));

  h5::Dataset offsets = open_required(trace.file, "/anchors/sequence_offsets", Holds::integers);
  offsets.expect_rank(1, "[sequences + 1]");
  const hsize_t entries = offsets.shape()[0];
  if (entries < 2) {
    offsets.fail(fmt::format("has {} entries", entries), "it must have one more than sequences");
  }
  if (entries > static_cast<hsize_t>(kMaxRows)) offsets.fail("has too many entries");
  trace.records.emplace("sequence_offsets", std::move(offsets));

  add_record(trace, "/anchors", "last_tokens", {static_cast<std::int64_t>(entries) - 1},
             "[sequences], one less than sequence_offsets");
  add_streams(trace, "/anchors", 1);
}

void add_uniforms(OpenTrace& trace, const std::string& name, std::int64_t width,
                  const char* meaning) {
  auto data = h5::Dataset::open(trace.file, "/rounds/" + name, h5::Dataset::Holds::floats);
  if (!data) return;
  data->expect_shape({trace.blocks, width}, meaning);
  trace.records.emplace(name, std::move(*data));
}

void open_rounds(OpenTrace& trace) {
  if (!trace.file.find_group("/rounds")) {
    fail(trace.file.name(), "/rounds", "is missing", "a trace of kind rounds has this group");
  }
  h5::Dataset request = open_required(trace.file, "/rounds/request", h5::Dataset::Holds::integers);
  trace.blocks = row_count(request, "rounds");
  trace.records.emplace("request", std::move(request));
  for (const char* name : {"round", "anchor_token", "proposal_length", "accept_length"}) {
    add_record(trace, "/rounds", name, {trace.blocks}, "[rounds]");
  }
  const std::int64_t slots = trace.header.block_size;
  add_record(trace, "/rounds", "draft_tokens", {trace.blocks, slots}, "[rounds, block_size]");
  add_record(trace, "/rounds", "accepted_tokens", {trace.blocks, slots + 1},
             "[rounds, block_size + 1]");
  add_uniforms(trace, "proposal_uniforms", slots, "[rounds, block_size]");
  add_uniforms(trace, "accept_uniforms", 2 * slots + 1, "[rounds, 2 * block_size + 1]");
  add_streams(trace, "/rounds", trace.header.block_size + 1);
}

void require_heads(const OpenTrace& trace) {
  if (!trace.header.has_heads) {
    fail(trace.file.name(), "/heads", "is missing", "a trace of kind heads has this group");
  }
}

std::unique_ptr<OpenTrace> open_trace(const std::string& path) {
  auto trace = std::make_unique<OpenTrace>();
  trace->file = h5::File::open(path);
  trace->state = state_of(trace->file);
  read_header(*trace);
  switch (trace->header.kind) {
    case TraceKind::anchors:
      open_anchors(*trace);
      break;
    case TraceKind::rounds:
      open_rounds(*trace);
      break;
    case TraceKind::heads:
      require_heads(*trace);
      break;
  }
  return trace;
}

// --- small datasets ---

// Columns of a dataset with one or two dimensions.
std::int64_t columns(const h5::Dataset& data) {
  return data.shape().size() < 2 ? 1 : static_cast<std::int64_t>(data.shape()[1]);
}

// Calls use(row, start, count) for slices of rows of a small dataset.
template <class Use>
void for_each_slice(const h5::Dataset& data, const Use& use) {
  const auto rows = static_cast<std::int64_t>(data.shape()[0]);
  const std::int64_t step = std::max<std::int64_t>(kSliceElements / columns(data), 1);
  for (std::int64_t row = 0; row < rows; row += step) {
    std::vector<hsize_t> start(data.shape().size(), 0);
    std::vector<hsize_t> count(data.shape());
    start[0] = static_cast<hsize_t>(row);
    count[0] = static_cast<hsize_t>(std::min(step, rows - row));
    use(row * columns(data), start, count);
  }
}

// Where element `index` of a small dataset stands.
std::vector<std::uint64_t> index_of(const h5::Dataset& data, std::int64_t index) {
  const auto i = static_cast<std::uint64_t>(index);
  const auto width = static_cast<std::uint64_t>(columns(data));
  if (data.shape().size() < 2) return {i};
  return {i / width, i % width};
}

// Reads all of an integer dataset; every value must lie in [low, high]. `rule` says so in words.
template <class T>
std::vector<T> read_integers(const h5::Dataset& data, std::int64_t low, std::int64_t high,
                             const std::string& rule) {
  std::vector<T> values(data.elements());
  std::vector<std::int64_t> slice;
  for_each_slice(data, [&](std::int64_t first, const auto& start, const auto& count) {
    const std::int64_t elements = static_cast<std::int64_t>(count[0]) * columns(data);
    slice.resize(static_cast<std::size_t>(elements));
    data.read_integers(start, count, slice.data());
    for (std::int64_t i = 0; i < elements; ++i) {
      const std::int64_t value = slice[static_cast<std::size_t>(i)];
      if (value < low || value > high) {
        data.fail_at(index_of(data, first + i), fmt::format("is {}", value), rule);
      }
      values[static_cast<std::size_t>(first + i)] = static_cast<T>(value);
    }
  });
  return values;
}

std::vector<float> read_uniforms(const h5::Dataset& data) {
  std::vector<float> values(data.elements());
  std::vector<double> slice;
  for_each_slice(data, [&](std::int64_t first, const auto& start, const auto& count) {
    const std::int64_t elements = static_cast<std::int64_t>(count[0]) * columns(data);
    slice.resize(static_cast<std::size_t>(elements));
    data.read_doubles(start, count, slice.data());
    for (std::int64_t i = 0; i < elements; ++i) {
      const double value = slice[static_cast<std::size_t>(i)];
      if (!(value >= 0 && value <= 1)) {
        data.fail_at(index_of(data, first + i), fmt::format("is {}", value),
                     "uniforms must lie in [0, 1]");
      }
      values[static_cast<std::size_t>(first + i)] = static_cast<float>(value);
    }
  });
  return values;
}

std::string token_rule(const TraceHeader& header) {
  return header.vocab_size_logical == header.vocab_size
             ? fmt::format("token ids must lie in [0, vocab_size = {})", header.vocab_size)
             : fmt::format("token ids must lie in [0, vocab_size_logical = {})",
                           header.vocab_size_logical);
}

void check_offsets(const h5::Dataset& data, const std::vector<std::int64_t>& offsets,
                   std::int64_t positions) {
  if (offsets.front() != 0) {
    data.fail_at({0}, fmt::format("is {}", offsets.front()), "the first offset must be 0");
  }
  const auto drop = std::is_sorted_until(offsets.begin(), offsets.end());
  if (drop != offsets.end()) {
    data.fail_at({static_cast<std::uint64_t>(drop - offsets.begin())},
                 fmt::format("is {} after {}", *drop, *(drop - 1)), "offsets must not descend");
  }
  if (offsets.back() != positions) {
    data.fail_at({offsets.size() - 1}, fmt::format("is {}", offsets.back()),
                 fmt::format("the last offset must be the number of tokens, {}", positions));
  }
}

void check_accepted(const OpenTrace& trace, const RoundRecords& records) {
  const std::int64_t width = trace.header.block_size + 1;
  const h5::Dataset& lengths = trace.records.at("accept_length");
  const h5::Dataset& tokens = trace.records.at("accepted_tokens");
  for (std::int64_t m = 0; m < trace.blocks; ++m) {
    const auto row = static_cast<std::size_t>(m);
    const std::int32_t proposed = records.proposal_length[row];
    const std::int32_t emitted = records.accept_length[row];
    if (emitted > proposed + 1) {
      lengths.fail_at({row}, fmt::format("is {} with proposal_length {}", emitted, proposed),
                      "accept_length must lie in [1, proposal_length + 1]");
    }
    for (std::int64_t k = 0; k < width; ++k) {
      const std::int32_t token = records.accepted_tokens[static_cast<std::size_t>(m * width + k)];
      if ((token < 0) != (k >= emitted)) {
        tokens.fail_at({row, static_cast<std::uint64_t>(k)},
                       fmt::format("is {} with accept_length {}", token, emitted),
                       "the first accept_length entries must be token ids, the rest -1");
      }
    }
  }
}

void check_unique(const OpenTrace& trace, const RoundRecords& records) {
  const auto key = [&](std::size_t m) {
    return static_cast<std::uint64_t>(records.request[m]) << 32 |
           static_cast<std::uint64_t>(records.round[m]);
  };
  std::vector<std::uint64_t> keys(records.request.size());
  for (std::size_t m = 0; m < keys.size(); ++m) keys[m] = key(m);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice == keys.end()) return;
  std::size_t first = 0;
  while (key(first) != *twice) ++first;
  std::size_t second = first + 1;
  while (key(second) != *twice) ++second;
  trace.records.at("round").fail_at(
      {second},
      fmt::format("request {} has round {} already in row {}", records.request[second],
                  records.round[second], first),
      "each pair of request and round must be there once");
}

}  // namespace

// --- shared with the rest of the folder ---

const char* kind_name(TraceKind kind) {
  switch (kind) {
    case TraceKind::anchors:
      return "anchors";
    case TraceKind::rounds:
      return "rounds";
    case TraceKind::heads:
      return "heads";
  }
  return "";
}

std::int32_t size_attribute(const h5::Attributes& attributes, const std::string& name,
                            std::int64_t limit) {
  const auto value = attributes.integer(name);
  if (!value) return 0;
  if (*value < 1 || *value > limit) {
    attributes.fail(name, fmt::format("is {}", *value),
                    fmt::format("it must lie in [1, {}]", limit));
  }
  return static_cast<std::int32_t>(*value);
}

TraceKind read_kind(const h5::File& file) {
  const h5::Attributes root = file.root_attributes();
  const auto format = root.text("format");
  if (!format) root.fail("format", "is missing; this is no dspark trace", "give a dspark trace");
  if (*format != "dspark-trace") {
    root.fail("format", fmt::format("is '{}', not 'dspark-trace'", *format), "give a dspark trace");
  }
  const std::int64_t version = root.require_integer("format_version");
  if (version != 1) {
    root.fail("format_version", fmt::format("is {}; this version reads 1", version),
              "record with version 1 or use a newer dspark-replay");
  }
  const std::string kind = root.require_text("kind");
  for (const TraceKind known : {TraceKind::anchors, TraceKind::rounds, TraceKind::heads}) {
    if (kind == kind_name(known)) return known;
  }
  root.fail("kind", fmt::format("is '{}'", kind), "it must be 'anchors', 'rounds' or 'heads'");
}

const char* dataset_name(RowData data) {
  switch (data) {
    case RowData::draft_hidden:
      return "draft_hidden";
    case RowData::draft_logits:
      return "draft_logits";
    case RowData::target_hidden:
      return "target_hidden";
    case RowData::target_logits:
      return "target_logits";
  }
  return "";
}

// --- the reader ---

OpenTrace::State state_of(const h5::File& file) {
  struct stat status {};
  if (fstat(file.descriptor(), &status) != 0) {
    throw trace_error(file.name(),
                      fmt::format("its state cannot be read: {}", std::strerror(errno)),
                      "check the file system");
  }
  return {status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

TraceFile::TraceFile(std::unique_ptr<OpenTrace> impl) : impl_(std::move(impl)) {}
TraceFile::~TraceFile() = default;

std::unique_ptr<TraceFile> TraceFile::open(const std::string& path) {
  probe(path, [&] {
    const auto trace = open_trace(path);
    if (trace->header.has_heads) (void)open_heads_group(trace->file, trace.get());
  });
  return std::unique_ptr<TraceFile>(new TraceFile(open_trace(path)));
}

const TraceHeader& TraceFile::header() const { return impl_->header; }

std::int64_t TraceFile::blocks() const { return impl_->blocks; }

int TraceFile::descriptor() const { return impl_->file.descriptor(); }

std::optional<RowDataInfo> TraceFile::row_data(RowData data) const {
  const auto& stream = impl_->stream(data);
  if (!stream) return std::nullopt;
  return stream->info;
}

void TraceFile::read(RowData data, std::int64_t first, std::int64_t count, void* out) {
  h5::quiet_this_thread();
  const auto& stream = impl_->stream(data);
  if (!stream) {
    throw internal_error(impl_->file.name(),
                         fmt::format("{} was read but is not there", dataset_name(data)));
  }
  if (first < 0 || count < 0 || first > impl_->blocks || count > impl_->blocks - first) {
    throw internal_error(impl_->file.name(),
                         fmt::format("blocks [{}, +{}) of {} were read, but it has {}", first,
                                     count, dataset_name(data), impl_->blocks));
  }
  if (count == 0) return;
  std::vector<hsize_t> start(stream->data.shape().size(), 0);
  std::vector<hsize_t> size(stream->data.shape());
  start[0] = static_cast<hsize_t>(first);
  size[0] = static_cast<hsize_t>(count);
  stream->data.read_floats(start, size, out);
  // Beyond the end of a file that was cut HDF5 reads zeros.
  if (state_of(impl_->file) != impl_->state) {
    throw trace_error(impl_->file.name(), "the file was changed while it was read",
                      "run again when nothing writes to it");
  }
}

AnchorTokens TraceFile::read_anchor_tokens(std::uint64_t memory_budget) {
  if (impl_->header.kind != TraceKind::anchors) {
    throw internal_error(impl_->file.name(),
                         "anchor tokens were read from a trace without anchors");
  }
  const h5::Dataset& offsets = impl_->records.at("sequence_offsets");
  const h5::Dataset& tokens = impl_->records.at("tokens");
  const h5::Dataset& last_tokens = impl_->records.at("last_tokens");
  require_memory(impl_->file.name(), "/anchors",
                 tokens.elements() * 4 + offsets.elements() * 8 + last_tokens.elements() * 4,
                 resolve_memory_budget(memory_budget));

  AnchorTokens out;
  out.sequence_offsets = read_integers<std::int64_t>(
      offsets, 0, impl_->blocks, fmt::format("offsets must lie in [0, {}]", impl_->blocks));
  check_offsets(offsets, out.sequence_offsets, impl_->blocks);
  const std::string rule = token_rule(impl_->header);
  const std::int64_t last_id = impl_->header.vocab_size_logical - 1;
  out.tokens = read_integers<std::int32_t>(tokens, 0, last_id, rule);
  // -1 marks that an empty sequence has no last token.
  out.last_tokens = read_integers<std::int32_t>(last_tokens, -1, last_id, rule);
  for (std::size_t s = 0; s < out.last_tokens.size(); ++s) {
    const bool empty = out.sequence_offsets[s] == out.sequence_offsets[s + 1];
    if (out.last_tokens[s] < 0 && !empty) last_tokens.fail_at({s}, "is -1", rule);
  }
  return out;
}

RoundRecords TraceFile::read_round_records(std::uint64_t memory_budget) {
  if (impl_->header.kind != TraceKind::rounds) {
    throw internal_error(impl_->file.name(), "rounds were read from a trace without rounds");
  }
  const auto& records = impl_->records;
  std::uint64_t bytes = static_cast<std::uint64_t>(impl_->blocks) * 8;  // to find pairs given twice
  for (const auto& [name, data] : records) bytes += data.elements() * 4;
  require_memory(impl_->file.name(), "/rounds", bytes, resolve_memory_budget(memory_budget));

  constexpr std::int64_t kMaxId = std::numeric_limits<std::int32_t>::max();
  const std::string id_rule = fmt::format("it must lie in [0, {}]", kMaxId);
  const std::string rule = token_rule(impl_->header);
  const std::int64_t slots = impl_->header.block_size;
  const std::int64_t last_id = impl_->header.vocab_size_logical - 1;
  const auto integers = [&](const char* name, std::int64_t low, std::int64_t high,
                            const std::string& must) {
    return read_integers<std::int32_t>(records.at(name), low, high, must);
  };
  RoundRecords out;
  out.request = integers("request", 0, kMaxId, id_rule);
  out.round = integers("round", 0, kMaxId, id_rule);
  check_unique(*impl_, out);
  out.anchor_token = integers("anchor_token", 0, last_id, rule);
  out.draft_tokens = integers("draft_tokens", 0, last_id, rule);
  out.proposal_length = integers("proposal_length", 0, slots,
                                 fmt::format("it must lie in [0, block_size = {}]", slots));
  out.accept_length =
      integers("accept_length", 1, slots + 1, "it must lie in [1, proposal_length + 1]");
  out.accepted_tokens = integers("accepted_tokens", -1, last_id, rule + ", and -1 is padding");
  check_accepted(*impl_, out);
  const auto uniforms = [&](const char* name) {
    const auto found = records.find(name);
    return found == records.end() ? std::vector<float>() : read_uniforms(found->second);
  };
  out.proposal_uniforms = uniforms("proposal_uniforms");
  out.accept_uniforms = uniforms("accept_uniforms");
  return out;
}

}  // namespace dspark
