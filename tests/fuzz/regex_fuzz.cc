// What a pre-tokenizer's regular expression (up to the first line break) finds in a text (the rest): matches in order,
// none empty, and none that is another one as soon as more of the text is there.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "framework/data/regex.h"

namespace holdfast {
namespace {

void Check(bool condition) {
  if (!condition) abort();
}

// Each byte a code point, as texts are valid UTF-8.
std::string Utf8(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    if (value >= 0x80) text += static_cast<char>(0xc0 | value >> 6);
    text += static_cast<char>(value >= 0x80 ? 0x80 | (value & 0x3f) : value);
  }
  return text;
}

void Search(const Regex& regex, std::string_view text) {
  Regex::Workspace workspace;
  for (size_t start = 0; start <= text.size();) {
    const auto match = regex.Find(text, start, /*more_may_follow=*/false, workspace);
    if (!match.ok()) return Check(absl::IsInvalidArgument(match.status()));
    Check(match->kind != Regex::Match::Kind::kPartial);
    size_t middle = (start + text.size()) / 2;
    while (middle < text.size() && (static_cast<unsigned char>(text[middle]) & 0xc0) == 0x80) ++middle;
    const auto beginning = regex.Find(text.substr(0, middle), start, /*more_may_follow=*/true, workspace);
    if (beginning.ok() && beginning->kind == Regex::Match::Kind::kFound) {
      Check(match->kind == Regex::Match::Kind::kFound && beginning->begin == match->begin);
      Check(beginning->end == match->end);
    }
    if (match->kind == Regex::Match::Kind::kNone) return;
    Check(match->begin >= start && match->end > match->begin && match->end <= text.size());
    start = match->end;
  }
}

}  // namespace
}  // namespace holdfast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = input.find('\n');
  if (line == std::string_view::npos) return 0;
  const auto regex = holdfast::Regex::Compile(std::string(input.substr(0, line)));
  if (!regex.ok()) return 0;
  holdfast::Search(*regex, holdfast::Utf8(input.substr(line + 1)));
  return 0;
}
