#pragma once
// A file or an object that is being made.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace holdfast {

/// It is there whole after Commit, and not at all without it. Thread-safety: none.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  /// Its place, for messages.
  virtual const std::string& path() const = 0;
  virtual absl::Status Append(absl::string_view bytes) = 0;
  /// Writes over bytes that were appended before (a header whose counts are known last).
  virtual absl::Status Overwrite(uint64_t offset, absl::string_view bytes) = 0;
  /// Everything so far is on the disk. Files that belong together are synced first and committed then, so that what
  /// fails for want of space fails before the first of them is there.
  virtual absl::Status Sync() = 0;
  /// Once.
  virtual absl::Status Commit() = 0;
};

}  // namespace holdfast
