#include "framework/storage/file_access.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "framework/base/file_descriptor.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/storage/atomic_file.h"
#include "framework/storage/storage.h"

namespace holdfast {
namespace {

class ObjectOutputFile final : public OutputFile {
 public:
  ObjectOutputFile(std::unique_ptr<StagedFile> staged, FileDescriptor file, std::string path)
      : staged_(std::move(staged)), file_(std::move(file)), path_(std::move(path)) {}
  const std::string& path() const override { return path_; }
  absl::Status Append(absl::string_view bytes) override { return WriteAll(file_.get(), bytes, staged_->path()); }
  absl::Status Overwrite(uint64_t offset, absl::string_view bytes) override {
    return WriteAllAt(file_.get(), offset, bytes, staged_->path());
  }
  absl::Status Sync() override {
    if (RetryInterrupted([this] { return fsync(file_.get()); }) == 0) return absl::OkStatus();
    return ErrnoToStatus(errno, absl::StrCat(staged_->path(), ": sync"));
  }
  absl::Status Commit() override {
    file_ = FileDescriptor();
    return staged_->Commit();
  }

 private:
  const std::unique_ptr<StagedFile> staged_;
  FileDescriptor file_;
  const std::string path_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const RandomAccessFile>> LocalFileAccess::Open(const std::string& path) {
  return OpenLocalFile(path);
}

absl::StatusOr<std::unique_ptr<OutputFile>> LocalFileAccess::Create(const std::string& path) {
  return AtomicFile::Create(path);
}

std::string LocalFileAccess::ScratchDirectory(const std::string& path) { return DirectoryOf(path); }

absl::StatusOr<std::unique_ptr<OutputFile>> CreateObject(Storage& storage, const std::string& name) {
  const std::string path = absl::StrCat(storage.Describe(), "/", name);
  const absl::Status there = storage.Size(name).status();
  if (there.ok()) return absl::AlreadyExistsError(absl::StrCat(path, ": exists, and objects are never replaced"));
  if (!absl::IsNotFound(there)) return there;
  ASSIGN_OR_RETURN(std::unique_ptr<StagedFile> staged, storage.Stage(name, 0));
  FileDescriptor file = OpenFile(staged->path(), O_WRONLY);
  if (!file.ok()) return ErrnoToStatus(errno, staged->path());
  return std::make_unique<ObjectOutputFile>(std::move(staged), std::move(file), path);
}

}  // namespace holdfast
