#include "framework/storage/directory_chain.h"

#include <sys/stat.h>

#include "absl/strings/str_split.h"
#include "framework/base/files.h"
#include "framework/base/status.h"
#include "framework/storage/crash_point.h"

namespace holdfast {
namespace {

bool IsSomethingElse(int error) { return error == ENOTDIR || error == ELOOP; }

absl::Status MakeDirectory(int parent, const std::string& name, const std::string& path) {
  CrashPoint("local.mkdir.before");
  if (mkdirat(parent, name.c_str(), 0777) != 0 && errno != EEXIST) return ErrnoToStatus(errno, path);
  CrashPoint("local.mkdir.after");
  return absl::OkStatus();
}

}  // namespace

absl::Status SyncOpenDirectory(int fd, const std::string& path) {
  CrashPoint("local.fsync_directory.before");
  if (fsync(fd) != 0 && errno != EINVAL) return ErrnoToStatus(errno, absl::StrCat(path, ": sync"));
  CrashPoint("local.fsync_directory.after");
  return absl::OkStatus();
}

absl::StatusOr<DirectoryChain> DirectoryChain::Open(const std::string& root, absl::string_view name) {
  return OpenOrMake(root, name, false);
}

absl::StatusOr<DirectoryChain> DirectoryChain::Make(const std::string& root, absl::string_view name) {
  return OpenOrMake(root, name, true);
}

absl::StatusOr<DirectoryChain> DirectoryChain::OpenOrMake(const std::string& root, absl::string_view name, bool make) {
  DirectoryChain chain;
  chain.root_ = root;
  chain.handles_.push_back(OpenDirectory(root));
  if (!chain.handles_[0].ok()) {
    // Not NotFound: "there are no checkpoints" is not what it means when a disk is not mounted.
    if (errno == ENOENT || errno == ENOTDIR)
      return absl::UnavailableError(
          absl::StrCat(root, ": the directory is gone: put it back, or mount what was there"));
    return ErrnoToStatus(errno, root);
  }
  std::vector<std::string> components = absl::StrSplit(name, '/');
  chain.leaf_ = std::move(components.back());
  components.pop_back();
  for (const std::string& component : components) RETURN_IF_ERROR(chain.Descend(component, make));
  return chain;
}

absl::Status DirectoryChain::Descend(const std::string& component, bool make) {
  const std::string path = absl::StrCat(directory(), "/", component);
  FileDescriptor next = OpenAt(fd(), component.c_str(), O_RDONLY | O_DIRECTORY);
  if (!next.ok() && errno == ENOENT && make) {
    RETURN_IF_ERROR(MakeDirectory(fd(), component, path));
    next = OpenAt(fd(), component.c_str(), O_RDONLY | O_DIRECTORY);
  }
  if (!next.ok()) {
    if (!IsSomethingElse(errno)) return ErrnoToStatus(errno, path);
    const std::string message = absl::StrCat(path, ": not a directory (links are not followed)");
    return make ? absl::InvalidArgumentError(message) : absl::NotFoundError(message);
  }
  components_.push_back(component);
  handles_.push_back(std::move(next));
  return absl::OkStatus();
}

std::string DirectoryChain::PathOf(size_t depth) const {
  std::string path = root_;
  for (size_t i = 0; i < depth; ++i) absl::StrAppend(&path, "/", components_[i]);
  return path;
}

absl::Status DirectoryChain::Sync() const {
  for (size_t i = handles_.size(); i-- > 0;) RETURN_IF_ERROR(SyncOpenDirectory(handles_[i].get(), PathOf(i)));
  return absl::OkStatus();
}

absl::Status DirectoryChain::RemoveEmpty() const {
  for (size_t depth = components_.size(); depth > 0; --depth) {
    ASSIGN_OR_RETURN(const bool removed,
                     RemoveEmptyDirectory(handles_[depth - 1].get(), components_[depth - 1], PathOf(depth)));
    if (!removed) break;  // then those around it are not empty, or somebody else's business
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RemoveEmptyDirectory(int parent, const std::string& name, const std::string& path) {
  CrashPoint("local.rmdir.before");
  if (unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0) {
    const bool in_use = errno == ENOTEMPTY || errno == EEXIST || errno == EBUSY;
    const bool not_ours = errno == EACCES || errno == EPERM;
    if (in_use || not_ours || errno == ENOENT || IsSomethingElse(errno)) return false;
    return ErrnoToStatus(errno, path);
  }
  CrashPoint("local.rmdir.after");
  RETURN_IF_ERROR(SyncOpenDirectory(parent, DirectoryOf(path)));
  return true;
}

}  // namespace holdfast
