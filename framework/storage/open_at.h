#pragma once
// Opening inside a directory that is open.

#include <fcntl.h>

#include <cerrno>

#include "framework/base/file_descriptor.h"

namespace holdfast {

/// Opens `name`, one component, in `directory`; a symbolic link is not followed (ELOOP, ENOTDIR). Not ok, with errno
/// set, if it cannot be opened.
inline FileDescriptor OpenAt(int directory, const char* name, int flags, mode_t mode = 0) {
  return FileDescriptor(
      RetryInterrupted([&] { return openat(directory, name, flags | O_CLOEXEC | O_NOFOLLOW, mode); }));
}

/// A directory by its path, which may lead through links.
inline FileDescriptor OpenDirectory(const std::string& path) { return OpenFile(path, O_RDONLY | O_DIRECTORY); }

}  // namespace holdfast
