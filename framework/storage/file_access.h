#pragma once
// Files by what users write for them: a path, or where the program has more than a file system, a place in it
// (framework/places).

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/storage/output_file.h"
#include "framework/storage/random_access_file.h"

namespace holdfast {

class Storage;

/// Thread-safe. What was opened may outlive it.
class FileAccess {
 public:
  virtual ~FileAccess() = default;
  virtual absl::StatusOr<std::shared_ptr<const RandomAccessFile>> Open(const std::string& path) = 0;
  /// An existing file of a file system is replaced at Commit; an object of a storage never is (AlreadyExists, at once
  /// if it can be told).
  virtual absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) = 0;
  /// Where files for a while may be made beside `path`: its directory, or that for temporary files.
  virtual std::string ScratchDirectory(const std::string& path) = 0;
};

/// Of this machine's file systems.
class LocalFileAccess final : public FileAccess {
 public:
  absl::StatusOr<std::shared_ptr<const RandomAccessFile>> Open(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path) override;
  std::string ScratchDirectory(const std::string& path) override;
};

/// A new object: made in a file, which goes into the storage at Commit. `storage` must outlive it.
absl::StatusOr<std::unique_ptr<OutputFile>> CreateObject(Storage& storage, const std::string& name);

}  // namespace holdfast
