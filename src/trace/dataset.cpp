#include "trace/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

#include "core/half.h"
#include "support/text.h"
#include "trace/located_error.h"

namespace dspark::h5 {
namespace {

constexpr std::uint64_t kMaxChunkBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 60;
// Filtered chunks that lie beside each other are kept, so that reading row after row inflates each
// once.
constexpr std::uint64_t kMaxCacheBytes = std::uint64_t{256} << 20;
// Deflate spends at least one bit on a match of 258 bytes with its distance on another: 8 * 258
// / 2.
constexpr std::uint64_t kMaxDeflateRatio = 1032;
// What is declared and never written reads as its fill value. Some of that is allowed in any file,
// but not so much that a few kilobytes keep the tool busy for days.
constexpr std::uint64_t kMaxDeclaredBytes = std::uint64_t{256} << 20;
// Elements converted at a time where HDF5 does not deliver what is wanted.
constexpr std::uint64_t kSliceElements = std::uint64_t{1} << 17;
constexpr unsigned kMaxRank = 4;

// a * b, or nothing if that is kMaxElements or more.
std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result) || result >= kMaxElements) return std::nullopt;
  return result;
}

std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

struct FloatLayout {
  std::size_t bytes, exponent, mantissa;
  const char* name;
};
constexpr std::array<FloatLayout, 4> kFloats = {{
    {2, 5, 10, "f16"},
    {2, 8, 7, "bf16"},
    {4, 8, 23, "f32"},
    {8, 11, 52, "f64"},
}};

// The IEEE-like layout of a float type, or null: all bits used, hidden leading bit, either byte
// order.
const FloatLayout* float_layout(hid_t type) {
  std::size_t sign = 0, exponent_at = 0, exponent = 0, mantissa_at = 0, mantissa = 0;
  const std::size_t bytes = H5Tget_size(type);
  const H5T_order_t order = H5Tget_order(type);
  if (H5Tget_fields(type, &sign, &exponent_at, &exponent, &mantissa_at, &mantissa) < 0) {
    return nullptr;
  }
  for (const FloatLayout& layout : kFloats) {
    if (bytes == layout.bytes && exponent == layout.exponent && mantissa == layout.mantissa &&
        mantissa_at == 0 && exponent_at == mantissa && sign == exponent + mantissa &&
        H5Tget_ebias(type) == (std::size_t{1} << (exponent - 1)) - 1 &&
        H5Tget_precision(type) == 8 * bytes && H5Tget_norm(type) == H5T_NORM_IMPLIED &&
        (order == H5T_ORDER_LE || order == H5T_ORDER_BE)) {
      return &layout;
    }
  }
  return nullptr;
}

// Calls use(start, count, elements) for slices of whole leading rows of about kSliceElements
// elements, splitting rows along the second dimension, and so on, where one is larger.
template <class Use>
void for_each_slice(const std::vector<hsize_t>& start, const std::vector<hsize_t>& count,
                    const Use& use) {
  std::uint64_t inner = 1;
  for (const hsize_t n : count) inner *= n;
  if (inner == 0) return;
  if (count.empty()) return use(start, count, inner);
  // The dimension to walk: the first whose inner product fits a slice (or the last one).
  std::size_t axis = 0;
  inner /= count[0];
  while (inner > kSliceElements && axis + 1 < count.size()) inner /= count[++axis];
  const std::uint64_t step = std::clamp<std::uint64_t>(kSliceElements / inner, 1, count[axis]);
  std::vector<hsize_t> at(start), size(count);
  for (std::size_t d = 0; d < axis; ++d) size[d] = 1;
  for (;;) {
    for (hsize_t done = 0; done < count[axis]; done += step) {
      at[axis] = start[axis] + done;
      size[axis] = std::min<hsize_t>(step, count[axis] - done);
      use(at, size, size[axis] * inner);
    }
    std::size_t d = axis;
    while (d > 0 && ++at[d - 1] == start[d - 1] + count[d - 1]) {
      at[d - 1] = start[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

}  // namespace

std::string place_of(const std::string& path, const std::vector<std::uint64_t>& index) {
  return index.empty() ? path : fmt::format("{}[{}]", path, fmt::join(index, ", "));
}

void Dataset::fail(const std::string& problem, const std::string& remedy) const {
  dspark::fail(file_, path_, problem, remedy);
}

void Dataset::fail_at(const std::vector<std::uint64_t>& index, const std::string& problem,
                      const std::string& remedy) const {
  dspark::fail(file_, place_of(path_, index), problem, remedy);
}

std::optional<Dataset> Dataset::open(const File& file, const std::string& path, Holds holds) {
  const auto link = file.find(path);
  if (!link) return std::nullopt;
  Dataset data(file.name(), path);
  const char* name = link->name.c_str();
  // Opened once to look and once more to read: the chunk cache is fixed when a dataset is opened
  // first.
  data.id_ = Handle(H5Oopen(link->parent.get(), name, H5P_DEFAULT), H5Oclose);
  if (!data.id_) data.fail("cannot be opened" + last_message(), "record the trace again");
  if (H5Iget_type(data.id_.get()) != H5I_DATASET) data.fail("is not a dataset");
  {
    const Handle creation(H5Dget_create_plist(data.id_.get()), H5Pclose);
    if (!creation) data.fail("has properties that cannot be read" + last_message());
    // First of all: asking a virtual dataset for its size would open other files.
    data.refuse_foreign_storage(creation.get());
    data.read_shape();
    data.read_type(holds);
    data.check_storage(creation.get(), file.bytes());
  }
  if (data.chunk_bytes_ != 0) {
    const Handle access = data.chunk_cache();
    data.id_ = Handle();
    data.id_ = Handle(H5Dopen2(link->parent.get(), name, access.get()), H5Dclose);
    if (!data.id_) data.fail("cannot be opened" + last_message());
  }
  return data;
}

void Dataset::refuse_foreign_storage(hid_t creation) {
  const char* remedy = "store the data in the trace itself";
  switch (H5Pget_layout(creation)) {
    case H5D_COMPACT:
    case H5D_CONTIGUOUS:
    case H5D_CHUNKED:
      break;
    case H5D_VIRTUAL:
      fail("is a virtual dataset, which is refused", remedy);
    default:
      fail("has a layout that cannot be read" + last_message());
  }
  if (H5Pget_external_count(creation) != 0) {
    fail("is stored in external files, which is refused", remedy);
  }
  const int filters = H5Pget_nfilters(creation);
  if (filters < 0) fail("has filters that cannot be read" + last_message());
  for (unsigned i = 0; i < static_cast<unsigned>(filters); ++i) {
    unsigned flags = 0, config = 0;
    std::size_t values = 0;
    std::array<char, 64> name{};
    const H5Z_filter_t filter = H5Pget_filter2(creation, i, &flags, &values, nullptr,
                                               name.size() - 1, name.data(), &config);
    filtered_ = true;
    if (filter == H5Z_FILTER_DEFLATE) {
      // The bound on what a chunk expands to holds for one deflate, not for one inside another.
      if (deflated_) fail("uses deflate more than once", "write it with one deflate filter");
      deflated_ = true;
      continue;
    }
    if (filter == H5Z_FILTER_SHUFFLE || filter == H5Z_FILTER_FLETCHER32) continue;
    if (filter < 0) fail("has a filter that cannot be read" + last_message());
    fail(fmt::format("uses filter {} '{}'", static_cast<int>(filter), name.data()),
         "only deflate, shuffle and fletcher32 are read; write it with one of those");
  }
}

void Dataset::read_shape() {
  const Handle space(H5Dget_space(id_.get()), H5Sclose);
  if (!space) fail("has a shape that cannot be read" + last_message());
  if (H5Sget_simple_extent_type(space.get()) == H5S_NULL) fail("is empty (a null dataspace)");
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 0) fail("has a shape that cannot be read" + last_message());
  if (static_cast<unsigned>(rank) > kMaxRank) {
    fail(fmt::format("has {} dimensions; no dataset of a trace has more than 3", rank));
  }
  shape_.resize(static_cast<std::size_t>(rank));
  if (rank > 0 && H5Sget_simple_extent_dims(space.get(), shape_.data(), nullptr) < 0) {
    fail("has a shape that cannot be read" + last_message());
  }
  std::optional<std::uint64_t> elements = 1;
  for (const hsize_t n : shape_) {
    // A zero must not hide an overflow: each dimension is bounded on its own, too.
    if (elements) elements = n < kMaxElements ? product(*elements, n) : std::nullopt;
  }
  if (!elements) fail(fmt::format("has an impossible shape [{}]", fmt::join(shape_, ", ")));
  elements_ = *elements;
  chunk_rows_ = shape_.empty() ? 1 : std::max<std::uint64_t>(shape_[0], 1);
}

void Dataset::read_type(Holds holds) {
  const Handle type(H5Dget_type(id_.get()), H5Tclose);
  if (!type) fail("has a type that cannot be read" + last_message());
  const H5T_class_t kind = H5Tget_class(type.get());
  element_bytes_ = H5Tget_size(type.get());
  const std::optional<std::string> tag = Attributes(file_, path_, id_.get()).text("dtype");
  const bool bfloat16_tag = tag && *tag == "bfloat16";

  if (kind == H5T_INTEGER) {
    const bool is_signed = H5Tget_sign(type.get()) == H5T_SGN_2;
    stored_as_ = fmt::format("{}{}", is_signed ? 'i' : 'u', 8 * element_bytes_);
    if (element_bytes_ == 0 || element_bytes_ > 8) fail("has integers of more than 64 bits");
    if (holds == Holds::integers) {
      if (tag)
        fail(fmt::format("holds integers but is tagged dtype = '{}'", *tag), "remove the tag");
      return;
    }
    if (!tag) {
      fail(fmt::format("holds integers ({}) where floats are expected", stored_as_),
           "store f16, f32 or f64, or uint16 with the attribute dtype = 'bfloat16'");
    }
    if (!bfloat16_tag) {
      fail(fmt::format("has the unknown tag dtype = '{}'", *tag),
           "the only tag is 'bfloat16' (in lower case), on uint16");
    }
    if (is_signed || element_bytes_ != 2 || H5Tget_precision(type.get()) != 16) {
      fail(fmt::format("is tagged dtype = 'bfloat16' but stored as {}", stored_as_),
           "store bfloat16 numbers as uint16");
    }
    stored_ = Stored::bf16_bits;
    stored_as_ = "bf16";
    type_ = DType::bf16;
    memory_type_ = Handle(H5Tcopy(H5T_NATIVE_UINT16), H5Tclose);
    return;
  }

  if (kind != H5T_FLOAT) {
    fail(holds == Holds::floats ? "holds neither floats nor tagged bfloat16 numbers"
                                : "does not hold integers",
         holds == Holds::floats ? "store f16, f32, f64 or tagged bfloat16" : "store i32 or i64");
  }
  if (holds == Holds::integers)
    fail("holds floats where integers are expected", "store i32 or i64");
  const FloatLayout* layout = float_layout(type.get());
  if (layout == nullptr) {
    fail(fmt::format("has a float format of {} bits that is not IEEE f16, f32, f64 or bfloat16",
                     8 * element_bytes_),
         "store f16, f32, f64 or bfloat16");
  }
  stored_as_ = layout->name;
  if (bfloat16_tag) {
    fail(fmt::format("is tagged dtype = 'bfloat16' but stored as {}", stored_as_),
         "the tag belongs on uint16; remove it or store uint16");
  }
  const auto index = static_cast<std::size_t>(layout - kFloats.data());
  stored_ = std::array{Stored::f16, Stored::bf16, Stored::f32, Stored::f64}[index];
  type_ = std::array{DType::f16, DType::bf16, DType::f32, DType::f32}[index];
  if (stored_ == Stored::f32) {
    memory_type_ = Handle(H5Tcopy(H5T_NATIVE_FLOAT), H5Tclose);
  } else if (stored_ == Stored::f64) {
    memory_type_ = Handle(H5Tcopy(H5T_NATIVE_DOUBLE), H5Tclose);
  } else {
    memory_type_ = float_type(H5T_NATIVE_FLOAT, layout->exponent, layout->mantissa);
  }
}

void Dataset::check_storage(hid_t creation, std::uint64_t file_bytes) {
  const char* remedy = "the file is truncated or damaged; copy or record it again";
  const std::optional<std::uint64_t> bytes = product(elements_, element_bytes_);
  if (!bytes) fail(fmt::format("has an impossible shape [{}]", fmt::join(shape_, ", ")));
  const std::string declared = fmt::format("declares {} bytes of data", *bytes);
  const bool fits_file = *bytes / kMaxDeflateRatio <= file_bytes;
  if (!fits_file && *bytes > kMaxDeclaredBytes) {
    fail(fmt::format("declares {} in a file of {}, so most of it was never written",
                     human_bytes(*bytes), human_bytes(file_bytes)),
         "record it again");
  }
  stored_bytes_ = H5Dget_storage_size(id_.get());
  if (stored_bytes_ > file_bytes) {
    fail(fmt::format("claims {} bytes of storage in a file of {}", stored_bytes_, file_bytes),
         remedy);
  }

  const H5D_layout_t layout = H5Pget_layout(creation);
  if (layout != H5D_CHUNKED) {
    const haddr_t offset = H5Dget_offset(id_.get());
    if (layout == H5D_CONTIGUOUS && offset == HADDR_UNDEF) {
      stored_bytes_ = 0;
      unwritten_chunks_ = *bytes > 0 ? 1 : 0;
      return;
    }
    if (stored_bytes_ < *bytes ||
        (layout == H5D_CONTIGUOUS && (offset > file_bytes || *bytes > file_bytes - offset))) {
      fail(declared + ", more than the file holds", remedy);
    }
    return;
  }

  std::array<hsize_t, kMaxRank> chunk{};
  const int rank = H5Pget_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
  if (rank < 0 || static_cast<std::size_t>(rank) != shape_.size()) {
    fail("has chunks that cannot be read" + last_message(), remedy);
  }
  std::optional<std::uint64_t> chunk_bytes = element_bytes_;
  std::optional<std::uint64_t> chunks = 1;
  for (std::size_t d = 0; d < shape_.size(); ++d) {
    if (chunk[d] == 0) fail("has chunks of no size", remedy);
    if (chunk_bytes) chunk_bytes = product(*chunk_bytes, chunk[d]);
    if (chunks) chunks = product(*chunks, divide_up(shape_[d], chunk[d]));
    if (d > 0 && chunks) chunks_per_row_ *= divide_up(shape_[d], chunk[d]);
  }
  if (!chunk_bytes || *chunk_bytes > kMaxChunkBytes) {
    fail(fmt::format("has chunks of more than {}", human_bytes(kMaxChunkBytes)),
         "write it with smaller chunks");
  }
  if (!chunks) fail("has too many chunks", "write it with larger chunks");
  chunk_rows_ = chunk[0];
  chunk_bytes_ = *chunk_bytes;

  hsize_t written = 0;
  if (stored_bytes_ > 0) {
    const Handle space(H5Dget_space(id_.get()), H5Sclose);
    if (H5Dget_num_chunks(id_.get(), space.get(), &written) < 0) {
      fail("has a chunk index that cannot be read" + last_message(), remedy);
    }
  }
  if (written > *chunks) fail("has more chunks than its shape has room for", remedy);
  unwritten_chunks_ = *chunks - written;
  // What the written chunks expand to; a chunk that deflate did not shrink is stored as it is.
  using Wide = unsigned __int128;
  if (Wide{written} * chunk_bytes_ > Wide{stored_bytes_} * (deflated_ ? kMaxDeflateRatio : 1)) {
    fail(
        fmt::format("has {} chunks of {} bytes in {} bytes of storage, more than the file can hold",
                    written, chunk_bytes_, stored_bytes_),
        remedy);
  }
}

Handle Dataset::chunk_cache() const {
  // Chunks without filters go straight to the caller's memory; a cache would only copy.
  std::uint64_t bytes = 0;
  if (filtered_) {
    const auto row_of_chunks = product(chunks_per_row_, chunk_bytes_).value_or(kMaxCacheBytes);
    bytes = std::max(std::min(row_of_chunks, kMaxCacheBytes), chunk_bytes_);
  }
  const std::uint64_t slots = std::min<std::uint64_t>(bytes / chunk_bytes_, 100000) * 10 + 1;
  Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  if (!access || H5Pset_chunk_cache(access.get(), slots, bytes, 1.0) < 0) {
    throw internal_error(file_, "HDF5 cannot be set up" + last_message());
  }
  return access;
}

void Dataset::expect_rank(std::size_t rank, const std::string& meaning) const {
  if (shape_.size() == rank) return;
  fail(fmt::format("has shape [{}]; it must be {}", fmt::join(shape_, ", "), meaning));
}

void Dataset::expect_shape(const std::vector<std::int64_t>& shape,
                           const std::string& meaning) const {
  const auto equal = [](hsize_t a, std::int64_t b) {
    return b >= 0 && a == static_cast<hsize_t>(b);
  };
  if (std::equal(shape_.begin(), shape_.end(), shape.begin(), shape.end(), equal)) return;
  fail(fmt::format("has shape [{}]; it must be [{}] = {}", fmt::join(shape_, ", "),
                   fmt::join(shape, ", "), meaning));
}

void Dataset::read(hid_t memory_type, const std::vector<hsize_t>& start,
                   const std::vector<hsize_t>& count, void* out) const {
  const Handle file_space(H5Dget_space(id_.get()), H5Sclose);
  const int rank = static_cast<int>(shape_.size());
  bool selected = static_cast<bool>(file_space);
  if (rank > 0) {
    selected = selected && H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, start.data(),
                                               nullptr, count.data(), nullptr) >= 0;
  }
  const Handle memory_space(
      rank > 0 ? H5Screate_simple(rank, count.data(), nullptr) : H5Screate(H5S_SCALAR), H5Sclose);
  if (!selected || !memory_space) {
    throw internal_error(file_ + ": " + path_, "cannot select what to read" + last_message());
  }
  if (H5Dread(id_.get(), memory_type, memory_space.get(), file_space.get(), H5P_DEFAULT, out) < 0) {
    const std::string message = last_message();
    const std::string rows =
        rank > 0 ? fmt::format(" in rows {} to {}", start[0], start[0] + count[0] - 1) : "";
    fail("cannot be read" + rows + message, "the file is damaged; copy or record it again");
  }
}

void Dataset::read_floats(const std::vector<hsize_t>& start, const std::vector<hsize_t>& count,
                          void* out) const {
  if (stored_ != Stored::f64) return read(memory_type_.get(), start, count, out);
  // Narrowed here and not by HDF5, whose rounding depends on the byte order of the file.
  auto* target = static_cast<float*>(out);
  std::vector<double> slice;
  for_each_slice(start, count, [&](const auto& at, const auto& size, std::uint64_t elements) {
    slice.resize(elements);
    read(memory_type_.get(), at, size, slice.data());
    target = std::transform(slice.begin(), slice.end(), target,
                            [](double value) { return static_cast<float>(value); });
  });
}

void Dataset::read_doubles(const std::vector<hsize_t>& start, const std::vector<hsize_t>& count,
                           double* out) const {
  if (stored_ == Stored::f64) return read(memory_type_.get(), start, count, out);
  std::vector<std::uint32_t> slice;
  for_each_slice(start, count, [&](const auto& at, const auto& size, std::uint64_t elements) {
    slice.resize(elements);
    read(memory_type_.get(), at, size, slice.data());
    const auto* halves = reinterpret_cast<const std::uint16_t*>(slice.data());
    for (std::uint64_t i = 0; i < elements; ++i) {
      *out++ = type_ == DType::f16    ? to_float(Float16{halves[i]})
               : type_ == DType::bf16 ? to_float(BFloat16{halves[i]})
                                      : float_from_bits(slice[i]);
    }
  });
}

void Dataset::read_integers(const std::vector<hsize_t>& start, const std::vector<hsize_t>& count,
                            std::int64_t* out) const {
  read(H5T_NATIVE_INT64, start, count, out);
}

}  // namespace dspark::h5
