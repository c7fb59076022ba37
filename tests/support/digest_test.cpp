#include "support/digest.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace dspark {
namespace {

Digest digest_of(const std::string& text) {
  Digester digester;
  digester.add(text.data(), text.size());
  return digester.digest();
}

/// A file of its own that is gone from its folder at once.
class UnnamedFile {
 public:
  explicit UnnamedFile(const std::string& content) : file_(std::tmpfile()) {
    if (file_ == nullptr || std::fwrite(content.data(), 1, content.size(), file_) != content.size())
      std::abort();
    std::fflush(file_);
  }
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;
  ~UnnamedFile() { std::fclose(file_); }
  [[nodiscard]] int descriptor() const { return fileno(file_); }

 private:
  std::FILE* file_;
};

TEST(Digest, IsTheXxh3OfTheBytes) {
  // The published value for no bytes and seed 0.
  EXPECT_EQ(digest_of("").hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Digest{}.hex(), std::string(32, '0'));
}

TEST(Digest, DoesNotDependOnHowTheBytesAreCut) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::to_string(i * 7919);
  for (const std::size_t piece : {1, 3, 240, 241, 1024, 4096}) {
    Digester digester;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      digester.add(text.data() + at, std::min(piece, text.size() - at));
    }
    EXPECT_EQ(digester.digest(), digest_of(text)) << piece;
  }
}

TEST(Digest, ChangesWithEveryByte) {
  std::string text(3000, 'a');
  const Digest whole = digest_of(text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    text[i] = 'b';
    EXPECT_FALSE(digest_of(text) == whole) << i;
    text[i] = 'a';
  }
  EXPECT_FALSE(digest_of(text + std::string(1, '\0')) == whole);
}

TEST(Digest, TextsThatOnlyJoinAlikeDiffer) {
  Digester first, second;
  first.add_text("ab");
  first.add_text("c");
  second.add_text("a");
  second.add_text("bc");
  EXPECT_FALSE(first.digest() == second.digest());
}

TEST(Digest, OfAFileIsThatOfItsBytesAndLeavesItsPositionAlone) {
  for (const std::size_t size : {0u, 1u, (1u << 20) - 1, 1u << 20, (1u << 20) + 17}) {
    std::string content(size, 'x');
    for (std::size_t i = 0; i < size; i += 13) content[i] = static_cast<char>(i / 13);
    const UnnamedFile file(content);
    ASSERT_EQ(lseek(file.descriptor(), static_cast<off_t>(size / 2), SEEK_SET),
              static_cast<off_t>(size / 2));
    Digest digest;
    ASSERT_EQ(digest_file(file.descriptor(), digest), 0);
    EXPECT_EQ(digest, digest_of(content)) << size;
    EXPECT_EQ(lseek(file.descriptor(), 0, SEEK_CUR), static_cast<off_t>(size / 2));
  }
}

TEST(Digest, OfWhatCannotBeReadIsAnError) {
  Digest digest;
  EXPECT_EQ(digest_file(-1, digest), EBADF);
}

}  // namespace
}  // namespace dspark
