#pragma once
// Storage in a directory of a local or shared file system. Every object is a file. How one comes to be:
//   1. its directories are made, each opened in the one before; symbolic links are never followed inside the directory;
//   2. a temporary file beside its place, ".NAME.tmp-XXXXXXXXXXXX", is created exclusively and locked while its writer
//      lives (F_OFD_SETLK: unlike flock it is not in HDF5's way, unlike fcntl's other lock it is not lost on a close);
//      the space it is said to need is reserved;
//   3. it is written and synced;
//   4. it gets its name without replacing what is there: renameat2(RENAME_NOREPLACE); where the file system does not
//      know that (NFS), link() and unlink(); where it has no links either (FAT, some FUSE), rename() while holding
//      ".NAME.tmp-000000000000", a file created exclusively, which keeps out all writers that follow this protocol;
//   5. its directory is synced, and those around it up to the root.
// Sweep removes a temporary file if its lock is free and the file system is one of this machine (ext4, XFS, Btrfs,
// tmpfs, ...); on any other, where locks may not be seen by other machines, if it has not changed for a day.
// Thread-safety: that of Storage; any number of processes may use one directory.

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "framework/storage/storage.h"

namespace holdfast {

/// What the file system of a directory can do.
enum class FileSystemKind {
  kDetect,  // find out
  kShared,  // links, but no RENAME_NOREPLACE, and locks that other machines do not see
  kPlain,   // neither links nor RENAME_NOREPLACE nor locks
};

struct LocalStorageOptions {
  bool read_only = false;  // the directory is not created (NotFound), and nothing in it can be changed
  bool create = true;      // else NotFound if the directory is not there
  FileSystemKind file_system = FileSystemKind::kDetect;  // others than kDetect are for tests
  /// The first parts of names of objects that may be this storage's: Sweep leaves the rest of the directory alone,
  /// which may be somebody's own. Null: all of it is ours.
  std::function<bool(absl::string_view first)> owns = nullptr;
};

/// `directory` is created with its parents. PermissionDenied at once if it cannot be written.
absl::StatusOr<std::unique_ptr<Storage>> OpenLocalStorage(const std::string& directory,
                                                          const LocalStorageOptions& options = {});

}  // namespace holdfast
