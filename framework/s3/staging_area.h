#pragma once
// Where files are made before they go up: a folder of our own, "s3-XXXXXXXXXXXXXXXX", in the staging directory. As long
// as we live, its lock file beside it ("s3-XXXXXXXXXXXXXXXX.lock") is locked by us; the kernel lets go of it however we
// end. So anybody can tell folders that nobody needs any more. (The lock is not on the files themselves: HDF5 locks
// those.)

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace holdfast {

/// Thread-safe.
class StagingArea {
 public:
  /// `directory` is created with its parents.
  static absl::StatusOr<std::unique_ptr<StagingArea>> Create(const std::string& directory);
  ~StagingArea();  // removes it with all that is in it
  StagingArea(const StagingArea&) = delete;
  StagingArea& operator=(const StagingArea&) = delete;

  /// The path of a new, empty file. ResourceExhausted if the file system has no room for `bytes` more.
  absl::StatusOr<std::string> NewFile(absl::string_view label, uint64_t bytes);

  /// Removes the areas in `directory` whose owners are gone.
  static absl::Status Sweep(const std::string& directory);

 private:
  StagingArea(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  const std::string path_;  // of the folder
  const int lock_;          // descriptor of the lock file
};

/// ResourceExhausted if the file system of `directory` has no room for `bytes` more.
absl::Status CheckRoom(const std::string& directory, uint64_t bytes);

}  // namespace holdfast
