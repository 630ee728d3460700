#include "framework/base/glob.h"

#include <cstddef>

namespace holdfast {

bool MatchesGlob(absl::string_view pattern, absl::string_view text) {
  size_t p = 0, t = 0;
  // The last star seen, and how much of the text it stands for so far: only that one is ever tried again, because what
  // a later star can stand for includes all that an earlier one might have left to it.
  size_t star = absl::string_view::npos, taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != absl::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace holdfast
