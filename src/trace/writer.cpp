#include "trace/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "core/half.h"
#include "support/error.h"
#include "trace/hdf5.h"
#include "trace/impl.h"

namespace dspark {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHeadCount = 6;
constexpr int kMaxTemporaryNames = 1000;

std::size_t bytes_of(StoredType type) {
  switch (type) {
    case StoredType::f16:
    case StoredType::bf16:
      return 2;
    case StoredType::f32:
      return 4;
    case StoredType::f64:
      return 8;
  }
  return 0;
}

// The type in the file, always little-endian: the same bytes on every machine.
h5::Handle file_type(StoredType type) {
  switch (type) {
    case StoredType::f16:
      return h5::float_type(H5T_IEEE_F32LE, 5, 10);
    case StoredType::bf16:
      return {H5Tcopy(H5T_STD_U16LE), H5Tclose};
    case StoredType::f32:
      return {H5Tcopy(H5T_IEEE_F32LE), H5Tclose};
    case StoredType::f64:
      return {H5Tcopy(H5T_IEEE_F64LE), H5Tclose};
  }
  return {};
}

// The type of what is handed to HDF5: 16-bit numbers are converted here, f64 is widened by HDF5
// (exactly).
h5::Handle memory_type(StoredType type) {
  switch (type) {
    case StoredType::f16:
      return h5::float_type(H5T_NATIVE_FLOAT, 5, 10);
    case StoredType::bf16:
      return {H5Tcopy(H5T_NATIVE_UINT16), H5Tclose};
    case StoredType::f32:
    case StoredType::f64:
      return {H5Tcopy(H5T_NATIVE_FLOAT), H5Tclose};
  }
  return {};
}

// A dataset that rows are appended to.
struct Growing {
  std::string path;
  StoredType type = StoredType::f32;
  std::vector<hsize_t> shape;
  hsize_t written = 0;  // rows
  h5::Handle memory_type;
  h5::Handle data;
};

// An empty file of a new name beside `path`; throws Error(usage) if the folder does not allow it.
std::string create_temporary(const std::string& path) {
  for (int i = 0; i < kMaxTemporaryNames; ++i) {
    const std::string name = fmt::format("{}.{}-{}.tmp", path, getpid(), i);
    const int file = open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (file >= 0) {
      close(file);
      return name;
    }
    if (errno != EEXIST) {
      throw usage_error(path, fmt::format("cannot be created: {}", std::strerror(errno)),
                        "give a path in a folder that can be written");
    }
  }
  throw usage_error(path, "cannot be created: too many temporary files beside it",
                    "remove them or give another path");
}

// Waits until a file or folder is on the disk.
bool sync_to_disk(const std::string& path, int flags) {
  const int file = open(path.c_str(), flags | O_CLOEXEC);
  if (file < 0) return false;
  // Some file systems cannot sync a folder and say so with EINVAL; there is nothing more to do
  // then.
  const bool synced = fsync(file) == 0 || (errno == EINVAL && (flags & O_DIRECTORY) != 0);
  return close(file) == 0 && synced;
}

}  // namespace

struct TraceWriter::Impl {
  std::string path;        // as the caller gave it
  std::string final_path;  // after symbolic links
  std::string temporary;
  TraceHeader header;
  std::int64_t blocks = 0;
  WriteOptions options;
  h5::Handle file;
  h5::Handle group;  // /anchors or /rounds
  h5::Handle heads;
  bool wrote_records = false;
  bool committed = false;
  mutable bool failed = false;  // HDF5 could not write
  std::array<std::optional<Growing>, kRowData.size()> rows;
  std::array<std::optional<Growing>, kHeadCount> head_rows;

  ~Impl() {
    if (committed || temporary.empty()) return;
    const auto let_go = [&](h5::Handle& handle) {
      // Closing would flush, and HDF5 does not survive a flush that fails: its ids are given up
      // instead.
      if (failed) handle.abandon();
      handle = {};
    };
    for (auto& growing : rows) {
      if (growing) let_go(growing->data);
    }
    for (auto& growing : head_rows) {
      if (growing) let_go(growing->data);
    }
    let_go(group);
    let_go(heads);
    let_go(file);
    unlink(temporary.c_str());
  }

  [[noreturn]] void fail_write(const std::string& what) const {
    const int error = errno;
    failed = true;
    const std::string reason =
        error == 0 ? std::string() : fmt::format(": {}", std::strerror(error));
    throw internal_error(path,
                         fmt::format("{} cannot be written{}{}", what, reason, h5::last_message()),
                         "check the space on the disk");
  }
  [[noreturn]] void fail_call(const std::string& what) const {
    throw internal_error(path, fmt::format("TraceWriter: {}", what));
  }

  [[nodiscard]] h5::Handle create_group(const char* name) const {
    const h5::Handle creation(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
    H5Pset_obj_track_times(creation.get(), false);
    h5::Handle made(H5Gcreate2(file.get(), name, H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                    H5Gclose);
    if (!made) fail_write(name);
    return made;
  }

  void attribute(hid_t object, const char* name, hid_t stored, hid_t memory,
                 const void* value) const {
    const h5::Handle space(H5Screate(H5S_SCALAR), H5Sclose);
    const h5::Handle made(H5Acreate2(object, name, stored, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                          H5Aclose);
    if (!made || H5Awrite(made.get(), memory, value) < 0) fail_write(name);
  }
  void attribute(hid_t object, const char* name, std::int64_t value) const {
    attribute(object, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
  }
  void attribute(hid_t object, const char* name, double value) const {
    attribute(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
  }
  void attribute(hid_t object, const char* name, const std::string& value) const {
    const h5::Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type.get(), value.size() + 1);
    H5Tset_cset(type.get(), H5T_CSET_UTF8);
    attribute(object, name, type.get(), type.get(), value.c_str());
  }

  void write_header() {
    const hid_t root = file.get();
    const auto size = [&](const char* name, std::int64_t value) {
      if (value != 0) attribute(root, name, value);
    };
    const auto text = [&](const char* name, const std::string& value) {
      if (!value.empty()) attribute(root, name, value);
    };
    attribute(root, "format", std::string("dspark-trace"));
    attribute(root, "format_version", std::int64_t{1});
    attribute(root, "kind", std::string(kind_name(header.kind)));
    size("vocab_size", header.vocab_size);
    if (header.vocab_size_logical != header.vocab_size) {
      size("vocab_size_logical", header.vocab_size_logical);
    }
    size("hidden_size", header.hidden_size);
    size("target_hidden_size", header.target_hidden_size);
    size("block_size", header.block_size);
    if (header.kind != TraceKind::heads) {
      attribute(root, "temperature", header.temperature);
      attribute(root, "top_k", header.top_k);
      attribute(root, "top_p", header.top_p);
    }
    if (header.seed) attribute(root, "seed", *header.seed);
    text("model", header.model);
    text("domain", header.domain);
    text("producer", header.producer);
    text("created", header.created);
    text("heads_file", header.heads_file);
  }

  [[nodiscard]] std::string group_path() const {
    return header.kind == TraceKind::anchors ? "/anchors" : "/rounds";
  }

  // A whole small dataset.
  template <class T>
  void write_whole(const char* name, hid_t stored, hid_t memory,
                   const std::vector<std::int64_t>& shape, const std::vector<T>& values) const {
    std::vector<hsize_t> dims;
    std::int64_t elements = 1;
    for (const std::int64_t n : shape) {
      dims.push_back(static_cast<hsize_t>(n));
      elements *= n;
    }
    if (elements != static_cast<std::int64_t>(values.size())) {
      fail_call(fmt::format("{} has {} values, not {}", name, values.size(), elements));
    }
    const h5::Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_obj_track_times(creation.get(), false);
    const h5::Handle space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                           H5Sclose);
    h5::Handle data(H5Dcreate2(group.get(), name, stored, space.get(), H5P_DEFAULT, creation.get(),
                               H5P_DEFAULT),
                    H5Dclose);
    errno = 0;
    if (!data || H5Dwrite(data.get(), memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0 ||
        !data.close()) {
      fail_write(fmt::format("{}/{}", group_path(), name));
    }
  }

  void write_ids(const char* name, const std::vector<std::int64_t>& shape,
                 const std::vector<std::int32_t>& values) const {
    write_whole(name, H5T_STD_I32LE, H5T_NATIVE_INT32, shape, values);
  }

  [[nodiscard]] h5::Handle chunked(const Growing& growing) const {
    h5::Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_obj_track_times(creation.get(), false);
    // Every row is written before commit(), so there is nothing to fill.
    H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
    if (options.deflate == 0) return creation;
    // Whole rows of the last dimension; as many of the others as fit the size asked for.
    std::vector<hsize_t> chunk(growing.shape.size(), 1);
    const auto wanted = static_cast<hsize_t>(std::max<std::int64_t>(options.chunk_bytes, 1));
    hsize_t bytes = bytes_of(growing.type);
    for (std::size_t d = growing.shape.size(); d-- > 0;) {
      const bool whole = d + 1 == growing.shape.size() && d > 0;
      chunk[d] =
          whole ? growing.shape[d] : std::clamp<hsize_t>(wanted / bytes, 1, growing.shape[d]);
      bytes *= chunk[d];
      if (chunk[d] < growing.shape[d]) break;
    }
    H5Pset_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data());
    H5Pset_shuffle(creation.get());
    H5Pset_deflate(creation.get(), static_cast<unsigned>(options.deflate));
    return creation;
  }

  // Room for the chunks that one row touches, so that appending row by row deflates each chunk
  // once.
  [[nodiscard]] static h5::Handle chunk_cache(const Growing& growing, hid_t creation) {
    h5::Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
    if (H5Pget_layout(creation) != H5D_CHUNKED) return access;
    std::array<hsize_t, 3> chunk{};
    H5Pget_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
    std::size_t chunks = 1;
    std::size_t bytes = bytes_of(growing.type);
    for (std::size_t d = 0; d < growing.shape.size(); ++d) {
      bytes *= chunk[d];
      if (d > 0) chunks *= (growing.shape[d] + chunk[d] - 1) / chunk[d];
    }
    H5Pset_chunk_cache(access.get(), 10 * chunks + 1, chunks * bytes, 1.0);
    return access;
  }

  [[nodiscard]] Growing create(hid_t where, const std::string& path_in_file, const char* name,
                               StoredType type, std::vector<hsize_t> shape) const {
    for (const hsize_t n : shape) {
      if (n == 0) fail_call(path_in_file + " has a dimension of 0");
    }
    Growing growing;
    growing.path = path_in_file;
    growing.type = type;
    growing.shape = std::move(shape);
    growing.memory_type = memory_type(type);
    const h5::Handle stored = file_type(type);
    const h5::Handle creation = chunked(growing);
    const h5::Handle access = chunk_cache(growing, creation.get());
    const h5::Handle space(
        H5Screate_simple(static_cast<int>(growing.shape.size()), growing.shape.data(), nullptr),
        H5Sclose);
    errno = 0;
    growing.data = h5::Handle(H5Dcreate2(where, name, stored.get(), space.get(), H5P_DEFAULT,
                                         creation.get(), access.get()),
                              H5Dclose);
    if (!growing.data) fail_write(path_in_file);
    if (type == StoredType::bf16) {
      attribute(growing.data.get(), "dtype", std::string("bfloat16"));
    }
    return growing;
  }

  void append(std::optional<Growing>& growing, const char* name, const float* values,
              std::int64_t count) {
    if (!growing) fail_call(fmt::format("{} was appended to before it was created", name));
    if (count < 0 || static_cast<hsize_t>(count) > growing->shape[0] - growing->written) {
      fail_call(fmt::format("{} rows appended to {} after {} of {}", count, growing->path,
                            growing->written, growing->shape[0]));
    }
    if (count == 0) return;
    std::vector<hsize_t> start(growing->shape.size(), 0);
    std::vector<hsize_t> size(growing->shape);
    start[0] = growing->written;
    size[0] = static_cast<hsize_t>(count);
    std::size_t elements = 1;
    for (const hsize_t n : size) elements *= n;

    const void* source = values;
    std::vector<std::uint16_t> halves;
    if (growing->type == StoredType::f16 || growing->type == StoredType::bf16) {
      const bool f16 = growing->type == StoredType::f16;
      halves.resize(elements);
      for (std::size_t i = 0; i < elements; ++i) {
        halves[i] = f16 ? to_float16(values[i]).bits : to_bfloat16(values[i]).bits;
      }
      source = halves.data();
    }
    const h5::Handle file_space(H5Dget_space(growing->data.get()), H5Sclose);
    const h5::Handle memory_space(
        H5Screate_simple(static_cast<int>(size.size()), size.data(), nullptr), H5Sclose);
    errno = 0;
    if (H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, start.data(), nullptr, size.data(),
                            nullptr) < 0 ||
        H5Dwrite(growing->data.get(), growing->memory_type.get(), memory_space.get(),
                 file_space.get(), H5P_DEFAULT, source) < 0) {
      fail_write(growing->path);
    }
    growing->written += static_cast<hsize_t>(count);
  }

  void finish(std::optional<Growing>& growing) const {
    if (!growing) return;
    if (growing->written != growing->shape[0]) {
      fail_call(
          fmt::format("{} has {} of {} rows", growing->path, growing->written, growing->shape[0]));
    }
    errno = 0;
    if (!growing->data.close()) fail_write(growing->path);
  }

  // Attributes of the heads, where their sizes are known: on the root of a heads file, else on the
  // group.
  void write_heads_attributes() {
    if (!heads) return;
    const hid_t object = header.kind == TraceKind::heads ? file.get() : heads.get();
    const auto& w1 = head_rows[static_cast<std::size_t>(HeadData::markov_w1)];
    const auto& weight = head_rows[static_cast<std::size_t>(HeadData::confidence_weight)];
    const auto& lm_head = head_rows[static_cast<std::size_t>(HeadData::lm_head)];
    if (header.kind != TraceKind::heads) {
      attribute(object, "vocab_size", std::int64_t{header.vocab_size});
      if (header.hidden_size != 0) {
        attribute(object, "hidden_size", std::int64_t{header.hidden_size});
      }
      if (lm_head) {
        attribute(object, "target_hidden_size", static_cast<std::int64_t>(lm_head->shape[1]));
      }
    }
    if (w1) {
      attribute(object, "markov_rank", static_cast<std::int64_t>(w1->shape[1]));
      attribute(object, "markov_head_type", std::string("vanilla"));
    }
    if (weight) {
      const bool with_markov = weight->shape[0] != static_cast<hsize_t>(header.hidden_size);
      attribute(object, "confidence_with_markov", std::int64_t{with_markov ? 1 : 0});
    }
  }
};

const char* dataset_name(HeadData data) {
  switch (data) {
    case HeadData::markov_w1:
      return "markov_w1";
    case HeadData::markov_w2:
      return "markov_w2";
    case HeadData::confidence_weight:
      return "confidence_weight";
    case HeadData::confidence_bias:
      return "confidence_bias";
    case HeadData::lm_head:
      return "lm_head";
    case HeadData::draft_lm_head:
      return "draft_lm_head";
  }
  return "";
}

TraceWriter::TraceWriter(const std::string& path, const TraceHeader& header, std::int64_t blocks,
                         const WriteOptions& options)
    : impl_(std::make_unique<Impl>()) {
  h5::initialise();
  impl_->path = path;
  impl_->header = header;
  impl_->blocks = blocks;
  impl_->options = options;
  if (options.deflate < 0 || options.deflate > 9) impl_->fail_call("deflate must be 0 to 9");
  if ((blocks == 0) != (header.kind == TraceKind::heads) || blocks < 0) {
    impl_->fail_call(fmt::format("{} blocks of kind {}", blocks, kind_name(header.kind)));
  }

  // Through symbolic links, so that the file they lead to is replaced and not the link.
  std::error_code error;
  const fs::path resolved =
      fs::is_symlink(path, error) ? fs::weakly_canonical(path, error) : fs::path(path);
  if (error && error != std::errc::no_such_file_or_directory) {
    throw usage_error(path, "cannot be created: " + error.message(), "give another path");
  }
  if (fs::is_directory(resolved, error)) {
    throw usage_error(path, "is a directory", "give the name of a file");
  }
  if (fs::exists(resolved, error) && !fs::is_regular_file(resolved, error)) {
    throw usage_error(path, "is not a regular file", "give the name of a file");
  }
  impl_->final_path = resolved.string();
  impl_->temporary = create_temporary(impl_->final_path);

  const h5::Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_sec2(access.get());
  H5Pset_file_locking(access.get(), false, true);
  H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG);
  errno = 0;
  impl_->file = h5::Handle(
      H5Fcreate(impl_->temporary.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
  if (!impl_->file) impl_->fail_write("it");
  impl_->write_header();
  if (header.kind != TraceKind::heads) {
    impl_->group = impl_->create_group(impl_->group_path().c_str());
  }
}

TraceWriter::~TraceWriter() = default;

const std::string& TraceWriter::temporary_path() const { return impl_->temporary; }

void TraceWriter::write(const AnchorTokens& tokens) {
  if (impl_->header.kind != TraceKind::anchors || impl_->wrote_records) {
    impl_->fail_call("tokens belong once to an anchors trace");
  }
  const auto sequences = static_cast<std::int64_t>(tokens.last_tokens.size());
  impl_->write_whole("sequence_offsets", H5T_STD_I64LE, H5T_NATIVE_INT64, {sequences + 1},
                     tokens.sequence_offsets);
  impl_->write_ids("tokens", {impl_->blocks}, tokens.tokens);
  impl_->write_ids("last_tokens", {sequences}, tokens.last_tokens);
  impl_->wrote_records = true;
}

void TraceWriter::write(const RoundRecords& records) {
  if (impl_->header.kind != TraceKind::rounds || impl_->wrote_records) {
    impl_->fail_call("records belong once to a rounds trace");
  }
  const std::int64_t blocks = impl_->blocks;
  const std::int64_t slots = impl_->header.block_size;
  impl_->write_ids("request", {blocks}, records.request);
  impl_->write_ids("round", {blocks}, records.round);
  impl_->write_ids("anchor_token", {blocks}, records.anchor_token);
  impl_->write_ids("draft_tokens", {blocks, slots}, records.draft_tokens);
  impl_->write_ids("proposal_length", {blocks}, records.proposal_length);
  impl_->write_ids("accept_length", {blocks}, records.accept_length);
  impl_->write_ids("accepted_tokens", {blocks, slots + 1}, records.accepted_tokens);
  const auto uniforms = [&](const char* name, std::int64_t width,
                            const std::vector<float>& values) {
    if (values.empty()) return;
    impl_->write_whole(name, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {blocks, width}, values);
  };
  uniforms("proposal_uniforms", slots, records.proposal_uniforms);
  uniforms("accept_uniforms", 2 * slots + 1, records.accept_uniforms);
  impl_->wrote_records = true;
}

void TraceWriter::create(RowData data, StoredType type) {
  auto& growing = impl_->rows[static_cast<std::size_t>(data)];
  const TraceHeader& header = impl_->header;
  const std::string path = fmt::format("{}/{}", impl_->group_path(), dataset_name(data));
  if (header.kind == TraceKind::heads) impl_->fail_call("a heads file has no streamed rows");
  if (growing) impl_->fail_call(path + " was created twice");
  const bool anchors = header.kind == TraceKind::anchors;
  const auto blocks = static_cast<hsize_t>(impl_->blocks);
  const auto slots = static_cast<hsize_t>(header.block_size);
  std::vector<hsize_t> shape;
  switch (data) {
    case RowData::draft_hidden:
      shape = {blocks, slots, static_cast<hsize_t>(header.hidden_size)};
      break;
    case RowData::draft_logits:
      shape = {blocks, slots, static_cast<hsize_t>(header.vocab_size)};
      break;
    case RowData::target_hidden:
      shape = {blocks, slots + 1, static_cast<hsize_t>(header.target_hidden_size)};
      break;
    case RowData::target_logits:
      shape = {blocks, slots + 1, static_cast<hsize_t>(header.vocab_size)};
      break;
  }
  const bool target = data == RowData::target_hidden || data == RowData::target_logits;
  if (target && anchors) shape = {shape.front(), shape.back()};
  growing = impl_->create(impl_->group.get(), path, dataset_name(data), type, std::move(shape));
}

void TraceWriter::append(RowData data, const float* values, std::int64_t count) {
  impl_->append(impl_->rows[static_cast<std::size_t>(data)], dataset_name(data), values, count);
}

void TraceWriter::create(HeadData data, StoredType type, std::int64_t rows, std::int64_t cols) {
  auto& growing = impl_->head_rows[static_cast<std::size_t>(data)];
  const std::string path = fmt::format("/heads/{}", dataset_name(data));
  if (growing) impl_->fail_call(path + " was created twice");
  if (rows < 1 || cols < 1) impl_->fail_call(path + " must have at least one row and column");
  const bool vector = data == HeadData::confidence_weight || data == HeadData::confidence_bias;
  if (vector && cols != 1) impl_->fail_call(path + " is a vector and has one column");
  if (!impl_->heads) impl_->heads = impl_->create_group("/heads");
  std::vector<hsize_t> shape{static_cast<hsize_t>(rows)};
  if (!vector) shape.push_back(static_cast<hsize_t>(cols));
  growing = impl_->create(impl_->heads.get(), path, dataset_name(data), type, std::move(shape));
}

void TraceWriter::append(HeadData data, const float* values, std::int64_t count) {
  impl_->append(impl_->head_rows[static_cast<std::size_t>(data)], dataset_name(data), values,
                count);
}

void TraceWriter::commit() {
  if (impl_->committed) impl_->fail_call("committed twice");
  if (impl_->header.kind != TraceKind::heads && !impl_->wrote_records) {
    impl_->fail_call("committed without its tokens or records");
  }
  impl_->write_heads_attributes();
  for (auto& growing : impl_->rows) impl_->finish(growing);
  for (auto& growing : impl_->head_rows) impl_->finish(growing);
  impl_->group = {};
  impl_->heads = {};
  errno = 0;
  if (H5Fflush(impl_->file.get(), H5F_SCOPE_GLOBAL) < 0 || !impl_->file.close()) {
    impl_->fail_write("it");
  }
  if (!sync_to_disk(impl_->temporary, O_WRONLY)) impl_->fail_write("it");
  if (std::rename(impl_->temporary.c_str(), impl_->final_path.c_str()) != 0) {
    impl_->fail_write("it");
  }
  impl_->committed = true;
  const fs::path parent = fs::path(impl_->final_path).parent_path();
  const fs::path folder = parent.empty() ? fs::path(".") : parent;
  // The file is complete and has its name; a folder that cannot be synced (no read permission) is
  // no failure.
  (void)sync_to_disk(folder.string(), O_RDONLY | O_DIRECTORY);
}

}  // namespace dspark
