#pragma once
// Files, safely. Writing: everything goes to a temporary file beside the target, created exclusively, synced and then
// renamed over it, so a reader sees the old file or the new one and never a part, whatever fails or when. Reading:
// whole small files with a bound on their size, and memory maps.
//
// Not covered: a process that is killed leaves its temporary file ("NAME.tmp-XXXXXXXXXXXX") behind, and a mapped file
// that somebody else truncates raises SIGBUS when the lost part is read.
//
// Example:
//   HF_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create("run/model.bin"));
//   HF_RETURN_IF_ERROR(file->Append(header));
//   HF_RETURN_IF_ERROR(file->Append(values));
//   return file->Commit();   // without it, nothing has happened

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace holdfast {

/// The contents of a regular file of at most `max_bytes` bytes; InvalidArgument if it is larger or no regular file.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

/// Replaces (or creates) the file at `path`.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents);

/// The directory part of `path`; "." if it has none.
std::string DirectoryOf(const std::string& path);

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

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

/// A file being written; see the head of this file. After a failed call every later one fails with the same error.
class AtomicFile {
 public:
  /// InvalidArgument if `path` is something else than a regular file (a directory, a device).
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path);
  /// Removes the temporary file unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Takes disk space for a file of `bytes` bytes now, where the file system can: a full disk then shows before the
  /// work and not after it. ResourceExhausted if there is not enough.
  absl::Status Reserve(uint64_t bytes);
  absl::Status Append(absl::string_view bytes);
  /// Writes over bytes that were appended before (a header whose counts are known last).
  absl::Status Overwrite(uint64_t offset, absl::string_view bytes);
  /// Everything appended so far is on the disk. Several files that belong together are synced first and committed
  /// then: what can fail for want of space has happened before the first name changes.
  absl::Status Sync();
  /// Sync, rename, sync of the directory.
  absl::Status Commit();

  const std::string& path() const { return path_; }

 private:
  AtomicFile() = default;
  absl::Status Fail(int error, const char* what);

  std::string path_, temporary_path_;
  int fd_ = -1;
  uint64_t size_ = 0, reserved_ = 0;
  absl::Status status_;  // of the first call that failed
};

/// The bytes of an array of plain values.
template <typename T>
absl::string_view AsBytes(absl::Span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace holdfast
