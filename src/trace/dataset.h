// Datasets of a trace, checked before they are believed: type, layout, filters, and whether the
// file can hold what they declare. Private to this folder. Every failure is an Error(trace).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/views.h"
#include "trace/hdf5.h"

namespace dspark::h5 {

/// The index `index` of a dataset as text: "/anchors/tokens[17]".
[[nodiscard]] std::string place_of(const std::string& path,
                                   const std::vector<std::uint64_t>& index);

/// A dataset whose type, layout, filters and storage have been checked.
class Dataset {
 public:
  enum class Holds { floats, integers };

  /// Opens the dataset at `path`, or nothing if there is none. Refused: other classes of types,
  /// external storage, virtual datasets, filters other than deflate, shuffle and fletcher32, chunks
  /// above 1 GiB, and sizes that the file cannot hold.
  [[nodiscard]] static std::optional<Dataset> open(const File& file, const std::string& path,
                                                   Holds holds);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::vector<hsize_t>& shape() const { return shape_; }
  /// Product of the shape; below 2^62.
  [[nodiscard]] std::uint64_t elements() const { return elements_; }
  /// "f16", "bf16", "f32", "f64"; "i32", "u16", ... for integers.
  [[nodiscard]] const std::string& stored_as() const { return stored_as_; }
  [[nodiscard]] std::uint64_t stored_bytes() const { return stored_bytes_; }
  [[nodiscard]] std::uint64_t unwritten_chunks() const { return unwritten_chunks_; }
  /// Rows (first dimension) of a chunk; all rows where not chunked.
  [[nodiscard]] std::uint64_t chunk_rows() const { return chunk_rows_; }
  /// Floats only: the type that read_floats() delivers.
  [[nodiscard]] DType type() const { return type_; }

  /// Throws unless the shape is `shape`; `meaning` explains it, e.g. "[anchors, block_size,
  /// hidden_size]".
  void expect_shape(const std::vector<std::int64_t>& shape, const std::string& meaning) const;
  void expect_rank(std::size_t rank, const std::string& meaning) const;

  /// Reads the box `start`, `count` to `out` in type(); f64 is narrowed to f32, rounded to nearest
  /// even.
  void read_floats(const std::vector<hsize_t>& start, const std::vector<hsize_t>& count,
                   void* out) const;
  /// The same, widened; exact for every stored type.
  void read_doubles(const std::vector<hsize_t>& start, const std::vector<hsize_t>& count,
                    double* out) const;
  /// Integers beyond 64 bits signed come as the nearest value.
  void read_integers(const std::vector<hsize_t>& start, const std::vector<hsize_t>& count,
                     std::int64_t* out) const;

  [[noreturn]] void fail(const std::string& problem, const std::string& remedy = {}) const;
  [[noreturn]] void fail_at(const std::vector<std::uint64_t>& index, const std::string& problem,
                            const std::string& remedy = {}) const;

 private:
  enum class Stored { f16, bf16, bf16_bits, f32, f64, integer };
  Dataset(std::string file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  void read_shape();
  void read_type(Holds holds);
  void refuse_foreign_storage(hid_t creation);
  void check_storage(hid_t creation, std::uint64_t file_bytes);
  [[nodiscard]] Handle chunk_cache() const;
  void read(hid_t memory_type, const std::vector<hsize_t>& start, const std::vector<hsize_t>& count,
            void* out) const;

  std::string file_;
  std::string path_;
  std::vector<hsize_t> shape_;
  std::uint64_t elements_ = 0;
  std::string stored_as_;
  Stored stored_ = Stored::integer;
  DType type_ = DType::f32;
  std::size_t element_bytes_ = 0;
  std::uint64_t stored_bytes_ = 0;
  std::uint64_t unwritten_chunks_ = 0;
  std::uint64_t chunk_rows_ = 0;
  std::uint64_t chunk_bytes_ = 0;     // 0: not chunked
  std::uint64_t chunks_per_row_ = 1;  // chunks side by side that make up whole rows
  bool filtered_ = false;
  bool deflated_ = false;
  Handle memory_type_;  // what read_floats() asks HDF5 for
  Handle id_;
};

}  // namespace dspark::h5
