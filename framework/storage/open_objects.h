#pragma once
// Reading objects of a directory. A checkpoint is read in many small ranges, and finding a file costs three times what
// reading 4 KiB of it does: so the files read last stay open, until the storage is used for something else (a file
// that was deleted meanwhile and is still open would hold its space). Thread-safe.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/storage/open_at.h"

namespace holdfast {

/// An object, open for reading.
struct OpenObject {
  FileDescriptor file;
  uint64_t size = 0;
  std::string name, path;

  /// NotFound if there is no such object; InvalidArgument if none can have this name.
  static absl::StatusOr<std::shared_ptr<const OpenObject>> Open(const std::string& root, const std::string& name);
  /// Storage::ReadInto.
  absl::Status ReadInto(uint64_t offset, absl::Span<const absl::Span<std::byte>> places) const;
};

class OpenObjects {
 public:
  explicit OpenObjects(std::string root) : root_(std::move(root)) {}
  absl::Status ReadInto(const std::string& name, uint64_t offset, absl::Span<const absl::Span<std::byte>> places);
  void CloseAll();

 private:
  std::shared_ptr<const OpenObject> Find(const std::string& name);
  void Keep(std::shared_ptr<const OpenObject> object);

  const std::string root_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const OpenObject>> recent_;  // the last one was used last
};

}  // namespace holdfast
