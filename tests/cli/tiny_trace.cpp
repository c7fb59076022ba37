#include "tests/cli/tiny_trace.h"

#include <hdf5.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <vector>

namespace dspark::test {
namespace {

constexpr std::int64_t kVocab = 40;
constexpr std::int64_t kBlock = 3;
constexpr std::int64_t kHidden = 4;
constexpr std::int64_t kRank = 2;
const std::vector<std::int64_t> kOffsets = {0, 6, 11};

// An HDF5 identifier, closed at the end. Everything in this file must succeed.
class Id {
 public:
  Id(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {
    if (id_ < 0) throw std::runtime_error("HDF5 failed in a test");
  }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  ~Id() { close_(id_); }
  operator hid_t() const { return id_; }  // NOLINT: passed to the C library

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

void require(herr_t status) {
  if (status < 0) throw std::runtime_error("HDF5 failed in a test");
}

// Numbers that look random and are the same everywhere.
class Numbers {
 public:
  // In [-2, 2).
  float next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<float>(state_ >> 40) / static_cast<float>(1 << 22) - 2.0F;
  }
  std::vector<float> next(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = next();
    return values;
  }

 private:
  std::uint64_t state_ = 20240607;
};

template <class T>
hid_t type_of();
template <>
hid_t type_of<float>() {
  return H5T_NATIVE_FLOAT;
}
template <>
hid_t type_of<std::int32_t>() {
  return H5T_NATIVE_INT32;
}
template <>
hid_t type_of<std::int64_t>() {
  return H5T_NATIVE_INT64;
}

template <class T>
void add_dataset(hid_t group, const char* name, const std::vector<hsize_t>& shape,
                 const std::vector<T>& values) {
  const Id space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), H5Sclose);
  const Id dataset(
      H5Dcreate2(group, name, type_of<T>(), space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Dclose);
  require(H5Dwrite(dataset, type_of<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
}

void add_number(hid_t object, const char* name, hid_t stored, double value) {
  const Id space(H5Screate(H5S_SCALAR), H5Sclose);
  const Id attribute(H5Acreate2(object, name, stored, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  require(H5Awrite(attribute, H5T_NATIVE_DOUBLE, &value));
}

void add_text(hid_t object, const char* name, const std::string& value) {
  const Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  require(H5Tset_size(type, value.size() + 1));
  const Id space(H5Screate(H5S_SCALAR), H5Sclose);
  const Id attribute(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  require(H5Awrite(attribute, type, value.c_str()));
}

Id open_for_change(const std::string& path) {
  return {H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose};
}

void write_heads(hid_t file, const TinyTrace& options, Numbers& numbers) {
  const Id heads(H5Gcreate2(file, "heads", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
  add_number(heads, "vocab_size", H5T_STD_I32LE, kVocab);
  add_number(heads, "hidden_size", H5T_STD_I32LE, kHidden);
  add_number(heads, "markov_rank", H5T_STD_I32LE, kRank);
  add_text(heads, "markov_head_type", "vanilla");
  add_dataset(heads, "markov_w1", {kVocab, kRank}, numbers.next(kVocab * kRank));
  add_dataset(heads, "markov_w2", {kVocab, kRank}, numbers.next(kVocab * kRank));
  if (options.with_confidence_head) {
    add_number(heads, "confidence_with_markov", H5T_STD_I32LE, 1);
    add_dataset(heads, "confidence_weight", {kHidden + kRank}, numbers.next(kHidden + kRank));
    add_dataset(heads, "confidence_bias", {1}, std::vector<float>{1.5F});
  }
}

std::int32_t argmax(const std::vector<float>& rows, std::int64_t row) {
  const auto begin = rows.begin() + row * kVocab;
  return static_cast<std::int32_t>(std::max_element(begin, begin + kVocab) - begin);
}

}  // namespace

void write_tiny_trace(const std::string& path, const TinyTrace& options) {
  Numbers numbers;
  const Id file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  const hid_t real = options.f32_attributes ? H5T_IEEE_F32LE : H5T_IEEE_F64LE;
  add_text(file, "format", "dspark-trace");
  add_number(file, "format_version", H5T_STD_I32LE, 1);
  add_text(file, "kind", "anchors");
  add_number(file, "vocab_size", H5T_STD_I32LE, kVocab);
  add_number(file, "hidden_size", H5T_STD_I32LE, kHidden);
  add_number(file, "block_size", H5T_STD_I32LE, kBlock);
  add_number(file, "temperature", real, options.temperature);
  add_number(file, "top_k", H5T_STD_I32LE, 0);
  add_number(file, "top_p", real, 1);
  add_text(file, "domain", "made up");
  write_heads(file, options, numbers);

  const std::int64_t positions = kOffsets.back();
  std::vector<float> target = numbers.next(positions * kVocab);
  // Drafts that resemble the target, so that something is accepted.
  std::vector<float> draft(static_cast<std::size_t>(positions * kBlock * kVocab));
  for (std::int64_t n = 0; n < positions; ++n) {
    for (std::int64_t i = 0; i < kBlock * kVocab; ++i) {
      const std::int64_t row = std::min(n + i / kVocab, positions - 1);
      draft[static_cast<std::size_t>(n * kBlock * kVocab + i)] =
          4 * target[static_cast<std::size_t>(row * kVocab + i % kVocab)] + numbers.next();
    }
  }
  for (float& logit : target) logit *= 4;

  // Every token is the likeliest one: right for any temperature, and what a greedy recording must
  // have.
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(positions), 1);
  std::vector<std::int32_t> last;
  for (std::size_t s = 0; s + 1 < kOffsets.size(); ++s) {
    for (std::int64_t n = kOffsets[s]; n + 1 < kOffsets[s + 1]; ++n) {
      tokens[static_cast<std::size_t>(n + 1)] = argmax(target, n);
    }
    last.push_back(argmax(target, kOffsets[s + 1] - 1));
  }
  if (options.nan_row >= 0) {
    target[static_cast<std::size_t>(options.nan_row * kVocab + 7)] =
        std::numeric_limits<float>::quiet_NaN();
  }
  if (options.impossible_token >= 0) {
    const auto token = tokens[static_cast<std::size_t>(options.impossible_token + 1)];
    target[static_cast<std::size_t>(options.impossible_token * kVocab + token)] = -INFINITY;
  }

  const Id anchors(H5Gcreate2(file, "anchors", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
  const auto n = static_cast<hsize_t>(positions);
  add_dataset(anchors, "sequence_offsets", {kOffsets.size()}, kOffsets);
  add_dataset(anchors, "tokens", {n}, tokens);
  add_dataset(anchors, "last_tokens", {last.size()}, last);
  add_dataset(anchors, "target_logits", {n, kVocab}, target);
  add_dataset(anchors, "draft_logits", {n, kBlock, kVocab}, draft);
  if (options.with_draft_hidden) {
    add_dataset(anchors, "draft_hidden", {n, kBlock, kHidden},
                numbers.next(positions * kBlock * kHidden));
  }
}

void copy_trace(const std::string& from, const std::string& to) {
  std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
  // Not a permission of the source tree's file, but the right to change the copy.
  std::filesystem::permissions(to, std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
}

void remove_object(const std::string& path, const std::string& name) {
  require(H5Ldelete(open_for_change(path), name.c_str(), H5P_DEFAULT));
}

void scale_dataset(const std::string& path, const std::string& name, float factor) {
  const Id file = open_for_change(path);
  const Id dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose);
  const Id space(H5Dget_space(dataset), H5Sclose);
  std::vector<float> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  require(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
  for (float& value : values) value *= factor;
  require(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
}

void set_root_attribute(const std::string& path, const std::string& name, std::int64_t value) {
  const Id file = open_for_change(path);
  require(H5Adelete(file, name.c_str()));
  add_number(file, name.c_str(), H5T_STD_I64LE, static_cast<double>(value));
}

void set_root_attribute(const std::string& path, const std::string& name,
                        const std::string& value) {
  const Id file = open_for_change(path);
  require(H5Adelete(file, name.c_str()));
  add_text(file, name.c_str(), value);
}

}  // namespace dspark::test
