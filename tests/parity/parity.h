// One case on both backends: inputs are uploaded to each, the operation runs, and every output is
// compared bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "core/half.h"
#include "core/law.h"
#include "core/row_ops.h"
#include "replay/backend.h"

namespace dspark::parity {

/// What an operation wrote, by name, each element as text-free bytes.
struct Output {
  std::size_t element = 0;
  bool is_float = false;
  std::vector<unsigned char> bytes;
};
using Outputs = std::map<std::string, Output>;

/// A backend and the buffers of one case.
class Side {
 public:
  explicit Side(Backend& where) : backend(where) {}

  /// A copy of `values` in the backend's memory, `skew` elements behind a 256-byte boundary.
  template <class T>
  T* put(const std::vector<T>& values, std::size_t skew = 0) {
    T* data = make<T>(values.size(), skew);
    if (!values.empty()) backend.upload(data, values.data(), values.size() * sizeof(T));
    return data;
  }

  /// Memory of `count` elements, every byte 0xA5, so that what is left unwritten compares equal
  /// too.
  template <class T>
  T* make(std::size_t count, std::size_t skew = 0) {
    const std::size_t bytes = (count + skew) * sizeof(T);
    buffers_.push_back(backend.allocate(bytes + 1));
    backend.fill(buffers_.back().data(), 0xA5, bytes + 1);
    return static_cast<T*>(buffers_.back().data()) + skew;
  }

  Scratch scratch(std::size_t bytes) { return {make<unsigned char>(bytes), bytes}; }

  /// A status word, 0.
  std::uint32_t* status() { return put(std::vector<std::uint32_t>{0}); }

  template <class T>
  void get(const std::string& name, const T* data, std::size_t count) {
    Output output;
    output.element = sizeof(T);
    output.is_float = std::is_same_v<T, float>;
    output.bytes.resize(count * sizeof(T));
    backend.download(output.bytes.data(), data, output.bytes.size());
    outputs[name] = output;
  }

  Backend& backend;
  Outputs outputs;

 private:
  std::vector<Buffer> buffers_;
};

inline bool same_element(const Output& a, const Output& b, std::size_t i) {
  const unsigned char* x = a.bytes.data() + i * a.element;
  const unsigned char* y = b.bytes.data() + i * b.element;
  if (std::memcmp(x, y, a.element) == 0) return true;
  if (!a.is_float) return false;
  float u;
  float v;
  std::memcpy(&u, x, sizeof u);
  std::memcpy(&v, y, sizeof v);
  return u != u && v != v;  // the payload of a NaN means nothing
}

inline std::string element_text(const Output& output, std::size_t i) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t byte = output.element; byte-- > 0;) {
    const unsigned char value = output.bytes[i * output.element + byte];
    text += digits[value >> 4];
    text += digits[value & 15];
  }
  return text;
}

/// Both backends, made once for all tests of a program.
class Parity : public testing::Test {
 protected:
  void SetUp() override {
    static const std::string reason = cuda_unavailable_reason();
    if (!reason.empty()) GTEST_SKIP() << "no CUDA device: " << reason;
    if (cpu_backend() == nullptr) cpu_backend() = make_cpu_backend(4);
    if (cuda_backend() == nullptr) cuda_backend() = make_cuda_backend();
  }

  using Case = std::function<void(Side&)>;

  /// Runs the case on both and compares all outputs; `what` is shown where they differ.
  static void same(const std::string& what, const Case& run) {
    Side cpu(*cpu_backend());
    Side cuda(*cuda_backend());
    run(cpu);
    run(cuda);
    ASSERT_FALSE(cpu.outputs.empty()) << what << ": the case compares nothing";
    ASSERT_EQ(cpu.outputs.size(), cuda.outputs.size()) << what;
    for (const auto& [name, expected] : cpu.outputs) {
      const Output& got = cuda.outputs.at(name);
      ASSERT_EQ(expected.bytes.size(), got.bytes.size()) << what << ", " << name;
      const std::size_t count = expected.bytes.size() / expected.element;
      std::size_t different = 0;
      std::size_t first = 0;
      for (std::size_t i = 0; i < count; ++i) {
        if (!same_element(expected, got, i) && different++ == 0) first = i;
      }
      EXPECT_EQ(different, 0u) << what << ", " << name << ": " << different << " of " << count
                               << " differ, first element " << first << ": cpu 0x"
                               << element_text(expected, first) << ", cuda 0x"
                               << element_text(got, first);
    }
  }

  static std::unique_ptr<Backend>& cpu_backend() {
    static std::unique_ptr<Backend> backend;
    return backend;
  }
  static std::unique_ptr<Backend>& cuda_backend() {
    static std::unique_ptr<Backend> backend;
    return backend;
  }
};

/// `all`, or `few` of them where DSPARK_PARITY_FEW is set: for tools that make the device very
/// slow.
template <class T>
std::vector<T> cases(std::initializer_list<T> all, std::initializer_list<T> few) {
  static const bool use_few = std::getenv("DSPARK_PARITY_FEW") != nullptr;
  return use_few ? few : all;
}

/// Numbers that depend on nothing but a seed.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}

  std::uint64_t bits() {
    state_ += 0x9E3779B97F4A7C15ull;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
  }
  /// In [0, 1).
  float uniform() { return static_cast<float>(bits() >> 40) * 0x1p-24f; }
  std::int32_t below(std::int32_t bound) {
    return static_cast<std::int32_t>(bits() % static_cast<std::uint64_t>(bound));
  }
  /// About normal, standard deviation `scale`.
  float normal(float scale) {
    float sum = 0;
    for (int i = 0; i < 6; ++i) sum += uniform();
    return (sum - 3.0f) * 1.41421356f * scale;
  }

 private:
  std::uint64_t state_;
};

inline std::vector<float> normals(Numbers& numbers, std::size_t count, float scale) {
  std::vector<float> out(count);
  for (float& value : out) value = numbers.normal(scale);
  return out;
}

/// What rows of logits can look like.
enum class RowKind {
  normal,
  peaked,
  flat,
  zeros,
  steps,
  masked,
  one_finite,
  wide,
  ascending,
  descending,
  tiny,
  nan,
  plus_infinity,
  minus_infinity,
  all_nan,
  infinities
};
inline const std::vector<RowKind> kRowKinds = {
    RowKind::normal,        RowKind::peaked,         RowKind::flat,       RowKind::zeros,
    RowKind::steps,         RowKind::masked,         RowKind::one_finite, RowKind::wide,
    RowKind::ascending,     RowKind::descending,     RowKind::tiny,       RowKind::nan,
    RowKind::plus_infinity, RowKind::minus_infinity, RowKind::all_nan,    RowKind::infinities};

inline void fill_row(Numbers& numbers, RowKind kind, float* row, std::int32_t vocab) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (std::int32_t v = 0; v < vocab; ++v) {
    float value = numbers.normal(2.0f);
    switch (kind) {
      case RowKind::peaked:
        value *= 4.0f;
        break;
      case RowKind::flat:
        value = 1.25f;
        break;
      case RowKind::zeros:
        value = numbers.below(2) == 0 ? 0.0f : -0.0f;
        break;
      case RowKind::steps:
        value = static_cast<float>(numbers.below(7)) * 0.5f - 1.0f;
        break;
      case RowKind::masked:
        if (numbers.below(16) != 0) value = -infinity;
        break;
      case RowKind::one_finite:
        value = v == vocab / 2 ? -3.0f : -infinity;
        break;
      case RowKind::wide:
        value *= 4e37f;
        break;
      case RowKind::ascending:
        value = static_cast<float>(v) * 1e-3f;
        break;
      case RowKind::descending:
        value = static_cast<float>(-v) * 1e-3f;
        break;
      case RowKind::tiny:
        value *= 1e-40f;
        break;
      case RowKind::minus_infinity:
        value = -infinity;
        break;
      case RowKind::all_nan:
        value = nan;
        break;
      case RowKind::infinities:
        value = v % 2 == 0 ? infinity : -infinity;
        break;
      default:
        break;
    }
    row[v] = value;
  }
  if (kind == RowKind::nan) row[numbers.below(vocab)] = nan;
  if (kind == RowKind::plus_infinity) row[numbers.below(vocab)] = infinity;
  if (kind == RowKind::masked) row[numbers.below(vocab)] = 1.0f;
}

/// Rows of the kinds given, `stride` apart; what lies between rows is NaN, which nothing may read.
inline std::vector<float> rows_of(Numbers& numbers, const std::vector<RowKind>& kinds,
                                  std::int32_t vocab, std::int64_t stride) {
  std::vector<float> out(kinds.size() * static_cast<std::size_t>(stride),
                         std::numeric_limits<float>::quiet_NaN());
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    fill_row(numbers, kinds[i], out.data() + i * static_cast<std::size_t>(stride), vocab);
  }
  return out;
}

/// Values as they would be stored.
inline std::vector<std::uint16_t> as_stored16(const std::vector<float>& values, DType type) {
  std::vector<std::uint16_t> out;
  out.reserve(values.size());
  for (float value : values) {
    out.push_back(type == DType::f16 ? to_float16(value).bits : to_bfloat16(value).bits);
  }
  return out;
}

/// `values` as a matrix of `type` in the backend's memory.
inline Matrix put_matrix(Side& side, const std::vector<float>& values, DType type,
                         std::int64_t rows, std::int64_t cols, std::int64_t stride,
                         std::size_t skew = 0) {
  const void* data = type == DType::f32
                         ? static_cast<const void*>(side.put(values, skew))
                         : static_cast<const void*>(side.put(as_stored16(values, type), skew));
  return {data, type, rows, cols, stride};
}

inline const char* type_name(DType type) {
  return type == DType::f16 ? "f16" : type == DType::bf16 ? "bf16" : "f32";
}

/// Rules that cover every way a law is found.
inline std::vector<SamplingRule> rules_for(std::int32_t vocab) {
  std::vector<SamplingRule> rules;
  const auto add = [&](double temperature, std::int64_t top_k, double top_p) {
    for (TopPRule rule : {TopPRule::water_filling, TopPRule::include_crossing}) {
      rules.push_back(make_sampling_rule(temperature, top_k, top_p, rule, vocab));
      if (top_p >= 1) break;
    }
  };
  add(1.0, 0, 1.0);
  add(0.0, 0, 1.0);
  add(0.7, 0, 1.0);
  add(5.0, 0, 1.0);
  add(1e-2, 0, 1.0);
  add(1.0, 1, 1.0);
  add(1.0, 50, 1.0);
  add(0.7, vocab - 1, 1.0);
  add(1.0, vocab / 2, 1.0);
  add(1.0, 0, 0.95);
  add(1.0, 0, 0.5);
  add(3.0, 0, 0.9);
  add(1.0, 0, 1e-9);
  add(1.0, 0, 0.999998);
  add(1.0, 50, 0.95);
  add(1.3, vocab / 2, 0.6);
  add(0.8, 3000, 0.97);
  add(1.0, 2, 0.3);
  SamplingRule unclipped;  // a top-k of the vocabulary or more is off
  unclipped.top_k = vocab;
  rules.push_back(unclipped);
  // With few: no filter, greedy, and one of each kind of filter.
  std::vector<SamplingRule> chosen;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    for (std::size_t wanted : cases<std::size_t>({i}, {0, 1, 6, 10, 18, 21})) {
      if (i == wanted) chosen.push_back(rules[i]);
    }
  }
  return chosen;
}

inline std::string rule_text(const SamplingRule& rule) {
  return std::string(rule.greedy ? "greedy" : "T=1/" + std::to_string(rule.inverse_temperature)) +
         " top_k=" + std::to_string(rule.top_k) +
         " top_p=" + std::to_string(static_cast<double>(rule.top_p) / 4294967296.0) +
         (rule.top_p_rule == TopPRule::water_filling ? " water_filling" : " include_crossing");
}

}  // namespace dspark::parity
