#include "framework/http/body_source.h"

#include <unistd.h>

#include "framework/base/file_descriptor.h"
#include "framework/base/status.h"

namespace holdfast {

absl::StatusOr<size_t> FileRangeBody::Read(uint64_t offset, char* out, size_t bytes) const {
  const size_t wanted = static_cast<size_t>(std::min<uint64_t>(bytes, size_ - std::min(offset, size_)));
  if (wanted == 0) return size_t{0};
  const ssize_t got = RetryInterrupted([&] { return pread(fd_, out, wanted, static_cast<off_t>(begin_ + offset)); });
  if (got < 0) return ErrnoToStatus(errno, "reading the staged file");
  if (got == 0) return absl::DataLossError("the staged file became shorter while it went up");
  return static_cast<size_t>(got);
}

}  // namespace holdfast
