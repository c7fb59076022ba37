// What an open trace is made of; shared by the reader, the heads loader and the lint. Private to
// this folder.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "trace/dataset.h"
#include "trace/hdf5.h"
#include "trace/trace.h"

namespace dspark {

inline constexpr std::array<RowData, 4> kRowData = {RowData::draft_hidden, RowData::draft_logits,
                                                    RowData::target_hidden, RowData::target_logits};

struct OpenTrace {
  struct Stream {
    h5::Dataset data;
    RowDataInfo info;
  };

  /// What tells that a file was written to.
  struct State {
    std::int64_t bytes = 0, seconds = 0, nanoseconds = 0;
    friend bool operator==(const State&, const State&) = default;
  };

  h5::File file;
  State state;  // when it was opened
  TraceHeader header;
  std::int64_t blocks = 0;
  std::int32_t declared_hidden = 0;  // as the attributes say, whether or not such rows are stored
  std::int32_t declared_target_hidden = 0;
  std::array<std::optional<Stream>, 4> streams;  // by RowData
  std::map<std::string, h5::Dataset>
      records;  // the small datasets, by name inside /anchors or /rounds

  [[nodiscard]] const std::optional<Stream>& stream(RowData data) const {
    return streams[static_cast<std::size_t>(data)];
  }
};

/// The open file's state now.
[[nodiscard]] OpenTrace::State state_of(const h5::File& file);

struct TraceAccess {
  [[nodiscard]] static OpenTrace& impl(TraceFile& trace) { return *trace.impl_; }
};

/// The name of a kind as the attribute `kind` spells it.
[[nodiscard]] const char* kind_name(TraceKind kind);

/// An attribute that is a size from 1 to `limit`, or 0 if it is absent.
[[nodiscard]] std::int32_t size_attribute(const h5::Attributes& attributes, const std::string& name,
                                          std::int64_t limit);

/// Root attributes that every file of the format has: `format` and `format_version` as this version
/// reads them, and `kind`.
[[nodiscard]] TraceKind read_kind(const h5::File& file);

}  // namespace dspark
