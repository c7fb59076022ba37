#include "trace/heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include "core/half.h"
#include "trace/located_error.h"
#include "trace/memory.h"
#include "trace/probe.h"

namespace dspark {
namespace {

using Holds = h5::Dataset::Holds;

constexpr std::uint64_t kSliceBytes = std::uint64_t{8} << 20;

// --- attributes: on the group where they are there, else on the root ---

class HeadsAttributes {
 public:
  explicit HeadsAttributes(const h5::File& file)
      : group_id_(file.find_group("/heads")),
        group_(file.name(), "/heads", group_id_.get()),
        root_(file.root_attributes()) {
    if (!group_id_) fail(file.name(), "/heads", "is missing", "a heads file has this group");
  }

  [[nodiscard]] const h5::Attributes& holder(const std::string& name) const {
    return H5Aexists(group_id_.get(), name.c_str()) > 0 ? group_ : root_;
  }
  [[nodiscard]] std::int32_t size(const std::string& name, std::int64_t limit) const {
    return size_attribute(holder(name), name, limit);
  }

 private:
  h5::Handle group_id_;
  h5::Attributes group_;
  h5::Attributes root_;
};

// The size that the heads declare, or the trace's where they declare none; both must agree.
std::int32_t agreed_size(const HeadsAttributes& attributes, const std::string& name,
                         std::int64_t limit, std::int32_t of_trace) {
  const std::int32_t declared = attributes.size(name, limit);
  if (declared == 0) return of_trace;
  if (of_trace != 0 && declared != of_trace) {
    attributes.holder(name).fail(name,
                                 fmt::format("is {}, but {} in the trace", declared, of_trace),
                                 "give the heads that the trace was recorded with");
  }
  return declared;
}

void check_head_type(const HeadsAttributes& attributes) {
  const std::string name = "markov_head_type";
  const h5::Attributes& holder = attributes.holder(name);
  const std::string type = holder.text(name).value_or("vanilla");
  if (type == "vanilla") return;
  if (type == "gated" || type == "rnn") {
    holder.fail(name, fmt::format("is '{}', which this version does not support", type),
                "use a drafter with a vanilla Markov head");
  }
  holder.fail(name, fmt::format("is '{}'", type), "it must be 'vanilla', 'gated' or 'rnn'");
}

std::int64_t rows_of(const h5::Dataset& data) {
  return data.shape().empty() ? 1 : static_cast<std::int64_t>(data.shape()[0]);
}

void refuse_reduced_vocabulary(const h5::Dataset& data, std::int32_t vocab_size) {
  if (data.shape().size() == 2 && rows_of(data) != vocab_size) {
    data.fail(fmt::format("has {} rows, but vocab_size is {}; a reduced draft vocabulary is not "
                          "supported in this version",
                          rows_of(data), vocab_size),
              "use heads over the whole vocabulary");
  }
}

void require_hidden_size(const HeadsAttributes& attributes, std::int32_t size, const char* name,
                         const h5::Dataset& because) {
  if (size != 0) return;
  attributes.holder(name).fail(name, "is missing, but " + because.path() + " is stored",
                               "store it as an integer");
}

void open_markov(const h5::File& file, const HeadsAttributes& attributes, HeadsGroup& heads) {
  heads.markov_w1 = h5::Dataset::open(file, "/heads/markov_w1", Holds::floats);
  heads.markov_w2 = h5::Dataset::open(file, "/heads/markov_w2", Holds::floats);
  if (heads.markov_w1.has_value() != heads.markov_w2.has_value()) {
    fail(file.name(), heads.markov_w1 ? "/heads/markov_w2" : "/heads/markov_w1",
         "is missing, but the other half of the Markov head is stored", "store both or none");
  }
  if (!heads.markov_w1) return;
  const h5::Dataset& w1 = *heads.markov_w1;
  w1.expect_rank(2, "[vocab_size, markov_rank]");
  const std::int64_t rank = static_cast<std::int64_t>(w1.shape()[1]);
  if (rank < 1 || rank > kMaxHidden) {
    w1.fail(fmt::format("has rank {}", rank), fmt::format("it must lie in [1, {}]", kMaxHidden));
  }
  w1.expect_shape({heads.vocab_size, rank}, "[vocab_size, markov_rank]");
  refuse_reduced_vocabulary(*heads.markov_w2, heads.vocab_size);
  heads.markov_w2->expect_shape({heads.vocab_size, rank}, "[vocab_size, markov_rank]");
  heads.markov_rank = static_cast<std::int32_t>(rank);
  const std::int32_t declared = attributes.size("markov_rank", kMaxHidden);
  if (declared != 0 && declared != rank) {
    attributes.holder("markov_rank")
        .fail("markov_rank", fmt::format("is {}, but markov_w1 has {} columns", declared, rank),
              "make them agree");
  }
}

void open_confidence(const h5::File& file, const HeadsAttributes& attributes, HeadsGroup& heads) {
  heads.confidence_weight = h5::Dataset::open(file, "/heads/confidence_weight", Holds::floats);
  heads.confidence_bias = h5::Dataset::open(file, "/heads/confidence_bias", Holds::floats);
  if (!heads.confidence_weight) {
    if (heads.confidence_bias) {
      heads.confidence_bias->fail("is stored without confidence_weight", "store both or none");
    }
    return;
  }
  const h5::Dataset& weight = *heads.confidence_weight;
  require_hidden_size(attributes, heads.hidden_size, "hidden_size", weight);
  weight.expect_rank(1, "[hidden_size] or [hidden_size + markov_rank]");
  const std::int64_t hidden = heads.hidden_size;
  heads.confidence_with_markov =
      heads.markov_rank > 0 && rows_of(weight) == hidden + heads.markov_rank;
  if (rows_of(weight) != hidden && !heads.confidence_with_markov) {
    weight.fail(
        fmt::format("has {} numbers", rows_of(weight)),
        heads.markov_rank > 0
            ? fmt::format("it must have {} (hidden_size) or {} (hidden_size + markov_rank)", hidden,
                          hidden + heads.markov_rank)
            : fmt::format("it must have {} (hidden_size; there is no Markov head)", hidden));
  }
  const char* name = "confidence_with_markov";
  const auto declared = attributes.holder(name).integer(name);
  if (declared && *declared != (heads.confidence_with_markov ? 1 : 0)) {
    attributes.holder(name).fail(
        name,
        fmt::format("is {}, but confidence_weight has {} numbers", *declared, rows_of(weight)),
        "make them agree");
  }
  if (heads.confidence_bias && heads.confidence_bias->elements() != 1) {
    heads.confidence_bias->expect_shape({1}, "[1], or a scalar");
  }
}

void open_lm_heads(const h5::File& file, const HeadsAttributes& attributes, const HeadsNeeds* needs,
                   HeadsGroup& heads) {
  const bool all = needs == nullptr;
  if (all || needs->draft) {
    heads.draft_lm_head = h5::Dataset::open(file, "/heads/draft_lm_head", Holds::floats);
  }
  if (heads.draft_lm_head) {
    const h5::Dataset& head = *heads.draft_lm_head;
    require_hidden_size(attributes, heads.hidden_size, "hidden_size", head);
    refuse_reduced_vocabulary(head, heads.vocab_size);
    head.expect_shape({heads.vocab_size, heads.hidden_size}, "[vocab_size, hidden_size]");
  }
  const bool serves_draft = !all && needs->draft && !heads.draft_lm_head;
  if (!all && !needs->target && !serves_draft) return;
  heads.lm_head = h5::Dataset::open(file, "/heads/lm_head", Holds::floats);
  if (!heads.lm_head) {
    if (all) return;
    fail(file.name(), "/heads/lm_head", fmt::format("is missing, but {}", needs->reason()),
         "store it, or record logits");
  }
  const h5::Dataset& head = *heads.lm_head;
  require_hidden_size(attributes, heads.target_hidden_size, "target_hidden_size", head);
  head.expect_shape({heads.vocab_size, heads.target_hidden_size},
                    "[vocab_size, target_hidden_size]");
  if (serves_draft && heads.target_hidden_size != heads.hidden_size) {
    head.fail(fmt::format("has {} columns and cannot serve draft_hidden, which has {}",
                          heads.target_hidden_size, heads.hidden_size),
              "store draft_lm_head, or record draft_logits");
  }
}

// Index of the first number whose exponent is all ones (NaN or infinity), or -1.
template <class Word>
std::int64_t first_non_finite(const Word* values, std::int64_t count, Word exponent) {
  constexpr std::int64_t kStep = 4096;  // no early exit inside, so that the loop vectorises
  for (std::int64_t begin = 0; begin < count; begin += kStep) {
    const std::int64_t end = std::min(begin + kStep, count);
    unsigned found = 0;
    for (std::int64_t i = begin; i < end; ++i)
      found |= (values[i] & exponent) == exponent ? 1u : 0u;
    if (found == 0) continue;
    for (std::int64_t i = begin; i < end; ++i) {
      if ((values[i] & exponent) == exponent) return i;
    }
  }
  return -1;
}

std::int64_t first_non_finite(const std::byte* values, std::int64_t count, DType type) {
  if (type == DType::f32) {
    return first_non_finite(reinterpret_cast<const std::uint32_t*>(values), count,
                            std::uint32_t{0x7F800000});
  }
  return first_non_finite(reinterpret_cast<const std::uint16_t*>(values), count,
                          static_cast<std::uint16_t>(type == DType::f16 ? 0x7C00 : 0x7F80));
}

std::uint64_t delivered_bytes(const h5::Dataset& data) {
  return data.elements() * size_of(data.type());
}

HostMatrix load_matrix(const std::optional<h5::Dataset>& data) {
  HostMatrix out;
  if (!data) return out;
  out.type = data->type();
  out.rows = static_cast<std::int64_t>(data->shape()[0]);
  out.cols = static_cast<std::int64_t>(data->shape()[1]);
  out.bytes.resize(delivered_bytes(*data));
  read_finite(*data, out.bytes.data());
  return out;
}

std::vector<float> load_vector(const h5::Dataset& data) {
  std::vector<std::byte> stored(delivered_bytes(data));
  read_finite(data, stored.data());
  std::vector<float> out(data.elements());
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (data.type() == DType::f32) {
      std::memcpy(&out[i], &stored[4 * i], 4);
    } else {
      std::uint16_t bits = 0;
      std::memcpy(&bits, &stored[2 * i], 2);
      out[i] = data.type() == DType::f16 ? to_float(Float16{bits}) : to_float(BFloat16{bits});
    }
  }
  return out;
}

}  // namespace

const char* HeadsNeeds::reason() const {
  if (target && draft) return "target_hidden and draft_hidden stand in for logits";
  return target ? "target_hidden stands in for target_logits"
                : "draft_hidden stands in for draft_logits";
}

HeadsNeeds heads_needs(const OpenTrace& trace) {
  const auto stands_in = [&](RowData hidden, RowData logits) {
    return trace.stream(hidden).has_value() && !trace.stream(logits).has_value();
  };
  return {stands_in(RowData::target_hidden, RowData::target_logits),
          stands_in(RowData::draft_hidden, RowData::draft_logits)};
}

HeadsPlace find_heads(const OpenTrace& trace, const std::string& heads_override) {
  if (!heads_override.empty()) return {heads_override, false};
  if (trace.header.has_heads) return {trace.file.name(), true};
  if (trace.header.heads_file.empty()) return {};
  const std::filesystem::path beside = std::filesystem::path(trace.file.name()).parent_path();
  return {(beside / trace.header.heads_file).string(), false};
}

std::vector<const h5::Dataset*> HeadsGroup::datasets() const {
  std::vector<const h5::Dataset*> out;
  for (const auto* data :
       {&markov_w1, &markov_w2, &confidence_weight, &confidence_bias, &lm_head, &draft_lm_head}) {
    if (*data) out.push_back(&**data);
  }
  return out;
}

HeadsGroup open_heads_group(const h5::File& file, const OpenTrace* trace) {
  (void)read_kind(file);
  const HeadsAttributes attributes(file);
  HeadsGroup heads;
  heads.file = file.name();
  check_head_type(attributes);
  if (file.find("/heads/d2t")) {
    fail(file.name(), "/heads/d2t",
         "maps a reduced draft vocabulary, which is not supported in this version",
         "use heads over the whole vocabulary");
  }
  heads.vocab_size =
      agreed_size(attributes, "vocab_size", kMaxVocab, trace ? trace->header.vocab_size : 0);
  if (heads.vocab_size == 0) (void)attributes.holder("vocab_size").require_integer("vocab_size");
  heads.hidden_size =
      agreed_size(attributes, "hidden_size", kMaxHidden, trace ? trace->declared_hidden : 0);
  heads.target_hidden_size = agreed_size(attributes, "target_hidden_size", kMaxHidden,
                                         trace ? trace->declared_target_hidden : 0);
  const HeadsNeeds needs = trace ? heads_needs(*trace) : HeadsNeeds{};
  open_markov(file, attributes, heads);
  open_confidence(file, attributes, heads);
  open_lm_heads(file, attributes, trace ? &needs : nullptr, heads);
  return heads;
}

std::optional<h5::File> open_heads_file(const HeadsPlace& place, const OpenTrace& trace) {
  if (place.inside) return std::nullopt;
  probe(place.path, [&] { (void)open_heads_group(h5::File::open(place.path), &trace); });
  return h5::File::open(place.path);
}

void read_finite(const h5::Dataset& data, std::byte* keep) {
  const std::int64_t rows = rows_of(data);
  if (data.elements() == 0) return;
  const std::uint64_t row_bytes = delivered_bytes(data) / static_cast<std::uint64_t>(rows);
  std::uint64_t step = std::max<std::uint64_t>(kSliceBytes / row_bytes, 1);
  // Whole chunks, so that each is inflated once; but a chunk may be as large as the dataset.
  const std::uint64_t chunk = data.chunk_rows();
  if (chunk > 1 && chunk <= step) step -= step % chunk;
  std::vector<std::byte> slice;
  for (std::uint64_t row = 0; row < static_cast<std::uint64_t>(rows); row += step) {
    std::vector<hsize_t> start(data.shape().size(), 0);
    std::vector<hsize_t> count(data.shape());
    const std::uint64_t n = std::min(step, static_cast<std::uint64_t>(rows) - row);
    if (!start.empty()) {
      start[0] = row;
      count[0] = n;
    }
    std::byte* target = keep;
    if (keep == nullptr) {
      slice.resize(n * row_bytes);
      target = slice.data();
    } else {
      keep += n * row_bytes;
    }
    data.read_floats(start, count, target);
    const std::int64_t bad = first_non_finite(
        target, static_cast<std::int64_t>(n * row_bytes / size_of(data.type())), data.type());
    if (bad < 0) continue;
    const std::uint64_t columns = row_bytes / size_of(data.type());
    const auto index = static_cast<std::uint64_t>(bad);
    std::vector<std::uint64_t> place;
    if (!start.empty()) place.push_back(row + index / columns);
    if (start.size() > 1) place.push_back(index % columns);
    data.fail_at(place, "is not finite", "head weights must be finite numbers");
  }
}

Heads load_heads(TraceFile& trace, const std::string& heads_override, std::uint64_t memory_budget) {
  const OpenTrace& impl = TraceAccess::impl(trace);
  const HeadsNeeds needs = heads_needs(impl);
  const HeadsPlace place = find_heads(impl, heads_override);
  if (place.path.empty()) {
    if (needs.any()) {
      fail(impl.file.name(), "", fmt::format("has no heads, but {}", needs.reason()),
           "give the heads file with --heads");
    }
    return {};
  }
  const std::optional<h5::File> other = open_heads_file(place, impl);
  const h5::File& file = other ? *other : impl.file;
  const HeadsGroup group = open_heads_group(file, &impl);

  std::uint64_t bytes = 0;
  for (const h5::Dataset* data : group.datasets()) bytes += delivered_bytes(*data);
  require_memory(file.name(), "/heads", bytes, resolve_memory_budget(memory_budget));

  Heads heads;
  heads.file = file.name();
  heads.markov_w1 = load_matrix(group.markov_w1);
  heads.markov_w2 = load_matrix(group.markov_w2);
  if (group.confidence_weight) heads.confidence_weight = load_vector(*group.confidence_weight);
  if (group.confidence_bias) heads.confidence_bias = load_vector(*group.confidence_bias).front();
  heads.confidence_with_markov = group.confidence_with_markov;
  heads.lm_head = load_matrix(group.lm_head);
  heads.draft_lm_head = load_matrix(group.draft_lm_head);
  return heads;
}

}  // namespace dspark
