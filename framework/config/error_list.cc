#include "framework/config/error_list.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "framework/config/printable.h"

namespace holdfast {
namespace {

constexpr size_t kLongestKey = 120;

auto FileOrder(const Origin& origin) {
  return std::tuple(origin.override_index, origin.line == 0 ? std::numeric_limits<int>::max() : origin.line);
}

}  // namespace

void ErrorList::Add(const Origin& origin, const std::string& key, const std::string& message) {
  std::string where;
  if (origin.override_index >= 0) {
    where = absl::StrCat("--set ", Printable(overrides_[static_cast<size_t>(origin.override_index)], kLongestKey));
  } else {
    where = origin.line > 0 ? absl::StrCat(name_, ":", origin.line) : name_;
    if (!key.empty()) absl::StrAppend(&where, ": ", Printable(key, kLongestKey));
  }
  errors_.push_back({origin, absl::StrCat(where, ": ", message)});
}

absl::Status ErrorList::ToStatus() const {
  if (errors_.empty()) return absl::OkStatus();
  std::vector<Error> sorted = errors_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Error& a, const Error& b) { return FileOrder(a.origin) < FileOrder(b.origin); });
  std::string message;
  for (size_t i = 0; i < std::min(sorted.size(), kMaxShown); ++i) {
    absl::StrAppend(&message, i == 0 ? "" : "\n", sorted[i].text);
  }
  if (sorted.size() > kMaxShown) absl::StrAppend(&message, "\n", name_, ": and ", sorted.size() - kMaxShown, " more");
  return absl::InvalidArgumentError(message);
}

}  // namespace holdfast
