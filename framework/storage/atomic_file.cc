#include "framework/storage/atomic_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "framework/base/files.h"
#include "framework/base/format_bytes.h"
#include "framework/base/status.h"
#include "framework/storage/abandoned_file.h"
#include "framework/storage/crash_point.h"
#include "framework/storage/file_lock.h"
#include "framework/storage/take_name.h"
#include "framework/storage/temporary_name.h"

namespace holdfast {
namespace {

constexpr int kCreateAttempts = 100;
constexpr size_t kWriteBytes = size_t{256} << 10;
constexpr unsigned kPermissions = 0777;
constexpr uint64_t kBlockBytes = 512;  // of st_blocks, whatever the file system's are

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path) {
  return CreateAs(path, /*is_private=*/false);
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::CreatePrivate(const std::string& path) {
  return CreateAs(path, /*is_private=*/true);
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::CreateAs(const std::string& path, bool is_private) {
  struct stat info;
  const bool replaces = stat(path.c_str(), &info) == 0;
  if (std::filesystem::path(path).filename().empty() || (replaces && !S_ISREG(info.st_mode))) {
    return absl::InvalidArgumentError(absl::StrCat("\"", path, "\" is not the name of a regular file"));
  }
  std::filesystem::path target = path;
  std::error_code error;
  if (replaces && std::filesystem::is_symlink(target, error)) target = std::filesystem::canonical(path, error);
  if (error) return ErrnoToStatus(error.value(), path);
  const std::string directory = DirectoryOf(target);
  if (!OpenDirectory(directory).ok()) {
    if (errno == ENOENT) return absl::NotFoundError(absl::StrCat(path, ": there is no directory ", directory));
    return ErrnoToStatus(errno, path);
  }
  ASSIGN_OR_RETURN(DirectoryChain chain, DirectoryChain::Open(directory, target.filename().string()));
  std::unique_ptr<AtomicFile> file(new AtomicFile(std::move(chain), path, FileSystemKind::kDetect));
  file->RemoveAbandoned();
  absl::Status made = absl::AbortedError("");
  for (int i = 0; i < kCreateAttempts && absl::IsAborted(made); ++i) {
    made = is_private ? file->MakeTemporary(0600) : file->MakeTemporary();
  }
  RETURN_IF_ERROR(made);
  if (replaces && !is_private) RETURN_IF_ERROR(file->TakeMode(info.st_mode));
  return file;
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::CreateObject(const std::string& root, absl::string_view name,
                                                                     FileSystemKind file_system) {
  absl::Status status;
  for (int attempt = 0; attempt < kCreateAttempts; ++attempt) {
    absl::StatusOr<std::unique_ptr<AtomicFile>> file = TryCreateObject(root, name, file_system);
    status = file.status();
    // NotFound: who deleted the last object of a directory has removed that between two steps of ours. Aborted and
    // AlreadyExists: a Sweep was faster, or the random name is taken.
    if (!absl::IsNotFound(status) && !absl::IsAborted(status) && !absl::IsAlreadyExists(status)) return file;
  }
  return absl::UnavailableError(
      absl::StrCat("failed after ", kCreateAttempts, " attempts: ", std::string(status.message())));
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::TryCreateObject(const std::string& root, absl::string_view name,
                                                                        FileSystemKind file_system) {
  ASSIGN_OR_RETURN(DirectoryChain chain, DirectoryChain::Make(root, name));
  std::string path = chain.path();
  std::unique_ptr<AtomicFile> file(new AtomicFile(std::move(chain), std::move(path), file_system));
  RETURN_IF_ERROR(file->MakeTemporary());
  return file;
}

absl::Status AtomicFile::MakeTemporary(mode_t mode) {
  ASSIGN_OR_RETURN(std::string temporary, RandomTemporaryName(chain_.leaf()));
  CrashPoint("local.temporary.before");
  ASSIGN_OR_RETURN(file_, CreateLocked(chain_.fd(), temporary, file_system_, path_, mode));
  CrashPoint("local.temporary.after");
  temporary_ = std::move(temporary);
  return absl::OkStatus();
}

// What others have left here is no reason to fail.
void AtomicFile::RemoveAbandoned() const {
  std::error_code error;
  for (std::filesystem::directory_iterator it(chain_.directory(), error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (IsTemporaryNameOf(name, chain_.leaf())) RemoveIfAbandoned(chain_.fd(), name, path_, file_system_).IgnoreError();
  }
}

absl::Status AtomicFile::TakeMode(unsigned mode) const {
  struct stat info;
  if (fstat(file_.get(), &info) != 0) return ErrnoToStatus(errno, temporary_path());
  // Some file systems have one mode for all, and refuse any other.
  const bool equal = (info.st_mode & kPermissions) == (mode & kPermissions);
  if (equal || fchmod(file_.get(), mode & kPermissions) == 0) return absl::OkStatus();
  return ErrnoToStatus(errno, absl::StrCat(path_, ": cannot give the new file the old one's permissions"));
}

// The descriptor first: while the file is open, NFS would keep it under another hidden name and the directory not
// empty.
void AtomicFile::Remove() {
  file_ = FileDescriptor();
  if (!temporary_.empty()) {
    CrashPoint("local.unlink_temporary.before");
    unlinkat(chain_.fd(), temporary_.c_str(), 0);  // where this fails, the next Sweep removes it
    CrashPoint("local.unlink_temporary.after");
    temporary_.clear();
  }
  if (!committed_) chain_.RemoveEmpty().IgnoreError();
}

uint64_t AtomicFile::FreeBytes() const {
  struct statvfs info;
  // If nobody can tell, it shows while writing.
  if (fstatvfs(file_.get(), &info) != 0) return std::numeric_limits<uint64_t>::max();
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

absl::Status AtomicFile::NoSpace(uint64_t wanted) const {
  return absl::ResourceExhaustedError(absl::StrCat(path_, ": no space left: ", FormatBytes(static_cast<double>(wanted)),
                                                   " wanted, ", FormatBytes(static_cast<double>(FreeBytes())),
                                                   " free"));
}

absl::Status AtomicFile::Reserve(uint64_t bytes) {
  if (status_.ok()) status_ = TryReserve(bytes);
  return status_;
}

absl::Status AtomicFile::TryReserve(uint64_t bytes) {
  struct stat info;
  if (fstat(file_.get(), &info) != 0) return ErrnoToStatus(errno, temporary_path());
  const uint64_t taken = static_cast<uint64_t>(info.st_blocks) * kBlockBytes;
  if (bytes <= taken) return absl::OkStatus();
  if (bytes - taken > FreeBytes()) return NoSpace(bytes);  // first: fallocate would fill the disk before it fails
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    return ErrnoToStatus(EFBIG, absl::StrCat(path_, ": ", FormatBytes(static_cast<double>(bytes)), " wanted"));
  }
  CrashPoint("local.reserve.before");
  const int result =
      RetryInterrupted([&] { return fallocate(file_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)); });
  if (result != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) return NoSpace(bytes);
  reserved_ = reserved_ || result == 0;
  CrashPoint("local.reserve.after");
  return absl::OkStatus();
}

absl::Status AtomicFile::Append(absl::string_view bytes) {
  if (status_.ok()) status_ = TryAppend(bytes);
  size_ += bytes.size();
  return status_;
}

absl::Status AtomicFile::TryAppend(absl::string_view bytes) const {
  while (!bytes.empty()) {
    CrashPoint("local.write.before");
    const absl::string_view piece = bytes.substr(0, kWriteBytes);
    RETURN_IF_ERROR(WriteAll(file_.get(), piece, path_));
    bytes.remove_prefix(piece.size());
    CrashPoint("local.write.after");
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Overwrite(uint64_t offset, absl::string_view bytes) {
  HOLDFAST_CHECK(offset <= size_ && bytes.size() <= size_ - offset);
  if (status_.ok()) status_ = WriteAllAt(file_.get(), offset, bytes, path_);
  return status_;
}

absl::Status AtomicFile::Sync() {
  if (status_.ok()) status_ = TrySync();
  return status_;
}

absl::Status AtomicFile::Commit() {
  return Finish([this] { return Replace(); });
}

absl::Status AtomicFile::CommitNew() {
  return Finish([this] { return TakeName(chain_, temporary_, file_.get(), file_system_); });
}

template <typename GiveName>
absl::Status AtomicFile::Finish(const GiveName& give_name) {
  RETURN_IF_ERROR(status_);
  absl::Status status = CheckUnchanged();
  if (status.ok()) status = TrySync();
  if (status.ok()) status = give_name();
  committed_ = status.ok();
  status_ = absl::FailedPreconditionError(absl::StrCat(path_, ": committed before"));
  Remove();
  RETURN_IF_ERROR(status);
  return chain_.Sync();
}

absl::Status AtomicFile::Replace() {
  if (renameat(chain_.fd(), temporary_.c_str(), chain_.fd(), chain_.leaf().c_str()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat(path_, ": rename"));
  }
  temporary_.clear();
  return absl::OkStatus();
}

// Whoever writes by path may have removed or replaced the file; then ours is not what they wrote.
absl::Status AtomicFile::CheckUnchanged() const {
  struct stat ours, there;
  if (fstat(file_.get(), &ours) != 0) return ErrnoToStatus(errno, temporary_path());
  const bool found = fstatat(chain_.fd(), temporary_.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0;
  if (found && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(temporary_path(), ": somebody has removed or replaced this file"));
}

// Through the descriptor that was open before anything was written: one opened now would not be told of errors in
// writing back that somebody else was told of before.
absl::Status AtomicFile::TrySync() const {
  struct stat info;
  if (reserved_) {
    CrashPoint("local.truncate.before");
    if (fstat(file_.get(), &info) != 0 || ftruncate(file_.get(), info.st_size) != 0) {
      return ErrnoToStatus(errno, absl::StrCat(path_, ": truncate"));
    }
    CrashPoint("local.truncate.after");
  }
  CrashPoint("local.fsync.before");
  if (RetryInterrupted([&] { return fsync(file_.get()); }) != 0) {
    return ErrnoToStatus(errno, absl::StrCat(path_, ": sync"));
  }
  CrashPoint("local.fsync.after");
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  RETURN_IF_ERROR(file->Append(contents));
  return file->Commit();
}

absl::Status CopyFileAtomically(const std::string& from, const std::string& to,
                                const std::function<absl::Status()>& may_replace) {
  const FileDescriptor source = OpenFile(from, O_RDONLY | O_NONBLOCK);
  RETURN_IF_ERROR(RegularFileSize(source, from).status());
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(to));
  std::string piece(kWriteBytes, '\0');
  while (true) {
    ASSIGN_OR_RETURN(const size_t bytes, ReadToEnd(source.get(), absl::MakeSpan(piece), from));
    RETURN_IF_ERROR(file->Append({piece.data(), bytes}));
    if (bytes < piece.size()) break;
  }
  if (may_replace != nullptr) {
    RETURN_IF_ERROR(file->Sync());
    RETURN_IF_ERROR(may_replace());
  }
  return file->Commit();
}

}  // namespace holdfast
