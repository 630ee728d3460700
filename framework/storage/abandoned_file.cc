#include "framework/storage/abandoned_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "framework/base/status.h"
#include "framework/storage/crash_point.h"
#include "framework/storage/file_lock.h"

namespace holdfast {
namespace {

constexpr time_t kAbandonedAfterSeconds = 24 * 60 * 60;

}  // namespace

absl::Status RemoveIfAbandoned(int directory, const std::string& name, const std::string& path,
                               FileSystemKind file_system) {
  const FileDescriptor file = OpenAt(directory, name.c_str(), O_RDWR | O_NONBLOCK);
  struct stat info;
  if (!file.ok() || fstat(file.get(), &info) != 0) {
    return errno == ENOENT || errno == ELOOP ? absl::OkStatus() : ErrnoToStatus(errno, path);
  }
  const LockResult lock = TryLock(file.get(), file_system);
  const bool old = time(nullptr) - info.st_mtime >= kAbandonedAfterSeconds;
  if (lock == LockResult::kHeldByOther || (lock == LockResult::kCannotTell && !old)) return absl::OkStatus();
  // What another Sweep has removed meanwhile may be there anew, and be of one who lives: the name of a claim
  // (take_name.cc) is used again. A file that we have locked nobody else removes; where locks do not tell, a moment is
  // left.
  struct stat there;
  if (fstatat(directory, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? absl::OkStatus() : ErrnoToStatus(errno, path);
  }
  if (there.st_dev != info.st_dev || there.st_ino != info.st_ino) return absl::OkStatus();
  CrashPoint("local.sweep.before");
  if (unlinkat(directory, name.c_str(), 0) != 0 && errno != ENOENT) return ErrnoToStatus(errno, path);
  CrashPoint("local.sweep.after");
  return absl::OkStatus();
}

}  // namespace holdfast
