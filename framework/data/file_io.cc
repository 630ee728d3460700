#include "framework/data/file_io.h"

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

}  // namespace holdfast
