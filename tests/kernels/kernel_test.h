// What the tests of the operations share: the backend that the program is linked with, and arrays
// in its memory.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "replay/backend.h"

namespace dspark::test {

/// Why the linked backend cannot be used here; empty if it can.
std::string backend_unavailable_reason();
/// The linked backend.
Backend& backend();

/// A bit pattern that no operation produces, for memory that must not be written.
inline constexpr std::uint32_t kCanary = 0x7FC5A5A5u;
inline float canary() {
  float value;
  std::memcpy(&value, &kCanary, sizeof value);
  return value;
}

/// An array in the backend's memory.
template <class T>
class Device {
 public:
  explicit Device(const std::vector<T>& values)
      : size_(values.size()), buffer_(backend().allocate(values.size() * sizeof(T))) {
    backend().upload(buffer_.data(), values.data(), values.size() * sizeof(T));
  }
  Device(std::initializer_list<T> values) : Device(std::vector<T>(values)) {}
  explicit Device(std::size_t size, T value = T{}) : Device(std::vector<T>(size, value)) {}

  T* data() const { return static_cast<T*>(buffer_.data()); }
  Array<T> array() const { return {data(), static_cast<std::int64_t>(size_)}; }
  Array<const T> view() const { return {data(), static_cast<std::int64_t>(size_)}; }
  std::vector<T> values() const {
    std::vector<T> out(size_);
    backend().download(out.data(), data(), size_ * sizeof(T));
    return out;
  }

 private:
  std::size_t size_;
  Buffer buffer_;
};

/// Rows of floats in the backend's memory, with canaries in the padding.
class DeviceRows {
 public:
  DeviceRows(std::int64_t rows, std::int32_t vocab, std::int64_t padding = 0)
      : DeviceRows(std::vector<float>(static_cast<std::size_t>(rows * vocab), canary()), vocab,
                   padding) {}
  DeviceRows(const std::vector<float>& dense, std::int32_t vocab, std::int64_t padding = 0)
      : rows_(static_cast<std::int64_t>(dense.size()) / vocab),
        vocab_(vocab),
        stride_(vocab + padding),
        values_(padded(dense)) {}

  Rows view() const { return {values_.data(), rows_, vocab_, stride_}; }
  Matrix matrix() const { return {values_.data(), DType::f32, rows_, vocab_, stride_}; }

  /// The rows without their padding, which must be as it was.
  std::vector<float> dense() const {
    const std::vector<float> all = values_.values();
    std::vector<float> out;
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t i = 0; i < stride_; ++i) {
        const float value = all[static_cast<std::size_t>(r * stride_ + i)];
        if (i < vocab_) {
          out.push_back(value);
        } else {
          EXPECT_EQ(std::memcmp(&value, &kCanary, sizeof value), 0)
              << "padding of row " << r << " was written";
        }
      }
    }
    return out;
  }

 private:
  std::vector<float> padded(const std::vector<float>& dense) const {
    std::vector<float> out(static_cast<std::size_t>(rows_ * stride_), canary());
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t i = 0; i < vocab_; ++i) {
        out[static_cast<std::size_t>(r * stride_ + i)] =
            dense[static_cast<std::size_t>(r * vocab_ + i)];
      }
    }
    return out;
  }

  std::int64_t rows_;
  std::int32_t vocab_;
  std::int64_t stride_;
  Device<float> values_;
};

/// A matrix of a stored type in the backend's memory, and the values it holds as f32.
class DeviceMatrix {
 public:
  DeviceMatrix(const std::vector<float>& dense, std::int64_t cols, DType type,
               std::int64_t padding = 0);
  Matrix view() const { return {bytes_.data(), type_, rows_, cols_, stride_}; }
  /// What the matrix holds after rounding to its type.
  const std::vector<float>& dense() const { return dense_; }

 private:
  std::vector<std::uint8_t> stored(const std::vector<float>& dense);

  std::int64_t rows_;
  std::int64_t cols_;
  std::int64_t stride_;
  DType type_;
  std::vector<float> dense_;
  Device<std::uint8_t> bytes_;
};

/// Scratch of the size a call asks for.
class DeviceScratch {
 public:
  explicit DeviceScratch(std::size_t bytes) : bytes_(bytes), memory_(bytes) {}
  Scratch view() const { return {memory_.data(), bytes_}; }

 private:
  std::size_t bytes_;
  Device<std::uint8_t> memory_;
};

/// Reproducible numbers that do not depend on the standard library's distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits();
  /// In [0, 1), on a 2^-24 grid.
  float uniform() { return static_cast<float>(bits() >> 40) * 0x1p-24f; }
  /// In [low, high].
  std::int32_t integer(std::int32_t low, std::int32_t high);
  /// Roughly normal with that deviation.
  float normal(float deviation = 1.0f);
  std::vector<float> normals(std::size_t count, float deviation = 1.0f);
  std::vector<float> uniforms(std::size_t count);

 private:
  std::uint64_t state_;
};

class KernelTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = backend_unavailable_reason();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

}  // namespace dspark::test
