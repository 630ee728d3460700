#include "tests/framework/storage/syscalls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "absl/strings/str_cat.h"

namespace holdfast {
namespace {

struct Watch {
  std::vector<SyscallRule> rules;
  std::vector<std::string> calls;
  int disturbed = 0;
};

std::atomic<Watch*> current{nullptr};

std::string PathOf(int fd) {
  char path[4096];
  const ssize_t size = readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), path, sizeof path);
  return std::string(path, size > 0 ? static_cast<size_t>(size) : 0);
}

// Random digits out.
std::string Plain(std::string name) {
  const size_t mark = name.rfind(".tmp-");
  return mark == std::string::npos ? name : name.substr(0, mark + 5) + '*';
}

enum class Verdict { kPass, kFail, kHalf };

Verdict ByRules(const std::string& name) {
  Watch* watch = current;
  if (watch == nullptr) return Verdict::kPass;
  for (SyscallRule& rule : watch->rules) {
    if (rule.name != name) continue;
    if (rule.skip > 0) {
      --rule.skip;
    } else if (rule.count > 0) {
      --rule.count;
      ++watch->disturbed;
      if (rule.first != nullptr) {
        rule.first();
        return Verdict::kPass;
      }
      errno = rule.error;
      return rule.error == 0 ? Verdict::kHalf : Verdict::kFail;
    }
  }
  return Verdict::kPass;
}

Verdict Judge(const std::string& name, const std::string& arguments) {
  if (Watch* watch = current) watch->calls.push_back(absl::StrCat(name, " ", arguments));
  return ByRules(name);
}

std::string At(int directory, const char* name) { return absl::StrCat(PathOf(directory), "/", Plain(name)); }

bool Watching() { return current != nullptr; }

}  // namespace

SyscallWatch::SyscallWatch(std::vector<SyscallRule> rules) {
  current = new Watch{.rules = std::move(rules), .calls = {}};
}

SyscallWatch::~SyscallWatch() { delete current.exchange(nullptr); }

std::vector<std::string> SyscallWatch::Calls() { return current.load()->calls; }

int SyscallWatch::Disturbed() { return current.load()->disturbed; }

}  // namespace holdfast

using holdfast::At;
using holdfast::ByRules;
using holdfast::Judge;
using holdfast::PathOf;
using holdfast::Plain;
using holdfast::Verdict;
using holdfast::Watching;

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  const Verdict verdict = Watching() ? Judge("write", Plain(PathOf(fd))) : Verdict::kPass;
  if (verdict == Verdict::kFail) return -1;
  return syscall(SYS_write, fd, data, verdict == Verdict::kHalf ? (size + 1) / 2 : size);
}

ssize_t preadv(int fd, const iovec* places, int count, off_t offset) {
  const Verdict verdict = Watching() ? Judge("preadv", Plain(PathOf(fd))) : Verdict::kPass;
  if (verdict == Verdict::kFail) return -1;
  if (verdict == Verdict::kPass) return syscall(SYS_preadv, fd, places, count, offset, 0);
  size_t left = 1;
  for (int i = 0; i < count; ++i) left += places[i].iov_len;
  left /= 2;
  std::vector<iovec> half;
  for (int i = 0; left > 0; ++i) {
    half.push_back({places[i].iov_base, std::min(left, places[i].iov_len)});
    left -= half.back().iov_len;
  }
  return syscall(SYS_preadv, fd, half.data(), half.size(), offset, 0);
}

int fsync(int fd) {
  if (Watching() && Judge("fsync", Plain(PathOf(fd))) != Verdict::kPass) return -1;
  return static_cast<int>(syscall(SYS_fsync, fd));
}

int fdatasync(int fd) {
  if (Watching() && Judge("fdatasync", Plain(PathOf(fd))) != Verdict::kPass) return -1;
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
  if (Watching() && Judge("fallocate", Plain(PathOf(fd))) != Verdict::kPass) return -1;
  return static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, size));
}

int ftruncate(int fd, off_t size) noexcept {
  if (Watching() && Judge("ftruncate", Plain(PathOf(fd))) != Verdict::kPass) return -1;
  return static_cast<int>(syscall(SYS_ftruncate, fd, size));
}

int mkdirat(int directory, const char* name, mode_t mode) noexcept {
  if (Watching() && Judge("mkdirat", At(directory, name)) != Verdict::kPass) return -1;
  return static_cast<int>(syscall(SYS_mkdirat, directory, name, mode));
}

int linkat(int from, const char* name, int to, const char* new_name, int flags) noexcept {
  if (Watching() && Judge("linkat", absl::StrCat(At(from, name), " ", new_name)) != Verdict::kPass) return -1;
  return static_cast<int>(syscall(SYS_linkat, from, name, to, new_name, flags));
}

int renameat2(int from, const char* name, int to, const char* new_name, unsigned flags) noexcept {
  if (Watching() && Judge("renameat2", absl::StrCat(At(from, name), " ", new_name)) != Verdict::kPass) return -1;
  return static_cast<int>(syscall(SYS_renameat2, from, name, to, new_name, flags));
}

int renameat(int from, const char* name, int to, const char* new_name) noexcept {
  if (Watching() && Judge("renameat", absl::StrCat(At(from, name), " ", new_name)) != Verdict::kPass) return -1;
  return static_cast<int>(syscall(SYS_renameat2, from, name, to, new_name, 0));
}

int unlinkat(int directory, const char* name, int flags) noexcept {
  if (Watching() && Judge("unlinkat", At(directory, name)) != Verdict::kPass) return -1;
  return static_cast<int>(syscall(SYS_unlinkat, directory, name, flags));
}

int fstat(int fd, struct stat* info) noexcept {
  if (Watching() && ByRules("fstat") != Verdict::kPass) return -1;
  return static_cast<int>(syscall(SYS_fstat, fd, info));
}

int fstatat(int directory, const char* __restrict name, struct stat* __restrict info, int flags) noexcept {
  if (Watching() && ByRules("fstatat") != Verdict::kPass) return -1;
  return static_cast<int>(syscall(SYS_newfstatat, directory, name, info, flags));
}

}  // extern "C"
