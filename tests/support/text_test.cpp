#include "support/text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

namespace dspark {
namespace {

TEST(EscapeText, LeavesPlainAndUtf8TextAlone) {
  for (const char* text : {"", "trace.h5", "Ünïcode", "日本", "\xF0\x9F\x98\x80", "back\\slash"}) {
    EXPECT_EQ(escape_text(text), text);
  }
}

TEST(EscapeText, ShowsControlCharacters) {
  EXPECT_EQ(escape_text("a\nb\tc\rd"), "a\\nb\\tc\\x0dd");
  EXPECT_EQ(escape_text("\x1b[2J\x7f"), "\\x1b[2J\\x7f");
  EXPECT_EQ(escape_text(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(escape_text("\xC2\x9B"), "\\xc2\\x9b");  // C1: a control sequence introducer
}

TEST(EscapeText, ShowsBytesThatAreNotUtf8) {
  EXPECT_EQ(escape_text("a\xff"), "a\\xff");
  EXPECT_EQ(escape_text("\xC3"), "\\xc3");                             // cut short
  EXPECT_EQ(escape_text("\xC0\x80"), "\\xc0\\x80");                    // overlong
  EXPECT_EQ(escape_text("\xE0\x80\x80"), "\\xe0\\x80\\x80");           // overlong
  EXPECT_EQ(escape_text("\xED\xA0\x80"), "\\xed\\xa0\\x80");           // surrogate
  EXPECT_EQ(escape_text("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
}

TEST(EscapeText, GivesTextThatNeedsNoMoreEscaping) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string text = {static_cast<char>(a), static_cast<char>(b)};
      const std::string once = escape_text(text);
      EXPECT_EQ(escape_text(once), once);
    }
  }
}

TEST(Utf8Length, CountsTheBytesOfASequence) {
  EXPECT_EQ(utf8_length("a", 0), 1u);
  EXPECT_EQ(utf8_length("aé", 1), 2u);
  EXPECT_EQ(utf8_length("日", 0), 3u);
  EXPECT_EQ(utf8_length("\xF0\x9F\x98\x80", 0), 4u);
  EXPECT_EQ(utf8_length("é", 1), 0u);
  EXPECT_EQ(utf8_length("\xC2\x85", 0), 0u);
}

TEST(Shortest, ReadsBackAsTheSameNumber) {
  for (const double value : {0.0, 0.1, 1.0 / 3, 768.0, 1e-5, 1e300, 5e-324, 0.30000000000000004,
                             std::numeric_limits<double>::max(), -2.5}) {
    EXPECT_EQ(std::strtod(shortest(value).c_str(), nullptr), value);
  }
}

TEST(Shortest, IsShort) {
  EXPECT_EQ(shortest(0.3), "0.3");
  EXPECT_EQ(shortest(768.0), "768");
  EXPECT_EQ(shortest(0.0), "0");
  EXPECT_EQ(shortest(1e-5), "1e-05");
}

TEST(Counted, HasAnSUnlessThereIsOne) {
  EXPECT_EQ(counted(0, "row"), "0 rows");
  EXPECT_EQ(counted(1, "row"), "1 row");
  EXPECT_EQ(counted(2, "near tie"), "2 near ties");
}

TEST(HumanBytes, PicksAUnit) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1 kB");
  EXPECT_EQ(human_bytes(1'240'000'000), "1.24 GB");
  EXPECT_EQ(human_bytes(std::numeric_limits<std::uint64_t>::max()), "18.4 EB");
}

TEST(HumanBytes, NeverShowsAThousandOfAUnit) { EXPECT_EQ(human_bytes(999'999), "1 MB"); }

}  // namespace
}  // namespace dspark
