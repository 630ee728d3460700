#pragma once
// Where checkpoints lie: a local or shared file system, memory (tests), an object store. Names are relative paths of
// components from [A-Za-z0-9._-], at most 200 bytes each and 500 in all, none beginning with a "."; any other is
// InvalidArgument. An object's name is never the directory of another's ("a" and "a/b"): file systems cannot have both.
//
// What all of them promise (tests/framework/storage/conformance.h):
//   - A name appears whole or not at all, whatever fails or when; once Create or Commit has returned OK it survives a
//     loss of power. Names are never written twice: whoever comes second gets AlreadyExists and changes nothing.
//     After any other error of theirs nobody can know: the object is not there, or there and whole.
//   - What was begun and not finished is no object: it is not listed, and the next Sweep removes it.
//   - Errors say what the caller does: NotFound, AlreadyExists, PermissionDenied, ResourceExhausted (no space; no file
//     handle), Unavailable (try later; retries inside are used up), DataLoss (shorter than it was said to be).
//
//   ASSIGN_OR_RETURN(std::unique_ptr<StagedFile> file, storage.Stage("step-10-g1/shard-0.h5", bytes));
//   ... write the file at file->path() ...
//   RETURN_IF_ERROR(file->Commit());                            // now it exists
//   RETURN_IF_ERROR(storage.Create("step-10-g1/manifest.json", text));
//
// Thread-safety: all methods may be called together.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "framework/storage/random_access_file.h"

namespace holdfast {

struct StoredObject {
  std::string name;
  uint64_t size = 0;
  friend bool operator==(const StoredObject&, const StoredObject&) = default;
};

/// A file that is being made, by somebody who needs a path. Thread-safety: none.
class StagedFile {
 public:
  virtual ~StagedFile() = default;  // what was not committed is gone
  /// An empty file of our own, created exclusively, to be written and closed before Commit.
  virtual const std::string& path() const = 0;
  /// Makes it durable and gives it its name; AlreadyExists if that is taken. The path is of no use afterwards. Once.
  virtual absl::Status Commit() = 0;
  /// Takes the space for a file of `bytes` again, where the file system can: opening with truncation (H5Fcreate) has
  /// given back what Stage took. ResourceExhausted if there is none.
  virtual absl::Status Reserve(uint64_t /*bytes*/) { return absl::OkStatus(); }
};

class Storage {
 public:
  virtual ~Storage() = default;

  /// For messages: "/data/run/checkpoints", "s3://bucket/prefix".
  virtual std::string Describe() const = 0;

  /// All objects whose name begins with `prefix`, by name.
  virtual absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix) = 0;
  virtual absl::StatusOr<uint64_t> Size(const std::string& name) = 0;
  /// Fills `out` from byte `offset` on; DataLoss if the object ends before.
  virtual absl::Status ReadAt(const std::string& name, uint64_t offset, absl::Span<std::byte> out) = 0;
  /// The same into several places, of which each takes up where the one before it ends.
  virtual absl::Status ReadInto(const std::string& name, uint64_t offset,
                                absl::Span<const absl::Span<std::byte>> places);
  /// For reading it many times; must not outlive the storage. Where programs that do not keep to these rules may
  /// replace objects (a bucket), reading one that was replaced since is DataLoss.
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& name);

  /// A new object with these contents (small: they are in memory).
  virtual absl::Status Create(const std::string& name, absl::string_view contents) = 0;
  /// A new object from a file. `bytes`: about how large it will be; ResourceExhausted if there is no space for it.
  virtual absl::StatusOr<std::unique_ptr<StagedFile>> Stage(const std::string& name, uint64_t bytes) = 0;

  /// OK also if there is no such object. Directories left empty disappear.
  virtual absl::Status Delete(const std::string& name) = 0;
  /// Removes what writers that are gone have begun and not finished (older than a day where nobody can tell).
  virtual absl::Status Sweep() = 0;
};

/// InvalidArgument, naming what is wrong, unless `name` is one that storages take.
absl::Status CheckObjectName(absl::string_view name);

/// The whole object, of at most `max_bytes`; InvalidArgument if it is larger.
absl::StatusOr<std::string> ReadObject(Storage& storage, const std::string& name, uint64_t max_bytes);

}  // namespace holdfast
