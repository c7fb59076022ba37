// Traces made with the HDF5 C API itself, good ones and hostile ones: the tests of the reader must
// not depend on the writer.
#pragma once

#include <gtest/gtest.h>
#include <hdf5.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/error.h"
#include "tests/support/temporary_folder.h"

namespace dspark::test {

using Dims = std::vector<hsize_t>;

/// An HDF5 file open for writing. Failures of HDF5 itself fail the test.
class RawFile {
 public:
  static RawFile create(const std::string& path);
  static RawFile edit(const std::string& path);
  ~RawFile();
  RawFile(RawFile&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  RawFile(const RawFile&) = delete;

  /// Attributes replace one of the same name. `dims` {} is a scalar.
  void attribute(const std::string& object, const std::string& name, hid_t type, hid_t memory,
                 const void* value, const Dims& dims = {});
  void integer(const std::string& name, std::int64_t value, const std::string& object = "/");
  void real(const std::string& name, double value, const std::string& object = "/");
  void text(const std::string& name, const std::string& value, const std::string& object = "/");
  void remove_attribute(const std::string& name, const std::string& object = "/");

  void group(const std::string& path);
  void remove(const std::string& path);
  /// Datasets replace one of the same path. `values` null: nothing is written. `creation` is a
  /// property list.
  void dataset(const std::string& path, hid_t type, const Dims& dims, hid_t memory,
               const void* values, hid_t creation = H5P_DEFAULT);
  void floats(const std::string& path, const Dims& dims, const std::vector<float>& values,
              hid_t type = H5T_IEEE_F32LE, hid_t creation = H5P_DEFAULT);
  void integers(const std::string& path, const Dims& dims, const std::vector<std::int64_t>& values,
                hid_t type = H5T_STD_I32LE);
  void soft_link(const std::string& target, const std::string& path);
  void external_link(const std::string& file, const std::string& target, const std::string& path);

  [[nodiscard]] hid_t id() const { return id_; }

 private:
  explicit RawFile(hid_t id) : id_(id) {}
  hid_t id_;
};

/// Half precision and bfloat16 as HDF5 float types (they live as long as the program).
[[nodiscard]] hid_t f16_type();
[[nodiscard]] hid_t bf16_type();

/// A creation list with chunks, and what `more` adds.
class Chunked {
 public:
  explicit Chunked(const Dims& chunk);
  ~Chunked() { H5Pclose(id_); }
  Chunked(const Chunked&) = delete;
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
};

/// count numbers that all differ: 0.25, 0.5, 0.75, ...
[[nodiscard]] std::vector<float> ramp(std::size_t count);

/// 'name', as messages show names of attributes.
[[nodiscard]] std::string quoted(const std::string& name);

// Small good traces. V = 6, P = 2, H = 3, Ht = 4, R = 2.
inline constexpr std::int64_t kV = 6, kP = 2, kH = 3, kHt = 4, kR = 2;

/// 5 positions in sequences of 3 and 2; logits on both sides.
void make_anchors(const std::string& path);
/// The same with hidden states instead of logits.
void make_hidden_anchors(const std::string& path);
/// 3 rounds of 2 requests; logits on both sides, uniforms.
void make_rounds(const std::string& path);
/// Kind heads: Markov, confidence (with Markov), lm_head, draft_lm_head.
void make_heads(const std::string& path);
/// The datasets of make_heads in /heads of an existing file.
void add_heads(RawFile& file);

/// Runs `work` and expects an Error with `code` whose text contains all `parts`.
void expect_error(ExitCode code, const std::vector<std::string>& parts,
                  const std::function<void()>& work);
inline void expect_trace_error(const std::vector<std::string>& parts,
                               const std::function<void()>& work) {
  expect_error(ExitCode::trace, parts, work);
}
/// Opening `path` must fail so.
void expect_refused(const std::string& path, const std::vector<std::string>& parts);

}  // namespace dspark::test
