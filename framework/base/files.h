#pragma once
// Reading files, safely: whole small ones with a bound on their size, and memory maps; making directories. Writing
// files: framework/storage/atomic_file.h.
//
// Not covered: a mapped file that somebody else truncates raises SIGBUS when the lost part is read. What others may
// change while it is used is read in ranges (framework/storage/random_access_file.h).

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast {

/// The contents of a regular file of at most `max_bytes` bytes; InvalidArgument if it is larger or no regular file.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

/// InvalidArgument, saying what it is, if something else than a regular file, or a link to one, is at `path`.
absl::Status CheckIsFile(const std::string& path);

/// For reading lines. What is no regular file is not opened: a pipe would wait for somebody who writes into it.
std::ifstream OpenToRead(const std::string& path);

/// The directory part of `path`; "." if it has none.
std::string DirectoryOf(const std::string& path);

/// The directories down to `path`; each one that was not there survives a power cut. InvalidArgument if something else
/// has the name of one.
absl::Status MakeDirectories(const std::string& path);

/// Makes the names in `directory` (creations, renames, removals) survive a power cut.
absl::Status SyncDirectory(const std::string& directory);

/// A regular file in memory, read-only. Movable; empty by default. Thread-safe.
class MappedFile {
 public:
  MappedFile() = default;
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

  /// Gives back the memory in which bytes [begin, end) were read; who reads them again reads the file again.
  void Forget(size_t begin, size_t end) const;

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

/// The bytes of an array of plain values.
template <typename T>
absl::string_view AsBytes(absl::Span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace holdfast
