#include "framework/jinja/unicode.h"

#include <algorithm>
#include <array>

namespace holdfast::jinja {
namespace {

struct CodeRange {
  char32_t first, last;
};

// White space (str.isspace), Unicode 14.
constexpr std::array kSpaces = {CodeRange{0x9, 0xd},       CodeRange{0x1c, 0x20},     CodeRange{0x85, 0x85},
                                CodeRange{0xa0, 0xa0},     CodeRange{0x1680, 0x1680}, CodeRange{0x2000, 0x200a},
                                CodeRange{0x2028, 0x2029}, CodeRange{0x202f, 0x202f}, CodeRange{0x205f, 0x205f},
                                CodeRange{0x3000, 0x3000}};

// Controls, formats, private use and separators; characters that are not assigned are not among them.
constexpr std::array kUnprintable = {
    CodeRange{0x0, 0x1f},        CodeRange{0x7f, 0xa0},       CodeRange{0xad, 0xad},       CodeRange{0x600, 0x605},
    CodeRange{0x61c, 0x61c},     CodeRange{0x6dd, 0x6dd},     CodeRange{0x70f, 0x70f},     CodeRange{0x890, 0x891},
    CodeRange{0x8e2, 0x8e2},     CodeRange{0x1680, 0x1680},   CodeRange{0x180e, 0x180e},   CodeRange{0x2000, 0x200f},
    CodeRange{0x2028, 0x202f},   CodeRange{0x205f, 0x206f},   CodeRange{0x3000, 0x3000},   CodeRange{0xd800, 0xf8ff},
    CodeRange{0xfeff, 0xfeff},   CodeRange{0xfff0, 0xfffb},   CodeRange{0xfffe, 0xffff},   CodeRange{0x110bd, 0x110bd},
    CodeRange{0x110cd, 0x110cd}, CodeRange{0x13430, 0x13438}, CodeRange{0x1bca0, 0x1bca3}, CodeRange{0x1d173, 0x1d17a},
    CodeRange{0xe0000, 0x10ffff}};

template <size_t kCount>
bool IsIn(const std::array<CodeRange, kCount>& ranges, char32_t code) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const CodeRange& range) { return range.first <= code && code <= range.last; });
}

bool EndsLine(char32_t code) {
  return (code >= 0xa && code <= 0xd) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

size_t LengthOfLead(uint8_t lead) {
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  return lead >= 0xc2 && lead <= 0xdf ? 2 : 1;
}

template <typename Predicate>
absl::string_view StripLeftWhile(absl::string_view text, const Predicate& strips) {
  while (!text.empty()) {
    const Character first = FirstCharacter(text);
    if (!strips(first.code)) break;
    text.remove_prefix(first.bytes);
  }
  return text;
}

template <typename Predicate>
absl::string_view StripRightWhile(absl::string_view text, const Predicate& strips) {
  while (!text.empty()) {
    const Character last = LastCharacter(text);
    if (!strips(last.code)) break;
    text.remove_suffix(last.bytes);
  }
  return text;
}

/// The characters of a text, to be asked for.
class CharacterSet {
 public:
  explicit CharacterSet(absl::string_view characters) {
    while (!characters.empty()) {
      const Character first = FirstCharacter(characters);
      codes_.push_back(first.code);
      characters.remove_prefix(first.bytes);
    }
    std::sort(codes_.begin(), codes_.end());
  }
  bool operator()(char32_t code) const { return std::binary_search(codes_.begin(), codes_.end(), code); }

 private:
  std::vector<char32_t> codes_;
};

}  // namespace

Character FirstCharacter(absl::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  const size_t length = LengthOfLead(lead);
  if (length == 1 || length > text.size()) return {lead, 1};
  char32_t code = lead & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const auto next = static_cast<uint8_t>(text[i]);
    if ((next & 0xc0) != 0x80) return {lead, 1};
    code = (code << 6) | (next & 0x3f);
  }
  return {code, length};
}

Character LastCharacter(absl::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
  const Character last = FirstCharacter(text.substr(begin));
  return last.bytes == text.size() - begin ? last : Character{static_cast<uint8_t>(text.back()), 1};
}

void AppendCharacter(char32_t code, std::string& out) {
  const auto byte = [&](char32_t value) { out.push_back(static_cast<char>(value)); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) {
    byte(0xc0 | (code >> 6));
  } else if (code < 0x10000) {
    byte(0xe0 | (code >> 12));
    byte(0x80 | ((code >> 6) & 0x3f));
  } else {
    byte(0xf0 | (code >> 18));
    byte(0x80 | ((code >> 12) & 0x3f));
    byte(0x80 | ((code >> 6) & 0x3f));
  }
  byte(0x80 | (code & 0x3f));
}

int64_t CountCharacters(absl::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); at += FirstCharacter(text.substr(at)).bytes) ++count;
  return count;
}

std::vector<size_t> CharacterOffsets(absl::string_view text) {
  std::vector<size_t> offsets;
  for (size_t at = 0; at < text.size(); at += FirstCharacter(text.substr(at)).bytes) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

bool IsSpace(char32_t code) { return IsIn(kSpaces, code); }

absl::string_view StripLeft(absl::string_view text) { return StripLeftWhile(text, IsSpace); }
absl::string_view StripLeft(absl::string_view text, absl::string_view characters) {
  return StripLeftWhile(text, CharacterSet(characters));
}
absl::string_view StripRight(absl::string_view text) { return StripRightWhile(text, IsSpace); }
absl::string_view StripRight(absl::string_view text, absl::string_view characters) {
  return StripRightWhile(text, CharacterSet(characters));
}

std::vector<absl::string_view> SplitLines(absl::string_view text) {
  std::vector<absl::string_view> lines;
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    const Character next = FirstCharacter(text.substr(at));
    const size_t end = at;
    at += next.bytes;
    if (!EndsLine(next.code)) continue;
    if (next.code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, end - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

bool IsPrintable(char32_t code) { return !IsIn(kUnprintable, code); }

}  // namespace holdfast::jinja
