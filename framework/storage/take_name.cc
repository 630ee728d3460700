#include "framework/storage/take_name.h"

#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "framework/base/status.h"
#include "framework/storage/crash_point.h"
#include "framework/storage/file_lock.h"
#include "framework/storage/temporary_name.h"

namespace holdfast {
namespace {

constexpr int kClaimAttempts = 500, kClaimWaitMs = 1;  // a claim is held for two calls

// 0 or errno.
int RenameWithoutReplacing(const DirectoryChain& chain, const std::string& temporary) {
  CrashPoint("local.rename.before");
  if (renameat2(chain.fd(), temporary.c_str(), chain.fd(), chain.leaf().c_str(), RENAME_NOREPLACE) != 0) return errno;
  CrashPoint("local.rename.after");
  return 0;
}

bool IsNameOf(const DirectoryChain& chain, int fd) {
  struct stat ours, there;
  return fstat(fd, &ours) == 0 && fstatat(chain.fd(), chain.leaf().c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

int Link(const DirectoryChain& chain, const std::string& temporary, int fd) {
  CrashPoint("local.link.before");
  if (linkat(chain.fd(), temporary.c_str(), chain.fd(), chain.leaf().c_str(), 0) != 0) {
    // NFS repeats a request whose answer was lost, and then finds the link it has made.
    const int error = errno;
    return error == EEXIST && IsNameOf(chain, fd) ? 0 : error;
  }
  CrashPoint("local.link.after");
  return 0;
}

absl::StatusOr<FileDescriptor> Claim(const DirectoryChain& chain, FileSystemKind file_system) {
  const std::string name = ClaimName(chain.leaf());
  for (int attempt = 0; attempt < kClaimAttempts; ++attempt) {
    CrashPoint("local.claim.before");
    absl::StatusOr<FileDescriptor> claim = CreateLocked(chain.fd(), name, file_system, chain.path());
    if (!absl::IsAlreadyExists(claim.status()) && !absl::IsAborted(claim.status())) return claim;
    std::this_thread::sleep_for(std::chrono::milliseconds(kClaimWaitMs));
  }
  return absl::UnavailableError(
      absl::StrCat(chain.directory(), "/", name,
                   ": another writer holds this name, or was killed while it did: if none is at work "
                   "there, remove that file (after a day it goes by itself)"));
}

absl::Status RenameIfFree(const DirectoryChain& chain, const std::string& temporary) {
  struct stat info;
  if (fstatat(chain.fd(), chain.leaf().c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    return ErrnoToStatus(EEXIST, chain.path());
  }
  if (errno != ENOENT) return ErrnoToStatus(errno, chain.path());  // there may be an object, which a rename replaces
  CrashPoint("local.rename_claimed.before");
  if (renameat(chain.fd(), temporary.c_str(), chain.fd(), chain.leaf().c_str()) != 0) {
    return ErrnoToStatus(errno, chain.path());
  }
  CrashPoint("local.rename_claimed.after");
  return absl::OkStatus();
}

absl::Status RenameClaimed(const DirectoryChain& chain, const std::string& temporary, FileSystemKind file_system) {
  ASSIGN_OR_RETURN(const FileDescriptor claim, Claim(chain, file_system));
  CrashPoint("local.claim.after");
  absl::Status status = RenameIfFree(chain, temporary);
  CrashPoint("local.unclaim.before");
  unlinkat(chain.fd(), ClaimName(chain.leaf()).c_str(), 0);  // where this fails, a Sweep removes it
  CrashPoint("local.unclaim.after");
  return status;
}

}  // namespace

absl::Status TakeName(const DirectoryChain& chain, const std::string& temporary, int fd, FileSystemKind file_system) {
  if (file_system == FileSystemKind::kPlain) return RenameClaimed(chain, temporary, file_system);
  int error = file_system == FileSystemKind::kDetect ? RenameWithoutReplacing(chain, temporary) : EINVAL;
  if (error == EINVAL || error == ENOSYS) error = Link(chain, temporary, fd);
  if (error == EPERM || error == ENOSYS || error == EOPNOTSUPP) return RenameClaimed(chain, temporary, file_system);
  return error == 0 ? absl::OkStatus() : ErrnoToStatus(error, chain.path());
}

}  // namespace holdfast
