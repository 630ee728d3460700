#pragma once
// Watches and disturbs the calls to the operating system that local storage makes in this program: the program's own
// definitions of these functions (syscalls.cc) are used in place of the C library's. Not while other threads call them.

#include <functional>
#include <string>
#include <vector>

namespace holdfast {

/// Which call is disturbed. `name`: "write", "preadv", "fsync", "fdatasync", "fallocate", "ftruncate", "mkdirat",
/// "linkat", "renameat", "renameat2", "unlinkat"; "fstat" and "fstatat", which are not among Calls().
struct SyscallRule {
  std::string name;
  int skip = 0;   // so many calls pass first
  int count = 1;  // so many are disturbed then
  int error = 0;  // the call fails with it and does nothing; 0: write and preadv do half of what was asked
  std::function<void()> first = nullptr;  // or this is done, what others do meanwhile, and then the call
};

class SyscallWatch {
 public:
  /// Only one at a time.
  explicit SyscallWatch(std::vector<SyscallRule> rules = {});
  ~SyscallWatch();
  SyscallWatch(const SyscallWatch&) = delete;
  SyscallWatch& operator=(const SyscallWatch&) = delete;

  /// Calls since then, in order: "fsync /path", "renameat2 /path/from to", "unlinkat /path/name". Random digits of
  /// temporary names are written as "*".
  static std::vector<std::string> Calls();
  /// How many calls were disturbed.
  static int Disturbed();
};

}  // namespace holdfast
