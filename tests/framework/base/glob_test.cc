// Proves that patterns match what their definition says, by hand and against a recursive one on random words.

#include "framework/base/glob.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace holdfast {
namespace {

/// By the definition.
bool Matches(absl::string_view pattern, absl::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') return Matches(pattern.substr(1), text) || (!text.empty() && Matches(pattern, text.substr(1)));
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) && Matches(pattern.substr(1), text.substr(1));
}

TEST(MatchesGlob, NamesOfParameters) {
  EXPECT_TRUE(MatchesGlob("blocks.*.attention.*", "blocks.11.attention.qkv.weight"));
  EXPECT_TRUE(MatchesGlob("blocks.?.mlp.up.bias", "blocks.3.mlp.up.bias"));
  EXPECT_FALSE(MatchesGlob("blocks.?.mlp.up.bias", "blocks.13.mlp.up.bias"));
  EXPECT_FALSE(MatchesGlob("attention", "blocks.0.attention.qkv.weight"));
  EXPECT_TRUE(MatchesGlob("*", ""));
  EXPECT_FALSE(MatchesGlob("", "a"));
}

TEST(MatchesGlob, AgreesWithTheDefinition) {
  std::mt19937 rng(std::random_device{}());
  int matched = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string pattern, text;
    for (size_t n = rng() % 7; n > 0; --n) pattern += "ab*?"[rng() % 4];
    for (size_t n = rng() % 8; n > 0; --n) text += "ab"[rng() % 2];
    ASSERT_EQ(MatchesGlob(pattern, text), Matches(pattern, text)) << "'" << pattern << "' '" << text << "'";
    matched += Matches(pattern, text) ? 1 : 0;
  }
  EXPECT_GT(matched, 10'000);
}

TEST(MatchesGlob, ManyStarsTakeNoTime) {
  std::string pattern;
  for (int i = 0; i < 1000; ++i) pattern += "*a";
  EXPECT_FALSE(MatchesGlob(pattern + "b", std::string(10'000, 'a')));
}

}  // namespace
}  // namespace holdfast
