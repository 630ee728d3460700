#pragma once
// For pipes and unnamed files: file descriptors that close themselves, and reads and writes that finish or say why not.
// Files with a name go through framework/base/files.h.

#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace holdfast {

/// Owns one file descriptor; negative = none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }

  bool ok() const { return fd_ >= 0; }
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Reads until `size` bytes or the end of the file; the number of bytes read. `path` is for the message.
absl::StatusOr<size_t> ReadFull(int fd, char* data, size_t size, const std::string& path);

/// Writes all of `data`; a full disk is ResourceExhausted.
absl::Status WriteFull(int fd, std::string_view data, const std::string& path);

}  // namespace holdfast
