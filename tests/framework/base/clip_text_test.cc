// Proves that a text is cut between characters, and that bytes that are no text are still cut.

#include "framework/base/clip_text.h"

#include <gtest/gtest.h>

namespace holdfast {
namespace {

TEST(ClipText, CutsBetweenCharacters) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";  // of 1, 2, 3 and 4 bytes
  const size_t kept[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
  for (size_t limit = 0; limit < std::size(kept); ++limit) {
    EXPECT_EQ(ClipText(text, limit), text.substr(0, kept[limit])) << limit;
  }
}

TEST(ClipText, WhatIsNoTextIsCutSomewhere) { EXPECT_EQ(ClipText(std::string(9, '\x80'), 6), std::string(3, '\x80')); }

}  // namespace
}  // namespace holdfast
