// Views of arrays in a backend's memory (host memory for the CPU, device memory for CUDA): pointer,
// shape, stride; passed by value. Nothing here owns anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/fp8.h"
#include "core/half.h"

namespace dspark {

/// Element types that weights, hidden states and logits are stored in. (f64 is narrowed to f32 when
/// it is read.) e4m3 is taken only where an operation says so.
enum class DType : std::uint8_t { f16, bf16, f32, e4m3 };

/// Bytes of an element.
[[nodiscard]] constexpr std::size_t size_of(DType type) {
  return type == DType::f32 ? 4 : type == DType::e4m3 ? 1 : 2;
}

/// A contiguous array.
template <class T>
struct Array {
  T* data = nullptr;
  std::int64_t size = 0;
};

/// A row-major matrix of any stored type; `stride` in elements.
struct Matrix {
  const void* data = nullptr;
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;
};

/// Rows of f32 numbers over a vocabulary; `stride` in elements, at least `vocab`.
struct Rows {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int32_t vocab = 0;
  std::int64_t stride = 0;
};

}  // namespace dspark
