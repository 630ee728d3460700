#pragma once
// An open file, directory, socket or other descriptor, closed with its owner, and calls on one that finish or say why
// not.

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast {

/// Owns one descriptor; negative = none. Thread-safety: that of an int.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  /// Closes what was held before.
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  bool ok() const { return fd_ >= 0; }
  int get() const { return fd_; }
  /// The caller closes it.
  int Release() { return std::exchange(fd_, -1); }

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

/// open(2), with O_CLOEXEC. Not ok, with errno set, if it cannot be opened.
FileDescriptor OpenFile(const std::string& path, int flags, unsigned mode = 0);

/// InvalidArgument, saying what it is, if `info` is of something else than a regular file.
absl::Status CheckIsRegular(const struct stat& info, const std::string& path);

/// The size of an open regular file. InvalidArgument if it is something else, errno's status if it is not open: a
/// directory or a pipe would open too, and a pipe would block in open without O_NONBLOCK.
absl::StatusOr<uint64_t> RegularFileSize(const FileDescriptor& file, const std::string& path);

/// The file system of this open file is one that only this machine's kernel reads and writes: a disk, or memory. False
/// if that is not known.
bool IsOnThisMachine(int fd);

/// Waits until `fd` can be read from without waiting: bytes are there, its end or an error. Cancelled if `stop` is
/// requested before that.
absl::Status WaitToRead(int fd, const std::stop_token& stop);

/// Reads from where the descriptor stands until `out` is full or the file ends; the number of bytes. `path`, here and
/// below, is for messages.
absl::StatusOr<size_t> ReadToEnd(int fd, absl::Span<char> out, const std::string& path);

/// Fills `places` one after the other from byte `offset` on. DataLoss, naming the offset, if the file ends before, or
/// if it is on a disk of this machine that cannot read it any more.
absl::Status ReadExactly(int fd, uint64_t offset, absl::Span<const absl::Span<std::byte>> places,
                         const std::string& path);

/// Writes all of it; ResourceExhausted if the disk is full.
absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path);
absl::Status WriteAllAt(int fd, uint64_t offset, absl::string_view bytes, const std::string& path);

}  // namespace holdfast
