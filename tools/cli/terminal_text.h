#pragma once
// Text of models and data on its way to a terminal, which would obey the control characters in it.

#include <string>
#include <string_view>

namespace holdfast {

/// `text` as it may go to a terminal: control characters but line ends and tabs, and bytes that are not UTF-8, as \xNN.
std::string TerminalText(std::string_view text);

/// The same of text that comes in pieces, which may end within a character. Thread-safety: none.
class TerminalPieces {
 public:
  /// `to_terminal` false: every piece stays as it is.
  explicit TerminalPieces(bool to_terminal) : to_terminal_(to_terminal) {}
  /// What may be printed by now: all but the beginning of a character that is not whole. A line end leaves nothing.
  std::string Add(std::string_view piece);

 private:
  const bool to_terminal_;
  std::string held_;
};

}  // namespace holdfast
