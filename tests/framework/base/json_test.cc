// What is no JSON is refused with what is wrong, by the parser of documents and by what others ask before they parse
// event by event: cases, each refused by one thing only.

#include "framework/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace holdfast {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string Refusal(const std::string& text, int depth_max = kJsonDepthMax) {
  const absl::Status status = ParseJson(text, depth_max).status();
  EXPECT_EQ(status.ok(), status.code() != absl::StatusCode::kInvalidArgument) << text;
  return std::string(status.message());
}

TEST(Json, IsRead) {
  EXPECT_EQ((*ParseJson(R"({"b": [1, "\ud83d\ude00"], "a": null})")).dump(), R"({"a":null,"b":[1,"😀"]})");
  EXPECT_EQ(ParseJson<nlohmann::ordered_json>(R"({"b": 1, "a": 2})")->dump(), R"({"b":1,"a":2})");
}

// nlohmann's parser takes it for the end: what comes after it would be dropped without a word.
TEST(Json, AZeroByteIsRefused) {
  EXPECT_EQ(Refusal(std::string("{}\0garbage", 10)), "malformed JSON: byte 3 is zero");
  EXPECT_EQ(CheckBeforeParsing(std::string("{}\0", 3)).message(), "malformed JSON: byte 3 is zero");
  EXPECT_TRUE(CheckBeforeParsing("{}").ok());
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(Refusal(nested(kJsonDepthMax)), "");
  EXPECT_EQ(Refusal(nested(kJsonDepthMax + 1)), "JSON nested deeper than 64");
  EXPECT_EQ(Refusal(nested(2), 2), "");
  EXPECT_EQ(Refusal(nested(3), 2), "JSON nested deeper than 2");
  EXPECT_EQ(Refusal(R"([["[[[[\"[[[", {}]])", 3), "");  // brackets of a string open nothing
  EXPECT_EQ(Refusal("[[],[],[]]", 2), "");
}

TEST(Json, KindsAreNamedForUsers) {
  const auto values = ParseJson(R"([null, true, 1, -1, 0.5, "", [], {}])");
  ASSERT_TRUE(values.ok()) << values.status();
  std::vector<std::string> kinds;
  for (const auto& value : *values) kinds.emplace_back(JsonKind(value.type()));
  EXPECT_THAT(kinds, testing::ElementsAre("null", "a boolean", "a number", "a number", "a number", "a string", "a list",
                                          "an object"));
}

TEST(Json, WhatIsWrongIsSaid) {
  EXPECT_THAT(Refusal("{"), StartsWith("malformed JSON at byte "));
  EXPECT_THAT(Refusal(""), StartsWith("malformed JSON at byte "));
  EXPECT_THAT(Refusal("{} {}"), StartsWith("malformed JSON at byte "));
  EXPECT_THAT(Refusal("[\"\xff\"]"), StartsWith("invalid UTF-8 at byte 3"));
  EXPECT_THAT(Refusal(R"(["\ud800"])"), HasSubstr("half of a character"));
  EXPECT_THAT(Refusal(R"(["\udc00"])"), HasSubstr("half of a character"));
  EXPECT_EQ(Refusal("[1e999]"), "JSON with a number that is too large");
  for (const char* quoted : {"UTF-8", "invalid string: surrogate"}) {  // in a text that is cut off
    EXPECT_THAT(Refusal(std::string("[\"") + quoted), StartsWith("malformed JSON at byte "));
  }
}

}  // namespace
}  // namespace holdfast
