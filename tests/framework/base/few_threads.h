#pragma once
// A process of a user who may have few threads.

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <random>

namespace holdfast {

/// The users that a process may become: those of its namespace.
struct UserRange {
  UserRange() {
    uint64_t outside = 0;
    std::ifstream("/proc/self/uid_map") >> first >> outside >> count;
  }
  uint64_t first = 0, count = 0;
};

/// Why BecomeAUserWhoMayHaveThreads cannot be used here; null: it can.
inline const char* WhyNoUserWithFewThreads() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "a sanitizer has threads of its own";
#endif
  return geteuid() == 0 && UserRange().count > 1000 ? nullptr : "becomes another user";
}

/// The limit is for all processes of a user, so each time it is another one, of whom there are none: drawn from all.
inline void BecomeAUserWhoMayHaveThreads(rlim_t threads) {
  const UserRange users;
  std::random_device random;
  std::uniform_int_distribution other(users.first + 1, users.first + users.count - 2);  // the last one is no user
  const rlimit limit{threads, threads};
  if (setuid(static_cast<uid_t>(other(random))) != 0 || setrlimit(RLIMIT_NPROC, &limit) != 0) _exit(2);
}

}  // namespace holdfast
