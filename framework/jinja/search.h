#pragma once
// Looking for a part of a text, at a cost that is known before.

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "framework/jinja/budget.h"

namespace holdfast::jinja {

enum class SearchFrom { kLeft, kRight };

/// Before `part` is looked for in `text`, once or, behind what was found, again.
inline absl::Status StepForSearch(absl::string_view text, absl::string_view part, SearchFrom from, Budget& budget) {
  constexpr size_t kEach = 256;  // memmem's comparisons of a byte at most: beyond such parts its time is linear
  const size_t each = from == SearchFrom::kLeft ? std::min(part.size(), kEach) : part.size();
  return budget.Compare(text.size() * std::max<size_t>(each, 1));
}

/// The first `part` of `text` at `begin` or behind it; npos if there is none.
inline size_t FindIn(absl::string_view text, absl::string_view part, size_t begin = 0) {
  const void* const found = memmem(text.data() + begin, text.size() - begin, part.data(), part.size());
  return found == nullptr ? absl::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace holdfast::jinja
