#include "support/error.h"

#include <gtest/gtest.h>

#include <string>

namespace dspark {
namespace {

TEST(Error, JoinsWhereWhatAndRemedyInOneLine) {
  const Error error(ExitCode::policy, "a.yaml:1:2", "unknown key 'x'", "remove it");
  EXPECT_STREQ(error.what(), "a.yaml:1:2: unknown key 'x'; remove it");
  EXPECT_EQ(error.code(), ExitCode::policy);
}

TEST(Error, LeavesOutEmptyParts) {
  EXPECT_STREQ(Error(ExitCode::trace, "", "what").what(), "what");
  EXPECT_STREQ(Error(ExitCode::trace, "where", "what").what(), "where: what");
  EXPECT_STREQ(Error(ExitCode::trace, "", "what", "do").what(), "what; do");
}

TEST(Error, StaysOneLineWhateverTheTextsHold) {
  const Error error(ExitCode::trace, "a\nb", std::string("c\0d", 3), "e\x1b[31m\xff");
  EXPECT_STREQ(error.what(), "a\\nb: c\\x00d; e\\x1b[31m\\xff");
}

TEST(Error, ShorthandsCarryTheirExitCode) {
  EXPECT_EQ(static_cast<int>(internal_error("", "x").code()), 1);
  EXPECT_EQ(static_cast<int>(usage_error("", "x").code()), 2);
  EXPECT_EQ(static_cast<int>(policy_error("", "x").code()), 3);
  EXPECT_EQ(static_cast<int>(trace_error("", "x").code()), 4);
  EXPECT_EQ(static_cast<int>(device_error("", "x").code()), 5);
  EXPECT_EQ(static_cast<int>(ExitCode::incomplete), 6);
}

}  // namespace
}  // namespace dspark
