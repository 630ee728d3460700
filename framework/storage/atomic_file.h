#pragma once
// A file that is there whole, under its name, or not at all, whatever fails or when: everything goes to a temporary
// file beside its place (steps 2 to 5 of local_storage.h), which gets its name when it is complete and on the disk.
// Thread-safety: none.
//
// A process that is killed leaves its temporary file (".NAME.tmp-XXXXXXXXXXXX") behind: the next Create of that path
// removes it; in the directory of a storage the next Sweep does.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create("run/model.bin"));
//   RETURN_IF_ERROR(file->Append(header));
//   RETURN_IF_ERROR(file->Append(values));
//   return file->Commit();   // without it, nothing has happened

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "framework/storage/directory_chain.h"
#include "framework/storage/local_storage.h"
#include "framework/storage/output_file.h"

namespace holdfast {

/// After a failed call every later one fails with the same error.
class AtomicFile final : public OutputFile {
 public:
  /// For a file of any name in a directory that is there; NotFound if it is not. One that it is to replace leaves it
  /// its permissions, and is the one that a symbolic link leads to. InvalidArgument if `path` is something else than a
  /// regular file (a directory, a device).
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path);
  /// The same for a secret: from its first moment it has mode 0600, also where it replaces another.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> CreatePrivate(const std::string& path);
  /// For the object `name`, valid, of the storage at `root`; its directories are made.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> CreateObject(const std::string& root, absl::string_view name,
                                                                  FileSystemKind file_system);
  /// Removes the temporary file unless it was committed.
  ~AtomicFile() override { Remove(); }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Takes disk space for a file of `bytes` bytes now, without making it any longer: a full disk then shows before the
  /// work and not after it. Where the file system cannot, looks whether there is enough. ResourceExhausted, saying what
  /// is free, if there is not.
  absl::Status Reserve(uint64_t bytes);
  absl::Status Append(absl::string_view bytes) override;
  absl::Status Overwrite(uint64_t offset, absl::string_view bytes) override;
  absl::Status Sync() override;
  /// Sync, name, sync of the directory. Replaces what has the name. Once.
  absl::Status Commit() override;
  /// The same, but AlreadyExists if the name is taken. Once, whatever comes of it.
  absl::Status CommitNew();

  const std::string& path() const override { return path_; }
  /// Where it is until then, for whoever writes by path.
  std::string temporary_path() const { return chain_.directory() + "/" + temporary_; }

 private:
  AtomicFile(DirectoryChain chain, std::string path, FileSystemKind file_system)
      : chain_(std::move(chain)), path_(std::move(path)), file_system_(file_system) {}
  static absl::StatusOr<std::unique_ptr<AtomicFile>> CreateAs(const std::string& path, bool is_private);
  absl::Status MakeTemporary(mode_t mode = 0666);
  void RemoveAbandoned() const;
  absl::Status TakeMode(unsigned mode) const;
  static absl::StatusOr<std::unique_ptr<AtomicFile>> TryCreateObject(const std::string& root, absl::string_view name,
                                                                     FileSystemKind file_system);
  uint64_t FreeBytes() const;
  absl::Status NoSpace(uint64_t wanted) const;
  absl::Status TryReserve(uint64_t bytes);
  absl::Status TryAppend(absl::string_view bytes) const;
  absl::Status CheckUnchanged() const;
  absl::Status TrySync() const;
  absl::Status Replace();
  template <typename GiveName>
  absl::Status Finish(const GiveName& give_name);
  void Remove();

  DirectoryChain chain_;
  const std::string path_;
  const FileSystemKind file_system_;
  FileDescriptor file_;    // locked
  std::string temporary_;  // its name in the directory; empty once it is gone
  uint64_t size_ = 0;      // of what was appended
  bool reserved_ = false, committed_ = false;
  absl::Status status_;  // of the first call that failed
};

/// Replaces (or creates) the file at `path`.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents);

/// Replaces (or creates) the file at `to` by what the one at `from` holds, which others may change meanwhile. Both may
/// be one: what was open goes on as a file without a name. `may_replace`, if it is given, is asked when the copy is on
/// the disk, which may take long; if it returns an error nothing has happened.
absl::Status CopyFileAtomically(const std::string& from, const std::string& to,
                                const std::function<absl::Status()>& may_replace = nullptr);

}  // namespace holdfast
