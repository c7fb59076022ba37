#include "support/sha256.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "support/error.h"

namespace dspark {

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, 32> digest{};
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1 ||
      size != digest.size()) {
    throw internal_error("SHA-256", "the library of this machine does not compute it",
                         "check the installation of OpenSSL");
  }
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace dspark
