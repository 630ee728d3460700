#include "framework/base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "framework/base/file_descriptor.h"
#include "framework/base/status.h"

namespace holdfast {

std::string DirectoryOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return absl::OkStatus();
  const std::string parent = DirectoryOf(path);
  if (parent != path) RETURN_IF_ERROR(MakeDirectories(parent));
  if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) return ErrnoToStatus(errno, path);
  if (!std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a directory"));
  }
  const absl::Status synced = SyncDirectory(parent);
  // Where directories may be made that may not be listed, nobody can open the one around them.
  return absl::IsPermissionDenied(synced) ? absl::OkStatus() : synced;
}

absl::Status CheckIsFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? CheckIsRegular(info, path) : absl::OkStatus();
}

std::ifstream OpenToRead(const std::string& path) {
  if (CheckIsFile(path).ok()) return std::ifstream(path, std::ios::binary);
  std::ifstream none;
  none.setstate(std::ios::failbit);
  return none;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  const FileDescriptor file = OpenFile(path, O_RDONLY | O_NONBLOCK);
  ASSIGN_OR_RETURN(const uint64_t size, RegularFileSize(file, path));
  if (size > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", size, " bytes; at most ", max_bytes, " are accepted"));
  }
  std::string contents(size, '\0');
  ASSIGN_OR_RETURN(const size_t got, ReadToEnd(file.get(), absl::MakeSpan(contents), path));
  if (got < size) return absl::DataLossError(absl::StrCat(path, ": became shorter while it was read"));
  return contents;
}

absl::Status SyncDirectory(const std::string& directory) {
  const FileDescriptor fd = OpenFile(directory, O_RDONLY | O_DIRECTORY);
  if (!fd.ok()) return ErrnoToStatus(errno, directory);
  // Some network file systems cannot sync a directory and say EINVAL; their renames are durable or never will be.
  if (fsync(fd.get()) != 0 && errno != EINVAL) return ErrnoToStatus(errno, absl::StrCat(directory, ": sync"));
  return absl::OkStatus();
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const FileDescriptor fd = OpenFile(path, O_RDONLY | O_NONBLOCK);
  ASSIGN_OR_RETURN(const uint64_t size, RegularFileSize(fd, path));
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

void MappedFile::Forget(size_t begin, size_t end) const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t first = begin / page * page;
  if (first < end) madvise(const_cast<uint8_t*>(data_) + first, end - first, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace holdfast
