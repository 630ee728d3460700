#include "framework/base/thread_limits.h"

#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <thread>
#include <vector>

namespace holdfast {

const char* NoThreadText() {
  thread_local char text[200];
  char processes[60] = "", memory[60] = "";
  rlimit limit{};
  if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    std::snprintf(processes, sizeof(processes), "ulimit -u, which is %llu, ",
                  static_cast<unsigned long long>(limit.rlim_cur));
  }
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    std::snprintf(memory, sizeof(memory), "ulimit -v, which is %llu, ",
                  static_cast<unsigned long long>(limit.rlim_cur / 1024));
  }
  std::snprintf(text, sizeof(text),
                "a thread cannot be started: look at limits (%s%sa container's number of processes)", processes,
                memory);
  return text;
}

absl::Status CheckThreadsStart(int count) {
  absl::Status status;
  std::atomic<bool> is_over = false;
  std::vector<std::thread> threads;
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([&is_over] { is_over.wait(false); });
  } catch (const std::exception&) {  // of the system, or for want of memory
    status = absl::FailedPreconditionError(NoThreadText());
  }
  is_over = true;
  is_over.notify_all();
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace holdfast
