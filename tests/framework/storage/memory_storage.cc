#include "tests/framework/storage/memory_storage.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "framework/base/files.h"
#include "framework/base/status.h"

namespace holdfast {
namespace {

using Contents = std::shared_ptr<const std::string>;  // shared by the map and whoever reads without its lock

// Outlives the storage while a staged file wants to be committed to it.
class ObjectMap {
 public:
  absl::Status Insert(const std::string& name, std::string contents) {
    auto shared = std::make_shared<const std::string>(std::move(contents));
    const std::lock_guard lock(mutex_);
    if (objects_.emplace(name, std::move(shared)).second) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat("memory/", name, ": exists"));
  }
  absl::StatusOr<Contents> Find(const std::string& name) const {
    RETURN_IF_ERROR(CheckObjectName(name));
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(name);
    if (found == objects_.end()) return absl::NotFoundError(absl::StrCat("memory/", name, ": no such object"));
    return found->second;
  }
  std::vector<StoredObject> List(absl::string_view prefix) const {
    std::vector<StoredObject> objects;
    const std::lock_guard lock(mutex_);
    for (auto it = objects_.lower_bound(std::string(prefix)); it != objects_.end(); ++it) {
      if (!absl::StartsWith(it->first, prefix)) break;
      objects.push_back({it->first, it->second->size()});
    }
    return objects;
  }
  void Erase(const std::string& name) {
    const std::lock_guard lock(mutex_);
    objects_.erase(name);
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Contents> objects_;
};

class MemoryStagedFile : public StagedFile {
 public:
  MemoryStagedFile(std::shared_ptr<ObjectMap> objects, std::string name, std::string path)
      : objects_(std::move(objects)), name_(std::move(name)), path_(std::move(path)) {}
  ~MemoryStagedFile() override { unlink(path_.c_str()); }
  const std::string& path() const override { return path_; }
  absl::Status Commit() override {
    if (std::exchange(done_, true)) return absl::FailedPreconditionError(absl::StrCat(name_, ": committed before"));
    ASSIGN_OR_RETURN(std::string contents, ReadFile(path_, std::numeric_limits<size_t>::max()));
    unlink(path_.c_str());
    return objects_->Insert(name_, std::move(contents));
  }

 private:
  std::shared_ptr<ObjectMap> objects_;
  std::string name_, path_;
  bool done_ = false;
};

class MemoryObject final : public RandomAccessFile {
 public:
  MemoryObject(std::string path, Contents contents) : path_(std::move(path)), contents_(std::move(contents)) {}
  const std::string& path() const override { return path_; }
  uint64_t size() const override { return contents_->size(); }
  absl::Status ReadAt(uint64_t offset, absl::Span<std::byte> out) const override {
    if (offset > size() || out.size() > size() - offset) {
      return absl::DataLossError(
          absl::StrCat(path_, ": ", size(), " bytes; ", out.size(), " at byte ", offset, " expected"));
    }
    if (!out.empty()) std::memcpy(out.data(), contents_->data() + offset, out.size());
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const Contents contents_;
};

class MemoryStorage : public Storage {
 public:
  explicit MemoryStorage(std::string scratch) : scratch_(std::move(scratch)), objects_(std::make_shared<ObjectMap>()) {}
  std::string Describe() const override { return "memory"; }

  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix) override { return objects_->List(prefix); }
  absl::StatusOr<uint64_t> Size(const std::string& name) override {
    ASSIGN_OR_RETURN(const Contents contents, objects_->Find(name));
    return contents->size();
  }
  absl::Status ReadAt(const std::string& name, uint64_t offset, absl::Span<std::byte> out) override {
    ASSIGN_OR_RETURN(const auto object, Open(name));
    return object->ReadAt(offset, out);
  }
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& name) override {
    ASSIGN_OR_RETURN(Contents contents, objects_->Find(name));
    return std::make_unique<MemoryObject>(absl::StrCat("memory/", name), std::move(contents));
  }
  absl::Status Create(const std::string& name, absl::string_view contents) override {
    RETURN_IF_ERROR(CheckObjectName(name));
    return objects_->Insert(name, std::string(contents));
  }
  absl::StatusOr<std::unique_ptr<StagedFile>> Stage(const std::string& name, uint64_t /*bytes*/) override {
    RETURN_IF_ERROR(CheckObjectName(name));
    std::string path = absl::StrCat(scratch_, "/staged-XXXXXX");
    const int fd = mkostemp(path.data(), O_CLOEXEC);
    if (fd < 0) return ErrnoToStatus(errno, path);
    close(fd);
    return std::make_unique<MemoryStagedFile>(objects_, name, std::move(path));
  }
  absl::Status Delete(const std::string& name) override {
    RETURN_IF_ERROR(CheckObjectName(name));
    objects_->Erase(name);
    return absl::OkStatus();
  }
  absl::Status Sweep() override { return absl::OkStatus(); }  // a writer that is gone has taken the memory with it

 private:
  const std::string scratch_;
  const std::shared_ptr<ObjectMap> objects_;
};

}  // namespace

std::unique_ptr<Storage> MakeMemoryStorage(const std::string& scratch) {
  return std::make_unique<MemoryStorage>(scratch);
}

}  // namespace holdfast
