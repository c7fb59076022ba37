#include "bench/arena.h"

#include <algorithm>

#include "core/random.h"
#include "support/text.h"

namespace dspark {
namespace {

template <class T>
Buffer uploaded(Backend& backend, const std::vector<T>& values) {
  Buffer buffer = backend.allocate(values.size() * sizeof(T));
  backend.upload(buffer.data(), values.data(), buffer.bytes());
  return buffer;
}

// Where the window of `length` elements that `bits` picks begins in a pool of `size`.
std::int64_t window(std::uint64_t bits, std::int64_t size, std::int64_t length) {
  return static_cast<std::int64_t>(
      multiply_high(bits, static_cast<std::uint64_t>(size - length + 1)));
}

}  // namespace

Workbench::Workbench(Backend& backend, const Pools& pools, std::size_t budget)
    : backend_(backend),
      pools_(pools),
      budget_(budget),
      logits_(uploaded(backend, pools.logits)),
      hidden_(uploaded(backend, pools.hidden)),
      weights_(uploaded(backend, pools.weights)) {}

void Workbench::drop_weights() {
  for (const auto& [key, buffer] : cached_) give(buffer.bytes());
  cached_.clear();
}

Buffer Workbench::take(std::size_t bytes) {
  if (bytes > budget_ - std::min(used_, budget_)) {
    throw NoRoom(ExitCode::device, backend_.name() + " backend",
                 "inputs and outputs need at least " + human_bytes(used_ + bytes) +
                     ", more than the budget of " + human_bytes(budget_),
                 "give smaller sizes or a larger --memory-budget");
  }
  try {
    Buffer buffer = backend_.allocate(bytes);
    used_ += bytes;
    return buffer;
  } catch (const Error& error) {
    if (error.code() != ExitCode::device) throw;
    throw NoRoom(ExitCode::device, "", error.what());
  }
}

const void* Workbench::weights(BenchStream stream, std::uint32_t set, std::int64_t rows,
                               std::int64_t cols) {
  Buffer& buffer = cached_[{stream, set, rows, cols}];
  if (buffer.data() != nullptr) return buffer.data();
  const auto size = static_cast<std::int64_t>(pools_.weights.size());
  const std::int64_t elements = rows * cols;
  buffer = take(static_cast<std::size_t>(elements) * sizeof(Float16));
  // Pieces of an odd length at random offsets, so that no two rows are the same window.
  const std::int64_t piece = size / 2 - 1;
  for (std::int64_t first = 0, i = 0; first < elements; first += piece, ++i) {
    const std::int64_t length = std::min(piece, elements - first);
    const std::int64_t offset =
        window(bench_bits(pools_.seed, stream, set, static_cast<std::uint64_t>(i)), size, piece);
    backend_.copy(buffer.as<Float16>().data + first, weights_.as<Float16>().data + offset,
                  static_cast<std::size_t>(length) * sizeof(Float16));
  }
  return buffer.data();
}

Arena::Arena(Arena&& other) noexcept
    : bench_(other.bench_),
      set_(other.set_),
      own_(std::exchange(other.own_, 0)),
      shared_(std::exchange(other.shared_, 0)),
      buffers_(std::move(other.buffers_)) {}

Arena::~Arena() { bench_.give(own_); }

void* Arena::memory(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  buffers_.push_back(bench_.take(bytes));
  own_ += bytes;
  return buffers_.back().data();
}

void* Arena::cleared(std::size_t bytes) {
  void* const data = memory(bytes);
  backend().fill(data, 0, bytes);
  return data;
}

std::uint64_t Arena::bits(BenchStream stream, std::int64_t index) const {
  return bench_bits(bench_.pools().seed, stream, set_, static_cast<std::uint64_t>(index));
}

Rows Arena::rows(std::int64_t count, std::int32_t vocab) {
  void* const data =
      memory(static_cast<std::size_t>(count) * static_cast<std::size_t>(vocab) * sizeof(float));
  return {static_cast<float*>(data), count, vocab, vocab};
}

Rows Arena::logits(std::int64_t count, std::int32_t vocab, const RowKey& key) {
  const Rows out = rows(count, vocab);
  const auto size = static_cast<std::int64_t>(bench_.pools().logits.size());
  for (std::int64_t r = 0; r < count; ++r) {
    const auto [stream, index] = key(r);
    backend().copy(out.data + r * out.stride,
                   bench_.logits_.as<float>().data + window(bits(stream, index), size, vocab),
                   static_cast<std::size_t>(vocab) * sizeof(float));
  }
  return out;
}

Rows Arena::logits(std::int64_t count, std::int32_t vocab, BenchStream stream) {
  return logits(count, vocab, [stream](std::int64_t r) { return std::pair{stream, r}; });
}

Matrix Arena::hidden(std::int64_t count, std::int64_t cols, BenchStream stream) {
  auto* const data = static_cast<Float16*>(
      memory(static_cast<std::size_t>(count) * static_cast<std::size_t>(cols) * sizeof(Float16)));
  const auto size = static_cast<std::int64_t>(bench_.pools().hidden.size());
  for (std::int64_t r = 0; r < count; ++r) {
    backend().copy(data + r * cols,
                   bench_.hidden_.as<Float16>().data + window(bits(stream, r), size, cols),
                   static_cast<std::size_t>(cols) * sizeof(Float16));
  }
  return {data, DType::f16, count, cols, cols};
}

Matrix Arena::vocabulary_matrix(std::int64_t rows, std::int64_t cols, BenchStream stream) {
  const void* const data = bench_.weights(stream, set_, rows, cols);
  shared_ += static_cast<std::size_t>(rows * cols) * sizeof(Float16);
  return {data, DType::f16, rows, cols, cols};
}

Matrix Arena::markov_rows(std::int64_t rows, std::int64_t cols) {
  return {bench_.weights(BenchStream::w1, 0, rows, cols), DType::f16, rows, cols, cols};
}

std::vector<std::int32_t> Arena::ids(std::int64_t count, std::int32_t below,
                                     BenchStream stream) const {
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < count; ++i) {
    out.push_back(static_cast<std::int32_t>(
        multiply_high(bits(stream, i), static_cast<std::uint64_t>(below))));
  }
  return out;
}

std::vector<float> Arena::uniforms(std::int64_t count, BenchStream stream) const {
  std::vector<float> out;
  for (std::int64_t i = 0; i < count; ++i) {
    out.push_back(static_cast<float>(bits(stream, i) >> 40) * 0x1p-24f);
  }
  return out;
}

std::vector<std::uint64_t> Arena::whole_uniforms(std::int64_t count, BenchStream stream) const {
  std::vector<std::uint64_t> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(bits(stream, i));
  return out;
}

}  // namespace dspark
