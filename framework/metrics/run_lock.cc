#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <random>
#include <string>
#include <utility>

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
    RunLock lock(path, OpenFile(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0644));
    if (!lock.file_.ok()) return ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
    if (flock(lock.file_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return ErrnoToStatus(errno, absl::StrCat("cannot lock ", path));
      return absl::FailedPreconditionError(absl::StrCat(directory.root(), " is in use by ",
                                                        FirstLine(ReadOwner(lock.file_.get(), path)),
                                                        ": wait for it, stop it, or choose another --run-dir"));
    }
    if (!lock.IsInPlace()) continue;  // removed in between
    lock.owner_ = WhoAmI();
    if (ftruncate(lock.file_.get(), 0) != 0) return ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
    RETURN_IF_ERROR(WriteAllAt(lock.file_.get(), 0, lock.owner_, path));
    if (fsync(lock.file_.get()) != 0) return ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
    return lock;
  }
}

bool RunLock::IsInPlace() const {
  struct stat ours, there;
  return fstat(file_.get(), &ours) == 0 && stat(path_.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
         ours.st_ino == there.st_ino;
}

// By its name: after the lock has lapsed, or the file was removed, another one may be there.
absl::Status RunLock::Check() const {
  const FileDescriptor file = OpenFile(path_, O_RDONLY | O_NOFOLLOW);
  if (!file.ok() && errno == ENOENT) {  // by whom, and who has taken and lost it since, nobody knows
    return absl::FailedPreconditionError(absl::StrCat(path_, " has been removed: another process may own the run"));
  }
  if (!file.ok()) return absl::UnavailableError(ErrnoToStatus(errno, absl::StrCat("cannot open ", path_)).message());
  ASSIGN_OR_RETURN(const std::string owner, ReadOwner(file.get(), path_));
  if (owner == owner_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(path_, " has been taken by ", FirstLine(owner),
                                                    ": that process owns the run now, and this one stops"));
}

}  // namespace holdfast
