#pragma once
// A file under a temporary name beside the place of an object: steps 2 to 5 of local_storage.h. Thread-safety: none.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/storage/directory_chain.h"
#include "framework/storage/local_storage.h"

namespace holdfast {

class TemporaryFile {
 public:
  /// For the object `name`, valid, of the storage at `root`; its directories are made.
  static absl::StatusOr<std::unique_ptr<TemporaryFile>> Create(const std::string& root, absl::string_view name,
                                                               FileSystemKind file_system);
  /// Removes the file unless it was published.
  ~TemporaryFile() { Remove(); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  /// Takes space for a file of `bytes` bytes without making it any longer; where the file system cannot, looks whether
  /// there is enough. ResourceExhausted, saying what is free, if there is not.
  absl::Status Reserve(uint64_t bytes);
  absl::Status Append(absl::string_view bytes);
  /// Sync, name, sync of the directories. AlreadyExists if the name is taken. Once, whatever comes of it.
  absl::Status Publish();

  std::string path() const { return chain_.directory() + "/" + name_; }

 private:
  TemporaryFile(DirectoryChain chain, FileSystemKind file_system)
      : chain_(std::move(chain)), file_system_(file_system) {}
  static absl::StatusOr<std::unique_ptr<TemporaryFile>> TryCreate(const std::string& root, absl::string_view name,
                                                                  FileSystemKind file_system);
  uint64_t FreeBytes() const;
  absl::Status NoSpace(uint64_t wanted) const;
  absl::Status CheckUnchanged() const;
  absl::Status Sync();
  void Remove();

  DirectoryChain chain_;
  FileSystemKind file_system_;
  FileHandle file_;   // locked
  std::string name_;  // empty once it is gone
  bool reserved_ = false, published_ = false;
};

}  // namespace holdfast
