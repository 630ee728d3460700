#include "framework/jinja/letter_case.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "framework/jinja/case_properties.h"
#include "framework/jinja/case_runs.h"
#include "framework/jinja/unicode.h"

namespace holdfast::jinja {
namespace {

constexpr char32_t kSigma = 0x3a3, kSmallSigma = 0x3c3, kFinalSigma = 0x3c2;
constexpr char32_t kDottedI = 0x130;

// Of sorted entries, the first that `is_before` does not place before `code`.
template <typename Entry, size_t kCount, typename IsBefore>
const Entry* FindEntry(const Entry (&entries)[kCount], char32_t code, const IsBefore& is_before) {
  return std::lower_bound(std::begin(entries), std::end(entries), code, is_before);
}

template <size_t kCount>
char32_t Mapped(const CaseRun (&runs)[kCount], char32_t code) {
  const CaseRun* const run =
      FindEntry(runs, code, [](const CaseRun& one, char32_t wanted) { return one.last < wanted; });
  const bool found = run != std::end(runs) && run->first <= code && (code - run->first) % run->stride == 0;
  return found ? code + run->delta : code;
}

template <size_t kCount>
bool Have(const PropertyRange (&ranges)[kCount], char32_t code) {
  const PropertyRange* const range =
      FindEntry(ranges, code, [](const PropertyRange& one, char32_t wanted) { return one.last < wanted; });
  return range != std::end(ranges) && range->first <= code;
}

// Whether the sigma at `at` ends a word: a letter comes before it and none behind it, accents and the like passed over.
bool EndsWord(absl::string_view text, size_t at) {
  absl::string_view before = text.substr(0, at), behind = text.substr(at + FirstCharacter(text.substr(at)).bytes);
  while (!before.empty() && Have(kCaseIgnorable, LastCharacter(before).code)) {
    before.remove_suffix(LastCharacter(before).bytes);
  }
  while (!behind.empty() && Have(kCaseIgnorable, FirstCharacter(behind).code)) {
    behind.remove_prefix(FirstCharacter(behind).bytes);
  }
  return !before.empty() && Have(kCased, LastCharacter(before).code) &&
         (behind.empty() || !Have(kCased, FirstCharacter(behind).code));
}

// The character at `at`, whose code is `code`.
void AppendLower(absl::string_view text, size_t at, char32_t code, std::string& out) {
  if (code < 0x80) return out.push_back(absl::ascii_tolower(static_cast<unsigned char>(code)));
  if (code == kSigma) return AppendCharacter(EndsWord(text, at) ? kFinalSigma : kSmallSigma, out);
  if (code != kDottedI) return AppendCharacter(Mapped(kToLower, code), out);
  out.push_back('i');
  AppendCharacter(0x307, out);  // the dot above
}

void AppendUpper(char32_t code, bool begins_word, std::string& out) {
  if (code < 0x80) return out.push_back(absl::ascii_toupper(static_cast<unsigned char>(code)));
  const SpecialCase* const special =
      FindEntry(kSpecialCases, code, [](const SpecialCase& one, char32_t wanted) { return one.code < wanted; });
  if (special != std::end(kSpecialCases) && special->code == code) {
    for (const char32_t one : begins_word ? special->title : special->upper) {
      if (one != 0) AppendCharacter(one, out);
    }
    return;
  }
  const bool is_georgian = code >= 0x10d0 && code <= 0x10ff;  // which has no letters for the beginning of words
  AppendCharacter(begins_word && is_georgian ? code : Mapped(kToUpper, code), out);
}

}  // namespace

std::string ToCase(absl::string_view text, Case wanted) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character next = FirstCharacter(text.substr(at));
    if (wanted == Case::kLower) {
      AppendLower(text, at, next.code, out);
    } else {
      AppendUpper(next.code, false, out);
    }
    at += next.bytes;
  }
  return out;
}

std::string Capitalize(absl::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const Character next = FirstCharacter(text.substr(at));
    if (at == 0) {
      AppendUpper(next.code, true, out);
    } else {
      AppendLower(text, at, next.code, out);
    }
    at += next.bytes;
  }
  return out;
}

std::string Title(absl::string_view text) {
  std::string out;
  bool after_letter = false;
  for (size_t at = 0; at < text.size();) {
    const Character next = FirstCharacter(text.substr(at));
    if (after_letter) {
      AppendLower(text, at, next.code, out);
    } else {
      AppendUpper(next.code, true, out);
    }
    after_letter = Have(kCased, next.code);
    at += next.bytes;
  }
  return out;
}

}  // namespace holdfast::jinja
