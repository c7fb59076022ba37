// Digests: whether bytes are the ones they were.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

namespace dspark {

/// 128 bits that stand for some bytes (XXH3). Made against accidents: a damaged disk, a file that
/// was replaced, two inputs that happen to differ. It is no signature: who sets out to can make
/// other bytes with the same digest.
struct Digest {
  std::array<std::uint8_t, 16> bytes{};

  /// 32 hexadecimal digits, lower case; fit for a file name.
  [[nodiscard]] std::string hex() const;
  friend bool operator==(const Digest&, const Digest&) = default;
};

/// Takes bytes piece by piece; how they are cut into pieces does not matter.
class Digester {
 public:
  Digester();
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;
  ~Digester();

  void add(const void* data, std::size_t bytes);
  /// A number, as this machine holds it.
  template <class T>
  requires std::is_arithmetic_v<T>
  void add(T value) { add(&value, sizeof value); }
  /// A text and its length, so that what follows it cannot be taken for a part of it.
  void add_text(std::string_view text);

  /// The digest of what was added so far.
  [[nodiscard]] Digest digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The bytes of an open file from its beginning, read with a megabyte of memory; leaves the file's
/// position where it is. Returns 0 and fills `out`, or returns the error number.
[[nodiscard]] int digest_file(int descriptor, Digest& out);

}  // namespace dspark
