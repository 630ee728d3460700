#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/host.h"
#include "framework/base/status.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {
namespace {

std::string WhoAmI() { return absl::StrCat("process ", getpid(), " on ", HostName(), "\n"); }

std::string ReadOwner(int fd) {
  char text[300] = {};
  const ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
  std::string owner(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  while (!owner.empty() && owner.back() == '\n') owner.pop_back();
  return owner.empty() ? "another process" : owner;
}

}  // namespace

absl::StatusOr<RunLock> RunLock::Take(const RunDirectory& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory.root(), error);
  if (error) {
    return ErrnoToStatus(error.value(), absl::StrCat("cannot create the run directory ", directory.root()));
  }
  const std::string path = directory.lock();
  RunLock lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (lock.fd_ < 0) return ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  if (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoToStatus(errno, absl::StrCat("cannot lock ", path));
    return absl::FailedPreconditionError(absl::StrCat(directory.root(), " is in use by ", ReadOwner(lock.fd_),
                                                      ": wait for it, stop it, or choose another --run-dir"));
  }
  const std::string owner = WhoAmI();
  const bool written = ftruncate(lock.fd_, 0) == 0 &&
                       pwrite(lock.fd_, owner.data(), owner.size(), 0) == static_cast<ssize_t>(owner.size());
  if (!written) return ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  return lock;
}

RunLock::RunLock(RunLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

RunLock::~RunLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace holdfast
