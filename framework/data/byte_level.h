#pragma once
// GPT-2's byte alphabet (every byte is one printable character, so that a vocabulary is readable text), and the little
// that is needed to know of UTF-8.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast {

/// The character that stands for `byte`, as UTF-8: itself if printable Latin-1, else U+0100 and on, in order of bytes.
std::string ByteLevelCharacter(uint8_t byte);

/// The bytes that `token` spells in the alphabet; nothing if it holds another character.
std::optional<std::string> ByteLevelToBytes(std::string_view token);

/// Bytes of the well-formed UTF-8 character at the start of `text` (Unicode, table 3-7), 0 if there is none.
size_t Utf8CharacterLength(std::string_view text);

/// Whether `text` is the beginning of a well-formed character that needs more bytes.
bool IsUtf8Incomplete(std::string_view text);

/// Bytes at the start of `text` that are well-formed UTF-8.
size_t Utf8ValidLength(std::string_view text);

}  // namespace holdfast
