#include "framework/storage/random_access_file.h"

#include <fcntl.h>

#include <utility>

#include "framework/base/file_descriptor.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

// Files up to this size are read ahead as a whole; of larger ones only what is asked for, or random access would drag
// the kernel's readahead (128 KiB and more) through memory for every 4 KiB used.
constexpr uint64_t kReadWholeBytes = uint64_t{256} << 20;

class LocalFile final : public RandomAccessFile {
 public:
  LocalFile(FileDescriptor file, std::string path, uint64_t size)
      : file_(std::move(file)), path_(std::move(path)), size_(size) {}
  const std::string& path() const override { return path_; }
  uint64_t size() const override { return size_; }
  absl::Status ReadAt(uint64_t offset, absl::Span<std::byte> out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      return absl::DataLossError(
          absl::StrCat(path_, ": ", size_, " bytes; ", out.size(), " at byte ", offset, " expected"));
    }
    return ReadExactly(file_.get(), offset, {&out, 1}, path_);
  }

 private:
  const FileDescriptor file_;
  const std::string path_;
  const uint64_t size_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const RandomAccessFile>> OpenLocalFile(const std::string& path) {
  FileDescriptor file = OpenFile(path, O_RDONLY | O_NONBLOCK);
  ASSIGN_OR_RETURN(const uint64_t size, RegularFileSize(file, path));
  // Only advice: an error changes nothing but the speed.
  posix_fadvise(file.get(), 0, 0, size <= kReadWholeBytes ? POSIX_FADV_WILLNEED : POSIX_FADV_RANDOM);
  return std::make_shared<const LocalFile>(std::move(file), path, size);
}

absl::StatusOr<std::string> ReadWhole(const RandomAccessFile& file, uint64_t max_bytes) {
  if (file.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": ", file.size(), " bytes; at most ", max_bytes, " are accepted"));
  }
  std::string contents(file.size(), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(reinterpret_cast<std::byte*>(contents.data()), contents.size())));
  return contents;
}

}  // namespace holdfast
