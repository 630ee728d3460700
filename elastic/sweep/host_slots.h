#pragma once
// Which place on its host each worker of a sweep has, whatever trial it is of: workers of one host share its processors
// and its memory, and take turns at its GPUs, by these numbers. Thread-safety: none.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace holdfast {

class HostSlots {
 public:
  /// `workers`: of each host.
  explicit HostSlots(const std::vector<int64_t>& workers) {
    for (const int64_t count : workers) users_.emplace_back(static_cast<size_t>(std::max<int64_t>(count, 1)), 0);
  }

  /// The first that nobody has; where workers that end are still there, one that the fewest have.
  int64_t Take(size_t host) {
    const auto slot = std::min_element(users_[host].begin(), users_[host].end());
    ++*slot;
    return slot - users_[host].begin();
  }
  void Free(size_t host, int64_t slot) { --users_[host][static_cast<size_t>(slot)]; }

 private:
  std::vector<std::vector<int64_t>> users_;  // by host and slot
};

}  // namespace holdfast
