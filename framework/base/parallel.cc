#include "framework/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace holdfast {

absl::Status RunParallel(int64_t count, int threads, absl::FunctionRef<absl::Status(int64_t)> task) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  absl::Status first;
  const auto work = [&] {
    for (int64_t i; (i = next.fetch_add(1)) < count;) {
      const absl::Status status = task(i);
      if (status.ok()) continue;
      next = count;
      const std::lock_guard lock(mutex);
      if (first.ok()) first = status;
    }
  };
  {
    std::vector<std::jthread> helpers;
    try {
      for (int64_t i = 1; i < std::min<int64_t>(count, threads); ++i) helpers.emplace_back(work);
    } catch (const std::system_error&) {
      // No more threads to be had: those that are there do it, more slowly.
    }
    work();
  }
  return first;
}

}  // namespace holdfast
