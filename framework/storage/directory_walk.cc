#include "framework/storage/directory_walk.h"

#include <dirent.h>
#include <sys/stat.h>

#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "framework/base/status.h"
#include "framework/storage/directory_chain.h"
#include "framework/storage/storage.h"
#include "framework/storage/temporary_name.h"

namespace holdfast {
namespace {

struct Place {
  int directory;
  std::string path;    // of the directory
  std::string prefix;  // of names of objects in it: "" or "a/b/"
};

bool Vanished(int error) { return error == ENOENT || error == ENOTDIR || error == ELOOP || error == ESTALE; }

absl::StatusOr<std::vector<std::string>> EntryNames(const Place& place) {
  FileDescriptor handle = OpenAt(place.directory, ".", O_RDONLY | O_DIRECTORY);
  if (!handle.ok()) return ErrnoToStatus(errno, place.path);
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(handle.get()), closedir);
  if (stream == nullptr) return ErrnoToStatus(errno, place.path);
  handle.Release();  // the stream closes it
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (entry == nullptr) break;
    names.emplace_back(entry->d_name);
  }
  if (errno != 0) return ErrnoToStatus(errno, place.path);
  return names;
}

absl::Status WalkPlace(const Place& place, const Walk& walk);

absl::Status EnterDirectory(const Place& place, const std::string& name, const Walk& walk) {
  const Place inner{-1, absl::StrCat(place.path, "/", name), absl::StrCat(place.prefix, name, "/")};
  if (!absl::StartsWith(inner.prefix, walk.prefix) && !absl::StartsWith(walk.prefix, inner.prefix)) {
    return absl::OkStatus();
  }
  if (walk.enters != nullptr && !walk.enters(inner.prefix)) return absl::OkStatus();
  {
    const FileDescriptor handle = OpenAt(place.directory, name.c_str(), O_RDONLY | O_DIRECTORY);
    if (!handle.ok()) return Vanished(errno) ? absl::OkStatus() : ErrnoToStatus(errno, inner.path);
    RETURN_IF_ERROR(WalkPlace({handle.get(), inner.path, inner.prefix}, walk));
  }
  return walk.left ? walk.left(place.directory, name, inner.path) : absl::OkStatus();
}

absl::Status WalkEntry(const Place& place, const std::string& name, const Walk& walk) {
  const std::string object = absl::StrCat(place.prefix, name);
  const bool temporary = IsTemporaryName(name);
  if (!temporary && !CheckObjectName(object).ok()) return absl::OkStatus();
  struct stat info;
  if (fstatat(place.directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return Vanished(errno) ? absl::OkStatus() : ErrnoToStatus(errno, absl::StrCat(place.path, "/", name));
  }
  if (S_ISDIR(info.st_mode) && !temporary) return EnterDirectory(place, name, walk);
  if (!S_ISREG(info.st_mode)) return absl::OkStatus();
  return walk.file({place.directory, name, absl::StrCat(place.path, "/", name), object, temporary,
                    static_cast<uint64_t>(info.st_size)});
}

absl::Status WalkPlace(const Place& place, const Walk& walk) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, EntryNames(place));
  for (const std::string& name : names) RETURN_IF_ERROR(WalkEntry(place, name, walk));
  return absl::OkStatus();
}

}  // namespace

absl::Status WalkDirectory(const std::string& root, const Walk& walk) {
  ASSIGN_OR_RETURN(const DirectoryChain chain, DirectoryChain::Open(root, "any"));
  return WalkPlace({chain.fd(), root, ""}, walk);
}

}  // namespace holdfast
