#include "framework/storage/file_lock.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "framework/base/status.h"

namespace holdfast {
namespace {

// File systems that only one kernel writes, which therefore sees all locks. By number: those linux/magic.h lacks.
constexpr uint32_t kZfsMagic = 0x2fc12fc1, kBcachefsMagic = 0xca451a4e;
constexpr std::array kOfThisMachine = {uint32_t{EXT4_SUPER_MAGIC},
                                       uint32_t{XFS_SUPER_MAGIC},
                                       uint32_t{BTRFS_SUPER_MAGIC},
                                       uint32_t{TMPFS_MAGIC},
                                       uint32_t{RAMFS_MAGIC},
                                       uint32_t{OVERLAYFS_SUPER_MAGIC},
                                       uint32_t{F2FS_SUPER_MAGIC},
                                       kZfsMagic,
                                       kBcachefsMagic};

bool IsOfThisMachine(int fd) {
  struct statfs info;
  if (fstatfs(fd, &info) != 0) return false;
  const auto magic = static_cast<uint32_t>(info.f_type);
  return std::find(kOfThisMachine.begin(), kOfThisMachine.end(), magic) != kOfThisMachine.end();
}

}  // namespace

LockResult TryLock(int fd, FileSystemKind file_system) {
  if (file_system != FileSystemKind::kDetect || !IsOfThisMachine(fd)) return LockResult::kCannotTell;
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return LockResult::kLocked;
  return errno == EAGAIN || errno == EACCES ? LockResult::kHeldByOther : LockResult::kCannotTell;
}

absl::StatusOr<FileDescriptor> CreateLocked(int directory, const std::string& name, FileSystemKind file_system,
                                            const std::string& what) {
  FileDescriptor file = OpenAt(directory, name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0666);
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
