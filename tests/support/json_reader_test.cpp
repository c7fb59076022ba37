#include "support/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "support/error.h"

namespace dspark {
namespace {

const std::string kFile = "t.json";

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::policy);
    return error.what();
  }
  return "no error";
}

std::string parse_error(const std::string& text) {
  return error_of([&] { (void)parse_json(text, kFile); });
}

TEST(ParseJson, NamesThePlaceAndTheKeyOfWhatIsNoJson) {
  EXPECT_EQ(parse_error("{\"a\": [1,\n NaN]}"),
            "t.json:2:2: a[1]: NaN is not a number; give one JSON document");
  EXPECT_THAT(parse_error("{\"a\": {\"b\": Infinity}}"),
              testing::AllOf(testing::HasSubstr("a.b: Infinity is not a number"),
                             testing::StartsWith("t.json:1:")));
  EXPECT_THAT(parse_error("{\"a\": [1, 2"), testing::HasSubstr("the file ends too early"));
  EXPECT_THAT(parse_error(""), testing::HasSubstr("the file ends too early"));
  EXPECT_THAT(parse_error("{\"a\": 1} x"), testing::HasSubstr("this is not JSON"));
  EXPECT_THAT(parse_error("{'a': 1}"), testing::HasSubstr("this is not JSON"));
  EXPECT_THAT(parse_error("{\"a\": \"\xff\"}"), testing::HasSubstr("this is not JSON"));
}

TEST(ParseJson, RefusesAKeyThatIsGivenTwice) {
  EXPECT_EQ(parse_error(R"({"a": [{"b": 1}, {"b": 1, "c": 2, "b": 3}]})"),
            "t.json: a[1].b: this key is given twice; keep one of the two");
  EXPECT_EQ(parse_error(R"({"a": {"b": 1}, "c": {"b": 1}})"), "no error");
}

TEST(ParseJson, RefusesWhatIsTooDeepTooLargeOrTooMuch) {
  EXPECT_THAT(parse_error(std::string(100'000, '[')), testing::HasSubstr("more than 32 levels"));
  EXPECT_THAT(parse_error("[1, 1e999]"), testing::HasSubstr("[1]: this number is too large"));
  std::string many = "[0";
  for (std::size_t i = 0; i < kMaxJsonValues; ++i) many += ",0";
  EXPECT_THAT(parse_error(many + "]"), testing::HasSubstr("more than 2000000 values"));
  EXPECT_THAT(parse_error(std::string(kMaxJsonBytes + 1, ' ')), testing::HasSubstr("larger than"));
}

class JsonNodeTest : public testing::Test {
 protected:
  [[nodiscard]] JsonNode node(const std::string& key) const { return root_.require(key); }
  nlohmann::json document_ = parse_json(
      R"({"list": [1, 2.5, "x", true, null], "big": 18446744073709551615, "minus": -1, "zero": 0, "below": -0.0,
          "inner": {"one": 1}})",
      kFile);
  JsonNode root_{document_, kFile};
};

TEST_F(JsonNodeTest, GivesWhatIsThere) {
  EXPECT_EQ(node("list").items(5)[0].integer(0, 9), 1);
  EXPECT_EQ(node("list").items(5)[1].number(), 2.5);
  EXPECT_EQ(node("list").items(5)[2].text(), "x");
  EXPECT_EQ(node("inner").require("one").positive(), 1);
  EXPECT_EQ(node("zero").not_negative(), 0);
  EXPECT_FALSE(std::signbit(node("below").number()));
  EXPECT_FALSE(root_.find("none").has_value());
  EXPECT_THAT(root_.keys(), testing::ElementsAre("below", "big", "inner", "list", "minus", "zero"));
}

TEST_F(JsonNodeTest, SaysWhatBelongsWhere) {
  const auto item = [&](std::size_t i) { return node("list").items(5)[i]; };
  EXPECT_THAT(error_of([&] { (void)item(3).number(); }),
              testing::StartsWith("t.json: list[3]: this is not a number"));
  EXPECT_THAT(error_of([&] { (void)item(4).number(); }), testing::HasSubstr("not a number"));
  EXPECT_THAT(error_of([&] { (void)item(3).integer(0, 9); }),
              testing::HasSubstr("not a whole number"));
  EXPECT_THAT(error_of([&] { (void)item(1).integer(0, 9); }),
              testing::HasSubstr("not a whole number; give a whole number from 0 to 9"));
  EXPECT_THAT(error_of([&] { (void)node("big").integer(0, INT64_MAX); }),
              testing::HasSubstr("18446744073709551615 is out of range"));
  EXPECT_THAT(error_of([&] { (void)node("minus").not_negative(); }),
              testing::HasSubstr("-1 is below 0"));
  EXPECT_THAT(error_of([&] { (void)node("zero").positive(); }),
              testing::HasSubstr("0 is not above 0"));
  EXPECT_THAT(error_of([&] { (void)node("zero").text(); }), testing::HasSubstr("not a text"));
  EXPECT_THAT(error_of([&] { (void)node("zero").items(1); }), testing::HasSubstr("not a list"));
  EXPECT_THAT(error_of([&] { (void)node("list").items(4); }),
              testing::HasSubstr("5 entries are too many"));
  EXPECT_THAT(error_of([&] { (void)node("list").keys(); }), testing::HasSubstr("not an object"));
  EXPECT_THAT(error_of([&] { (void)node("inner").require("two"); }),
              testing::StartsWith("t.json: inner: 'two' is missing"));
  EXPECT_THAT(error_of([&] {
                node("inner").check_keys({"a", "b"});
              }),
              testing::StartsWith("t.json: inner.one: unknown key; the keys are a, b"));
}

}  // namespace
}  // namespace dspark
