#include "framework/data/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<size_t> ReadFull(int fd, char* data, size_t size, const std::string& path) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = read(fd, data + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

absl::Status WriteFull(int fd, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t put = write(fd, data.data(), data.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
    data.remove_prefix(static_cast<size_t>(put));
  }
  return absl::OkStatus();
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status SyncDirectoryOf(const std::string& path) {
  const std::string directory = DirectoryOf(path);
  const FileDescriptor fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) return ErrnoToStatus(errno, absl::StrCat("cannot open ", directory));
  // EINVAL: a file system that has no fsync for directories.
  if (fsync(fd.get()) != 0 && errno != EINVAL) return ErrnoToStatus(errno, absl::StrCat("cannot sync ", directory));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t bytes_max) {
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.ok()) return ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return ErrnoToStatus(errno, absl::StrCat("cannot stat ", path));
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  if (info.st_size > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", info.st_size, " bytes, more than the limit of ", bytes_max));
  }
  std::string content(static_cast<size_t>(info.st_size), '\0');
  HF_ASSIGN_OR_RETURN(const size_t got, ReadFull(fd.get(), content.data(), content.size(), path));
  content.resize(got);
  return content;
}

}  // namespace holdfast
