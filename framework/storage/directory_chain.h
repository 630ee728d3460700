#pragma once
// The directories between a storage's root and one of its objects, open, from the root inwards. Each is opened in the
// one before it, so nobody who exchanges a directory for a link meanwhile can lead us out of the root.
// Thread-safety: none; chains of one root may be used together.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/storage/open_at.h"

namespace holdfast {

class DirectoryChain {
 public:
  /// For the object `name`, which is valid. NotFound if a directory is missing (or is something else); Unavailable if
  /// the root itself is.
  static absl::StatusOr<DirectoryChain> Open(const std::string& root, absl::string_view name);
  /// Makes what is missing; InvalidArgument if something else is in the way. A directory that somebody else removes at
  /// the same moment is NotFound; try again.
  static absl::StatusOr<DirectoryChain> Make(const std::string& root, absl::string_view name);

  int fd() const { return handles_.back().get(); }   // of the object's own directory
  const std::string& leaf() const { return leaf_; }  // the object's name in it
  std::string directory() const { return PathOf(handles_.size() - 1); }
  std::string path() const { return directory() + "/" + leaf_; }

  /// What was created or removed here survives a loss of power, and so do the directories themselves: whoever else made
  /// them may not have come to sync them yet.
  absl::Status Sync() const;
  /// Removes the directories that are empty, from the innermost outwards; never the root.
  absl::Status RemoveEmpty() const;

 private:
  static absl::StatusOr<DirectoryChain> OpenOrMake(const std::string& root, absl::string_view name, bool make);
  absl::Status Descend(const std::string& component, bool make);
  std::string PathOf(size_t depth) const;  // of the directory at `depth`; 0 = root

  std::string root_, leaf_;
  std::vector<std::string> components_;  // without the root and the leaf
  std::vector<FileDescriptor> handles_;  // one more than components_
};

/// Removes the directory `name` if it is empty, durably. Whether it is gone.
absl::StatusOr<bool> RemoveEmptyDirectory(int parent, const std::string& name, const std::string& path);

/// fsync; a file system that cannot sync directories (some network ones) makes changes to them durable at once or
/// never, and is taken as it is.
absl::Status SyncOpenDirectory(int fd, const std::string& path);

}  // namespace holdfast
