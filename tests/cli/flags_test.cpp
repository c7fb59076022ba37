// Values of flags that cannot be seen from outside: numbers of bytes, whole numbers at their
// limits.
#include "cli/flags.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/error.h"

namespace dspark {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

// The flag "--n" after parsing these arguments.
template <class Use>
auto with_flag(std::vector<std::string> arguments, const Use& use) {
  CLI::App app;
  const ValueFlag flag(app, "-n,--n", "N", "A number");
  std::reverse(arguments.begin(), arguments.end());  // the parser takes them from the back
  app.parse(arguments);
  return use(flag);
}

std::optional<std::uint64_t> bytes(const std::vector<std::string>& arguments) {
  return with_flag(arguments, [](const ValueFlag& flag) { return flag.byte_count(); });
}

std::optional<std::uint64_t> number(const std::vector<std::string>& arguments,
                                    std::uint64_t smallest = 0, std::uint64_t largest = kMax) {
  return with_flag(arguments,
                   [&](const ValueFlag& flag) { return flag.whole_number(smallest, largest); });
}

TEST(Flags, BytesHaveSuffixesThatArePowersOf1000) {
  EXPECT_EQ(bytes({"--n", "1"}), 1U);
  EXPECT_EQ(bytes({"--n", "5k"}), 5'000U);
  EXPECT_EQ(bytes({"--n=7M"}), 7'000'000U);
  EXPECT_EQ(bytes({"-n", "8G"}), 8'000'000'000U);
  EXPECT_EQ(bytes({"--n", "18446744073709551615"}), kMax);
}

TEST(Flags, BytesThatAreNoNumberOrDoNotFitAreRefused) {
  for (const char* text : {"", "k", "0", "0G", "-1", "1.5G", "1K", "1kB", " 1", "1 k", "+1", "0x10",
                           "18446744073709551616", "18446744074G"}) {
    EXPECT_THROW(static_cast<void>(bytes({"--n", text})), Error) << text;
  }
}

TEST(Flags, WholeNumbersAreTakenUpToTheirLimits) {
  EXPECT_EQ(number({"--n", "3"}, 3, 5), 3U);
  EXPECT_EQ(number({"--n", "5"}, 3, 5), 5U);
  EXPECT_EQ(number({"--n", "18446744073709551615"}), kMax);
  EXPECT_THROW(static_cast<void>(number({"--n", "2"}, 3, 5)), Error);
  EXPECT_THROW(static_cast<void>(number({"--n", "6"}, 3, 5)), Error);
}

TEST(Flags, AFlagThatIsNotGivenHasNoValue) {
  EXPECT_EQ(number({}), std::nullopt);
  EXPECT_EQ(bytes({}), std::nullopt);
}

TEST(Flags, MessagesUseTheLongNameAndTheUsageExitCode) {
  try {
    static_cast<void>(number({"-n", "x"}, 1, 2));
    FAIL() << "'x' was taken for a number";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(std::string(error.what()),
              "--n: 'x' is not a value it takes; give a whole number from 1 to 2");
  }
}

}  // namespace
}  // namespace dspark
