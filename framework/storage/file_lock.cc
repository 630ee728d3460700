#include "framework/storage/file_lock.h"

#include <sys/stat.h>

#include "framework/base/file_descriptor.h"
#include "framework/base/status.h"

namespace holdfast {

LockResult TryLock(int fd, FileSystemKind file_system) {
  if (file_system != FileSystemKind::kDetect || !IsOnThisMachine(fd)) return LockResult::kCannotTell;
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return LockResult::kLocked;
  return errno == EAGAIN || errno == EACCES ? LockResult::kHeldByOther : LockResult::kCannotTell;
}

absl::StatusOr<FileDescriptor> CreateLocked(int directory, const std::string& name, FileSystemKind file_system,
                                            const std::string& what, mode_t mode) {
  FileDescriptor file = OpenAt(directory, name.c_str(), O_RDWR | O_CREAT | O_EXCL, mode);
  if (!file.ok()) return ErrnoToStatus(errno, what);
  const LockResult lock = TryLock(file.get(), file_system);
  // From here on no Sweep can remove it: it would have to hold the lock. One that held it before has removed the name.
  struct stat info;
  if (lock == LockResult::kHeldByOther || fstat(file.get(), &info) != 0 || info.st_nlink == 0) {
    return absl::AbortedError(absl::StrCat(what, ": its temporary file was taken for abandoned"));
  }
  return file;
}

}  // namespace holdfast
