#pragma once
// A list for messages that may name thousands.

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace holdfast {

/// "a, b and 7 more": the first `most` (> 0), each as `append(std::string*, const element&)` writes it.
template <class List, class Append>
std::string JoinFirst(const List& list, size_t most, const Append& append) {
  const auto end = std::next(std::begin(list), static_cast<std::ptrdiff_t>(std::min(std::size(list), most)));
  std::string text = absl::StrJoin(std::begin(list), end, ", ", append);
  if (std::size(list) > most) absl::StrAppend(&text, " and ", std::size(list) - most, " more");
  return text;
}

/// The same of texts.
template <class List>
std::string JoinFirst(const List& texts, size_t most) {
  return JoinFirst(texts, most, [](std::string* out, const std::string& text) { out->append(text); });
}

}  // namespace holdfast
