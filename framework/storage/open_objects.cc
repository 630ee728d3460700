#include "framework/storage/open_objects.h"

#include <sys/stat.h>

#include <algorithm>

#include "framework/base/file_descriptor.h"
#include "framework/base/status.h"
#include "framework/storage/directory_chain.h"
#include "framework/storage/storage.h"

namespace holdfast {
namespace {

constexpr size_t kMaxRecent = 16;

absl::Status NoSuchObject(const std::string& path) {
  return absl::NotFoundError(absl::StrCat(path, ": no such object"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const OpenObject>> OpenObject::Open(const std::string& root, const std::string& name) {
  RETURN_IF_ERROR(CheckObjectName(name));
  absl::StatusOr<DirectoryChain> chain = DirectoryChain::Open(root, name);
  if (absl::IsNotFound(chain.status())) return NoSuchObject(absl::StrCat(root, "/", name));
  RETURN_IF_ERROR(chain.status());
  auto object = std::make_shared<OpenObject>();
  object->name = name;
  object->path = chain->path();
  object->file = OpenAt(chain->fd(), chain->leaf().c_str(), O_RDONLY | O_NONBLOCK);  // a pipe would block
  struct stat info;
  if (!object->file.ok() || fstat(object->file.get(), &info) != 0) {
    return errno == ENOENT || errno == ELOOP ? NoSuchObject(object->path) : ErrnoToStatus(errno, object->path);
  }
  if (!S_ISREG(info.st_mode)) return NoSuchObject(object->path);
  object->size = static_cast<uint64_t>(info.st_size);
  return object;
}

absl::Status OpenObject::ReadInto(uint64_t offset, absl::Span<const absl::Span<std::byte>> places) const {
  uint64_t bytes = 0;
  for (const absl::Span<std::byte> place : places) bytes += place.size();
  if (offset > size || bytes > size - offset) {
    return absl::DataLossError(absl::StrCat(path, ": ", size, " bytes; ", bytes, " at byte ", offset, " expected"));
  }
  return ReadExactly(file.get(), offset, places, path);
}

absl::Status OpenObjects::ReadInto(const std::string& name, uint64_t offset,
                                   absl::Span<const absl::Span<std::byte>> places) {
  std::shared_ptr<const OpenObject> object = Find(name);
  struct stat info;
  if (object == nullptr || fstat(object->file.get(), &info) != 0 || info.st_nlink == 0) {  // new, or deleted meanwhile
    ASSIGN_OR_RETURN(object, OpenObject::Open(root_, name));
  }
  absl::Status status = object->ReadInto(offset, places);
  Keep(std::move(object));
  return status;
}

std::shared_ptr<const OpenObject> OpenObjects::Find(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(recent_.begin(), recent_.end(), [&](const auto& o) { return o->name == name; });
  return found == recent_.end() ? nullptr : *found;
}

void OpenObjects::Keep(std::shared_ptr<const OpenObject> object) {
  const std::lock_guard lock(mutex_);
  const auto same = [&](const auto& other) { return other->name == object->name; };
  recent_.erase(std::remove_if(recent_.begin(), recent_.end(), same), recent_.end());
  if (recent_.size() == kMaxRecent) recent_.erase(recent_.begin());
  recent_.push_back(std::move(object));
}

void OpenObjects::CloseAll() {
  const std::lock_guard lock(mutex_);
  recent_.clear();
}

}  // namespace holdfast
