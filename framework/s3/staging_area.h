#pragma once
// Where files are made before they go up: a folder of our own, "s3-XXXXXXXXXXXXXXXX", in the staging directory, which
// machines may share. Beside it "s3-XXXXXXXXXXXXXXXX.lock" says which process it is of, so that anybody can tell
// folders that nobody needs any more: those of processes that have ended, and where that cannot be told (other
// machines, containers), those in which nothing was written for a day. Locks of files would not do: not every network
// file system has them.

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

  /// Removes the areas in `directory` that nobody needs.
  static absl::Status Sweep(const std::string& directory);

 private:
  explicit StagingArea(std::string path) : path_(std::move(path)) {}
  absl::Status Claim() const;

  const std::string path_;  // of the folder
};

/// ResourceExhausted if the file system of `directory` has no room for `bytes` more.
absl::Status CheckRoom(const std::string& directory, uint64_t bytes);

}  // namespace holdfast
