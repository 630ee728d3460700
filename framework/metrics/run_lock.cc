#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <random>
#include <string>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/host.h"
#include "framework/base/status.h"
#include "framework/metrics/run_directory.h"

namespace holdfast {
namespace {

/// The first line is for people, the second different each time: process numbers come again.
std::string WhoAmI() {
  std::random_device random;
  const uint64_t mark = uint64_t{random()} << 32 | random();
  return absl::StrCat("process ", getpid(), " on ", HostName(), "\n", absl::Hex(mark, absl::kZeroPad16), "\n");
}

absl::StatusOr<std::string> ReadOwner(int fd, const std::string& path) {
  char text[400] = {};
  const ssize_t size = pread(fd, text, sizeof(text), 0);
  if (size < 0) return absl::UnavailableError(ErrnoToStatus(errno, absl::StrCat("cannot read ", path)).message());
  return std::string(text, static_cast<size_t>(size));
}

std::string FirstLine(const absl::StatusOr<std::string>& owner) {
  const std::string line = owner.ok() ? owner->substr(0, owner->find('\n')) : "";
  return line.empty() ? "another process" : line;
}

}  // namespace

absl::StatusOr<RunLock> RunLock::Take(const RunDirectory& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory.root(), error);
  if (error) {
    return ErrnoToStatus(error.value(), absl::StrCat("cannot create the run directory ", directory.root()));
  }
  const std::string path = directory.lock();
  for (;;) {
    RunLock lock(path, open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (lock.fd_ < 0) return ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
    if (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return ErrnoToStatus(errno, absl::StrCat("cannot lock ", path));
      return absl::FailedPreconditionError(absl::StrCat(directory.root(), " is in use by ",
                                                        FirstLine(ReadOwner(lock.fd_, path)),
                                                        ": wait for it, stop it, or choose another --run-dir"));
    }
    if (!lock.IsInPlace()) continue;  // removed in between
    lock.owner_ = WhoAmI();
    const auto size = static_cast<ssize_t>(lock.owner_.size());
    const bool written =
        ftruncate(lock.fd_, 0) == 0 && pwrite(lock.fd_, lock.owner_.data(), lock.owner_.size(), 0) == size;
    if (!written || fsync(lock.fd_) != 0) return ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
    return lock;
  }
}

bool RunLock::IsInPlace() const {
  struct stat ours, there;
  return fstat(fd_, &ours) == 0 && stat(path_.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
         ours.st_ino == there.st_ino;
}

// By its name: after the lock has lapsed, or the file was removed, another one may be there.
absl::Status RunLock::Check() const {
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 && errno == ENOENT) {  // by whom, and who has taken and lost it since, nobody knows
    return absl::FailedPreconditionError(absl::StrCat(path_, " has been removed: another process may have the run"));
  }
  if (fd < 0) return absl::UnavailableError(ErrnoToStatus(errno, absl::StrCat("cannot open ", path_)).message());
  const absl::StatusOr<std::string> owner = ReadOwner(fd, path_);
  close(fd);
  RETURN_IF_ERROR(owner.status());
  if (*owner == owner_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(path_, " has been taken by ", FirstLine(owner),
                                                    ": the run is its now, and this process does no more for it"));
}

RunLock::RunLock(RunLock&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), owner_(std::move(other.owner_)) {}

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(owner_, other.owner_);
  return *this;
}

RunLock::~RunLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace holdfast
