#pragma once
// An open file or directory, closed with its handle.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace holdfast {

class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept { std::swap(fd_, other.fd_); }
  FileHandle& operator=(FileHandle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileHandle() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  /// Whoever has taken it over closes it.
  void Release() { fd_ = -1; }

 private:
  int fd_ = -1;
};

/// Calls until it is not interrupted by a signal.
template <typename Call>
auto RetryInterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Opens `name`, one component, in `directory`; a symbolic link is not followed (ELOOP, ENOTDIR). Not valid, with errno
/// set, if it cannot be opened.
inline FileHandle OpenAt(int directory, const char* name, int flags, mode_t mode = 0) {
  return FileHandle(RetryInterrupted([&] { return openat(directory, name, flags | O_CLOEXEC | O_NOFOLLOW, mode); }));
}

/// A directory by its path, which may lead through links.
inline FileHandle OpenDirectory(const char* path) {
  return FileHandle(RetryInterrupted([&] { return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
}

}  // namespace holdfast
