#pragma once
// Text as Python's str sees it: UTF-8 by characters (code points), white space, lines.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace holdfast::jinja {

/// The character at the start of `text`, which is not empty, and how many bytes it has. What is not UTF-8 is a
/// character of one byte.
struct Character {
  char32_t code = 0;
  size_t bytes = 0;
};
Character FirstCharacter(absl::string_view text);
/// The same of the end of `text`.
Character LastCharacter(absl::string_view text);

void AppendCharacter(char32_t code, std::string& out);

int64_t CountCharacters(absl::string_view text);

/// Where each character begins, and the end of the text.
std::vector<size_t> CharacterOffsets(absl::string_view text);

/// str.isspace of one character.
bool IsSpace(char32_t code);

/// Of white space, or of any character of `characters`.
absl::string_view StripLeft(absl::string_view text);
absl::string_view StripLeft(absl::string_view text, absl::string_view characters);
absl::string_view StripRight(absl::string_view text);
absl::string_view StripRight(absl::string_view text, absl::string_view characters);

/// str.splitlines.
std::vector<absl::string_view> SplitLines(absl::string_view text);

/// Whether repr() shows the character as it is.
bool IsPrintable(char32_t code);

}  // namespace holdfast::jinja
