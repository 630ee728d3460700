#include "framework/storage/local_storage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/storage/abandoned_file.h"
#include "framework/storage/atomic_file.h"
#include "framework/storage/crash_point.h"
#include "framework/storage/directory_chain.h"
#include "framework/storage/directory_walk.h"
#include "framework/storage/open_objects.h"
#include "framework/storage/temporary_name.h"

namespace holdfast {
namespace {

constexpr char kProbeName[] = "probe";

class LocalStagedFile : public StagedFile {
 public:
  explicit LocalStagedFile(std::unique_ptr<AtomicFile> file) : file_(std::move(file)), path_(file_->temporary_path()) {}
  const std::string& path() const override { return path_; }
  absl::Status Reserve(uint64_t bytes) override { return file_->Reserve(bytes); }
  absl::Status Commit() override { return file_->CommitNew(); }

 private:
  std::unique_ptr<AtomicFile> file_;
  std::string path_;
};

class LocalObject final : public RandomAccessFile {
 public:
  explicit LocalObject(std::shared_ptr<const OpenObject> object) : object_(std::move(object)) {}
  const std::string& path() const override { return object_->path; }
  uint64_t size() const override { return object_->size; }
  absl::Status ReadAt(uint64_t offset, absl::Span<std::byte> out) const override {
    return object_->ReadInto(offset, {&out, 1});
  }

 private:
  const std::shared_ptr<const OpenObject> object_;
};

class LocalStorage : public Storage {
 public:
  LocalStorage(const std::string& root, const LocalStorageOptions& options)
      : root_(root), options_(options), open_objects_(root) {}
  std::string Describe() const override { return root_; }

  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix) override;
  absl::StatusOr<uint64_t> Size(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& name) override;
  absl::Status ReadAt(const std::string& name, uint64_t offset, absl::Span<std::byte> out) override;
  absl::Status ReadInto(const std::string& name, uint64_t offset,
                        absl::Span<const absl::Span<std::byte>> places) override;
  absl::Status Create(const std::string& name, absl::string_view contents) override;
  absl::StatusOr<std::unique_ptr<StagedFile>> Stage(const std::string& name, uint64_t bytes) override;
  absl::Status Delete(const std::string& name) override;
  absl::Status Sweep() override;

  absl::Status CheckWritable() const;

 private:
  absl::Status BeginWriting();

  const std::string root_;
  const LocalStorageOptions options_;
  OpenObjects open_objects_;
};

absl::StatusOr<std::vector<StoredObject>> LocalStorage::List(absl::string_view prefix) {
  open_objects_.CloseAll();
  std::vector<StoredObject> objects;
  Walk walk;
  walk.prefix = std::string(prefix);
  walk.file = [&](const WalkedFile& file) {
    if (!file.temporary && absl::StartsWith(file.object, prefix)) objects.push_back({file.object, file.size});
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(WalkDirectory(root_, walk));
  std::sort(objects.begin(), objects.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return objects;
}

absl::StatusOr<uint64_t> LocalStorage::Size(const std::string& name) {
  ASSIGN_OR_RETURN(const auto object, OpenObject::Open(root_, name));
  return object->size;
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> LocalStorage::Open(const std::string& name) {
  ASSIGN_OR_RETURN(auto object, OpenObject::Open(root_, name));
  return std::make_unique<LocalObject>(std::move(object));
}

absl::Status LocalStorage::ReadAt(const std::string& name, uint64_t offset, absl::Span<std::byte> out) {
  return open_objects_.ReadInto(name, offset, {&out, 1});
}

absl::Status LocalStorage::ReadInto(const std::string& name, uint64_t offset,
                                    absl::Span<const absl::Span<std::byte>> places) {
  return open_objects_.ReadInto(name, offset, places);
}

absl::Status LocalStorage::BeginWriting() {
  open_objects_.CloseAll();
  if (!options_.read_only) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(root_, ": opened for reading only"));
}

absl::Status LocalStorage::CheckWritable() const {
  const absl::Status probed = AtomicFile::CreateObject(root_, kProbeName, options_.file_system).status();
  return Annotate(probed, absl::StrCat("cannot write in ", root_));  // the probe, which it names, is gone by now
}

absl::Status LocalStorage::Create(const std::string& name, absl::string_view contents) {
  RETURN_IF_ERROR(CheckObjectName(name));
  RETURN_IF_ERROR(BeginWriting());
  ASSIGN_OR_RETURN(const auto file, AtomicFile::CreateObject(root_, name, options_.file_system));
  RETURN_IF_ERROR(file->Append(contents));
  return file->CommitNew();
}

absl::StatusOr<std::unique_ptr<StagedFile>> LocalStorage::Stage(const std::string& name, uint64_t bytes) {
  RETURN_IF_ERROR(CheckObjectName(name));
  RETURN_IF_ERROR(BeginWriting());
  ASSIGN_OR_RETURN(auto file, AtomicFile::CreateObject(root_, name, options_.file_system));
  RETURN_IF_ERROR(file->Reserve(bytes));
  return std::make_unique<LocalStagedFile>(std::move(file));
}

absl::Status LocalStorage::Delete(const std::string& name) {
  RETURN_IF_ERROR(CheckObjectName(name));
  RETURN_IF_ERROR(BeginWriting());
  const absl::StatusOr<DirectoryChain> chain = DirectoryChain::Open(root_, name);
  if (absl::IsNotFound(chain.status())) return absl::OkStatus();
  RETURN_IF_ERROR(chain.status());
  struct stat info;
  const bool found = fstatat(chain->fd(), chain->leaf().c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  if (!found && errno != ENOENT) return ErrnoToStatus(errno, chain->path());
  if (found && !S_ISREG(info.st_mode)) return absl::OkStatus();  // no object
  CrashPoint("local.delete.before");
  if (unlinkat(chain->fd(), chain->leaf().c_str(), 0) != 0 && errno != ENOENT) {
    return ErrnoToStatus(errno, chain->path());
  }
  CrashPoint("local.delete.after");
  RETURN_IF_ERROR(SyncOpenDirectory(chain->fd(), chain->directory()));
  return chain->RemoveEmpty();
}

// One file that cannot be removed does not keep the others.
absl::Status LocalStorage::Sweep() {
  RETURN_IF_ERROR(BeginWriting());
  absl::Status first_error;
  const auto is_ours = [&](absl::string_view object) {
    const absl::string_view first = object.substr(0, object.find('/'));
    const absl::string_view name = IsTemporaryName(first) ? NameOfTemporary(first) : first;
    return options_.owns == nullptr || name == kProbeName || options_.owns(name);
  };
  Walk walk;
  walk.enters = is_ours;
  walk.file = [&](const WalkedFile& file) {
    if (file.temporary && is_ours(file.object)) {
      first_error.Update(RemoveIfAbandoned(file.directory, file.name, file.path, options_.file_system));
    }
    return absl::OkStatus();
  };
  walk.left = [&](int parent, const std::string& name, const std::string& path) {
    first_error.Update(RemoveEmptyDirectory(parent, name, path).status());
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(WalkDirectory(root_, walk));
  return first_error;
}

absl::StatusOr<std::string> AbsolutePath(const std::string& directory) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(directory, error).lexically_normal();
  if (directory.empty() || error) return absl::InvalidArgumentError(absl::StrCat("\"", directory, "\": no directory"));
  return path.has_filename() ? path.string() : path.parent_path().string();  // without "/" at the end
}

}  // namespace

absl::StatusOr<std::unique_ptr<Storage>> OpenLocalStorage(const std::string& directory,
                                                          const LocalStorageOptions& options) {
  ASSIGN_OR_RETURN(const std::string root, AbsolutePath(directory));
  if (options.create && !options.read_only) {
    RETURN_IF_ERROR(MakeDirectories(root));
  } else if (!OpenDirectory(root).ok()) {
    return ErrnoToStatus(errno, root);
  }
  if (options.read_only) return std::make_unique<LocalStorage>(root, options);
  auto storage = std::make_unique<LocalStorage>(root, options);
  RETURN_IF_ERROR(storage->CheckWritable());
  return storage;
}

}  // namespace holdfast
