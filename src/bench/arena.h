// The memory of one set of inputs, and the random inputs in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/pools.h"
#include "core/dspark_ops.h"
#include "replay/backend.h"
#include "support/error.h"

namespace dspark {

/// Inputs that do not fit into the budget or the memory.
class NoRoom : public Error {
 public:
  using Error::Error;
};

/// A backend with the pools in its memory, and the weights that cases share.
class Workbench {
 public:
  /// `budget`: bytes that inputs, outputs and weights may take together.
  Workbench(Backend& backend, const Pools& pools, std::size_t budget);
  Workbench(const Workbench&) = delete;
  Workbench& operator=(const Workbench&) = delete;

  [[nodiscard]] Backend& backend() const { return backend_; }
  [[nodiscard]] const Pools& pools() const { return pools_; }
  [[nodiscard]] std::size_t budget() const { return budget_; }
  [[nodiscard]] std::size_t used() const { return used_; }
  /// Gives the weights back.
  void drop_weights();

 private:
  friend class Arena;
  using WeightKey = std::tuple<BenchStream, std::uint32_t, std::int64_t, std::int64_t>;

  /// Throws NoRoom where `bytes` more are beyond the budget or not free.
  [[nodiscard]] Buffer take(std::size_t bytes);
  void give(std::size_t bytes) { used_ -= bytes; }
  [[nodiscard]] const void* weights(BenchStream stream, std::uint32_t set, std::int64_t rows,
                                    std::int64_t cols);

  Backend& backend_;
  const Pools& pools_;
  std::size_t budget_;
  std::size_t used_ = 0;
  Buffer logits_, hidden_, weights_;
  std::map<WeightKey, Buffer> cached_;
};

/// Inputs, outputs and scratch of one case and one set. Numbers depend on the seed, what they are
/// for, the set and their index alone: the first entries of a batch are those of a smaller one.
class Arena {
 public:
  Arena(Workbench& bench, std::uint32_t set) : bench_(bench), set_(set) {}
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;
  ~Arena();

  /// Of the same set, for what inputs are made from and calls do not look at.
  [[nodiscard]] Arena aside() const { return {bench_, set_}; }

  [[nodiscard]] Backend& backend() const { return bench_.backend(); }
  [[nodiscard]] std::uint32_t set() const { return set_; }
  /// Bytes of this set that one call goes over: its own memory and its vocabulary matrices.
  [[nodiscard]] std::size_t bytes() const { return own_ + shared_; }

  /// `count` elements, all bytes 0.
  template <class T>
  [[nodiscard]] T* zeros(std::int64_t count) {
    return static_cast<T*>(cleared(static_cast<std::size_t>(count) * sizeof(T)));
  }
  template <class T>
  [[nodiscard]] T* upload(const std::vector<T>& values) {
    void* const data = memory(values.size() * sizeof(T));
    backend().upload(data, values.data(), values.size() * sizeof(T));
    return static_cast<T*>(data);
  }
  /// The values of an array that the device holds; waits.
  template <class T>
  [[nodiscard]] std::vector<T> download(const T* data, std::int64_t count) const {
    std::vector<T> values(static_cast<std::size_t>(count));
    backend().download(values.data(), data, values.size() * sizeof(T));
    return values;
  }
  [[nodiscard]] Scratch scratch(std::size_t bytes) { return {memory(bytes), bytes}; }

  /// Uninitialised rows.
  [[nodiscard]] Rows rows(std::int64_t count, std::int32_t vocab);
  /// Rows of logits; `key(r)` says which row of which stream row r is.
  using RowKey = std::function<std::pair<BenchStream, std::int64_t>(std::int64_t)>;
  [[nodiscard]] Rows logits(std::int64_t count, std::int32_t vocab, const RowKey& key);
  [[nodiscard]] Rows logits(std::int64_t count, std::int32_t vocab, BenchStream stream);
  /// f16 rows of deviation 1.
  [[nodiscard]] Matrix hidden(std::int64_t count, std::int64_t cols, BenchStream stream);
  /// A vocabulary matrix of this set, f16, deviation 0.04.
  [[nodiscard]] Matrix vocabulary_matrix(std::int64_t rows, std::int64_t cols, BenchStream stream);
  /// The matrix of Markov rows, f16, deviation 0.04; one for all sets, of which a call reads a few
  /// rows.
  [[nodiscard]] Matrix markov_rows(std::int64_t rows, std::int64_t cols);

  /// `count` ids below `below`.
  [[nodiscard]] std::vector<std::int32_t> ids(std::int64_t count, std::int32_t below,
                                              BenchStream stream) const;
  /// `count` uniforms in [0, 1) on a 2^-24 grid.
  [[nodiscard]] std::vector<float> uniforms(std::int64_t count, BenchStream stream) const;
  /// `count` uniforms in units of 2^-64.
  [[nodiscard]] std::vector<std::uint64_t> whole_uniforms(std::int64_t count,
                                                          BenchStream stream) const;

 private:
  [[nodiscard]] void* memory(std::size_t bytes);
  [[nodiscard]] void* cleared(std::size_t bytes);
  [[nodiscard]] std::uint64_t bits(BenchStream stream, std::int64_t index) const;

  Workbench& bench_;
  std::uint32_t set_;
  std::size_t own_ = 0;
  std::size_t shared_ = 0;
  std::vector<Buffer> buffers_;
};

}  // namespace dspark
