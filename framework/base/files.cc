#include "framework/base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int kNameAttempts = 16;
constexpr size_t kWriteBytes = size_t{64} << 20;  // a write() takes at most 2 GiB; smaller ones can be interrupted

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

int OpenRetrying(const std::string& path, int flags, mode_t mode = 0) {
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// Size of an open regular file. A directory or a pipe would open too, and a pipe would block in open without
// O_NONBLOCK.
absl::StatusOr<size_t> RegularFileSize(int fd, const std::string& path) {
  if (fd < 0) return ErrnoToStatus(errno, path);
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoToStatus(errno, path);
  if (S_ISDIR(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": a directory, not a file"));
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  return static_cast<size_t>(info.st_size);
}

// 0, or errno.
int WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), std::min(bytes.size(), kWriteBytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;  // POSIX allows it, no reader of errno would understand it
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

int OverwriteAll(int fd, uint64_t offset, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return 0;
}

}  // namespace

std::string DirectoryOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  const FileDescriptor fd(OpenRetrying(path, O_RDONLY | O_NONBLOCK));
  HF_ASSIGN_OR_RETURN(const size_t size, RegularFileSize(fd.get(), path));
  if (size > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", size, " bytes; at most ", max_bytes, " are accepted"));
  }
  std::string contents(size, '\0');
  size_t got = 0;
  while (got < size) {
    const ssize_t n = read(fd.get(), contents.data() + got, size - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoToStatus(errno, path);
    if (n == 0) return absl::DataLossError(absl::StrCat(path, ": became shorter while it was read"));
    got += static_cast<size_t>(n);
  }
  return contents;
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents) {
  HF_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  HF_RETURN_IF_ERROR(file->Append(contents));
  return file->Commit();
}

absl::Status SyncDirectory(const std::string& directory) {
  const FileDescriptor fd(OpenRetrying(directory, O_RDONLY | O_DIRECTORY));
  if (fd.get() < 0) return ErrnoToStatus(errno, directory);
  // Some network file systems cannot sync a directory and say EINVAL; their renames are durable or never will be.
  if (fsync(fd.get()) != 0 && errno != EINVAL) return ErrnoToStatus(errno, absl::StrCat(directory, ": sync"));
  return absl::OkStatus();
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const FileDescriptor fd(OpenRetrying(path, O_RDONLY | O_NONBLOCK));
  HF_ASSIGN_OR_RETURN(const size_t size, RegularFileSize(fd.get(), path));
  MappedFile file;
  if (size == 0) return file;  // nothing to map, and mmap refuses to
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return ErrnoToStatus(errno, absl::StrCat(path, ": mmap"));
  file.data_ = static_cast<const uint8_t*>(data);
  file.size_ = size;
  return file;
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path) {
  struct stat info;
  if (path.empty() || (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))) {
    return absl::InvalidArgumentError(absl::StrCat("\"", path, "\" is not the name of a regular file"));
  }
  std::unique_ptr<AtomicFile> file(new AtomicFile);
  file->path_ = path;
  std::random_device random;  // not the pid: two machines may share the directory
  for (int attempt = 0; attempt < kNameAttempts; ++attempt) {
    std::string temporary = absl::StrFormat("%s.tmp-%08x%04x", path, random(), random() & 0xffffu);
    file->fd_ = OpenRetrying(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (file->fd_ >= 0) {
      file->temporary_path_ = std::move(temporary);
      return file;
    }
    if (errno != EEXIST) break;
  }
  return ErrnoToStatus(errno, path);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_path_.empty()) unlink(temporary_path_.c_str());
}

absl::Status AtomicFile::Fail(int error, const char* what) {
  status_ = ErrnoToStatus(error, absl::StrCat(path_, ": ", what));
  return status_;
}

absl::Status AtomicFile::Reserve(uint64_t bytes) {
  HF_RETURN_IF_ERROR(status_);
  if (bytes == 0) return absl::OkStatus();
  int result;
  do {
    result = fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (result == EINTR);
  if (result == ENOSPC || result == EDQUOT || result == EFBIG) {
    return Fail(result, absl::StrCat("reserving ", bytes, " bytes").c_str());
  }
  if (result == 0) reserved_ = std::max(reserved_, bytes);
  return absl::OkStatus();  // where the file system cannot reserve, a full disk shows while writing
}

absl::Status AtomicFile::Append(absl::string_view bytes) {
  HF_RETURN_IF_ERROR(status_);
  if (const int error = WriteAll(fd_, bytes)) return Fail(error, "write");
  size_ += bytes.size();
  return absl::OkStatus();
}

absl::Status AtomicFile::Overwrite(uint64_t offset, absl::string_view bytes) {
  HF_RETURN_IF_ERROR(status_);
  HF_CHECK(offset <= size_ && bytes.size() <= size_ - offset);
  if (const int error = OverwriteAll(fd_, offset, bytes)) return Fail(error, "write");
  return absl::OkStatus();
}

absl::Status AtomicFile::Sync() {
  HF_RETURN_IF_ERROR(status_);
  if (reserved_ > size_ && ftruncate(fd_, static_cast<off_t>(size_)) != 0) return Fail(errno, "truncate");
  reserved_ = 0;
  if (fsync(fd_) != 0) return Fail(errno, "sync");
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  HF_RETURN_IF_ERROR(Sync());
  const int closed = close(fd_);
  fd_ = -1;
  if (closed != 0) return Fail(errno, "close");
  if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) return Fail(errno, "rename");
  temporary_path_.clear();
  status_ = absl::FailedPreconditionError(absl::StrCat(path_, ": already committed"));
  return SyncDirectory(DirectoryOf(path_));
}

}  // namespace holdfast
