// Proves that text of a model brings no control character to a terminal, also where its bytes come one by one, and that
// what is no terminal gets every byte.

#include "tools/cli/terminal_text.h"

#include <gtest/gtest.h>

#include <string>

namespace holdfast {
namespace {

std::string ByteByByte(const std::string& text, bool to_terminal) {
  TerminalPieces pieces(to_terminal);
  std::string shown;
  for (const char c : text) shown += pieces.Add(std::string(1, c));
  return shown;
}

TEST(TerminalText, HasNoControlCharacters) {
  EXPECT_EQ(TerminalText("a\tb\n"), "a\tb\n");
  EXPECT_EQ(TerminalText("\x1b[31m\r\a\x7f"), "\\x1b[31m\\x0d\\x07\\x7f");
  EXPECT_EQ(TerminalText("\xc2\x9bm"), "\\xc2\\x9bm") << "C1, as UTF-8";
  EXPECT_EQ(TerminalText("\x9bm"), "\\x9bm") << "C1, as a byte";
  EXPECT_EQ(TerminalText("é€😀\xc2\xa0"), "é€😀\xc2\xa0");
}

TEST(TerminalText, InPiecesIsTheSame) {
  for (const std::string text : {"é€😀 \x1b[2J\xc2\x9b\n", "\xf0\x9f\x98\n", "\xe2\x82\xe2\x82\xac\n", "\xff\xc2\n"}) {
    EXPECT_EQ(ByteByByte(text, true), TerminalText(text));
    EXPECT_EQ(ByteByByte(text, false), text);
  }
}

TEST(TerminalText, WholeCharactersAreNotHeldBack) {
  TerminalPieces pieces(true);
  EXPECT_EQ(pieces.Add("a\xe2\x82"), "a");
  EXPECT_EQ(pieces.Add("\xac"), "€");
  EXPECT_EQ(pieces.Add("b"), "b");
}

}  // namespace
}  // namespace holdfast
