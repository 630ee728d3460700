#include "framework/base/file_descriptor.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <vector>

#include "framework/base/status.h"

namespace holdfast {
namespace {

constexpr int kLookMs = 200;                      // at a stop, where there is nothing that wakes us
constexpr size_t kWriteBytes = size_t{64} << 20;  // a write() takes at most 2 GiB; smaller ones can be interrupted

absl::Status WriteFailed(ssize_t written, const std::string& path) {
  // POSIX lets a write take nothing, and no reader of errno would understand that.
  return ErrnoToStatus(written < 0 ? errno : ENOSPC, absl::StrCat(path, ": write"));
}

// File systems that only one kernel uses, which therefore sees all locks, and all there is to an error. By number:
// those linux/magic.h lacks.
constexpr uint32_t kZfsMagic = 0x2fc12fc1, kBcachefsMagic = 0xca451a4e;
constexpr std::array kOnThisMachine = {uint32_t{EXT4_SUPER_MAGIC},
                                       uint32_t{XFS_SUPER_MAGIC},
                                       uint32_t{BTRFS_SUPER_MAGIC},
                                       uint32_t{TMPFS_MAGIC},
                                       uint32_t{RAMFS_MAGIC},
                                       uint32_t{OVERLAYFS_SUPER_MAGIC},
                                       uint32_t{F2FS_SUPER_MAGIC},
                                       kZfsMagic,
                                       kBcachefsMagic};

// Takes `bytes` off the front of what is still to be filled.
void Advance(std::vector<iovec>& rest, size_t& next, size_t bytes) {
  while (bytes > 0) {
    const size_t taken = std::min(bytes, rest[next].iov_len);
    rest[next] = {static_cast<std::byte*>(rest[next].iov_base) + taken, rest[next].iov_len - taken};
    bytes -= taken;
    if (rest[next].iov_len == 0) ++next;
  }
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  FileDescriptor old(std::exchange(fd_, other.Release()));
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

FileDescriptor OpenFile(const std::string& path, int flags, unsigned mode) {
  return FileDescriptor(RetryInterrupted([&] { return open(path.c_str(), flags | O_CLOEXEC, mode); }));
}

absl::Status CheckIsRegular(const struct stat& info, const std::string& path) {
  if (S_ISREG(info.st_mode)) return absl::OkStatus();
  if (S_ISDIR(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": a directory, not a file"));
  const char* kind = S_ISFIFO(info.st_mode) ? "a pipe" : S_ISSOCK(info.st_mode) ? "a socket" : "a device";
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", kind, ", not a regular file"));
}

absl::StatusOr<uint64_t> RegularFileSize(const FileDescriptor& file, const std::string& path) {
  struct stat info;
  if (!file.ok() || fstat(file.get(), &info) != 0) return ErrnoToStatus(errno, path);
  RETURN_IF_ERROR(CheckIsRegular(info, path));
  return static_cast<uint64_t>(info.st_size);
}

bool IsOnThisMachine(int fd) {
  struct statfs info;
  if (fstatfs(fd, &info) != 0) return false;
  const auto magic = static_cast<uint32_t>(info.f_type);
  return std::find(kOnThisMachine.begin(), kOnThisMachine.end(), magic) != kOnThisMachine.end();
}

absl::Status WaitToRead(int fd, const std::stop_token& stop) {
  const FileDescriptor stopped(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const std::stop_callback wake(stop, [&stopped] {
    if (stopped.ok()) eventfd_write(stopped.get(), 1);
  });
  while (!stop.stop_requested()) {
    std::array<pollfd, 2> waits{
        {{.fd = fd, .events = POLLIN, .revents = 0}, {.fd = stopped.get(), .events = POLLIN, .revents = 0}}};
    const int ready = poll(waits.data(), waits.size(), stopped.ok() ? -1 : kLookMs);
    if (ready > 0 && waits[0].revents != 0) return absl::OkStatus();
  }
  return absl::CancelledError("stopped");
}

absl::StatusOr<size_t> ReadToEnd(int fd, absl::Span<char> out, const std::string& path) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = RetryInterrupted([&] { return read(fd, out.data() + done, out.size() - done); });
    if (got < 0) return ErrnoToStatus(errno, absl::StrCat(path, ": read"));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

absl::Status ReadExactly(int fd, uint64_t offset, absl::Span<const absl::Span<std::byte>> places,
                         const std::string& path) {
  std::vector<iovec> rest;
  for (const absl::Span<std::byte> place : places) {
    if (!place.empty()) rest.push_back({place.data(), place.size()});
  }
  for (size_t next = 0; next < rest.size();) {
    const int count = static_cast<int>(std::min<size_t>(rest.size() - next, IOV_MAX));
    const ssize_t got = RetryInterrupted([&] { return preadv(fd, &rest[next], count, static_cast<off_t>(offset)); });
    if (got < 0) {
      const int error = errno;
      const absl::Status failed = ErrnoToStatus(error, absl::StrCat(path, ": read at byte ", offset));
      // A bad sector, or a checksum of the file system that does not hold. From a server it may be a failure that
      // passes.
      const bool damaged = (error == EIO || error == EUCLEAN || error == EBADMSG) && IsOnThisMachine(fd);
      return damaged ? absl::DataLossError(failed.message()) : failed;
    }
    if (got == 0)
      return absl::DataLossError(absl::StrCat(path, ": became shorter while it was read: ends at byte ", offset));
    offset += static_cast<uint64_t>(got);
    Advance(rest, next, static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written =
        RetryInterrupted([&] { return write(fd, bytes.data(), std::min(bytes.size(), kWriteBytes)); });
    if (written <= 0) return WriteFailed(written, path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status WriteAllAt(int fd, uint64_t offset, absl::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written =
        RetryInterrupted([&] { return pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (written <= 0) return WriteFailed(written, path);
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

}  // namespace holdfast
