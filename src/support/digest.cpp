#include "support/digest.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <vector>

#define XXH_INLINE_ALL  // the header alone: no library to find at run time
#include <xxhash.h>

namespace dspark {

struct Digester::State {
  XXH3_state_t xxh3;
};

Digester::Digester() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh3); }
Digester::Digester(Digester&&) noexcept = default;
Digester& Digester::operator=(Digester&&) noexcept = default;
Digester::~Digester() = default;

void Digester::add(const void* data, std::size_t bytes) {
  if (bytes > 0) XXH3_128bits_update(&state_->xxh3, data, bytes);
}

void Digester::add_text(std::string_view text) {
  add(std::uint64_t{text.size()});
  add(text.data(), text.size());
}

Digest Digester::digest() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh3));
  Digest out;
  static_assert(sizeof canonical.digest == sizeof out.bytes);
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), out.bytes.begin());
  return out;
}

std::string Digest::hex() const {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

int digest_file(int descriptor, Digest& out) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  std::vector<std::byte> piece(kPiece);
  // Advice only; what it returns does not matter.
  (void)posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
  Digester digester;
  off_t at = 0;
  for (;;) {
    const ssize_t count = pread(descriptor, piece.data(), piece.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) break;
    digester.add(piece.data(), static_cast<std::size_t>(count));
    at += count;
  }
  out = digester.digest();
  return 0;
}

}  // namespace dspark
