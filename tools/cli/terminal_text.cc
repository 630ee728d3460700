#include "tools/cli/terminal_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_format.h"
#include "framework/data/byte_level.h"

namespace holdfast {

std::string TerminalText(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = std::max<size_t>(Utf8CharacterLength(text), 1);
    const auto first = static_cast<uint8_t>(text[0]);
    const bool is_control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f;
    const bool is_c1 = length == 2 && first == 0xc2 && static_cast<uint8_t>(text[1]) < 0xa0;
    if (is_control || is_c1 || (length == 1 && first >= 0x80)) {
      for (const char c : text.substr(0, length)) result += absl::StrFormat("\\x%02x", static_cast<uint8_t>(c));
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return result;
}

std::string TerminalPieces::Add(std::string_view piece) {
  if (!to_terminal_) return std::string(piece);
  held_ += piece;
  size_t whole = held_.size();
  for (size_t i = held_.size() - std::min<size_t>(held_.size(), 3); i < held_.size(); ++i) {
    if (IsUtf8Incomplete(std::string_view(held_).substr(i))) whole = std::min(whole, i);
  }
  std::string rest = held_.substr(whole);
  held_.resize(whole);
  return TerminalText(std::exchange(held_, std::move(rest)));
}

}  // namespace holdfast
