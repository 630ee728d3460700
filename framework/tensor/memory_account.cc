#include "framework/tensor/memory_account.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/format_bytes.h"

namespace holdfast {

void MemoryAccount::Add(const char* what, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_[what] += bytes;
  held_ += bytes;
  peak_ = std::max(peak_, held_);
}

int64_t MemoryAccount::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

std::string MemoryAccount::LargestHolders() const {
  constexpr size_t kMax = 3;
  std::vector<std::pair<int64_t, std::string>> holders;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [what, bytes] : bytes_) {
      if (bytes > 0) holders.emplace_back(bytes, what);
    }
  }
  if (holders.empty()) return "nothing";
  std::sort(holders.rbegin(), holders.rend());
  holders.resize(std::min(holders.size(), kMax));
  return absl::StrJoin(holders, ", ", [](std::string* out, const auto& holder) {
    absl::StrAppend(out, holder.second, " ", FormatBytes(static_cast<double>(holder.first)));
  });
}

}  // namespace holdfast
