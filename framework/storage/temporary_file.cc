#include "framework/storage/temporary_file.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <limits>

#include "framework/base/status.h"
#include "framework/storage/crash_point.h"
#include "framework/storage/file_lock.h"
#include "framework/storage/take_name.h"
#include "framework/storage/temporary_name.h"

namespace holdfast {
namespace {

constexpr int kCreateAttempts = 100;
constexpr size_t kWriteBytes = size_t{256} << 10;
constexpr uint64_t kBlockBytes = 512;  // of st_blocks, whatever the file system's are

}  // namespace

absl::StatusOr<std::unique_ptr<TemporaryFile>> TemporaryFile::Create(const std::string& root, absl::string_view name,
                                                                     FileSystemKind file_system) {
  absl::Status status;
  for (int attempt = 0; attempt < kCreateAttempts; ++attempt) {
    absl::StatusOr<std::unique_ptr<TemporaryFile>> file = TryCreate(root, name, file_system);
    status = file.status();
    // NotFound: who deleted the last object of a directory has removed that between two steps of ours. Aborted and
    // AlreadyExists: a Sweep was faster, or the random name is taken.
    if (!absl::IsNotFound(status) && !absl::IsAborted(status) && !absl::IsAlreadyExists(status)) return file;
  }
  return absl::UnavailableError(
      absl::StrCat("gave up after ", kCreateAttempts, " attempts: ", std::string(status.message())));
}

absl::StatusOr<std::unique_ptr<TemporaryFile>> TemporaryFile::TryCreate(const std::string& root, absl::string_view name,
                                                                        FileSystemKind file_system) {
  HF_ASSIGN_OR_RETURN(DirectoryChain chain, DirectoryChain::Make(root, name));
  std::unique_ptr<TemporaryFile> file(new TemporaryFile(std::move(chain), file_system));
  HF_ASSIGN_OR_RETURN(std::string temporary, RandomTemporaryName(file->chain_.leaf()));
  CrashPoint("local.temporary.before");
  HF_ASSIGN_OR_RETURN(file->file_, CreateLocked(file->chain_.fd(), temporary, file_system, file->chain_.path()));
  CrashPoint("local.temporary.after");
  file->name_ = std::move(temporary);
  return file;
}

// The handle first: while the file is open, NFS would keep it under another hidden name and the directory not empty.
void TemporaryFile::Remove() {
  file_ = FileHandle();
  if (!name_.empty()) {
    CrashPoint("local.unlink_temporary.before");
    unlinkat(chain_.fd(), name_.c_str(), 0);  // where this fails, the next Sweep removes it
    CrashPoint("local.unlink_temporary.after");
    name_.clear();
  }
  if (!published_) chain_.RemoveEmpty().IgnoreError();
}

uint64_t TemporaryFile::FreeBytes() const {
  struct statvfs info;
  // If nobody can tell, it shows while writing.
  if (fstatvfs(file_.get(), &info) != 0) return std::numeric_limits<uint64_t>::max();
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

absl::Status TemporaryFile::NoSpace(uint64_t wanted) const {
  return absl::ResourceExhaustedError(
      absl::StrCat(chain_.path(), ": no space left: ", wanted, " bytes wanted, ", FreeBytes(), " free"));
}

absl::Status TemporaryFile::Reserve(uint64_t bytes) {
  if (!file_.valid()) return absl::FailedPreconditionError(absl::StrCat(chain_.path(), ": committed before"));
  struct stat info;
  if (fstat(file_.get(), &info) != 0) return ErrnoToStatus(errno, path());
  const uint64_t taken = static_cast<uint64_t>(info.st_blocks) * kBlockBytes;
  if (bytes <= taken) return absl::OkStatus();
  if (bytes - taken > FreeBytes()) return NoSpace(bytes);  // first: fallocate would fill the disk before it fails
  CrashPoint("local.reserve.before");
  const int result =
      RetryInterrupted([&] { return fallocate(file_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)); });
  if (result != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) return NoSpace(bytes);
  reserved_ = reserved_ || result == 0;
  CrashPoint("local.reserve.after");
  return absl::OkStatus();
}

absl::Status TemporaryFile::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    CrashPoint("local.write.before");
    const ssize_t written =
        RetryInterrupted([&] { return write(file_.get(), bytes.data(), std::min(bytes.size(), kWriteBytes)); });
    if (written <= 0) return ErrnoToStatus(written < 0 ? errno : ENOSPC, absl::StrCat(chain_.path(), ": write"));
    bytes.remove_prefix(static_cast<size_t>(written));
    CrashPoint("local.write.after");
  }
  return absl::OkStatus();
}

absl::Status TemporaryFile::Publish() {
  if (!file_.valid()) return absl::FailedPreconditionError(absl::StrCat(chain_.path(), ": committed before"));
  absl::Status status = CheckUnchanged();
  if (status.ok()) status = Sync();
  if (status.ok()) status = TakeName(chain_, name_, file_.get(), file_system_);
  published_ = status.ok();
  Remove();
  HF_RETURN_IF_ERROR(status);
  return chain_.Sync();
}

// Whoever writes by path may have removed or replaced the file; then ours is not what they wrote.
absl::Status TemporaryFile::CheckUnchanged() const {
  struct stat ours, there;
  if (fstat(file_.get(), &ours) != 0) return ErrnoToStatus(errno, path());
  const bool found = fstatat(chain_.fd(), name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0;
  if (found && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path(), ": somebody has removed or replaced this file"));
}

// Through the handle that was open before anything was written: one opened now would not be told of errors in writing
// back that somebody else was told of before.
absl::Status TemporaryFile::Sync() {
  struct stat info;
  if (reserved_) {
    CrashPoint("local.truncate.before");
    if (fstat(file_.get(), &info) != 0 || ftruncate(file_.get(), info.st_size) != 0) {
      return ErrnoToStatus(errno, absl::StrCat(chain_.path(), ": truncate"));
    }
    CrashPoint("local.truncate.after");
  }
  CrashPoint("local.fsync.before");
  if (RetryInterrupted([&] { return fsync(file_.get()); }) != 0) {
    return ErrnoToStatus(errno, absl::StrCat(chain_.path(), ": sync"));
  }
  CrashPoint("local.fsync.after");
  return absl::OkStatus();
}

}  // namespace holdfast
