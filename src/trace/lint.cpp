#include "trace/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "core/half.h"
#include "core/law.h"
#include "trace/heads.h"
#include "trace/impl.h"
#include "trace/located_error.h"
#include "trace/memory.h"
#include "trace/trace.h"

namespace dspark {
namespace {

// Rows are read in slices of about this size.
constexpr std::uint64_t kSliceBytes = std::uint64_t{16} << 20;
// How far the sum of a row of probabilities may be from 1: 16-bit numbers over a large vocabulary.
constexpr double kSoftmaxSlack = 0.01;

void add(TraceReport& report, Severity severity, std::string where, std::string what) {
  report.problems.push_back({severity, std::move(where), std::move(what)});
  if (severity == Severity::error) report.valid = false;
}

// Where something is, as the report says it: with the file where that is not the trace itself.
std::string place_in(const TraceReport& report, const std::string& file, const std::string& place) {
  if (file == report.file) return place;
  return place.empty() ? file : fmt::format("{}: {}", file, place);
}

// Runs `work`; what it throws about a trace becomes an error problem. True if it threw nothing.
template <class Work>
bool collect(TraceReport& report, const Work& work) {
  try {
    work();
    return true;
  } catch (const LocatedError& error) {
    add(report, Severity::error, place_in(report, error.file, error.place), error.what_to_show);
  } catch (const Error& error) {
    if (error.code() != ExitCode::trace) throw;
    add(report, Severity::error, "", error.what());
  }
  return false;
}

// --- rows ---

// What one row of numbers looks like.
struct RowFacts {
  bool invalid = false;
  bool flat = false;
  bool near_tie = false;
  bool softmax = false;
};

RowFacts look_at_hidden(const float* values, std::int64_t count) {
  RowFacts facts;
  std::uint32_t non_finite = 0;
  std::uint32_t different = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = bits_from_float(values[i]);
    non_finite |= (bits & 0x7F800000u) == 0x7F800000u ? 1u : 0u;
    different |= values[i] != values[0] ? 1u : 0u;
  }
  facts.invalid = non_finite != 0;
  facts.flat = !facts.invalid && different == 0 && count > 1;
  return facts;
}

RowFacts look_at_logits(const float* values, std::int64_t count) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr int kLanes = 16;  // independent of each other, so that the loop vectorises
  std::array<float, kLanes> largest, second, smallest, sum;
  std::array<std::uint32_t, kLanes> bad{};
  largest.fill(-kInfinity);
  second.fill(-kInfinity);
  smallest.fill(kInfinity);
  sum.fill(0);
  const auto take = [&](int lane, float value) {
    const auto l = static_cast<std::size_t>(lane);
    bad[l] |= value < kInfinity ? 0u : 1u;  // NaN or +inf
    second[l] = std::max(second[l], std::min(largest[l], value));
    largest[l] = std::max(largest[l], value);
    smallest[l] = std::min(smallest[l], value);
    sum[l] += value;
  };
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) take(lane, values[i + lane]);
  }
  for (; i < count; ++i) take(0, values[i]);

  float first = -kInfinity, next = -kInfinity, least = kInfinity;
  double total = 0;
  bool any_bad = false;
  for (std::size_t l = 0; l < kLanes; ++l) {
    next = std::max({next, second[l], std::min(first, largest[l])});
    first = std::max(first, largest[l]);
    least = std::min(least, smallest[l]);
    total += sum[l];
    any_bad |= bad[l] != 0;
  }
  RowFacts facts;
  facts.invalid = any_bad || first == -kInfinity;
  if (facts.invalid) return facts;
  facts.flat = count > 1 && least == first;
  facts.near_tie = count > 1 && static_cast<double>(first) - next < kNearTie;
  facts.softmax = least >= 0 && first <= 1 && std::abs(total - 1) <= kSoftmaxSlack;
  return facts;
}

// How many rows have a property, and the first that has.
struct Tally {
  std::int64_t count = 0;
  std::int64_t first_block = 0;
  std::int32_t first_row = 0;

  void add(bool has, std::int64_t block, std::int32_t row) {
    if (!has) return;
    if (count++ > 0) return;
    first_block = block;
    first_row = row;
  }
};

// Widens the rows of `stored` into `row`.
void widen(const std::byte* stored, DType type, std::int64_t count, float* row) {
  if (type == DType::f32) {
    std::memcpy(row, stored, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const auto* bits = reinterpret_cast<const std::uint16_t*>(stored);
  if (type == DType::f16) {
    for (std::int64_t i = 0; i < count; ++i) row[i] = to_float(Float16{bits[i]});
  } else {
    for (std::int64_t i = 0; i < count; ++i) row[i] = to_float(BFloat16{bits[i]});
  }
}

// "3 of 56 rows ...; the first is block 4, row 1".
std::string counted(const Tally& tally, std::int64_t rows, const std::string& property,
                    const RowDataInfo& info) {
  std::string first = fmt::format("{}", tally.first_block);
  if (info.rows_per_block > 1) first += fmt::format(", {}", tally.first_row);
  return fmt::format("{} of {} rows {}; the first is [{}]", tally.count, rows, property, first);
}

void look_at_rows(TraceFile& trace, RowData data, std::uint64_t budget, TraceReport& report,
                  DatasetReport& out) {
  const OpenTrace::Stream& stream = *TraceAccess::impl(trace).stream(data);
  const RowDataInfo& info = stream.info;
  const bool logits = data == RowData::draft_logits || data == RowData::target_logits;
  const std::int64_t looked_at = logits ? trace.header().vocab_size_logical : info.width;
  const std::uint64_t row_bytes = static_cast<std::uint64_t>(info.width) * size_of(info.type);
  const std::uint64_t block_bytes = row_bytes * static_cast<std::uint64_t>(info.rows_per_block);

  std::uint64_t step = std::clamp<std::uint64_t>(kSliceBytes / block_bytes, 1,
                                                 static_cast<std::uint64_t>(info.blocks));
  // Whole chunks, where they are small enough, so that each is inflated once.
  const std::uint64_t chunk = stream.data.chunk_rows();
  if (chunk > 1 && chunk <= step) step -= step % chunk;
  require_memory(trace.header().file, stream.data.path(), step * block_bytes + row_bytes * 2,
                 budget);
  std::vector<std::byte> stored(step * block_bytes);
  std::vector<float> row(static_cast<std::size_t>(info.width));

  Tally invalid, flat, near_tie, softmax;
  for (std::int64_t block = 0; block < info.blocks; block += static_cast<std::int64_t>(step)) {
    const std::int64_t count = std::min(static_cast<std::int64_t>(step), info.blocks - block);
    trace.read(data, block, count, stored.data());
    const std::byte* at = stored.data();
    for (std::int64_t b = block; b < block + count; ++b) {
      for (std::int32_t r = 0; r < info.rows_per_block; ++r, at += row_bytes) {
        widen(at, info.type, looked_at, row.data());
        const RowFacts facts =
            logits ? look_at_logits(row.data(), looked_at) : look_at_hidden(row.data(), looked_at);
        invalid.add(facts.invalid, b, r);
        flat.add(facts.flat, b, r);
        near_tie.add(facts.near_tie && !facts.flat, b, r);
        softmax.add(facts.softmax && !facts.flat, b, r);
      }
    }
  }

  const std::int64_t rows = info.blocks * info.rows_per_block;
  out.rows = rows;
  out.invalid_rows = invalid.count;
  out.flat_rows = flat.count;
  if (logits) out.near_ties = near_tie.count;
  report.invalid_rows += invalid.count;
  const std::string& path = stream.data.path();
  const auto warn = [&](const Tally& tally, const std::string& property) {
    if (tally.count > 0) {
      add(report, Severity::warning, path, counted(tally, rows, property, info));
    }
  };
  warn(invalid,
       logits ? "are invalid (NaN, +inf or no finite logit)" : "are invalid (NaN or infinity)");
  warn(flat, "are flat (all numbers equal); were they recorded?");
  warn(softmax, "look like probabilities (all in [0, 1], sum 1); logits are wanted");
  warn(near_tie,
       "are near ties (the two largest logits are less than 0.001 apart), where rounding "
       "may turn a decision");
}

// --- datasets ---

DatasetReport describe(const h5::Dataset& data) {
  DatasetReport out;
  out.name = data.path();
  for (const hsize_t n : data.shape()) out.shape.push_back(static_cast<std::int64_t>(n));
  out.stored_as = data.stored_as();
  out.stored_bytes = data.stored_bytes();
  out.unwritten_chunks = static_cast<std::int64_t>(data.unwritten_chunks());
  return out;
}

void warn_of_unwritten_chunks(const DatasetReport& data, TraceReport& report) {
  if (data.unwritten_chunks == 0) return;
  add(report, Severity::warning, data.name,
      fmt::format("{} chunk{} never written and read{} as the fill value", data.unwritten_chunks,
                  data.unwritten_chunks == 1 ? " was" : "s were",
                  data.unwritten_chunks == 1 ? "s" : ""));
}

void look_at_records(TraceFile& trace, std::uint64_t budget, TraceReport& report) {
  if (trace.header().kind == TraceKind::anchors) {
    collect(report, [&] { (void)trace.read_anchor_tokens(budget); });
    return;
  }
  collect(report, [&] {
    const RoundRecords records = trace.read_round_records(budget);
    const std::set<std::int32_t> requests(records.request.begin(), records.request.end());
    report.requests = static_cast<std::int64_t>(requests.size());
    const std::int64_t slots = trace.header().block_size;
    Tally contradicted;
    for (std::int64_t m = 0; m < trace.blocks(); ++m) {
      const std::int64_t accepted = records.accept_length[static_cast<std::size_t>(m)] - 1;
      bool same = true;
      for (std::int64_t k = 0; k < accepted; ++k) {
        same &= records.accepted_tokens[static_cast<std::size_t>(m * (slots + 1) + k)] ==
                records.draft_tokens[static_cast<std::size_t>(m * slots + k)];
      }
      contradicted.add(!same, m, 0);
    }
    if (contradicted.count > 0) {
      add(report, Severity::warning, "/rounds/accepted_tokens",
          fmt::format("{} of {} rounds accepted other tokens than were drafted; the first is [{}]",
                      contradicted.count, trace.blocks(), contradicted.first_block));
    }
  });
}

// --- heads ---

void look_at_heads_in(const h5::File& file, const OpenTrace* trace, TraceReport& report) {
  const HeadsGroup heads = open_heads_group(file, trace);
  if (heads.markov_rank != 0) report.markov_rank = heads.markov_rank;
  for (const h5::Dataset* data : heads.datasets()) {
    DatasetReport out = describe(*data);
    out.name = place_in(report, file.name(), out.name);
    warn_of_unwritten_chunks(out, report);
    report.datasets.push_back(std::move(out));
    collect(report, [&] { read_finite(*data, nullptr); });
  }
}

void look_at_heads(TraceFile& trace, const std::string& heads_override, TraceReport& report) {
  const OpenTrace& impl = TraceAccess::impl(trace);
  if (impl.header.kind == TraceKind::heads) {
    report.heads = impl.file.name();
    collect(report, [&] { look_at_heads_in(impl.file, nullptr, report); });
    return;
  }
  const HeadsNeeds needs = heads_needs(impl);
  const HeadsPlace place = find_heads(impl, heads_override);
  std::string missing;
  std::error_code error;
  if (place.path.empty()) {
    missing = "there are no heads";
  } else if (heads_override.empty() && !place.inside &&
             !std::filesystem::exists(place.path, error)) {
    missing = fmt::format("the heads file '{}' is not beside the trace", impl.header.heads_file);
  }
  if (!missing.empty()) {
    add(report, Severity::warning, "",
        fmt::format("{}, so it was not checked that they fit the trace{}", missing,
                    needs.any() ? fmt::format("; a replay needs them: {}", needs.reason()) : ""));
    return;
  }
  report.heads = place.path;
  collect(report, [&] {
    const std::optional<h5::File> other = open_heads_file(place, impl);
    look_at_heads_in(other ? *other : impl.file, &impl, report);
  });
}

void copy_header(const TraceHeader& header, TraceReport& report) {
  const auto size = [](std::int32_t value) {
    return value == 0 ? std::nullopt : std::optional(value);
  };
  report.vocab_size = size(header.vocab_size);
  report.vocab_size_logical = size(header.vocab_size_logical);
  report.block_size = size(header.block_size);
  report.hidden_size = size(header.hidden_size);
  report.target_hidden_size = size(header.target_hidden_size);
  if (header.kind != TraceKind::heads) {
    report.temperature = header.temperature;
    report.top_k = header.top_k;
    report.top_p = header.top_p;
  }
  report.seed = header.seed;
  report.model = header.model;
  report.domain = header.domain;
  report.producer = header.producer;
  report.created = header.created;
}

}  // namespace

TraceReport inspect_trace(const std::string& path, const std::string& heads_override,
                          std::uint64_t memory_budget) {
  TraceReport report;
  report.file = path;
  std::unique_ptr<TraceFile> trace;
  if (!collect(report, [&] { trace = TraceFile::open(path); })) return report;

  const std::uint64_t budget = resolve_memory_budget(memory_budget);
  const OpenTrace& impl = TraceAccess::impl(*trace);
  const TraceHeader& header = trace->header();
  report.kind = kind_name(header.kind);
  copy_header(header, report);
  for (const auto& [name, data] : impl.records) {
    report.datasets.push_back(describe(data));
    warn_of_unwritten_chunks(report.datasets.back(), report);
  }
  if (header.kind == TraceKind::anchors) {
    report.anchors = trace->blocks();
    report.sequences = static_cast<std::int64_t>(impl.records.at("last_tokens").shape().front());
  }
  if (header.kind == TraceKind::rounds) report.rounds = trace->blocks();
  if (header.kind != TraceKind::heads) look_at_records(*trace, budget, report);
  for (const RowData data : kRowData) {
    if (!impl.stream(data)) continue;
    DatasetReport out = describe(impl.stream(data)->data);
    warn_of_unwritten_chunks(out, report);
    collect(report, [&] { look_at_rows(*trace, data, budget, report, out); });
    report.datasets.push_back(std::move(out));
  }
  look_at_heads(*trace, heads_override, report);
  return report;
}

int exit_code(const TraceReport& report) {
  if (!report.valid) return static_cast<int>(ExitCode::trace);
  return static_cast<int>(report.invalid_rows > 0 ? ExitCode::incomplete : ExitCode::done);
}

}  // namespace dspark
