#include "framework/jinja/string_literal.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status.h"
#include "framework/jinja/unicode.h"

namespace holdfast::jinja {
namespace {

int DigitOf(char c) {
  if (absl::ascii_isdigit(c)) return c - '0';
  return absl::ascii_isxdigit(c) ? absl::ascii_tolower(c) - 'a' + 10 : 16;
}

// \x with two digits, \u with four, \U with eight.
absl::StatusOr<char32_t> ParseHexadecimal(absl::string_view rest, size_t digits) {
  uint32_t code = 0;
  for (size_t i = 0; i < digits; ++i) {
    const int digit = i < rest.size() ? DigitOf(rest[i]) : 16;
    if (digit >= 16) return absl::InvalidArgumentError("an escape of a character is cut off");
    code = (code << 4) | static_cast<uint32_t>(digit);
  }
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
    return absl::InvalidArgumentError("an escape names no character of Unicode");
  }
  return code;
}

// `text` begins behind a backslash; goes behind the escape.
absl::Status ReadEscape(absl::string_view& text, std::string& out) {
  constexpr absl::string_view kLetters = "abfnrtv\\'\"", kMeaning = "\a\b\f\n\r\t\v\\'\"";
  const char c = text[0];
  if (const size_t simple = kLetters.find(c); simple != absl::string_view::npos) {
    out.push_back(kMeaning[simple]);
    text.remove_prefix(1);
  } else if (c == '\n') {
    text.remove_prefix(1);
  } else if (c == 'x' || c == 'u' || c == 'U') {
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    ASSIGN_OR_RETURN(const char32_t code, ParseHexadecimal(text.substr(1), digits));
    AppendCharacter(code, out);
    text.remove_prefix(1 + digits);
  } else if (c >= '0' && c <= '7') {
    char32_t code = 0;
    for (int i = 0; i < 3 && !text.empty() && text[0] >= '0' && text[0] <= '7'; ++i) {
      code = code * 8 + static_cast<char32_t>(text[0] - '0');
      text.remove_prefix(1);
    }
    AppendCharacter(code, out);
  } else if (c == 'N' || !absl::ascii_isascii(static_cast<unsigned char>(c))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the escape \\", text.substr(0, FirstCharacter(text).bytes), " is not supported"));
  } else {
    out.push_back('\\');  // Python leaves what it does not know
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ParseStringLiteral(absl::string_view content) {
  std::string text;
  while (!content.empty()) {
    const char c = content[0];
    content.remove_prefix(1);
    if (c != '\\') {
      text.push_back(c);
    } else {
      RETURN_IF_ERROR(ReadEscape(content, text));
    }
  }
  return text;
}

}  // namespace holdfast::jinja
