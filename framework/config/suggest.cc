#include "framework/config/suggest.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

constexpr size_t kLongestWord = 64;  // no key is this long; bounds the work on a hostile file

size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({change, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

}  // namespace

std::string Nearest(const std::string& word, const std::vector<std::string>& valid) {
  if (word.empty() || word.size() > kLongestWord) return "";
  const std::string lower = absl::AsciiStrToLower(word);
  std::string best;
  size_t best_distance = kLongestWord;
  for (const std::string& candidate : valid) {
    size_t distance = EditDistance(lower, candidate);
    if (distance > std::max<size_t>(1, std::min(lower.size(), candidate.size()) / 3)) distance = kLongestWord;
    if (absl::StartsWith(candidate, absl::StrCat(lower, "_"))) distance = std::min<size_t>(distance, 1);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace holdfast
